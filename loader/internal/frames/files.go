package frames

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Files opens and decodes video files. Tests of order, horizons and errors replace it to run
// without a codec. Safe for concurrent use.
type Files interface {
	// Open returns the file at path. The caller must call Release.
	Open(ctx context.Context, path string) (File, error)
	// Stats returns what the decoders did so far.
	Stats() video.PoolStats
	// Close releases the decoders. Files must not be used after it.
	Close()
}

// File is an open video file. Safe for concurrent use. The caller must call Release.
type File interface {
	// Plan groups frame numbers into runs that are decoded together. The result is valid until the
	// next call with p. A group of frames that do not exist has Cost 0 or less.
	Plan(p *video.Planner, numbers []int) []video.Group
	// Remote reports whether reads are slow, so that packets are fetched before a core is taken.
	Remote() bool
	// Fetch reads the packets of groups. It returns an error only if ctx is canceled; read errors
	// are reported by Decode. The caller must call Release on the result.
	Fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error)
	// FetchBytes returns the bytes of g's packets.
	FetchBytes(g video.Group) int64
	// Decode decodes groups in order and calls deliver for each frame. Adjacent groups are decoded
	// in one run. It reads packets from b if b is not nil. The frame is valid during deliver.
	Decode(
		ctx context.Context, b *video.Fetched, groups []video.Group,
		deliver func(number int, f video.Frame) error,
	) error
	// Identity returns a hash of everything that determines the file's frames. It is zero if the
	// store reports no version, since the file may then change unnoticed.
	Identity() [32]byte
	// Size returns the size of the frames in pixels, after rotation.
	Size() (width, height int)
	// TimeNS returns the time of a frame in nanoseconds.
	TimeNS(number int) int64
	// Release ends the use of the file.
	Release()
}

// ReadsToDecode marks a File whose Decode waits for reads or a device. Such a Decode takes cores
// itself, so decodeTask takes none.
type ReadsToDecode interface{ ReadsToDecode() }

// Library implements Files for the videos of a dataset.
type Library struct {
	Videos   *video.Library
	decoders *video.Pool
	split    *video.Split  // nil: all frames are decoded on the host
	takeCore func() func() // used by split for frames that the host decodes
}

// NewLibrary returns a library that keeps at most budget bytes of idle decoders.
func NewLibrary(lib *video.Library, budget int64) *Library {
	return &Library{Videos: lib, decoders: video.NewPool(budget)}
}

// Split adds a device that decodes a share of the frames (video.NewSplit). It returns the number of
// workers that the device needs in addition to one per core. takeCore is called for each decode on
// the host.
func (l *Library) Split(
	b video.DeviceBackend, budget int64, wait bool, takeCore func() func(),
) (workers int) {
	l.split, l.takeCore = video.NewSplit(l.decoders, b, budget, wait), takeCore
	return l.split.Slots()
}

// Open returns a file of the library. The caller must call Release.
func (l *Library) Open(ctx context.Context, path string) (File, error) {
	f, err := l.Videos.Acquire(ctx, path)
	if err != nil {
		return nil, err
	}
	if l.split != nil {
		return splitFile{libraryFile{l.decoders, f}, l}, nil
	}
	return libraryFile{l.decoders, f}, nil
}

// Stats returns what the decoders of host and device did so far.
func (l *Library) Stats() video.PoolStats {
	s := l.decoders.Stats()
	if l.split != nil {
		s.Add(l.split.Device())
	}
	return s
}

// SplitStats returns how many frames the host and the device decoded. It returns nil without a
// device.
func (l *Library) SplitStats() *video.SplitStats {
	if l.split == nil {
		return nil
	}
	s := l.split.Stats()
	return &s
}

// Close closes the decoders. The dataset owns and closes Videos.
func (l *Library) Close() {
	_ = l.decoders.Close()
	if l.split != nil {
		_ = l.split.Close()
	}
}

// splitFile is decoded on a device or on the host. Its Decode takes a core only while the host
// decodes.
type splitFile struct {
	libraryFile
	library *Library
}

// ReadsToDecode implements the marker interface.
func (f splitFile) ReadsToDecode() {}

func (f splitFile) Decode(
	ctx context.Context, b *video.Fetched, groups []video.Group,
	deliver func(number int, f video.Frame) error,
) error {
	return f.library.split.Decode(ctx, f.File, b, groups, f.library.takeCore, deliver)
}

// libraryFile is a file that is decoded on the host.
type libraryFile struct {
	pool *video.Pool
	*video.File
}

func (f libraryFile) Plan(p *video.Planner, numbers []int) []video.Group {
	return p.Plan(f.Index, numbers)
}

func (f libraryFile) Fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error) {
	return video.Fetch(ctx, f.File, groups)
}

func (f libraryFile) FetchBytes(g video.Group) int64 { return video.FetchBytes(f.File, g) }

func (f libraryFile) Decode(
	ctx context.Context, b *video.Fetched, groups []video.Group,
	deliver func(number int, f video.Frame) error,
) error {
	return f.pool.Decode(ctx, f.File, b, groups, deliver)
}

// Identity hashes the offset and size of each packet, the codec headers and the file's version. The
// path is excluded: a copy with the same modification time is the same video.
func (f libraryFile) Identity() [32]byte {
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

func (f libraryFile) Size() (width, height int) {
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

func (f libraryFile) TimeNS(number int) int64 { return f.Index.TimeNS(number) }
