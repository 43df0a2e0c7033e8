package container

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// File is an open MCAP file.
type File struct {
	Profile, Library string
	Schemas          map[uint16]*Schema
	Channels         map[uint16]*Channel
	Chunks           []Chunk // in the file's order
	Attachments      []Place
	Metadata         []Place
	Statistics       *Statistics // nil where the file has none
	// there is no summary, or it cannot be believed: the file was scanned
	Recovered bool

	r     robocache.Ranged
	lim   Limits
	opt   Options
	cache *Chunks
	begin int64 // of the data section
	end   int64 // of it: where the summary, or what is no record, begins

	mu       sync.Mutex
	indexing sync.Mutex // held while the index is made
	index    atomic.Pointer[Index]
	findings []robocache.Finding
	bad      sync.Map // numbers of chunks that could not be read
	// numbers of chunks that were decompressed to their end and had the right sum
	whole   sync.Map
	longest atomic.Int64 // of the records that were found to be longer than shortRecord
}

// Options are the choices of a reader.
type Options struct {
	// where decompressed chunks are kept, with those of other files; nil = 64 MiB for this one
	Chunks *Chunks
	Limits Limits // zero = DefaultLimits
	Index  int64  // bytes of its index of messages; 0 = 1 GiB
	Strict bool   // a damaged chunk is an error; else it is skipped, counted and found
	Scan   bool   // do not believe the summary
}

const (
	defaultBudget = 64 << 20
	firstTail     = 64 << 10 // one request brings footer and summary of most files
	// of a file here, where a second read costs less than bytes that are not wanted
	localTail  = 8 << 10
	maxSummary = 512 << 20
)

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// Open reads head, footer and summary. Without a summary, or with one that does not hold, the data
// section is scanned once.
func Open(ctx context.Context, r robocache.Ranged, opt Options) (_ *File, err error) {
	defer guard.Recover("mcap open", &err)
	if opt.Chunks == nil {
		opt.Chunks = NewChunks(0)
	}
	if opt.Limits == (Limits{}) {
		opt.Limits = DefaultLimits
	}
	if opt.Index <= 0 {
		opt.Index = 1 << 30
	}
	f := &File{r: r, lim: opt.Limits, opt: opt, cache: opt.Chunks}
	f.clear()
	f.head(ctx)
	var cause error
	if !opt.Scan {
		if cause = guard.Try(func() { f.summary(ctx) }); cause == nil {
			return f, nil
		}
		if opt.Strict || !errors.Is(cause, robocache.ErrMalformed) {
			return nil, cause
		}
	}
	f.clear()
	f.Recovered = true
	f.found(
		robocache.SeverityWarning,
		"recovered",
		-1,
		"recovered: "+reason(cause)+"; the file was scanned",
		"mcap recover, or record it anew",
		0,
	)
	f.scan(ctx)
	return f, nil
}

func reason(err error) string {
	var e *robocache.Error
	if !errors.As(err, &e) {
		return "a scan was asked for"
	}
	c := *e
	c.Class, c.Op = nil, ""
	return c.Error()
}

// clear forgets what a summary said.
func (f *File) clear() {
	f.Schemas, f.Channels = map[uint16]*Schema{}, map[uint16]*Channel{}
	f.Chunks, f.Attachments, f.Metadata, f.Statistics = nil, nil, nil, nil
}

// head reads the magic and the header.
func (f *File) head(ctx context.Context) {
	if f.r.Size() < int64(len(magic)) {
		guard.Fail(
			malformed(
				0,
				"an MCAP file",
				fmt.Sprintf("%d bytes of magic", len(magic)),
				fmt.Sprintf("a file of %d bytes", f.r.Size()),
			),
		)
	}
	b := make([]byte, min(f.r.Size(), 4096))
	guard.Check(f.r.ReadAt(ctx, b, 0))
	if string(b[:len(magic)]) != magic {
		guard.Fail(
			malformed(0, "magic", fmt.Sprintf("% x", magic), fmt.Sprintf("% x", b[:len(magic)])),
		)
	}
	f.begin = int64(len(magic))
	b = b[len(magic):]
	if len(b) < headSize || Op(b[0]) != OpHeader {
		return // a file without a header: its records are read all the same
	}
	n := le64(b[1:])
	if n > uint64(len(b)-headSize) {
		if n > 1<<20 || n > uint64(f.r.Size()-f.begin-headSize) {
			guard.Fail(
				malformed(
					f.begin,
					"length of the header",
					"inside the file, at most 1 MiB",
					fmt.Sprint(n),
				),
			)
		}
		b = make([]byte, headSize+n)
		guard.Check(f.r.ReadAt(ctx, b, f.begin))
	}
	c := parse(b[headSize:headSize+n], f.begin, "header")
	f.Profile, f.Library = c.str(), c.str()
	c.end()
	f.begin += headSize + int64(n)
}

// summary reads footer and summary section. Malformed means that the file has none that can be
// believed.
func (f *File) summary(ctx context.Context) {
	size := f.r.Size()
	if size < f.begin+int64(tailSize) {
		guard.Fail(malformed(size, "no footer: the file ends early", "", ""))
	}
	first := int64(localTail)
	if store.Remote(f.r) {
		first = firstTail
	}
	tail := make([]byte, min(size-f.begin, first))
	from := size - int64(len(tail))
	guard.Check(f.r.ReadAt(ctx, tail, from))
	foot := tail[len(tail)-tailSize:]
	footAt := size - int64(tailSize)
	if string(foot[headSize+footerSize:]) != magic {
		guard.Fail(
			malformed(
				size-int64(len(magic)),
				"no footer: the file does not end in its magic",
				"",
				"",
			),
		)
	}
	if Op(foot[0]) != OpFooter || le64(foot[1:]) != footerSize {
		guard.Fail(
			malformed(
				footAt,
				"footer record",
				fmt.Sprintf("opcode 02 and %d bytes", footerSize),
				fmt.Sprintf("opcode %02x and %d bytes", foot[0], le64(foot[1:])),
			),
		)
	}
	start, crc := le64(foot[headSize:]), binary.LittleEndian.Uint32(foot[headSize+16:])
	if start == 0 {
		guard.Fail(malformed(footAt, "no summary", "", ""))
	}
	if start < uint64(f.begin) || start > uint64(footAt) {
		guard.Fail(
			malformed(
				footAt,
				"start of the summary",
				fmt.Sprintf("between %d and %d", f.begin, footAt),
				fmt.Sprint(start),
			),
		)
	}
	if footAt-int64(start) > maxSummary {
		guard.Fail(
			tooLarge(
				int64(start),
				fmt.Sprintf("a summary of at most %d bytes", maxSummary),
				fmt.Sprint(footAt-int64(start)),
			),
		)
	}
	if int64(start) < from {
		more := make([]byte, size-int64(start))
		guard.Check(f.r.ReadAt(ctx, more[:from-int64(start)], int64(start)))
		copy(more[from-int64(start):], tail)
		tail, from = more, int64(start)
	}
	sec := tail[int64(start)-from:]
	if crc != 0 {
		// The sum runs over the summary and the footer up to the sum itself.
		if have := crc32.ChecksumIEEE(sec[:len(sec)-len(magic)-4]); have != crc {
			guard.Fail(
				malformed(
					int64(start),
					"check sum of the summary",
					fmt.Sprintf("%08x", crc),
					fmt.Sprintf("%08x", have),
				),
			)
		}
	}
	f.end = int64(start)
	f.parseSummary(sec[:len(sec)-tailSize], int64(start))
}

func (f *File) parseSummary(sec []byte, start int64) {
	// unknown records are skipped: 80 and above are private, lower ones of a later version
	for r := range (&Chunk{Offset: start}).walk(sec) {
		off := start + int64(r.at)
		switch r.op {
		case OpSchema, OpChannel:
			f.define(r.op, r.content, off)
		case OpChunkIndex:
			k := parseChunkIndex(r.content, off)
			guard.Check(k.check(f.end, f.lim))
			k.unindexed = k.IndexLength == 0
			f.Chunks = append(f.Chunks, *k)
		case OpStatistics:
			f.Statistics = parseStatistics(r.content, off)
		case OpAttachmentIndex, OpMetadataIndex:
			p := parsePlace(r.op, r.content, off)
			if p.Offset < f.begin || p.Length < headSize || p.Offset > f.end-p.Length {
				guard.Fail(
					malformed(
						off,
						"an index points outside the data section",
						fmt.Sprintf("between %d and %d", f.begin, f.end),
						fmt.Sprintf("%d bytes at %d", p.Length, p.Offset),
					),
				)
			}
			if r.op == OpAttachmentIndex {
				f.Attachments = append(f.Attachments, p)
			} else {
				f.Metadata = append(f.Metadata, p)
			}
		}
	}
	slices.SortFunc(f.Chunks, func(a, b Chunk) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := 1; i < len(f.Chunks); i++ {
		if p := &f.Chunks[i-1]; p.Offset+p.Length > f.Chunks[i].Offset {
			guard.Fail(
				malformed(
					f.Chunks[i].Offset,
					"chunks overlap in the file",
					fmt.Sprintf("%d or more", p.Offset+p.Length),
					fmt.Sprint(f.Chunks[i].Offset),
				),
			)
		}
	}
	// A summary need not repeat schemas and channels. Then they are in the chunks alone.
	if len(f.Channels) == 0 &&
		(len(f.Chunks) > 0 || f.Statistics == nil || f.Statistics.Messages > 0) {
		guard.Fail(malformed(start, "the summary lists no channels", "", ""))
	}
	for _, c := range f.Channels {
		if c.Schema != 0 && f.Schemas[c.Schema] == nil {
			guard.Fail(
				malformed(
					start,
					fmt.Sprintf(
						"the summary lists no schema %d, which channel %d names",
						c.Schema,
						c.ID,
					),
					"",
					"",
				),
			)
		}
	}
}

// define notes a schema or a channel; one number has one content.
func (f *File) define(op Op, b []byte, off int64) {
	if op == OpSchema {
		s := parseSchema(b, off)
		if old := f.Schemas[s.ID]; old != nil && *old != *s {
			guard.Fail(clash(off, "schema", s.ID, old.Name, s.Name))
		}
		f.Schemas[s.ID] = s
		return
	}
	c := parseChannel(b, off)
	if old := f.Channels[c.ID]; old != nil && !old.Same(c) {
		guard.Fail(clash(off, "channel", c.ID, old.Topic, c.Topic))
	}
	f.Channels[c.ID] = c
}

func clash(off int64, what string, id uint16, old, new string) error {
	return robocache.Malformed("mcap", robocache.Where{"offset": off}, "%s %d is defined twice with other content", what, id).
		Expected(fmt.Sprintf("%.80q", old), fmt.Sprintf("%.80q", new))
}

// found records a finding.
func (f *File) found(
	sev robocache.Severity,
	code string,
	off int64,
	msg, hint string,
	count int64,
) {
	w := robocache.Where{}
	if off >= 0 {
		w["offset"] = off
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.findings) < 1000 {
		f.findings = append(
			f.findings,
			robocache.Finding{
				Severity: sev,
				Code:     code,
				Where:    w,
				Message:  msg,
				Hint:     hint,
				Count:    count,
			},
		)
	}
}

// Findings are what opening and reading met so far.
func (f *File) Findings() []robocache.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.findings)
}

// Close gives the file back.
func (f *File) Close() error {
	f.cache.kept.Forget(func(k chunkKey) bool { return k.file == f })
	return f.r.Close()
}

// Remote says that reads of the file wait for a store.
func (f *File) Remote() bool { return store.Remote(f.r) }

// Budget is what the cache of chunks may hold, of this file and of those that share it.
func (f *File) Budget() int64 { return f.cache.budget }
