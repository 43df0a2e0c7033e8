package arrivals

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Log is an open log of arrivals. Safe for concurrent use.
type Log struct {
	path  string
	terms Terms

	mu         sync.Mutex
	header     *header // nil: the file does not exist yet
	arrivals   []Arrival
	known      map[string]int // position in arrivals by ID
	digests    []string       // digests of prefixes, in steps of digestStep
	hash       hash.Hash
	boundaries map[boundaryKey]Boundary
	read       int64 // bytes of complete lines that were read
}

type boundaryKey struct {
	run   string
	epoch int64
}

// Open returns the log at path. A file that does not exist is created by the first Append. A log
// with other terms is ErrMisuse.
func Open(path string, terms Terms) (*Log, error) {
	l := &Log{
		path:       path,
		terms:      terms,
		known:      map[string]int{},
		hash:       sha256.New(),
		boundaries: map[boundaryKey]Boundary{},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, l.fileError(err)
	}
	defer f.Close()
	return l, l.readTail(f)
}

// Path returns the file of the log.
func (l *Log) Path() string { return l.path }

// ID returns the identity of the log, or "" if it does not exist yet.
func (l *Log) ID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.header == nil {
		return ""
	}
	return l.header.ID
}

// Len returns the number of arrivals that were read so far.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.arrivals)
}

// Prefix returns the first n arrivals. The caller must not change them. n must be at most Len.
func (l *Log) Prefix(n int) []Arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrivals[:n:n]
}

// Position returns the position of an arrival by its ID. ok is false if there is none.
func (l *Log) Position(id string) (position int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	position, ok = l.known[id]
	return position, ok
}

// Digest returns the hash of the log's identity and of its first n arrivals, or "" if there are
// fewer.
func (l *Log) Digest(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n >= len(l.digests) {
		return ""
	}
	return l.digests[n]
}

// Boundary returns the boundary of an epoch of a run, among the records that were read so far.
func (l *Log) Boundary(run string, epoch int64) (b Boundary, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok = l.boundaries[boundaryKey{run, epoch}]
	return b, ok
}

// Refresh reads the records that were appended since the last call.
func (l *Log) Refresh() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) && l.header == nil {
		return nil
	}
	if err != nil {
		return l.fileError(err)
	}
	defer f.Close()
	return l.readTail(f)
}

// pollInterval is the time between two looks for a boundary that another rank writes.
const pollInterval = 50 * time.Millisecond

// Await returns the boundary of an epoch of a run once rank 0 has written it. After timeout it
// returns ErrTemporary.
func (l *Log) Await(
	ctx context.Context, run string, epoch int64, timeout time.Duration,
) (Boundary, error) {
	deadline := time.Now().Add(timeout)
	for {
		if err := l.Refresh(); err != nil {
			return Boundary{}, err
		}
		if b, ok := l.Boundary(run, epoch); ok {
			return b, nil
		}
		if time.Now().After(deadline) {
			where := robocache.Where{"file": l.path, "run": run, "epoch": epoch}
			return Boundary{}, robocache.Temporary("follow", where,
				"rank 0 has not written the boundary of this epoch within %v", timeout).
				WithHint("Check that all ranks have the same log and the same run, and that "+
					"rank 0 is alive; %s waits longer.", robocache.Option("follow", "timeout_s", 3600))
		}
		select {
		case <-ctx.Done():
			return Boundary{}, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// Update appends the arrivals and the boundary that decide returns. The file is locked meanwhile, so
// that decide sees every record of other writers. decide may return no boundary. Update creates the
// file if there is none.
func (l *Log) Update(decide func() (list []Arrival, b *Boundary, err error)) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return l.fileError(err)
	}
	defer f.Close()
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return l.fileError(err)
	}
	if err := l.readTail(f); err != nil {
		return err
	}
	var lines []byte
	add := func(kind string, content any) error {
		line, err := encodeRecord(kind, content)
		if err == nil && len(line) > maxRecord {
			err = robocache.ResourceLimit("follow", robocache.Where{"file": l.path}, "a record").
				Expected(fmt.Sprintf("at most %d bytes", maxRecord), fmt.Sprint(len(line)))
		}
		lines = append(lines, line...)
		return err
	}
	isNew := l.header == nil
	if isNew {
		var id [12]byte
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		h := &header{Version: logVersion, ID: hex.EncodeToString(id[:]), Terms: l.terms}
		if err := add(headerKind, h); err != nil {
			return err
		}
	}
	l.mu.Unlock()
	list, b, err := decide()
	l.mu.Lock()
	if err != nil {
		return err
	}
	for i := range list {
		if err := add(arrivalKind, &list[i]); err != nil {
			return err
		}
	}
	if b != nil {
		if err := add(boundaryKind, b); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := l.appendLines(f, lines); err != nil {
		return l.fileError(err)
	}
	if isNew {
		if err := syncFolder(filepath.Dir(l.path)); err != nil {
			return l.fileError(err)
		}
	}
	return l.readTail(f)
}

// appendLines writes lines after the last complete one. An incomplete line of a killed writer is
// removed first. Caller must hold the lock of the file.
func (l *Log) appendLines(f *os.File, lines []byte) error {
	if err := f.Truncate(l.read); err != nil {
		return err
	}
	if _, err := f.WriteAt(lines, l.read); err != nil {
		_ = f.Truncate(l.read)
		return err
	}
	return f.Sync()
}

// syncFolder makes a new entry of a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readTail reads the complete lines after those that were read before. An incomplete or damaged line
// at the end is ignored. Caller must hold l.mu.
func (l *Log) readTail(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return l.fileError(err)
	}
	if info.Size() < l.read {
		return robocache.Malformed("follow", robocache.Where{"file": l.path},
			"the log of arrivals became shorter").
			Expected(fmt.Sprintf("at least %d bytes", l.read), fmt.Sprint(info.Size())).
			WithHint("Logs are append-only. Restore the file, or start a new run.")
	}
	tail := make([]byte, info.Size()-l.read)
	if _, err := f.ReadAt(tail, l.read); err != nil && err != io.EOF {
		return l.fileError(err)
	}
	for len(tail) > 0 {
		end := bytes.IndexByte(tail, '\n')
		if end < 0 {
			return nil // the writer was killed, or still writes
		}
		content, ok := decodeRecord(tail[:end])
		if !ok {
			if bytes.IndexByte(tail[end+1:], '\n') < 0 {
				return nil // the last line: its writer was killed
			}
			return robocache.Malformed("follow", robocache.Where{"file": l.path, "offset": l.read},
				"the log of arrivals is damaged").
				WithHint("Restore the file from a copy, or name a new one: %s.",
					robocache.Option("follow", "log", "FILE"))
		}
		if err := l.addRecord(content, tail[:end]); err != nil {
			return err
		}
		l.read += int64(end) + 1
		tail = tail[end+1:]
	}
	return nil
}

// addRecord adds a record to the state in memory. Caller must hold l.mu.
func (l *Log) addRecord(content any, line []byte) error {
	malformed := func(message string) error {
		return robocache.Malformed("follow", robocache.Where{"file": l.path, "offset": l.read},
			"the log of arrivals: %s", message)
	}
	if h, isHeader := content.(*header); isHeader {
		if l.header != nil {
			return malformed("a second header")
		}
		return l.setHeader(h, line)
	}
	if l.header == nil {
		return malformed("no header")
	}
	switch r := content.(type) {
	case *Arrival:
		if _, twice := l.known[r.ID]; twice || r.Rows < 0 {
			return malformed("the episode " + r.ID + " twice, or without rows")
		}
		l.known[r.ID] = len(l.arrivals)
		l.arrivals = append(l.arrivals, *r)
		l.hash.Write(line)
		l.digests = append(l.digests, hex.EncodeToString(l.hash.Sum(nil)[:12]))
	case *Boundary:
		if r.Arrivals < 0 || r.Arrivals > len(l.arrivals) || r.Samples < 0 {
			return malformed("a boundary beyond the arrivals")
		}
		key := boundaryKey{r.Run, r.Epoch}
		if _, decided := l.boundaries[key]; !decided {
			l.boundaries[key] = *r
		}
	}
	return nil
}

// setHeader checks the header of the file. Caller must hold l.mu.
func (l *Log) setHeader(h *header, line []byte) error {
	where := robocache.Where{"file": l.path}
	switch {
	case h.Version != logVersion:
		return robocache.Unsupported(
			"follow",
			where,
			"version %d of the log of arrivals",
			h.Version,
		)
	case h.Terms != l.terms:
		return robocache.Misuse("follow", where, "the log records the results of another rule").
			Expected(fmt.Sprintf("where %q, version %q", h.Where, h.Policy),
				fmt.Sprintf("where %q, version %q", l.terms.Where, l.terms.Policy)).
			WithHint("Name another file: %s.", robocache.Option("follow", "log", "FILE"))
	}
	l.header = h
	l.hash.Write(line)
	l.digests = append(l.digests, hex.EncodeToString(l.hash.Sum(nil)[:12]))
	return nil
}

// fileError returns the error of an operation on the file.
func (l *Log) fileError(err error) error {
	where := robocache.Where{"file": l.path}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, fs.ErrNotExist) {
		return robocache.Misuse("follow", where, "the log of arrivals cannot be written").
			WithCause(err).
			WithHint("Name a file that all ranks can write: %s.", robocache.Option("follow", "log", "FILE"))
	}
	return robocache.Temporary("follow", where, "the log of arrivals").WithCause(err)
}
