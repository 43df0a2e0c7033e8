package tartanair

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math"
	"path"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// Len returns the number of frames of a trajectory.
func (d *Dataset) Len(episode int) int {
	if episode < 0 || episode >= len(d.episodes) {
		return 0
	}
	return len(d.episodes[episode].numbers)
}

// Episode returns the metadata of one trajectory.
func (d *Dataset) Episode(ctx context.Context, episode int) (robocache.Episode, error) {
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return robocache.Episode{}, err
	}
	return robocache.Episode{
		Position: episode, Index: int64(episode), Length: d.Len(episode),
	}, ctx.Err()
}

// feature returns the description of a stream.
func (d *Dataset) feature(key string) (*robocache.Feature, error) {
	if i, ok := d.byKey[key]; ok {
		return &d.About.Features[i], nil
	}
	return nil, op.NoStream(key)
}

// Times returns the timestamps of a stream (tartanair.T4).
func (d *Dataset) Times(ctx context.Context, episode int, key string) (_ []int64, err error) {
	defer crash.Recover("tartanair times", &err)
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return nil, err
	}
	e, where := &d.episodes[episode], robocache.Where{"episode": episode}
	if key != "" {
		f, err := d.feature(key)
		if err != nil {
			return nil, err
		}
		if f.Clock == imuClock {
			if !e.has(key) {
				return nil, op.Lacks(robocache.Where{"episode": episode, "stream": key})
			}
			times, ok, err := d.timesOf(ctx, e, imuTimes)
			if err == nil && !ok {
				err = d.About.NoClock(string(op), where, "there is no imu/imu_time.npy")
			}
			return times, robocache.At(err, where)
		}
	}
	if d.isStated {
		return reader.Grid(d.rate, len(e.numbers)), ctx.Err()
	}
	times, ok, err := d.timesOf(ctx, e, camTimes)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	if !ok {
		times = reader.Grid(d.rate, len(e.numbers))
	}
	return times, ctx.Err()
}

// Rows returns the number of rows of a stream in a trajectory.
func (d *Dataset) Rows(ctx context.Context, episode int, key string) (int, error) {
	f, err := d.feature(key)
	if err != nil {
		return 0, err
	}
	if err := op.Episode(len(d.episodes), episode); err != nil {
		return 0, err
	}
	if f.Clock == "" {
		return d.Len(episode), nil
	}
	times, err := d.Times(ctx, episode, key)
	return len(times), err
}

// checkRow returns an error if a row of a stream does not exist, or if its trajectory lacks the
// stream.
func (d *Dataset) checkRow(ctx context.Context, f *robocache.Feature, r robocache.Row) error {
	if err := op.Episode(len(d.episodes), r.Episode); err != nil {
		return err
	}
	if !d.episodes[r.Episode].has(f.Key) {
		return op.Lacks(robocache.Where{"episode": r.Episode, "stream": f.Key})
	}
	n := d.Len(r.Episode)
	if f.Clock != "" {
		var err error
		if n, err = d.Rows(ctx, r.Episode, f.Key); err != nil {
			return err
		}
	}
	return op.Row(d.About, n, r)
}

// Gather copies rows of poses or of an IMU array.
func (d *Dataset) Gather(
	ctx context.Context, key string, rows []robocache.Row, dst []byte,
) (err error) {
	defer crash.Recover("tartanair gather", &err)
	f, err := d.feature(key)
	if err != nil {
		return err
	}
	if err := op.Kind(key, f.Kind, robocache.KindNumeric); err != nil {
		return err
	}
	size := f.RowBytes()
	if err := op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	for i, r := range rows {
		if err := d.checkRow(ctx, f, r); err != nil {
			return err
		}
		e, to := &d.episodes[r.Episode], dst[i*size:(i+1)*size]
		if d.kinds[key] == poseKind {
			err = d.poseOf(ctx, e, key, r.Index, to)
		} else {
			err = d.arrayRow(ctx, e, f, r, to)
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"episode": r.Episode, "row": r.Index})
		}
	}
	return ctx.Err()
}

// arrayRow copies a row of an IMU array.
func (d *Dataset) arrayRow(
	ctx context.Context, e *trajectory, f *robocache.Feature, r robocache.Row, dst []byte,
) error {
	name := e.files[f.Key]
	t, err := d.loadTable(ctx, name, parseArray)
	if err != nil {
		return err
	}
	n, err := d.Rows(ctx, r.Episode, f.Key)
	if err != nil {
		return err
	}
	where := robocache.Where{"file": name}
	if t.array.Type.DType() != f.DType || !slices.Equal(rowShape(t.array), f.Shape) {
		return robocache.Malformed(string(op), where, "an array that differs from the first one").
			Expected(fmt.Sprintf("%s %v", f.DType, f.Shape),
				fmt.Sprintf("%s %v", t.array.Type, rowShape(t.array)))
	}
	if t.rows != n {
		return robocache.Malformed(string(op), where,
			"%d rows for %d times, and nothing says which belong together", t.rows, n).
			WithHint("Fetch the folder imu again.")
	}
	copy(dst, t.array.Data[r.Index*len(dst):])
	return nil
}

// rowShape returns the shape of a row of an array.
func rowShape(a *npy.Array) []int {
	if len(a.Shape) == 1 {
		return []int{1}
	}
	return a.Shape[1:]
}

// describeArray sets the type of an IMU array. Its clock is the IMU's, or that of the rows.
func (d *Dataset) describeArray(
	ctx context.Context, e *trajectory, f *robocache.Feature,
) error {
	t, err := d.loadTable(ctx, e.files[f.Key], parseArray)
	if err != nil {
		return err
	}
	f.Kind, f.DType, f.Shape = robocache.KindNumeric, t.array.Type.DType(), rowShape(t.array)
	if f.Elements() == 0 || len(f.Shape) > 3 {
		return robocache.Unsupported(string(op), nil, "rows of shape %v", f.Shape)
	}
	times, ok, err := d.timesOf(ctx, e, imuTimes)
	switch {
	case err != nil:
		return err
	case ok && len(times) == t.rows:
		f.Clock, f.FPS = imuClock, robocache.Rate{}
		return nil
	}
	return robocache.Malformed(string(op), robocache.Where{"file": e.files[f.Key]},
		"%d rows for %d times of imu_time.npy", t.rows, len(times))
}

// Text returns the task, which is empty.
func (d *Dataset) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	if key != "task" {
		f, err := d.feature(key)
		if err != nil {
			return nil, err
		}
		return nil, op.Kind(key, f.Kind, robocache.KindText)
	}
	for _, r := range rows {
		if err := cmp.Or(op.Episode(len(d.episodes), r.Episode),
			op.Row(d.About, d.Len(r.Episode), r)); err != nil {
			return nil, err
		}
	}
	return make([]string, len(rows)), ctx.Err()
}

// readersRemote is the number of files that are read at once from a remote store.
const readersRemote = 16

// Frames reads the images of rows, several at once.
func (d *Dataset) Frames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("tartanair frames", &err)
	f, err := d.feature(key)
	if err != nil {
		return err
	}
	if err := op.Kind(key, f.Kind, robocache.KindImage); err != nil {
		return err
	}
	if err := op.Room(key, "frames", len(rows), len(out)); err != nil {
		return err
	}
	for _, r := range rows {
		if err := d.checkRow(ctx, f, r); err != nil {
			return err
		}
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	if robocache.IsRemote(d.Bytes) {
		g.SetLimit(readersRemote)
	}
	for i, r := range rows {
		name := d.episodes[r.Episode].frames[key][r.Index]
		if name == "" {
			out[i] = robocache.FrameRef{Missing: true}
			continue
		}
		g.Go(crash.Func("tartanair frame", func() error {
			ref, err := d.readFrame(inner, name, f)
			if err != nil {
				return robocache.At(err, robocache.Where{
					"episode": r.Episode, "row": r.Index, "stream": key, "file": name,
				})
			}
			out[i] = ref
			return nil
		}))
	}
	return g.Wait()
}

// readFrame reads an image of a stream, and checks its size.
func (d *Dataset) readFrame(
	ctx context.Context, name string, f *robocache.Feature,
) (ref robocache.FrameRef, err error) {
	b, err := d.readFile(ctx, name)
	if err != nil {
		return ref, err
	}
	if ref, err = d.decodeFrame(b, path.Ext(name) == ".npy", d.kinds[f.Key]); err != nil {
		return ref, err
	}
	info, err := video.ImageSize(&ref)
	if err != nil {
		return ref, err
	}
	if info.Height != f.Height || info.Width != f.Width || info.DType != f.DType {
		return ref, robocache.Malformed(string(op), nil, "a frame that differs from the first one").
			Expected(fmt.Sprintf("%d×%d %s", f.Height, f.Width, f.DType),
				fmt.Sprintf("%d×%d %s", info.Height, info.Width, info.DType))
	}
	return ref, nil
}

// decodeFrame returns the image in a file. Images and labels in PNG stay encoded.
func (d *Dataset) decodeFrame(b []byte, isArray bool, k kind) (robocache.FrameRef, error) {
	switch {
	case isArray:
		raw, err := arrayImage(b)
		return robocache.FrameRef{Raw: raw}, err
	case k == depthKind:
		raw, err := decodeDepth(b, d.budget)
		return robocache.FrameRef{Raw: raw}, err
	}
	return robocache.FrameRef{Encoded: b}, nil
}

// describeImage sets the type and size of a camera from a file.
func (d *Dataset) describeImage(ctx context.Context, name string, f *robocache.Feature) error {
	b, err := d.readFile(ctx, name)
	if err != nil {
		return err
	}
	ref, err := d.decodeFrame(b, path.Ext(name) == ".npy", d.kinds[f.Key])
	if err != nil {
		return robocache.At(err, robocache.Where{"file": name})
	}
	info, err := video.ImageSize(&ref)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": name})
	}
	f.Kind, f.DType, f.Height, f.Width = robocache.KindImage, info.DType, info.Height, info.Width
	f.Channels = info.Channels
	if ref.Raw != nil {
		f.Channels = ref.Raw.Channels
	}
	f.Shape = []int{f.Height, f.Width, f.Channels}
	f.Names = json.RawMessage(`["height","width","channels"]`)
	f.StateDepth()
	return nil
}

// arrayImage returns an npy array of one channel as an image. Floats become float32.
func arrayImage(b []byte) (*robocache.Raw, error) {
	a, err := npy.Decode(b)
	if err != nil {
		return nil, err
	}
	shape := a.Shape
	if len(shape) == 3 && shape[2] == 1 {
		shape = shape[:2]
	}
	if len(shape) != 2 || shape[0] == 0 || shape[1] == 0 {
		return nil, robocache.Malformed(
			string(op), nil, "an array of shape %v is no image", a.Shape,
		)
	}
	raw := &robocache.Raw{
		Pix: a.Data, Height: shape[0], Width: shape[1], Channels: 1, DType: a.Type.DType(),
	}
	switch raw.DType {
	case robocache.Uint8, robocache.Uint16, robocache.Float32:
	case robocache.Float16, robocache.Float64:
		values := robocache.Float64s(nil, raw.DType, a.Data)
		raw.Pix, raw.DType = make([]byte, 4*len(values)), robocache.Float32
		for i, v := range values {
			binary.LittleEndian.PutUint32(raw.Pix[4*i:], math.Float32bits(float32(v)))
		}
	default:
		return nil, robocache.Unsupported(string(op), nil, "an image of type %s", a.Type)
	}
	return raw, nil
}

// decodeDepth returns the depth in a PNG of four channels. Its blue, green, red and alpha bytes are
// those of a little-endian float32.
func decodeDepth(b []byte, budget int64) (*robocache.Raw, error) {
	malformed := func(err error) error {
		return robocache.Malformed(string(op), nil, "depth that is no PNG of four channels").
			WithCause(err)
	}
	size, err := png.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, malformed(err)
	}
	if n := int64(size.Width) * int64(size.Height) * 8; n <= 0 || n > budget {
		return nil, robocache.ResourceLimit(string(op), nil, "a depth image").
			Expected(fmt.Sprintf("at most %d bytes", budget), fmt.Sprint(n))
	}
	decoded, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, malformed(err)
	}
	pixels, ok := decoded.(*image.NRGBA)
	if !ok {
		return nil, malformed(fmt.Errorf("the pixels are %T", decoded))
	}
	raw := &robocache.Raw{
		Height: size.Height, Width: size.Width, Channels: 1, DType: robocache.Float32,
		Pix: make([]byte, 4*size.Width*size.Height),
	}
	at := 0
	for y := range size.Height {
		line := pixels.Pix[y*pixels.Stride:]
		for x := 0; x < 4*size.Width; x += 4 {
			p := line[x : x+4]
			raw.Pix[at], raw.Pix[at+1], raw.Pix[at+2], raw.Pix[at+3] = p[2], p[1], p[0], p[3]
			at += 4
		}
	}
	return raw, nil
}

// putFloats writes little-endian float64.
func putFloats(dst []byte, values []float64) {
	for i, v := range values {
		binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(v))
	}
}

// Diagnose reads the poses, times and arrays of trajectories, and with Decode every frame.
func (d *Dataset) Diagnose(
	ctx context.Context, opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("tartanair diagnose", &err)
	out = append(out, d.About.Findings...)
	episodes := reader.Episodes(opt.Episodes, len(d.episodes))
	report := func(code string, e int, err error) error {
		if err == nil || robocache.IsFatal(err) {
			return err
		}
		where := robocache.Where{"episode": d.About.EpisodeIndex(e)}
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityError, Code: code, Where: where, Message: err.Error(),
			Hint: "Fetch the trajectory again.",
		})
		return ctx.Err()
	}
	for i, e := range episodes {
		if err := op.Episode(len(d.episodes), e); err != nil {
			return out, err
		}
		_, problem := d.Times(ctx, e, "")
		if err := report("bad-times", e, problem); err != nil {
			return out, err
		}
		for k := range d.About.Features {
			f := &d.About.Features[k]
			isImage := f.Kind == robocache.KindImage
			if !d.episodes[e].has(f.Key) || isImage && !opt.Decode {
				continue
			}
			code, problem := "bad-frame", error(nil)
			if isImage {
				problem = d.readFrames(ctx, e, f)
			} else {
				code, problem = "bad-numbers", d.readNumbers(ctx, e, f)
			}
			if err := report(code, e, problem); err != nil {
				return out, err
			}
		}
		if opt.Progress != nil {
			opt.Progress(int64(i+1), int64(len(episodes)))
		}
	}
	return out, nil
}

// readNumbers reads all rows of a numeric stream.
func (d *Dataset) readNumbers(ctx context.Context, e int, f *robocache.Feature) error {
	n, err := d.Rows(ctx, e, f.Key)
	if err != nil {
		return err
	}
	return d.Gather(ctx, f.Key, reader.Rows(e, 0, n), make([]byte, n*f.RowBytes()))
}

// readFrames reads and decodes all frames of a camera, one after the other.
func (d *Dataset) readFrames(ctx context.Context, e int, f *robocache.Feature) error {
	for row := range d.Len(e) {
		refs := make([]robocache.FrameRef, 1)
		if err := d.Frames(ctx, f.Key, reader.Rows(e, row, row+1), refs); err != nil {
			return err
		}
		if refs[0].Missing {
			continue
		}
		info, err := video.ImageSize(&refs[0])
		if err != nil {
			return err
		}
		spec := info.Own()
		n, err := video.StillBytes(info, spec)
		if err == nil {
			err = video.DecodeImage(&refs[0], spec, make([]byte, n))
		}
		if err != nil {
			return robocache.At(err, robocache.Where{"stream": f.Key, "row": row})
		}
	}
	return nil
}
