package loader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// reels gives video files and decodes them. It is an interface so that the tests of order, horizons and errors need no codec.
type reels interface {
	open(ctx context.Context, path string) (reel, error)
	stats() video.PoolStats
	close()
}

// reel is one open file, until release.
type reel interface {
	plan(p *video.Planner, ordinals []int) []video.Group
	// remote says that reading takes time: then the packets of groups are fetched before a core is taken for decoding.
	remote() bool
	fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error)
	fetchBytes(g video.Group) int64
	// decode decodes groups in order, those that follow each other in one run; from what was fetched, where b is not nil.
	decode(ctx context.Context, b *video.Fetched, groups []video.Group, deliver func(ordinal int, pic video.Frame) error) error
	// identity is a hash of what decides the frames of the file; zero where its store gives no version, and it may become another unseen.
	identity() [32]byte
	size() (width, height int)
	timeNS(ordinal int) int64
	release()
}

// videoStarts is a dataset that says at which time of its video file an episode begins: what the reference's check of times adds
// to a row's own. ok is false where nothing is declared.
type videoStarts interface {
	VideoStart(ctx context.Context, episode int, key string) (ns int64, ok bool, err error)
}

// openReels finds the files and makes the decoder pool, which keeps at most budget bytes of idle ones, where a column needs them.
func (src *source) openReels(budget int64) error {
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo {
			continue
		}
		ds := base(src.ds)
		if fake, ok := ds.(interface{ reels() reels }); ok {
			src.reels = fake.reels()
			return nil
		}
		files := video.LibraryOf(ds)
		if files == nil {
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "the format " + ds.Info().Format + " gives no video files", Hint: "keys= without the video keys"}
		}
		if _, err := video.ActiveBackend(); err != nil {
			return robocache.At(err, robocache.Where{"stream": c.key})
		}
		src.reels = &library{lib: files, pool: video.NewPool(budget)}
		return nil
	}
	return nil
}

// library is the reels of a real dataset.
type library struct {
	lib  *video.Library
	pool *video.Pool
}

func (l *library) open(ctx context.Context, path string) (reel, error) {
	f, err := l.lib.Acquire(ctx, path)
	if err != nil {
		return nil, err
	}
	return film{l.pool, f}, nil
}

func (l *library) stats() video.PoolStats { return l.pool.Stats() }
func (l *library) close()                 { _ = l.pool.Close() }

type film struct {
	pool *video.Pool
	file *video.File
}

func (f film) plan(p *video.Planner, ordinals []int) []video.Group {
	return p.Plan(f.file.Index, ordinals)
}

func (f film) remote() bool { return f.file.Remote() }

func (f film) fetch(ctx context.Context, groups []video.Group) (*video.Fetched, error) {
	return video.Fetch(ctx, f.file, groups)
}

func (f film) fetchBytes(g video.Group) int64 { return video.FetchBytes(f.file, g) }

func (f film) decode(ctx context.Context, b *video.Fetched, groups []video.Group, deliver func(ordinal int, pic video.Frame) error) error {
	return f.pool.Decode(ctx, f.file, b, groups, deliver)
}

// identity covers the place and size of each packet, the codec's own header, and the file's version. Its path is left out: a copy
// that keeps its time timestamps is the same video.
func (f film) identity() [32]byte {
	if !store.Versioned(f.file.Ranged) {
		return [32]byte{}
	}
	h := sha256.New()
	ix := f.file.Index
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
	fmt.Fprintln(h, f.file.Ranged.Size(), f.file.Ranged.Version())
	return [32]byte(h.Sum(nil))
}

func (f film) size() (width, height int) {
	entries := f.file.Index.Entries()
	if len(entries) == 0 {
		return 0, 0
	}
	width, height = entries[0].Width, entries[0].Height
	if entries[0].Rotation%180 != 0 {
		width, height = height, width
	}
	return width, height
}

func (f film) timeNS(ordinal int) int64 { return f.file.Index.TimeNS(ordinal) }

func (f film) release() { f.file.Release() }

// probes bounds how many episodes are asked for a first frame.
const probes = 8

// probe finds the true size of each frame column from its first frame: what metadata declare may lie.
func (src *source) probe(ctx context.Context) error {
	for i := range src.layout.columns {
		c := &src.layout.columns[i]
		if c.source != fromVideo && c.source != fromStills || c.spec.Width != 0 {
			continue
		}
		width, height, err := src.firstSize(ctx, c)
		switch {
		case width > 0 && height > 0:
			src.layout.resize(i, height, width)
		case c.width > 0 && c.height > 0:
			// No frame could be looked at: what is declared holds until one comes, and each is checked against it.
		case err != nil:
			return robocache.At(err, robocache.Where{"stream": c.key})
		default:
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "loader", Where: robocache.Where{"stream": c.key}, Msg: "nothing says the size of the frames", Hint: "image_size=[h, w]"}
		}
		if c.width > 1<<15 || c.height > 1<<15 {
			return &robocache.Error{Class: robocache.ErrResourceLimit, Op: "loader", Where: robocache.Where{"stream": c.key}, Want: "frames of at most 32768×32768", Got: sizeError(c, c.width, c.height).Error()}
		}
	}
	return nil
}

func (src *source) firstSize(ctx context.Context, c *column) (width, height int, err error) {
	tried := 0
	for i := range src.table.Len() {
		if from, to := src.table.Span(i); from == to {
			continue
		}
		if tried++; tried > probes {
			break
		}
		row := []robocache.Row{{Episode: src.table.Episode(i), Index: 0}}
		ref := make([]robocache.FrameRef, 1)
		if err = src.ds.Frames(ctx, c.key, row, ref); err != nil || ref[0].Missing {
			continue
		}
		if c.source == fromStills {
			var info video.StillInfo
			if info, err = video.ImageSize(&ref[0]); err != nil {
				continue
			}
			if info.DType != robocache.Uint8 && c.out == robocache.Uint8 {
				// Sixteen bits or floats that nobody declared as depth.
				src.depthStills(c, info.DType)
			}
			return info.Width, info.Height, nil
		}
		var r reel
		if r, err = src.reels.open(ctx, ref[0].Path); err != nil {
			continue
		}
		width, height = r.size()
		r.release()
		return width, height, nil
	}
	return 0, 0, err
}

// depthStills makes a column of stills one of depth images.
func (src *source) depthStills(c *column, stored robocache.DType) {
	c.spec.Pixel, c.unit = src.cfg.depth()
	c.out = robocache.Float32
	if src.cfg.DepthUnit == "code" && stored == robocache.Uint16 {
		c.spec.Pixel, c.out, c.unit = video.Gray16, robocache.Uint16, ""
	}
	t := &src.layout.tensors[c.entry]
	t.dtype = c.out
	t.shape[len(t.shape)-3] = 1 // shared with the field
	for k := range src.layout.fields {
		if f := &src.layout.fields[k]; f.Key == c.key && !f.Mask {
			f.DType, f.Unit = c.out, c.unit
		}
	}
}
