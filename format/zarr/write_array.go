package zarr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

var le = binary.LittleEndian

const (
	chunkBytes = 1 << 20   // of a chunk of numbers
	imageBytes = 256 << 10 // of images: one is often read for itself
	textChunk  = 4096      // rows
	zstdLevel  = 3
)

// outStream is an array that grows.
type outStream struct {
	f          *robocache.Feature
	name       string
	dir        string
	shape      []int // of a row as it is written
	row        int   // bytes; 0 for texts
	per        int   // rows of a chunk
	text       bool
	mask       bool
	gray       bool // of encoded images one channel of three is kept
	attrs      map[string]any
	buf        []byte
	count      int // rows in buf
	lead       int // rows of its chunk before them, of the shard before
	chunk      int // number of the chunk that buf is
	rows       int64
	timestamps []int64
	missing    int64
	bytes      atomic.Int64
	saved      *outMark
}

// outMark is where a stream stood before an episode that may fail.
type outMark struct {
	buf          []byte
	count, chunk int
	rows         int64
	timestamps   int
	missing      int64
}

func (w *writer) stream(f *robocache.Feature, name string) *outStream {
	own := *f
	s := &outStream{f: &own, name: name, dir: "data/" + name}
	if s.text = f.Kind == robocache.KindText || f.Kind == robocache.KindEvent; s.text {
		s.per = textChunk
		return s
	}
	if !f.Scalar() {
		s.shape = f.Shape
	}
	s.row = f.DType.Size()
	for _, d := range s.shape {
		s.row *= d
	}
	s.per = max(1, chunkBytes/max(s.row, 64))
	return s
}

// append adds rows; whole chunks are packed and written by others.
func (w *writer) append(s *outStream, b []byte) error {
	if s.row == 0 {
		return nil // rows without elements: the shape says how many
	}
	for len(b) > 0 {
		n := min((s.per-s.lead-s.count)*s.row, len(b))
		if s.buf == nil {
			s.buf = make([]byte, 0, s.per*s.row)
		}
		s.buf = append(s.buf, b[:n]...)
		s.count += n / s.row
		if b = b[n:]; s.lead+s.count == s.per {
			w.flush(s)
		}
	}
	return w.going()
}

// errFailed stands for the error that packed takes from the packers.
var errFailed = errors.New("a chunk could not be written")

// going ends the writing where there is no use in going on.
func (w *writer) going() error {
	if w.failed.Load() {
		return errFailed
	}
	return w.ctx.Err()
}

func (w *writer) appendTexts(s *outStream, texts []string) error {
	for _, t := range texts {
		s.buf = le.AppendUint32(s.buf, uint32(len(t)))
		s.buf = append(s.buf, t...)
		if s.count++; s.lead+s.count == s.per {
			w.flush(s)
		}
	}
	return w.going()
}

// flush gives the chunk that was begun to be packed and written. The last one is filled up: chunks
// are stored whole.
func (w *writer) flush(s *outStream) {
	if s.count == 0 {
		return
	}
	s.rows += int64(s.count)
	b, count, name := s.buf, s.count, path.Join(s.dir, s.chunkName())
	edge := w.opt.Shard != nil && count < s.per
	if edge {
		name = s.edge(s.chunk)
	}
	s.buf, s.count, s.lead, s.chunk = nil, 0, 0, s.chunk+1
	pack := crash.Func("zarr write", func() error {
		if edge { // Merge puts it together with those of the shards beside it
			if err := w.put(name, b); err != nil {
				return err
			}
			return nil
		}
		if s.text {
			for range s.per - count {
				b = le.AppendUint32(b, 0)
			}
			b = append(le.AppendUint32(make([]byte, 0, len(b)+4), uint32(s.per)), b...)
		} else {
			b = append(b, make([]byte, (s.per-count)*s.row)...)
		}
		z := encoders.Get().(*zstd.Encoder)
		packed := z.EncodeAll(b, make([]byte, 0, len(b)/4+64))
		encoders.Put(z)
		s.bytes.Add(int64(len(packed)))
		return w.put(name, packed)
	})
	w.work.Go(func() error {
		err := pack()
		if err != nil {
			w.failed.Store(true)
		}
		return err
	})
}

var encoders = sync.Pool{New: func() any {
	// The checksum is left out, as numcodecs does. Single segments always say their content size,
	// below 256 bytes too: numcodecs up to 0.16.1 refuses frames that do not.
	enc, err := zstd.NewWriter(
		nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(zstdLevel)),
		zstd.WithEncoderCRC(false),
		zstd.WithSingleSegment(true),
	)
	if err != nil {
		panic(err) // The options are constants that zstd accepts.
	}
	return enc
}}

// chunkName is the key of a chunk: chunks hold whole rows.
func (s *outStream) chunkName() string {
	return strconv.Itoa(s.chunk) + strings.Repeat(".0", len(s.shape))
}

// mark remembers where the streams stand, for rewind.
func (w *writer) mark() {
	for _, s := range w.all() {
		s.saved = &outMark{
			buf:        bytes.Clone(s.buf),
			count:      s.count,
			chunk:      s.chunk,
			rows:       s.rows,
			timestamps: len(s.timestamps),
			missing:    s.missing,
		}
	}
}

// rewind goes back to the mark. Chunks that were written since are written again, or pruned.
func (w *writer) rewind() {
	// a chunk on its way must not come after the one that takes its place; its error was seen
	// (failed)
	_ = w.work.Wait()
	for _, s := range w.all() {
		m := s.saved
		s.buf, s.count, s.chunk, s.rows, s.timestamps, s.missing = m.buf, m.count, m.chunk, m.rows, s.timestamps[:m.timestamps], m.missing
	}
}

// prune removes chunks beyond the last, which an episode that was left out has made.
func (w *writer) prune(s *outStream) error {
	for k := s.chunk; ; k++ {
		name := path.Join(s.dir, (&outStream{chunk: k, shape: s.shape}).chunkName())
		if _, err := w.dst.Stat(w.ctx, name); err != nil {
			return nil
		}
		if err := w.dst.Remove(w.ctx, name); err != nil {
			return err
		}
	}
}

// descr is NumPy's name of a type; "" where it has none.
func descr(t robocache.DType) string {
	return map[robocache.DType]string{
		robocache.Bool: "|b1", robocache.Int8: "|i1", robocache.Int16: "<i2", robocache.Int32: "<i4", robocache.Int64: "<i8", robocache.Uint8: "|u1", robocache.Uint16: "<u2",
		robocache.Uint32: "<u4", robocache.Uint64: "<u8", robocache.Float16: "<f2", robocache.Float32: "<f4", robocache.Float64: "<f8",
	}[t]
}

// meta is .zarray.
func (s *outStream) meta() map[string]any {
	shape, chunks := []int64{s.rows}, []int{s.per}
	for _, d := range s.shape {
		shape, chunks = append(shape, int64(d)), append(chunks, max(d, 1))
	}
	m := map[string]any{
		"zarr_format": 2,
		"shape":       shape,
		"chunks":      chunks,
		"order":       "C",
		"filters":     nil,
		"compressor":  map[string]any{"id": "zstd", "level": zstdLevel},
	}
	switch {
	case s.text:
		m["dtype"], m["fill_value"], m["filters"] = "|O", "", []any{
			map[string]any{"id": "vlen-utf8"},
		}
	case s.f.DType == robocache.Bool:
		m["dtype"], m["fill_value"] = "|b1", false
	default:
		m["dtype"], m["fill_value"] = descr(s.f.DType), 0
	}
	return m
}

// attributes is .zattrs: what the layout itself cannot say of a stream.
func (s *outStream) attributes() map[string]any {
	if s.attrs != nil {
		return s.attrs
	}
	if s.f.Key == "" || s.f.Key == "task" {
		return nil
	}
	own := map[string]any{"kind": string(s.f.Kind)}
	if s.f.Kind == robocache.KindVideo {
		own["kind"] = string(robocache.KindImage)
	}
	if s.f.Interpolation != "" {
		own["interpolation"] = s.f.Interpolation
	}
	if len(s.f.Rotations) > 0 {
		own["rotations"] = s.f.Rotations
	}
	if s.f.Relative != nil {
		own["relative"] = s.f.Relative
	}
	if len(s.f.Unsummable) > 0 {
		own["unsummable"] = s.f.Unsummable
	}
	if s.f.Unit != "" {
		own["unit"] = s.f.Unit
	}
	if len(s.f.Names) > 0 {
		own["names"] = string(s.f.Names)
	}
	if s.f.Kind == robocache.KindNumeric && len(s.f.Shape) == 0 {
		own["scalar"] = true
	}
	return map[string]any{"robocache_key": s.f.Key, "robocache_feature": own}
}

// prepareImages settles size and type of a camera's pixels by its first image.
func (w *writer) prepareImages(
	f *robocache.Feature,
	eps []int,
) (s *outStream, why string, err error) {
	own := *f
	switch {
	case f.Kind == robocache.KindImage:
		info, ok, err := w.firstImage(f, eps)
		if err != nil {
			return s, why, err
		}
		if !ok {
			return nil, "it has no images", nil
		}
		own.Height, own.Width, own.Channels, own.DType = info.Height, info.Width, info.Channels, info.DType
		if own.DType == robocache.Uint16 && own.Channels != 1 {
			own.DType = robocache.Uint8
		}
	case video.LibraryOf(w.src) == nil:
		return nil, "the dataset does not give its video files", nil
	case f.Depth != nil:
		return nil, "depth that is coded in video is not written", nil
	case f.Height <= 0 || f.Width <= 0:
		return nil, "nothing says the size of its images", nil
	default:
		own.DType, own.Channels = robocache.Uint8, 3
	}
	own.Shape = []int{own.Height, own.Width, own.Channels}
	s = w.stream(&own, w.name(f.Key))
	s.shape = own.Shape
	s.row = own.Height * own.Width * own.Channels * own.DType.Size()
	s.per = max(1, imageBytes/s.row)
	s.gray = own.Channels == 1 && own.DType == robocache.Uint8
	return s, "", nil
}

// firstImage looks for an image in the first rows of the episodes.
func (w *writer) firstImage(
	f *robocache.Feature,
	eps []int,
) (info video.StillInfo, ok bool, err error) {
	for _, e := range eps {
		if _, err := w.bearable(robocache.Where{"stream": f.Key}, func() error {
			for _, row := range reader.Rows(e, 0, min(w.src.Len(e), 100)) {
				var ref [1]robocache.FrameRef
				if err := w.src.Frames(w.ctx, f.Key, []robocache.Row{row}, ref[:]); err != nil {
					return err
				}
				if !ref[0].Missing {
					imageSize, err := video.ImageSize(&ref[0])
					if err != nil {
						return err
					}
					info, ok = imageSize, true
					return nil
				}
			}
			return nil
		}); err != nil {
			return info, ok, err
		}
		if ok {
			break
		}
	}
	return info, ok, nil
}

// copyImages decodes a block of images and appends them.
func (w *writer) copyImages(ctx context.Context, s *outStream, rows []robocache.Row) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := w.src.Frames(ctx, s.f.Key, rows, refs); err != nil {
		return err
	}
	out := make([]byte, len(rows)*s.row)
	spec := &video.Spec{Width: s.f.Width, Height: s.f.Height, Pixel: video.RGB8}
	for i := range refs {
		if refs[i].Missing {
			s.missing++
		}
	}
	if err := video.EachFrame(
		ctx,
		video.LibraryOf(w.src),
		refs,
		video.Each{Threads: runtime.GOMAXPROCS(0)},
		func(at []int, frame video.Frame) error {
			first := out[at[0]*s.row:][:s.row]
			switch {
			case frame == nil && refs[at[0]].Missing:
				return nil
			case frame == nil:
				return robocache.At(
					s.still(&refs[at[0]], first),
					robocache.Where{"row": rows[at[0]].Index},
				)
			}
			if err := frame.Convert(spec, first); err != nil {
				return err
			}
			for _, i := range at[1:] {
				copy(out[i*s.row:][:s.row], first)
			}
			return nil
		},
	); err != nil {
		return err
	}
	return w.append(s, out)
}

// still puts one image's pixels into dst.
func (s *outStream) still(ref *robocache.FrameRef, dst []byte) error {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.Height != s.f.Height || info.Width != s.f.Width {
		return robocache.Unsupported("zarr write", nil, "an image of another size than the first").
			Expected(fmt.Sprintf("%d×%d", s.f.Height, s.f.Width), fmt.Sprintf("%d×%d", info.Height, info.Width))
	}
	if r := ref.Raw; r != nil && r.Channels == s.f.Channels && r.DType == s.f.DType && !r.BGR {
		line := r.Width * r.Channels * r.DType.Size()
		stride := r.Stride
		if stride == 0 {
			stride = line
		}
		for y := range r.Height {
			copy(dst[y*line:(y+1)*line], r.Pix[y*stride:])
		}
		return nil
	}
	switch {
	case s.gray:
		rgb := make([]byte, 3*len(dst))
		if err := video.DecodeImage(ref, &video.Spec{Pixel: video.RGB8}, rgb); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = rgb[3*i]
		}
		return nil
	case s.f.Channels == 1 && s.f.DType == robocache.Uint16:
		return video.DecodeImage(ref, &video.Spec{Pixel: video.Gray16}, dst)
	case s.f.Channels == 3 && s.f.DType == robocache.Uint8:
		return video.DecodeImage(ref, &video.Spec{Pixel: video.RGB8}, dst)
	}
	return robocache.Unsupported(
		"zarr write",
		nil,
		"encoded images of %d channels of %s",
		s.f.Channels,
		s.f.DType,
	)
}
