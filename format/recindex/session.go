package recindex

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Off is the value of OpenOptions.RecordingIndex that ignores an index.
const Off = "off"

// settleTime is the age of the last modification from which on a version of a local file is final.
// It exceeds the resolution of modification times.
const settleTime = 100 * time.Millisecond

// Session is the use of an index while a dataset is opened. The nil Session has no index. Safe for
// concurrent use.
type Session struct {
	log         *Log // nil without records
	ignored     error
	isRecording bool // of Update
	started     time.Time

	mu         sync.Mutex
	isFinished bool
	isUsed     bool // a format looked for records
	entries    map[string]store.Entry
	reads      map[string]*spanLog
	pending    map[recordKey]*pendingRecord
	seen       map[recordKey]bool // records of recordings that exist
	readCount  int                // recordings that were read, because the index lacks them
	unsettled  int                // recordings that were modified too recently
}

// pendingRecord is a record that Update will append.
type pendingRecord struct {
	size    int64
	version string
	payload func() *Payload // nil result: nothing to record
}

type sessionKey struct{}

// Begin returns the session of opening the dataset at the root of s, or nil if it has no index.
// hasIndex reports whether the root of s has a file Name.
func Begin(
	ctx context.Context, s store.Store, opt robocache.OpenOptions, hasIndex bool,
) (*Session, error) {
	if own, ok := ctx.Value(sessionKey{}).(*Session); ok {
		own.isUsed = true
		return own, nil
	}
	var l *Log
	var err error
	switch {
	case opt.RecordingIndex == Off:
		return nil, nil
	case opt.RecordingIndex != "":
		l, err = Load(ctx, opt.RecordingIndex)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"option": "recording_index"})
		}
	case !hasIndex:
		return nil, nil
	default:
		l, err = loadFrom(ctx, s, Name, Name)
		if errors.Is(err, robocache.ErrNotFound) {
			return nil, nil
		}
		isIgnored := robocache.Bad(err) || errors.Is(err, robocache.ErrResourceLimit)
		if err != nil && (!isIgnored || robocache.IsMachineLimit(err)) {
			return nil, err
		}
	}
	return newSession(l, err), nil
}

// newSession returns a session that uses a log. ignored is the reason why it has none, or nil.
func newSession(l *Log, ignored error) *Session {
	return &Session{
		log:     l,
		ignored: ignored,
		started: time.Now(),
		entries: map[string]store.Entry{},
		reads:   map[string]*spanLog{},
		pending: map[recordKey]*pendingRecord{},
		seen:    map[recordKey]bool{},
	}
}

// SetListing tells the session the versions of files. The files of entries are not asked for again.
func (s *Session) SetListing(entries []store.Entry) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if e.Err == nil {
			s.entries[e.Name] = e
		}
	}
}

// entryOf returns the version of a file.
func (s *Session) entryOf(
	ctx context.Context, st store.Store, name string,
) (store.Entry, error) {
	s.mu.Lock()
	e, ok := s.entries[name]
	s.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := st.Stat(ctx, name)
	if err != nil {
		return e, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[name] = e
	return e, nil
}

// recordOf returns the newest record of a recording.
func (s *Session) recordOf(part, name string) (r record, ok bool) {
	if s == nil || s.log == nil {
		return r, false
	}
	r, ok = s.log.records[recordKey{part, name}]
	return r, ok && !r.isRemoved
}

// Lookup returns the payload of a recording with this size and version. part names the kind of
// payload of the format.
func (s *Session) Lookup(part, name string, size int64, version string) (p Payload, ok bool) {
	if s == nil {
		return p, false
	}
	if s.isRecording {
		s.mu.Lock()
		s.seen[recordKey{part, name}] = true
		s.mu.Unlock()
	}
	r, ok := s.recordOf(part, name)
	if !ok || r.size != size || r.version != version || version == "" {
		return p, false
	}
	return s.log.payload(&r), true
}

// Record passes the payload of a recording that was read to Update. payload is called at most once,
// after the dataset was opened. It may return nil. e is the entry of the recording from before it
// was read. Other sessions only count the recording.
func (s *Session) Record(part string, e store.Entry, payload func() *Payload) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isFinished {
		return
	}
	s.readCount++
	if !s.isRecording || e.Version == "" {
		return
	}
	if ns, ok := e.Modified(); ok && ns >= s.started.Add(-settleTime).UnixNano() {
		s.unsettled++
		return
	}
	s.pending[recordKey{part, e.Name}] = &pendingRecord{e.Size, e.Version, payload}
}

// Finish ends the use of the index by opening. It returns the findings about the index.
func (s *Session) Finish() []robocache.Finding {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isFinished = true
	update := "Run " + robocache.Command("index URI") + "."
	switch {
	case s.isRecording:
		return nil
	case s.ignored != nil:
		return []robocache.Finding{{
			Severity: robocache.SeverityWarning, Code: "index-ignored",
			Where:   robocache.Where{"file": Name},
			Message: "the index of recordings is not used: " + s.ignored.Error(),
			Hint:    "Delete it. " + update,
		}}
	case s.readCount > 0:
		return []robocache.Finding{{
			Severity: robocache.SeverityInfo, Code: "index-behind",
			Where: robocache.Where{"file": s.log.Path},
			Message: fmt.Sprintf("%d files are new or changed since the index was written: "+
				"they were read", s.readCount),
			Hint: update, Count: int64(s.readCount),
		}}
	}
	return nil
}

// pathOf returns the path or URI of the index of the dataset at uri.
func pathOf(uri string, opt robocache.OpenOptions) string {
	if opt.RecordingIndex != "" && opt.RecordingIndex != Off {
		return opt.RecordingIndex
	}
	base, query := uri, ""
	if i := strings.IndexAny(uri, "?#"); i >= 0 && strings.Contains(uri, "://") {
		base, query = uri[:i], uri[i:]
	}
	return strings.TrimRight(base, "/") + "/" + Name + query
}

// Find reads the index of the dataset at uri: that of opt.RecordingIndex, otherwise the one in the
// dataset. A missing index is ErrNotFound.
func Find(ctx context.Context, uri string, opt robocache.OpenOptions) (*Log, error) {
	return Load(ctx, pathOf(uri, opt))
}
