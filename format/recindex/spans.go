package recindex

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/unzstd"
	"github.com/goatnote-inc/robocache/store"
)

// spansPart is the part of records with the bytes of a file that opening reads.
const spansPart = "bytes"

const (
	spansVersion = 1
	maxSpanBytes = 1 << 20 // of one file
)

// WrapStore returns a store whose files answer reads from the index, if the index has the bytes.
// Update records the bytes that are read until Finish. The result is s itself without a session.
func (s *Session) WrapStore(st store.Store) store.Store {
	if s == nil {
		return st
	}
	return store.Overlay(st, func(ctx context.Context, name string) (robocache.Ranged, error) {
		return s.openIndexed(ctx, st, name)
	})
}

// openIndexed opens a file whose first reads may be answered from the index.
func (s *Session) openIndexed(
	ctx context.Context, st store.Store, name string,
) (robocache.Ranged, error) {
	s.mu.Lock()
	isFinished := s.isFinished
	s.mu.Unlock()
	_, hasRecord := s.recordOf(spansPart, name)
	if !hasRecord && isFinished {
		return st.Open(ctx, name)
	}
	e, err := s.entryOf(ctx, st, name)
	if err != nil {
		return st.Open(ctx, name) // returns the error that it has without an index
	}
	e.Name = name
	if p, ok := s.Lookup(spansPart, name, e.Size, e.Version); ok {
		if f := parseSpans(p.Own, e.Size); f != nil {
			f.open = func(ctx context.Context) (robocache.Ranged, error) { return st.Open(ctx, name) }
			f.name, f.isRemote = name, robocache.IsRemote(st)
			return f, nil
		}
	}
	r, err := st.Open(ctx, name)
	if err != nil || isFinished {
		return r, err
	}
	if !store.Versioned(r) || r.Size() != e.Size {
		return r, nil
	}
	s.mu.Lock()
	reads, isKnown := s.reads[name]
	if !isKnown {
		reads = &spanLog{version: r.Version(), isOpen: true}
		s.reads[name] = reads
	}
	s.mu.Unlock()
	if !isKnown {
		s.Record(spansPart, e, reads.payload)
	}
	if !s.isRecording {
		return r, nil
	}
	return &spanRecorder{Ranged: r, reads: reads}, nil
}

// spanLog holds the bytes that were read from a file, which may be opened several times.
type spanLog struct {
	version string

	mu     sync.Mutex
	spans  []store.Span
	bytes  int64
	isOpen bool // reads are recorded
}

// keep records bytes that were read.
func (l *spanLog) keep(p []byte, off int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes += int64(len(p)); l.bytes > maxSpanBytes {
		l.isOpen = false
	}
	if l.isOpen {
		l.spans = append(l.spans, store.Span{Off: off, P: slices.Clone(p)})
	}
}

// payload returns the recorded bytes, and ends the recording.
func (l *spanLog) payload() *Payload {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOpen = false
	if len(l.spans) == 0 {
		return nil
	}
	return &Payload{Own: encodeSpans(l.spans, l.version)}
}

// spanRecorder is a file whose reads are recorded.
type spanRecorder struct {
	robocache.Ranged
	reads *spanLog
}

// ReadAt reads from the file.
func (r *spanRecorder) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := r.Ranged.ReadAt(ctx, p, off); err != nil {
		return err
	}
	r.reads.keep(p, off)
	return nil
}

// ReadRanges reads from the file.
func (r *spanRecorder) ReadRanges(ctx context.Context, spans []store.Span) error {
	if err := store.ReadRanges(ctx, r.Ranged, spans); err != nil {
		return err
	}
	for _, span := range spans {
		r.reads.keep(span.P, span.Off)
	}
	return nil
}

func (r *spanRecorder) Remote() bool    { return store.Remote(r.Ranged) }
func (r *spanRecorder) Versioned() bool { return store.Versioned(r.Ranged) }

var spanEncoder = sync.OnceValue(func() *zstd.Encoder {
	// Options that are constant cannot fail.
	e, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	return e
})

// encodeSpans encodes spans without those that lie inside others.
func encodeSpans(spans []store.Span, version string) []byte {
	slices.SortStableFunc(spans, func(a, b store.Span) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(len(b.P), len(a.P)))
	})
	end := int64(-1)
	var raw []byte
	for _, span := range spans {
		if next := span.Off + int64(len(span.P)); next > end {
			raw = AppendText(AppendNumber(raw, span.Off), string(span.P))
			end = next
		}
	}
	out := AppendText([]byte{spansVersion}, version)
	out = binary.AppendUvarint(out, uint64(len(raw)))
	return spanEncoder().EncodeAll(raw, out)
}

// parseSpans returns a file of size bytes that has recorded spans, or nil if b is damaged.
func parseSpans(b []byte, size int64) *replayedFile {
	if len(b) == 0 || b[0] != spansVersion {
		return nil
	}
	c := NewCursor(b[1:])
	f := &replayedFile{size: size, version: c.Text()}
	length := c.Number()
	const maxOverhead = 64 << 10 // of the offsets and lengths
	if c.Err() != nil || length > maxSpanBytes+maxOverhead {
		return nil
	}
	raw := make([]byte, length)
	if unzstd.Fill(raw, c.Rest(), unzstd.Verify) != nil {
		return nil
	}
	for c, end := NewCursor(raw), int64(-1); len(c.Rest()) > 0; {
		span := store.Span{Off: c.Number(), P: c.Bytes()}
		next := span.Off + int64(len(span.P))
		if c.Err() != nil || next <= end || next > size {
			return nil
		}
		end = next
		f.spans = append(f.spans, span)
	}
	isSorted := slices.IsSortedFunc(f.spans, func(a, b store.Span) int {
		return cmp.Compare(a.Off, b.Off)
	})
	if !isSorted {
		return nil
	}
	return f
}

// replayedFile answers reads from spans of the index. It opens the file for other reads, which must
// have the version of the spans.
type replayedFile struct {
	name     string
	size     int64
	version  string
	isRemote bool
	spans    []store.Span // offsets and ends increase
	open     func(ctx context.Context) (robocache.Ranged, error)

	mu       sync.Mutex
	file     robocache.Ranged // nil until it is needed
	isClosed bool
}

// copySpan copies a range from the span that holds it. It returns false if none does.
func (f *replayedFile) copySpan(p []byte, off int64) bool {
	i := sort.Search(len(f.spans), func(i int) bool { return f.spans[i].Off > off }) - 1
	if i < 0 {
		return false
	}
	span := f.spans[i]
	if off+int64(len(p)) > span.Off+int64(len(span.P)) {
		return false
	}
	copy(p, span.P[off-span.Off:])
	return true
}

// openedFile returns the file itself.
func (f *replayedFile) openedFile(ctx context.Context) (robocache.Ranged, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := robocache.Where{"file": f.name}
	if f.isClosed {
		return nil, robocache.Misuse("read", where, "the file is closed")
	}
	if f.file != nil {
		return f.file, nil
	}
	r, err := f.open(ctx)
	if err != nil {
		return nil, err
	}
	if r.Version() != f.version || r.Size() != f.size {
		_ = r.Close()
		return nil, robocache.Temporary("read", where, "the file changed after it was opened").
			Expected(f.version, r.Version()).
			WithCause(store.ErrChanged).WithHint("Open the dataset again.")
	}
	f.file = r
	return r, nil
}

// ReadAt fills p from the spans or from the file.
func (f *replayedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.copySpan(p, off) {
		return nil
	}
	r, err := f.openedFile(ctx)
	if err != nil {
		return err
	}
	return r.ReadAt(ctx, p, off)
}

// ReadRanges fills the spans.
func (f *replayedFile) ReadRanges(ctx context.Context, spans []store.Span) error {
	var rest []store.Span
	for _, span := range spans {
		if !f.copySpan(span.P, span.Off) {
			rest = append(rest, span)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	r, err := f.openedFile(ctx)
	if err != nil {
		return err
	}
	return store.ReadRanges(ctx, r, rest)
}

// Size returns the size of the file.
func (f *replayedFile) Size() int64 { return f.size }

// Version returns the version that the file had when it was recorded.
func (f *replayedFile) Version() string { return f.version }

// Remote reports whether reads that the spans do not answer use a network.
func (f *replayedFile) Remote() bool { return f.isRemote }

// Close closes the file if it was opened.
func (f *replayedFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isClosed = true
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
