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

// File is an open MCAP file. Safe for concurrent use.
type File struct {
	Profile, Library string
	Schemas          map[uint16]*Schema
	Channels         map[uint16]*Channel
	Chunks           []Chunk // in file order
	Attachments      []Place
	Metadata         []Place
	Statistics       *Statistics // nil if the file has none
	// Recovered reports whether the file was scanned, because its summary is missing or invalid.
	Recovered bool

	ranged     robocache.Ranged
	limits     Limits
	options    Options
	chunkCache *Chunks
	begin      int64 // of the data section
	end        int64 // end of the data section: the summary, or the first invalid record

	mu        sync.Mutex
	indexing  sync.Mutex // held while the index is built
	index     atomic.Pointer[Index]
	findings  []robocache.Finding
	badChunks sync.Map // numbers of unreadable chunks
	// numbers of chunks that were decompressed completely with the right checksum
	wholeChunks   sync.Map
	longestRecord atomic.Int64 // longest record above shortRecord so far
}

// Options configures Open.
type Options struct {
	// Cache of decompressed chunks, shared with other files. nil means 64 MiB for this file.
	Chunks *Chunks
	Limits Limits // zero means DefaultLimits
	Index  int64  // maximum bytes of the message index; 0 means 1 GiB
	Strict bool   // a damaged chunk is an error; otherwise it is skipped, counted and reported
	Scan   bool   // ignore the summary
}

const (
	defaultBudget = 64 << 20
	// includes footer and summary of most files, so that one request is enough
	firstTail = 64 << 10
	// For a local file, a second read costs less than reading unneeded bytes.
	localTail  = 8 << 10
	maxSummary = 512 << 20
)

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// Open reads header, footer and summary. If the summary is missing or invalid, it scans the data
// section once.
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
	f := &File{ranged: r, limits: opt.Limits, options: opt, chunkCache: opt.Chunks}
	f.clearSummary()
	f.readHeader(ctx)
	var cause error
	if !opt.Scan {
		if cause = guard.Try(func() { f.readSummary(ctx) }); cause == nil {
			return f, nil
		}
		if opt.Strict || !errors.Is(cause, robocache.ErrMalformed) {
			return nil, cause
		}
	}
	f.clearSummary()
	f.Recovered = true
	f.addFinding(
		robocache.SeverityWarning,
		"recovered",
		-1,
		"recovered: "+causeText(cause)+"; the file was scanned",
		"run mcap recover, or record the file again",
		0,
	)
	f.scanFile(ctx)
	return f, nil
}

func causeText(err error) string {
	var e *robocache.Error
	if !errors.As(err, &e) {
		return "a scan was asked for"
	}
	c := *e
	c.Class, c.Op = nil, ""
	return c.Error()
}

// clearSummary discards the content of a summary.
func (f *File) clearSummary() {
	f.Schemas, f.Channels = map[uint16]*Schema{}, map[uint16]*Channel{}
	f.Chunks, f.Attachments, f.Metadata, f.Statistics = nil, nil, nil, nil
}

// readHeader reads the magic and the header.
func (f *File) readHeader(ctx context.Context) {
	if f.ranged.Size() < int64(len(magic)) {
		guard.Fail(
			malformed(
				0,
				"an MCAP file",
				fmt.Sprintf("%d bytes of magic", len(magic)),
				fmt.Sprintf("a file of %d bytes", f.ranged.Size()),
			),
		)
	}
	b := make([]byte, min(f.ranged.Size(), 4096))
	guard.Check(f.ranged.ReadAt(ctx, b, 0))
	if string(b[:len(magic)]) != magic {
		guard.Fail(
			malformed(0, "magic", fmt.Sprintf("% x", magic), fmt.Sprintf("% x", b[:len(magic)])),
		)
	}
	f.begin = int64(len(magic))
	b = b[len(magic):]
	if len(b) < headSize || Op(b[0]) != OpHeader {
		return // a file without a header is accepted
	}
	n := le64(b[1:])
	if n > uint64(len(b)-headSize) {
		if n > 1<<20 || n > uint64(f.ranged.Size()-f.begin-headSize) {
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
		guard.Check(f.ranged.ReadAt(ctx, b, f.begin))
	}
	c := newCursor(b[headSize:headSize+n], f.begin, "header")
	f.Profile, f.Library = c.str(), c.str()
	c.finish()
	f.begin += headSize + int64(n)
}

// readSummary reads footer and summary section. It raises a Malformed error if the summary is
// missing or invalid.
func (f *File) readSummary(ctx context.Context) {
	size := f.ranged.Size()
	if size < f.begin+int64(tailSize) {
		guard.Fail(malformed(size, "no footer: the file ends early", "", ""))
	}
	first := int64(localTail)
	if store.Remote(f.ranged) {
		first = firstTail
	}
	tail := make([]byte, min(size-f.begin, first))
	from := size - int64(len(tail))
	guard.Check(f.ranged.ReadAt(ctx, tail, from))
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
		guard.Check(f.ranged.ReadAt(ctx, more[:from-int64(start)], int64(start)))
		copy(more[from-int64(start):], tail)
		tail, from = more, int64(start)
	}
	sec := tail[int64(start)-from:]
	if crc != 0 {
		// The checksum covers the summary and the footer before the checksum.
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
	// Unknown records are skipped: 0x80 and above are private, others belong to later versions.
	for r := range (&Chunk{Offset: start}).eachRecord(sec) {
		off := start + int64(r.at)
		switch r.op {
		case OpSchema, OpChannel:
			f.defineRecord(r.op, r.content, off)
		case OpChunkIndex:
			k := parseChunkIndex(r.content, off)
			guard.Check(k.checkSizes(f.end, f.limits))
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
	// A summary may omit schemas and channels. They are then only in the chunks.
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

// defineRecord adds a schema or a channel, and reports whether its number was not defined before. A
// number must not be defined twice with different content.
func (f *File) defineRecord(op Op, b []byte, off int64) (isNew bool) {
	if op == OpSchema {
		s := parseSchema(b, off)
		old := f.Schemas[s.ID]
		if old == nil {
			f.Schemas[s.ID] = s
		} else if *old != *s {
			guard.Fail(redefinitionError(off, "schema", s.ID, old.Name, s.Name))
		}
		return old == nil
	}
	c := parseChannel(b, off)
	old := f.Channels[c.ID]
	if old == nil {
		f.Channels[c.ID] = c
	} else if !old.Same(c) {
		guard.Fail(redefinitionError(off, "channel", c.ID, old.Topic, c.Topic))
	}
	return old == nil
}

func redefinitionError(off int64, what string, id uint16, old, new string) error {
	return robocache.Malformed("mcap", robocache.Where{
		"offset": off,
	}, "%s %d is defined twice with other content", what, id).
		Expected(fmt.Sprintf("%.80q", old), fmt.Sprintf("%.80q", new))
}

// addFinding records a finding.
func (f *File) addFinding(
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

// Findings returns the problems found so far by opening and reading.
func (f *File) Findings() []robocache.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.findings)
}

// Close removes the file's chunks from the cache and closes the file.
func (f *File) Close() error {
	f.chunkCache.records.Forget(func(k chunkKey) bool { return k.file == f })
	return f.ranged.Close()
}

// Remote reports whether reads of the file wait for a network.
func (f *File) Remote() bool { return store.Remote(f.ranged) }

// Budget returns the budget of the chunk cache, which other files may share.
func (f *File) Budget() int64 { return f.chunkCache.budget }
