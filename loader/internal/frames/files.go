package frames

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Files gives video files and decodes them. It is an interface so that the tests of order, horizons and errors need no codec.
type Files interface {
	Open(ctx context.Context, path string) (File, error)
	Stats() video.PoolStats
	Close()
}

// File is one open file, until Release.
type File interface {
	Plan(p *video.Planner, numbers []int) []video.Group
	// Remote says that reading takes time: then the packets of groups are fetched before a core is taken for decoding.
	Remote() bool
	Fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error)
	FetchBytes(g video.Group) int64
	// Decode decodes groups in order, those that follow each other in one run; from what was fetched, where b is not nil.
	Decode(ctx context.Context, b *video.Fetched, groups []video.Group, deliver func(number int, f video.Frame) error) error
	// Identity is a hash of what decides the frames of the file; zero where its store gives no version, and it may become another unseen.
	Identity() [32]byte
	Size() (width, height int)
	TimeNS(number int) int64
	Release()
}

// ReadsToDecode marks a File whose decoding waits for reads that Fetch does not make ahead: it takes no core for its whole time.
type ReadsToDecode interface{ ReadsToDecode() }

// Library is the files of a real dataset.
type Library struct {
	Videos *video.Library
	pool   *video.Pool
	split  *video.Split // nil: all is decoded on the host
	core   func() func()
}

// NewLibrary keeps at most budget bytes of idle decoders.
func NewLibrary(lib *video.Library, budget int64) *Library {
	return &Library{Videos: lib, pool: video.NewPool(budget)}
}

// Split has a device decode too (video.NewSplit); it gives how many workers beyond those of the host's cores that keeps busy. core takes a core for what
// the host decodes.
func (l *Library) Split(b video.DeviceBackend, budget int64, wait bool, core func() func()) (workers int) {
	l.split, l.core = video.NewSplit(l.pool, b, budget, wait), core
	return l.split.Slots()
}

// Open gives a file of the library.
func (l *Library) Open(ctx context.Context, path string) (File, error) {
	f, err := l.Videos.Acquire(ctx, path)
	if err != nil {
		return nil, err
	}
	if l.split != nil {
		return splitFile{file{l.pool, f}, l}, nil
	}
	return file{l.pool, f}, nil
}

// Stats says what the decoders did, on the host and the device.
func (l *Library) Stats() video.PoolStats {
	s := l.pool.Stats()
	if l.split != nil {
		s.Add(l.split.Device())
	}
	return s
}

// SplitStats says what was decoded where; nil where there is no device.
func (l *Library) SplitStats() *video.SplitStats {
	if l.split == nil {
		return nil
	}
	s := l.split.Stats()
	return &s
}

// Close closes the decoders; the library is the dataset's.
func (l *Library) Close() {
	_ = l.pool.Close()
	if l.split != nil {
		_ = l.split.Close()
	}
}

// splitFile is decoded on a device, or on the host, for which it takes a core itself.
type splitFile struct {
	file
	l *Library
}

// ReadsToDecode marks that decoding waits for something else than a core.
func (f splitFile) ReadsToDecode() {}

func (f splitFile) Decode(ctx context.Context, b *video.Fetched, groups []video.Group, deliver func(number int, f video.Frame) error) error {
	return f.l.split.Decode(ctx, f.File, b, groups, f.l.core, deliver)
}

type file struct {
	pool *video.Pool
	*video.File
}

func (f file) Plan(p *video.Planner, numbers []int) []video.Group { return p.Plan(f.Index, numbers) }

func (f file) Fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error) {
	return video.Fetch(ctx, f.File, groups)
}

func (f file) FetchBytes(g video.Group) int64 { return video.FetchBytes(f.File, g) }

func (f file) Decode(ctx context.Context, b *video.Fetched, groups []video.Group, deliver func(number int, f video.Frame) error) error {
	return f.pool.Decode(ctx, f.File, b, groups, deliver)
}

// Identity covers the place and size of each packet, the codec's own header, and the file's version. Its path is left out: a copy
// that keeps its modification time is the same video.
func (f file) Identity() [32]byte {
	if !store.Versioned(f.Ranged) {
		return [32]byte{}
	}
	h := sha256.New()
	ix := f.Index
	var b [32]byte
	for d := range ix.NumSamples() {
		s := ix.Sample(d)
		binary.LittleEndian.PutUint64(b[:], uint64(s.Offset))
		binary.LittleEndian.PutUint64(b[8:], uint64(s.Size))
		binary.LittleEndian.PutUint64(b[16:], uint64(s.PTS))
		binary.LittleEndian.PutUint64(b[24:], uint64(s.Entry))
		h.Write(b[:])
	}
	for _, e := range ix.Entries() {
		fmt.Fprintf(h, "%+v\n", e)
	}
	fmt.Fprintln(h, f.Ranged.Size(), f.Ranged.Version())
	return [32]byte(h.Sum(nil))
}

func (f file) Size() (width, height int) {
	entries := f.Index.Entries()
	if len(entries) == 0 {
		return 0, 0
	}
	width, height = entries[0].Width, entries[0].Height
	if entries[0].Rotation%180 != 0 {
		width, height = height, width
	}
	return width, height
}

func (f file) TimeNS(number int) int64 { return f.Index.TimeNS(number) }
