package diff

import (
	"bytes"
	"context"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// findCameras finds the cameras of both datasets: by key, or else by equal frames.
func (c *comparison) findCameras(ctx context.Context, pairs []pair) error {
	if c.opt.Frames == FramesNone {
		return nil
	}
	usedB := map[string]bool{}
	var onlyA []*robocache.Feature
	for _, f := range c.a.cameras {
		i := slices.IndexFunc(
			c.b.cameras,
			func(g *robocache.Feature) bool { return g.Key == f.Key },
		)
		if i < 0 {
			onlyA = append(onlyA, f)
			continue
		}
		usedB[f.Key] = true
		c.cameras = append(c.cameras, sharedCamera{f, c.b.cameras[i]})
	}
	for _, f := range onlyA {
		for _, g := range c.b.cameras {
			if usedB[g.Key] || f.Height != g.Height || f.Width != g.Width {
				continue
			}
			same, err := c.showSameFrames(ctx, sharedCamera{f, g}, pairs)
			if err != nil {
				return err
			}
			if same {
				usedB[g.Key] = true
				c.cameras = append(c.cameras, sharedCamera{f, g})
				break
			}
		}
	}
	return nil
}

// probedRows is the number of frames that identify a camera under another key.
const probedRows = 8

// showSameFrames reports whether the first frames of the first matched episode with equal values
// are equal.
func (c *comparison) showSameFrames(
	ctx context.Context, x sharedCamera, pairs []pair,
) (bool, error) {
	for _, p := range pairs {
		if c.signaturesA[p.a].content != c.signaturesB[p.b].content {
			continue
		}
		runs := identity(min(probedRows, c.a.ds.Len(p.a)), min(probedRows, c.b.ds.Len(p.b)))
		found, err := c.comparePackets(ctx, x, p, runs)
		return err == nil && found.Rows == 0, err
	}
	return false, nil
}

// compareCamera returns how the frames of a camera differ; nil if they do not.
func (c *comparison) compareCamera(
	ctx context.Context, x sharedCamera, p pair, runs rowRuns,
) (*Stream, error) {
	runs, counts, lacks, err := c.streamRuns(ctx, x.a, x.b, p, runs)
	if err != nil {
		return nil, err
	}
	if lacks {
		return &Stream{Key: x.a.Key, What: "lacking", Rows: runs.count()}, nil
	}
	out, err := c.comparePackets(ctx, x, p, runs)
	if err != nil {
		return nil, err
	}
	if out.Rows > 0 && c.opt.Frames == FramesPixels {
		if out, err = c.comparePixels(ctx, x, p, runs); err != nil {
			return nil, err
		}
	}
	out.addCounts(counts)
	if out.Rows == 0 && out.RemovedRows == 0 && out.AddedRows == 0 {
		return nil, nil
	}
	return out, nil
}

// maxFrames is the number of frames whose locations are held at once.
const maxFrames = 16

// eachFramePair calls fn for the frames of paired rows.
func (c *comparison) eachFramePair(
	ctx context.Context, x sharedCamera, p pair, runs rowRuns,
	fn func(row int, a, b *robocache.FrameRef) error,
) error {
	a, b := make([]robocache.FrameRef, maxFrames), make([]robocache.FrameRef, maxFrames)
	for _, run := range runs {
		for at := 0; at < run.n; at += maxFrames {
			n := min(maxFrames, run.n-at)
			rows := robocache.RowsOf(p.a, run.a+at, n)
			if err := c.a.ds.Frames(ctx, x.a.Key, rows, a[:n]); err != nil {
				return c.a.located(err, p.a, x.a.Key)
			}
			rows = robocache.RowsOf(p.b, run.b+at, n)
			if err := c.b.ds.Frames(ctx, x.b.Key, rows, b[:n]); err != nil {
				return c.b.located(err, p.b, x.b.Key)
			}
			for i := range n {
				if err := fn(run.a+at+i, &a[i], &b[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// comparePackets counts the rows whose coded frames differ. Still images that are coded in another
// way are compared by their pixels.
func (c *comparison) comparePackets(
	ctx context.Context, x sharedCamera, p pair, runs rowRuns,
) (*Stream, error) {
	out := &Stream{Key: x.a.Key, What: FramesPackets, FirstRow: -1}
	readA, readB := newPacketReader(c.a.ds), newPacketReader(c.b.ds)
	defer readA.close()
	defer readB.close()
	err := c.eachFramePair(ctx, x, p, runs, func(row int, a, b *robocache.FrameRef) error {
		equal := a.Missing == b.Missing
		if equal && !a.Missing {
			isVideo := a.Path != ""
			switch {
			case isVideo != (b.Path != ""):
				equal = false
			case isVideo:
				packetA, err := readA.packet(ctx, a)
				if err != nil {
					return c.a.located(err, p.a, x.a.Key)
				}
				packetB, err := readB.packet(ctx, b)
				if err != nil {
					return c.b.located(err, p.b, x.b.Key)
				}
				equal = bytes.Equal(packetA, packetB)
			default:
				equal = sameStill(a, b)
			}
		}
		if !equal {
			out.addRow(row)
		}
		return nil
	})
	return out, err
}

// sameStill reports whether two still images have the same bytes or the same pixels.
func sameStill(a, b *robocache.FrameRef) bool {
	if a.Raw == nil && b.Raw == nil && bytes.Equal(a.Encoded, b.Encoded) {
		return true
	}
	infoA, errA := video.ImageSize(a)
	infoB, errB := video.ImageSize(b)
	isSameType := infoA.Width == infoB.Width && infoA.Height == infoB.Height &&
		infoA.DType == infoB.DType
	if errA != nil || errB != nil || !isSameType {
		return false
	}
	spec := &video.Spec{Pixel: pixelOf(infoA.DType)}
	if spec.Pixel == video.DepthM {
		spec.Depth = &robocache.Depth{Unit: "m"}
	}
	pixels := func(ref *robocache.FrameRef, info video.StillInfo) []byte {
		n, err := video.StillBytes(info, spec)
		if err != nil {
			return nil
		}
		out := make([]byte, n)
		if video.DecodeImage(ref, spec, out) != nil {
			return nil
		}
		return out
	}
	pixelsA, pixelsB := pixels(a, infoA), pixels(b, infoB)
	return pixelsA != nil && bytes.Equal(pixelsA, pixelsB)
}

// pixelOf returns the pixels that hold a stored type without loss.
func pixelOf(d robocache.DType) video.Pixel {
	switch d {
	case robocache.Uint16:
		return video.Gray16
	case robocache.Float32:
		return video.DepthM
	}
	return video.RGB8
}

// packetReader reads the coded frames of a dataset's video files.
type packetReader struct {
	library *video.Library
	file    *video.File
	buffer  []byte
	offset  int64 // of buffer in the file
}

func newPacketReader(ds robocache.Dataset) *packetReader {
	return &packetReader{library: video.LibraryOf(ds)}
}

// readAhead is the number of bytes that are read at once.
const readAhead = 1 << 20

// packet returns the coded bytes of a frame. They are valid until the next call.
func (r *packetReader) packet(ctx context.Context, ref *robocache.FrameRef) ([]byte, error) {
	if r.library == nil {
		return nil, robocache.Unsupported(
			"diff",
			robocache.Where{"file": ref.Path},
			"the dataset does not provide its video files",
		)
	}
	if r.file == nil || r.file.Path != ref.Path {
		r.close()
		file, err := r.library.Acquire(ctx, ref.Path)
		if err != nil {
			return nil, err
		}
		r.file = file
	}
	if ref.Ordinal < 0 || ref.Ordinal >= r.file.Index.NumFrames() {
		return nil, robocache.Malformed("diff",
			robocache.Where{"file": ref.Path, "frame": ref.Ordinal}, "the file has no such frame")
	}
	sample := r.file.Index.Sample(r.file.Index.DecodeIndex(ref.Ordinal))
	from := sample.Offset - r.offset
	if from < 0 || from+int64(sample.Size) > int64(len(r.buffer)) {
		n := min(max(readAhead, int64(sample.Size)), r.file.Ranged.Size()-sample.Offset)
		if n < int64(sample.Size) {
			return nil, robocache.Malformed("diff",
				robocache.Where{"file": ref.Path, "frame": ref.Ordinal}, "the file is cut off")
		}
		r.buffer = slices.Grow(r.buffer[:0], int(n))[:n]
		if err := r.file.Ranged.ReadAt(ctx, r.buffer, sample.Offset); err != nil {
			r.buffer = nil
			return nil, robocache.At(err, robocache.Where{"file": ref.Path})
		}
		r.offset, from = sample.Offset, 0
	}
	return r.buffer[from : from+int64(sample.Size)], nil
}

// close releases the open file.
func (r *packetReader) close() {
	if r.file != nil {
		r.file.Release()
		r.file, r.buffer = nil, nil
	}
}

// picture is a decoded frame of a row; nil pixels mean that the row has none.
type picture struct{ pixels []byte }

// picturesAhead is the number of pictures of A that wait for those of B.
const picturesAhead = 4

// comparePixels decodes the frames of paired rows of both datasets in step, and compares them at
// the size of A.
func (c *comparison) comparePixels(
	ctx context.Context, x sharedCamera, p pair, runs rowRuns,
) (*Stream, error) {
	out := &Stream{Key: x.a.Key, What: FramesPixels, FirstRow: -1}
	spec := &video.Spec{Pixel: pixelOf(x.a.DType), Width: x.a.Width, Height: x.a.Height}
	if spec.Pixel == video.DepthM {
		spec.Depth = &robocache.Depth{Unit: "m"}
	}
	if spec.Pixel != video.RGB8 {
		spec.Width, spec.Height = 0, 0
	}
	pictures := make(chan picture, picturesAhead)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		defer crash.Recover("diff", &err)
		defer close(pictures)
		err = c.a.decodeRows(inner, x.a, p.a, runs.rowsOfA, spec, func(_ int, pixels []byte) error {
			select {
			case pictures <- picture{slices.Clone(pixels)}:
				return nil
			case <-inner.Done():
				return inner.Err()
			}
		})
		return c.a.located(err, p.a, x.a.Key)
	})
	meter := psnrMeter{min: math.Inf(1)}
	group.Go(func() (err error) {
		defer crash.Recover("diff", &err)
		rows := runs.rowsOfA(p.a)
		err = c.b.decodeRows(inner, x.b, p.b, runs.rowsOfB, spec, func(i int, pixels []byte) error {
			picture, ok := <-pictures
			if !ok {
				return inner.Err()
			}
			meter.compare(out, rows[i].Index, picture.pixels, pixels, spec.Pixel)
			return nil
		})
		return c.b.located(err, p.b, x.b.Key)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if meter.frames > 0 && spec.Pixel == video.RGB8 {
		out.PSNR = &PSNR{round2(meter.min), round2(meter.sum / float64(meter.frames))}
	}
	return out, nil
}

// rowsOfA returns the paired rows of an episode of A.
func (r rowRuns) rowsOfA(episode int) (out []robocache.Row) {
	for _, run := range r {
		out = append(out, robocache.RowsOf(episode, run.a, run.n)...)
	}
	return out
}

// rowsOfB returns the paired rows of an episode of B.
func (r rowRuns) rowsOfB(episode int) (out []robocache.Row) {
	for _, run := range r {
		out = append(out, robocache.RowsOf(episode, run.b, run.n)...)
	}
	return out
}

// decodeRows calls fn with the pixels of rows, in their order. Pixels are nil if a row has no
// image.
func (s *side) decodeRows(
	ctx context.Context, f *robocache.Feature, episode int,
	rowsOf func(episode int) []robocache.Row, spec *video.Spec,
	fn func(i int, pixels []byte) error,
) error {
	rows := rowsOf(episode)
	block := max(1, len(rows)) // references to video files are small
	if f.Kind == robocache.KindImage {
		block = maxFrames
	}
	pool := video.NewPool(0)
	defer pool.Close()
	var buffer []byte
	for from := 0; from < len(rows); from += block {
		part := rows[from:min(from+block, len(rows))]
		refs := make([]robocache.FrameRef, len(part))
		if err := s.ds.Frames(ctx, f.Key, part, refs); err != nil {
			return err
		}
		decode := func(at []int, pic video.Frame) (err error) {
			for _, i := range at {
				pixels := []byte(nil)
				switch {
				case pic != nil:
					buffer, err = video.ConvertTo(buffer, pic, spec)
					pixels = buffer
				case !refs[i].Missing:
					buffer, err = decodeStill(buffer, &refs[i], spec)
					pixels = buffer
				}
				if err == nil {
					err = fn(from+i, pixels)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
		each := video.Each{Pool: pool}
		if err := video.EachFrame(ctx, video.LibraryOf(s.ds), refs, each, decode); err != nil {
			return err
		}
	}
	return nil
}

// decodeStill decodes a still image into buffer, which is enlarged if necessary.
func decodeStill(
	buffer []byte, ref *robocache.FrameRef, spec *video.Spec,
) ([]byte, error) {
	info, err := video.ImageSize(ref)
	if err != nil {
		return nil, err
	}
	n, err := video.StillBytes(info, spec)
	if err != nil {
		return nil, err
	}
	buffer = slices.Grow(buffer[:0], n)[:n]
	return buffer, video.DecodeImage(ref, spec, buffer)
}

// psnrMeter accumulates the PSNR of frames.
type psnrMeter struct {
	min, sum float64
	frames   int
}

// equalPSNR is the PSNR in dB of equal frames, and an upper bound.
const equalPSNR = 100

// compare adds the difference of two frames to the meter and to the stream.
func (m *psnrMeter) compare(s *Stream, row int, a, b []byte, pixel video.Pixel) {
	switch {
	case bytes.Equal(a, b) && (a == nil) == (b == nil):
		m.add(equalPSNR)
		return
	case len(a) != len(b):
		s.addRow(row)
		return
	}
	s.addRow(row)
	if pixel != video.RGB8 {
		dtype := robocache.Uint16
		if pixel == video.DepthM {
			dtype = robocache.Float32
		}
		x, y := robocache.Float64s(nil, dtype, a), robocache.Float64s(nil, dtype, b)
		for i := range x {
			if d := math.Abs(x[i] - y[i]); d-d == 0 {
				s.addDifference(d)
			}
		}
		return
	}
	sum, most := 0, 0
	for i, v := range a {
		d := int(v) - int(b[i])
		sum += d * d
		most = max(most, d, -d)
	}
	s.addDifference(float64(most))
	m.add(min(equalPSNR, 10*math.Log10(255*255*float64(len(a))/float64(sum))))
}

// add adds the PSNR of a frame.
func (m *psnrMeter) add(db float64) {
	m.min = min(m.min, db)
	m.sum += db
	m.frames++
}

// round2 rounds to two decimals.
func round2(x float64) float64 { return math.Round(100*x) / 100 }
