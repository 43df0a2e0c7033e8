package recindex

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Report describes an index after Update.
type Report struct {
	Path       string   `json:"path"`
	Format     string   `json:"format"`
	Episodes   int      `json:"num_episodes"`
	Recordings int      `json:"recordings"` // records that count
	Added      int      `json:"added"`
	Changed    int      `json:"changed"`
	Removed    int      `json:"removed"`
	Bytes      int64    `json:"bytes"` // size of the index
	Position   Position `json:"position"`
	// Findings are those of the dataset.
	Findings []robocache.Finding `json:"findings"`
}

// Update opens the dataset at uri. It appends a record for each recording that the index lacks or
// that changed, and a removal for each one that is gone. Only these recordings are read. The index
// is opt.RecordingIndex, otherwise the file Name in the dataset. Safe with several writers at once.
func Update(
	ctx context.Context, uri string, opt robocache.OpenOptions,
) (_ *Report, err error) {
	path := pathOf(uri, opt)
	defer robocache.LocateIn(&err, "dataset", robocache.Redact(uri))
	if opt.RecordingIndex == Off {
		return nil, robocache.Misuse("index", nil, "recording_index").
			Expected("the path of the index", Off)
	}
	opt.Split, opt.Episodes, opt.RecordingIndex = "", nil, ""
	report := &Report{}
	for pass := range 2 {
		s, err := report.openRecording(ctx, uri, path, opt)
		if err != nil {
			return nil, err
		}
		if err := s.save(ctx, path, report); err != nil {
			return nil, robocache.At(err, robocache.Where{"file": robocache.Redact(path)})
		}
		if s.unsettled == 0 || pass > 0 {
			break
		}
		select { // recordings that were modified just now
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * settleTime):
		}
	}
	return report, nil
}

// openRecording opens the dataset with a session that records, and fills in the description of the
// dataset.
func (r *Report) openRecording(
	ctx context.Context, uri, path string, opt robocache.OpenOptions,
) (*Session, error) {
	l, err := Load(ctx, path)
	if errors.Is(err, robocache.ErrNotFound) {
		l, err = newLog(), nil
	}
	if err != nil {
		return nil, err
	}
	s := newSession(l, nil)
	s.isRecording = true
	ds, err := robocache.Open(context.WithValue(ctx, sessionKey{}, s), uri, opt)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	_ = s.Finish()
	info := ds.Info()
	if !s.isUsed {
		return nil, robocache.Unsupported("index", nil, "a dataset that opens without an index").
			Expected("a folder of MCAP, rosbag2 or HDF5 recordings, or LeRobot v2", info.Format).
			WithHint("Open the dataset as it is.")
	}
	r.Path, r.Format = robocache.Redact(path), info.Format
	r.Episodes, r.Findings = info.Episodes, info.Findings
	return s, nil
}

// save appends the records of the session to the index.
func (s *Session) save(ctx context.Context, path string, report *Report) error {
	if local, ok := store.LocalPath(path); ok {
		return s.saveLocally(ctx, local, report)
	}
	folder, name := store.Above(path)
	w, err := store.OpenWritable(folder)
	if err != nil {
		return err
	}
	defer store.Close(w)
	l, err := loadFrom(ctx, w, name, path)
	if errors.Is(err, robocache.ErrNotFound) {
		l, err = s.log, nil
	}
	if err != nil {
		return err
	}
	added := s.encodePending(l, report)
	if len(added) == 0 && l.Path != "" {
		return report.describe(l.header(), nil, l)
	}
	content := append(l.compacted(), added...)
	if err := replaceFile(ctx, w, name, content); err != nil {
		return err
	}
	return report.describe(content, nil, nil)
}

// replaceFile writes a file as a whole.
func replaceFile(ctx context.Context, w store.Writable, name string, content []byte) error {
	f, err := w.Create(ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Commit()
}

// describe fills in the state of the index: that of l, or of its content.
func (r *Report) describe(content, added []byte, l *Log) (err error) {
	if l == nil || len(added) > 0 {
		if l, err = parseLog(append(slices.Clip(content), added...)); err != nil {
			return err
		}
	}
	r.Recordings, r.Bytes, r.Position = l.Len(), l.end, l.Position()
	return nil
}

// encodePending encodes the records that a log lacks, and counts them.
func (s *Session) encodePending(l *Log, report *Report) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := newEncoder(l)
	keys := make([]recordKey, 0, len(s.pending))
	for key := range s.pending {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b recordKey) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.part, b.part))
	})
	for _, key := range keys {
		p := s.pending[key]
		old, isKnown := l.records[key]
		isNewer := isKnown && (old.sequence > s.log.sequence || s.log.identity != l.identity)
		if isNewer && !old.isRemoved && old.size == p.size && old.version == p.version {
			continue // another writer added it
		}
		payload := p.payload()
		if payload == nil || !e.addEntry(key, p.size, p.version, payload) {
			continue
		}
		if isKnown && !old.isRemoved {
			report.Changed++
		} else {
			report.Added++
		}
	}
	for _, key := range l.sortedKeys(0) {
		r := l.records[key]
		isNewer := s.log.identity == l.identity && r.sequence > s.log.sequence
		if r.isRemoved || s.seen[key] || isNewer || s.log.identity != l.identity {
			continue
		}
		e.sequence++
		e.putRemoval(e.sequence, key)
		report.Removed++
	}
	return e.out
}

// saveLocally appends the records to a local index under its lock.
func (s *Session) saveLocally(ctx context.Context, path string, report *Report) error {
	f, err := lockIndex(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close() // releases the lock
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	l, err := parseLocked(content, s.log)
	if err != nil {
		return err
	}
	added := s.encodePending(l, report)
	const minCompaction = 1 << 20 // a smaller log is not worth it
	if l.dead > minCompaction && l.dead > l.end/2 {
		w, err := store.OpenWritable(filepath.Dir(path))
		if err != nil {
			return err
		}
		defer store.Close(w)
		whole := append(l.compacted(), added...)
		if err := replaceFile(ctx, w, filepath.Base(path), whole); err != nil {
			return err
		}
		return report.describe(whole, nil, nil)
	}
	from := l.end
	if len(content) < headerSize {
		from, added = 0, append(l.header(), added...)
	}
	if int64(len(content)) > from {
		if err := f.Truncate(from); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		if _, err := f.WriteAt(added, from); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return report.describe(content[:from:from], added, l)
}

// parseLocked parses the content of a local index. A file that is empty, or holds the beginning of
// a header, becomes the log fresh.
func parseLocked(content []byte, fresh *Log) (*Log, error) {
	n := min(len(content), len(magic))
	if len(content) < headerSize && string(content[:n]) == magic[:n] {
		if fresh.sequence > 0 { // another process deleted the file
			return newLog(), nil
		}
		return fresh, nil
	}
	return parseLog(content)
}

// lockWait is the time between two attempts to lock an index.
const lockWait = 5 * time.Millisecond

// lockIndex opens a local index for writing and locks it. The kernel releases the lock when the
// file is closed or the process ends.
func lockIndex(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, writeError(err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		isBusy := errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		if err == nil {
			opened, err := f.Stat()
			if err == nil && !opened.Mode().IsRegular() {
				err = fs.ErrInvalid
			}
			if err != nil {
				f.Close()
				return nil, writeError(err)
			}
			if named, err := os.Stat(path); err == nil && os.SameFile(opened, named) {
				return f, nil
			}
		}
		f.Close() // busy, or another writer has replaced the file
		if err != nil && !isBusy {
			return nil, writeError(err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockWait):
		}
	}
}

// writeError returns the error of an index that cannot be written.
func writeError(err error) error {
	return robocache.Misuse("index", nil, "the index cannot be written").
		WithCause(err).
		WithHint("Name another file: %s. To open the dataset with it, pass %s.",
			robocache.Command("index URI --out=FILE"),
			robocache.Option("recording_index", "FILE"))
}
