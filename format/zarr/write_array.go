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
	chunkBytes = 1 << 20   // size of a chunk of numbers
	imageBytes = 256 << 10 // size of a chunk of images, which are often read one by one
	textChunk  = 4096      // rows of a chunk of texts
	zstdLevel  = 3
)

// outStream is an array that is being written.
type outStream struct {
	f            *robocache.Feature
	name         string
	dir          string
	shape        []int // shape of a row as written
	rowBytes     int   // bytes of a row; 0 for texts
	chunkRows    int   // rows of a chunk
	text         bool
	mask         bool
	gray         bool // store one of three channels of encoded images
	attrs        map[string]any
	buf          []byte
	bufferedRows int // rows in buf
	leadingRows  int // rows of the current chunk that belong to the previous shard
	chunk        int // number of the current chunk
	rows         int64
	timestamps   []int64
	missing      int64
	bytes        atomic.Int64
	saved        *outMark
}

// outMark is the state of a stream before an episode that may fail.
type outMark struct {
	buf          []byte
	count, chunk int
	rows         int64
	timestamps   int
	missing      int64
}

func (w *writer) newStream(f *robocache.Feature, name string) *outStream {
	own := *f
	s := &outStream{f: &own, name: name, dir: "data/" + name}
	if s.text = f.Kind == robocache.KindText || f.Kind == robocache.KindEvent; s.text {
		s.chunkRows = textChunk
		return s
	}
	if !f.Scalar() {
		s.shape = f.Shape
	}
	s.rowBytes = f.DType.Size()
	for _, d := range s.shape {
		s.rowBytes *= d
	}
	s.chunkRows = max(1, chunkBytes/max(s.rowBytes, 64))
	return s
}

// appendRows adds rows. Full chunks are compressed and written in the background.
func (w *writer) appendRows(s *outStream, b []byte) error {
	if s.rowBytes == 0 {
		return nil // rows without elements: only the shape has their number
	}
	for len(b) > 0 {
		n := min((s.chunkRows-s.leadingRows-s.bufferedRows)*s.rowBytes, len(b))
		if s.buf == nil {
			s.buf = make([]byte, 0, s.chunkRows*s.rowBytes)
		}
		s.buf = append(s.buf, b[:n]...)
		s.bufferedRows += n / s.rowBytes
		if b = b[n:]; s.leadingRows+s.bufferedRows == s.chunkRows {
			w.flushChunk(s)
		}
	}
	return w.checkRunning()
}

// errFailed means that a chunk could not be written. waitForChunks replaces it by the actual error.
var errFailed = errors.New("a chunk could not be written")

// checkRunning returns an error if the writing has failed or was canceled.
func (w *writer) checkRunning() error {
	if w.failed.Load() {
		return errFailed
	}
	return w.ctx.Err()
}

func (w *writer) appendTexts(s *outStream, texts []string) error {
	for _, t := range texts {
		s.buf = le.AppendUint32(s.buf, uint32(len(t)))
		s.buf = append(s.buf, t...)
		if s.bufferedRows++; s.leadingRows+s.bufferedRows == s.chunkRows {
			w.flushChunk(s)
		}
	}
	return w.checkRunning()
}

// flushChunk starts compressing and writing the current chunk. An incomplete chunk is padded,
// because chunks are stored whole.
func (w *writer) flushChunk(s *outStream) {
	if s.bufferedRows == 0 {
		return
	}
	s.rows += int64(s.bufferedRows)
	b, count, name := s.buf, s.bufferedRows, path.Join(s.dir, s.chunkName())
	edge := w.opt.Shard != nil && count < s.chunkRows
	if edge {
		name = s.edgeName(s.chunk)
	}
	s.buf, s.bufferedRows, s.leadingRows, s.chunk = nil, 0, 0, s.chunk+1
	pack := crash.Func("zarr write", func() error {
		if edge { // Merge joins it with the edges of neighboring shards
			if err := w.putFile(name, b); err != nil {
				return err
			}
			return nil
		}
		if s.text {
			for range s.chunkRows - count {
				b = le.AppendUint32(b, 0)
			}
			b = append(le.AppendUint32(make([]byte, 0, len(b)+4), uint32(s.chunkRows)), b...)
		} else {
			b = append(b, make([]byte, (s.chunkRows-count)*s.rowBytes)...)
		}
		z := encoders.Get().(*zstd.Encoder)
		packed := z.EncodeAll(b, make([]byte, 0, len(b)/4+64))
		encoders.Put(z)
		s.bytes.Add(int64(len(packed)))
		return w.putFile(name, packed)
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
	// Frames have no checksum, as in numcodecs. Single segments always contain their content size,
	// even below 256 bytes: numcodecs up to 0.16.1 rejects frames without it.
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

// chunkName returns the key of the current chunk. Chunks contain whole rows.
func (s *outStream) chunkName() string {
	return strconv.Itoa(s.chunk) + strings.Repeat(".0", len(s.shape))
}

// saveMarks saves the state of the streams for rewind.
func (w *writer) saveMarks() {
	for _, s := range w.allStreams() {
		s.saved = &outMark{
			buf:        bytes.Clone(s.buf),
			count:      s.bufferedRows,
			chunk:      s.chunk,
			rows:       s.rows,
			timestamps: len(s.timestamps),
			missing:    s.missing,
		}
	}
}

// rewind restores the saved state. Chunks that were written since then are overwritten or pruned.
func (w *writer) rewind() {
	// A pending chunk must not overwrite its replacement. Its error is already known (failed).
	_ = w.work.Wait()
	for _, s := range w.allStreams() {
		m := s.saved
		s.buf, s.bufferedRows, s.chunk = m.buf, m.count, m.chunk
		s.rows, s.missing = m.rows, m.missing
		s.timestamps = s.timestamps[:m.timestamps]
	}
}

// pruneChunks removes the chunks behind the last one, which come from a skipped episode.
func (w *writer) pruneChunks(s *outStream) error {
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

// numpyType returns NumPy's name of a type, or "" if NumPy has none.
func numpyType(t robocache.DType) string {
	return map[robocache.DType]string{
		robocache.Bool:    "|b1",
		robocache.Int8:    "|i1",
		robocache.Int16:   "<i2",
		robocache.Int32:   "<i4",
		robocache.Int64:   "<i8",
		robocache.Uint8:   "|u1",
		robocache.Uint16:  "<u2",
		robocache.Uint32:  "<u4",
		robocache.Uint64:  "<u8",
		robocache.Float16: "<f2",
		robocache.Float32: "<f4",
		robocache.Float64: "<f8",
	}[t]
}

// arrayMetadata returns the content of .zarray.
func (s *outStream) arrayMetadata() map[string]any {
	shape, chunks := []int64{s.rows}, []int{s.chunkRows}
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
		m["dtype"], m["fill_value"] = numpyType(s.f.DType), 0
	}
	return m
}

// attributes returns the content of .zattrs: the properties of a stream that the layout cannot
// express.
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

// prepareImages determines the size and type of a camera's pixels from its first image.
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
		own.Height, own.Width = info.Height, info.Width
		own.Channels, own.DType = info.Channels, info.DType
		if own.DType == robocache.Uint16 && own.Channels != 1 {
			own.DType = robocache.Uint8
		}
	case video.LibraryOf(w.src) == nil:
		return nil, "the dataset does not give its video files", nil
	case f.Depth != nil:
		return nil, "depth that is coded in video is not written", nil
	case f.Height <= 0 || f.Width <= 0:
		return nil, "the size of its images is unknown", nil
	default:
		own.DType, own.Channels = robocache.Uint8, 3
	}
	own.Shape = []int{own.Height, own.Width, own.Channels}
	s = w.newStream(&own, w.arrayName(f.Key))
	s.shape = own.Shape
	s.rowBytes = own.Height * own.Width * own.Channels * own.DType.Size()
	s.chunkRows = max(1, imageBytes/s.rowBytes)
	s.gray = own.Channels == 1 && own.DType == robocache.Uint8
	return s, "", nil
}

// firstImage searches for an image in the first rows of the episodes.
func (w *writer) firstImage(
	f *robocache.Feature,
	eps []int,
) (info video.StillInfo, ok bool, err error) {
	for _, e := range eps {
		if _, err := w.tolerate(robocache.Where{"stream": f.Key}, func() error {
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
	out := make([]byte, len(rows)*s.rowBytes)
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
			first := out[at[0]*s.rowBytes:][:s.rowBytes]
			switch {
			case frame == nil && refs[at[0]].Missing:
				return nil
			case frame == nil:
				return robocache.At(
					s.decodeStill(&refs[at[0]], first),
					robocache.Where{"row": rows[at[0]].Index},
				)
			}
			if err := frame.Convert(spec, first); err != nil {
				return err
			}
			for _, i := range at[1:] {
				copy(out[i*s.rowBytes:][:s.rowBytes], first)
			}
			return nil
		},
	); err != nil {
		return err
	}
	return w.appendRows(s, out)
}

// decodeStill writes the pixels of one image to dst.
func (s *outStream) decodeStill(ref *robocache.FrameRef, dst []byte) error {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.Height != s.f.Height || info.Width != s.f.Width {
		return robocache.Unsupported("zarr write", nil, "an image of another size than the first").
			Expected(
				fmt.Sprintf("%d×%d", s.f.Height, s.f.Width),
				fmt.Sprintf("%d×%d", info.Height, info.Width),
			)
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
