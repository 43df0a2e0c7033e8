package quality

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

// frameBlock is the number of rows whose images are located at once. Still images are in memory.
const frameBlock = 256

// measureFrames measures the images of all cameras of an episode. It returns the values by metric,
// and the parts of the episode to which they belong. An episode with damaged frames has values of the others.
func (m *measurement) measureFrames(
	ctx context.Context, pool *video.Pool, x *recording, i int,
) (values map[string]float64, spans map[string]span, firstErr error) {
	values, spans = map[string]float64{}, map[string]span{}
	if m.opt.Frames == NoFrames {
		return values, spans, nil
	}
	for k, camera := range m.roles.cameras {
		if robocache.Lacks(m.ds, m.positions[i], camera.Key) {
			continue
		}
		w := &cameraWalk{motion: &changeMeter{}}
		err := m.walkCamera(ctx, pool, camera, m.positions[i], w)
		if ctx.Err() != nil || robocache.IsFatal(err) {
			return nil, nil, err
		}
		if err != nil && firstErr == nil {
			firstErr = robocache.At(err, robocache.Where{"stream": camera.Key})
		}
		x.cameras = append(x.cameras, w.motion.series(x))
		if w.meter == nil {
			continue
		}
		parts := w.meter.spans(x)
		for name, v := range w.meter.values(x) {
			values[name] = worseValue(name, values, v)
			if part, ok := parts[name]; ok && values[name] == v && part.isKnown() {
				spans[name] = part
			}
		}
		if hashes := w.meter.hashes(); len(hashes) == hashesPerCamera {
			copy(m.table.Hash(i)[k*hashesPerCamera:], hashes)
		}
	}
	return values, spans, firstErr
}

// worseValue returns the worse of a value and the value of the same metric of another camera.
func worseValue(name string, values map[string]float64, v float64) float64 {
	old, ok := values[name]
	switch {
	case !ok || old != old:
		return v
	case v != v:
		return old
	}
	if m := MetricNamed(name); m != nil && m.Worse < 0 {
		return math.Min(old, v)
	}
	return math.Max(old, v)
}

// cameraWalk passes the frames of one camera of one episode to the meters.
type cameraWalk struct {
	meter   frameMeter
	motion  *changeMeter
	isStill bool // frames are encoded without other frames
	sample  frameSample
	planes  []byte
	luma    []byte
}

// walkCamera decodes the chosen frames of a camera. A frame that cannot be decoded is passed with
// its error; damage of a video ends the walk.
func (m *measurement) walkCamera(
	ctx context.Context, pool *video.Pool, f *robocache.Feature, e int, w *cameraWalk,
) error {
	n, err := robocache.RowsIn(ctx, m.ds, e, f)
	if err != nil {
		return err
	}
	times, err := m.ds.Times(ctx, e, f.Key)
	if err != nil && !errors.Is(err, robocache.ErrNoClock) {
		return err
	}
	chosen := m.opt.Frames.choose(n)
	w.meter, w.isStill = newFrameMeter(len(chosen)), f.Kind == robocache.KindImage
	for len(chosen) > 0 {
		block := chosen
		if f.Kind == robocache.KindImage {
			block = chosen[:min(frameBlock, len(chosen))]
		}
		chosen = chosen[len(block):]
		rows := make([]robocache.Row, len(block))
		for i, row := range block {
			rows[i] = robocache.Row{Episode: e, Index: row}
		}
		refs := make([]robocache.FrameRef, len(rows))
		done, err := robocache.LeaseFrames(ctx, m.ds, f.Key, rows, refs)
		if err != nil {
			return err
		}
		next := 0 // position of the next frame that was not passed
		err = video.EachFrame(ctx, m.library, refs, video.Each{Pool: pool},
			func(at []int, pic video.Frame) error {
				for _, k := range at {
					w.startSample(block[k], times)
					if err := w.load(&refs[k], pic); robocache.IsFatal(err) {
						return err
					}
					w.pass()
					next = k + 1
				}
				return ctx.Err()
			})
		if done != nil {
			done()
		}
		if err != nil {
			if next < len(block) {
				w.startSample(block[next], times)
				w.sample.Err = err
				w.pass()
			}
			return err
		}
	}
	return nil
}

// startSample sets the row and the time of the next frame.
func (w *cameraWalk) startSample(row int, times []int64) {
	w.sample = frameSample{
		Row: row, TimeNS: int64(row) * 1e9 / assumedRate, IsStill: w.isStill,
	}
	if row < len(times) {
		w.sample.TimeNS = times[row]
	}
}

// pass gives the frame to the meters.
func (w *cameraWalk) pass() {
	w.motion.add(&w.sample)
	if w.meter != nil {
		w.meter.add(&w.sample)
	}
}

// load sets the pixels of the frame, or the error of decoding them, which it also returns.
func (w *cameraWalk) load(ref *robocache.FrameRef, pic video.Frame) (err error) {
	switch {
	case pic == nil && ref.Missing:
		w.sample.Missing = true
	case pic == nil:
		err = w.loadStill(ref)
	default:
		err = w.loadFrame(pic)
	}
	w.sample.Err = err
	return err
}

// loadFrame reads the luma plane of a decoded frame, and its mean colour from all planes. Other
// frames are converted to RGB.
func (w *cameraWalk) loadFrame(pic video.Frame) error {
	if p, ok := pic.(video.PlanarFrame); ok {
		info, ok := p.PlaneInfo()
		planes, n := info.Planes()
		if ok && n == 3 && info.LumaBits() == 8 && planes[0].RowBytes == int(info.Width) {
			size := info.Bytes()
			w.planes = slices.Grow(w.planes[:0], size)[:size]
			if err := p.CopyPlanes(w.planes); err != nil {
				return err
			}
			w.loadPlanes(&info, planes)
			return nil
		}
	}
	var err error
	if w.planes, err = video.ConvertTo(w.planes, pic, &video.Spec{Pixel: video.RGB8}); err != nil {
		return err
	}
	width, height := pic.Size()
	w.loadRGB(width, height)
	return nil
}

// colourPoints is the number of rows, and of columns, from which the mean colour is computed,
// approximately.
const colourPoints = 32

// loadPlanes packs the luma plane, and computes the mean colour.
func (w *cameraWalk) loadPlanes(info *video.PlaneInfo, planes [3]video.Plane) {
	s := &w.sample
	s.Width, s.Height = int(info.Width), int(info.Height)
	s.Limited = !info.FullRange
	s.Luma = w.planes[planes[0].Offset:][:s.Width*s.Height]
	if planes[0].Stride != s.Width {
		w.luma = slices.Grow(w.luma[:0], s.Width*s.Height)[:s.Width*s.Height]
		for y := range s.Height {
			copy(w.luma[y*s.Width:(y+1)*s.Width], w.planes[planes[0].Offset+y*planes[0].Stride:])
		}
		s.Luma = w.luma
	}
	var mean [3]float64
	for k, p := range planes {
		sum, count := 0, 0
		stepX, stepY := max(1, p.RowBytes/colourPoints), max(1, p.Rows/colourPoints)
		for y := stepY / 2; y < p.Rows; y += stepY {
			line := w.planes[p.Offset+y*p.Stride:][:p.RowBytes]
			for i := stepX / 2; i < len(line); i += stepX {
				sum += int(line[i])
				count++
			}
		}
		mean[k] = float64(sum) / float64(max(1, count))
	}
	// BT.601; the studio range of luma is 16 to 235.
	luma, cb, cr := mean[0], mean[1]-128, mean[2]-128
	if !info.FullRange {
		luma, cb, cr = (luma-16)*255/219, cb*255/224, cr*255/224
	}
	s.RGB = [3]float64{luma + 1.402*cr, luma - 0.344136*cb - 0.714136*cr, luma + 1.772*cb}
}

// loadStill decodes a still image.
func (w *cameraWalk) loadStill(ref *robocache.FrameRef) error {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	w.planes, err = stats.Still(ref, &video.Spec{Pixel: video.RGB8}, w.planes)
	if err == nil {
		w.loadRGB(info.Width, info.Height)
	}
	return err
}

// loadRGB computes luma and the mean colour from the RGB pixels in w.planes.
func (w *cameraWalk) loadRGB(width, height int) {
	s, n := &w.sample, width*height
	w.luma = slices.Grow(w.luma[:0], n)[:n]
	for i := range w.luma {
		p := w.planes[3*i : 3*i+3 : 3*i+3]
		w.luma[i] = byte((19595*int(p[0]) + 38470*int(p[1]) + 7471*int(p[2]) + 1<<15) >> 16)
	}
	s.Luma, s.Width, s.Height = w.luma, width, height
	count := 0
	stepX, stepY := max(1, width/colourPoints), max(1, height/colourPoints)
	for y := stepY / 2; y < height; y += stepY {
		for x := stepX / 2; x < width; x += stepX {
			count++
			for k, v := range w.planes[3*(y*width+x):][:3] {
				s.RGB[k] += float64(v)
			}
		}
	}
	for k := range s.RGB {
		s.RGB[k] /= float64(max(1, count))
	}
}
