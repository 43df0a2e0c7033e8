package synth

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// eachRow calls fn with the recording and clock of every row, in the given order.
func (d *Dataset) eachRow(
	rows []robocache.Row,
	s *stream,
	fn func(i int, r *recording, c *clocked) error,
) error {
	var rec *recording
	var c *clocked
	last := -1
	for i, row := range rows {
		if row.Episode != last {
			var err error
			if rec, err = d.recordingOf(row.Episode); err != nil {
				return err
			}
			c, last = d.clockOf(rec, row.Episode, s), row.Episode
		}
		if row.Index < 0 || row.Index >= len(c.taken) {
			return robocache.Misuse("synth", robocache.Where{
				"stream":  s.feature.Key,
				"episode": row.Episode,
				"row":     row.Index,
			}, "").
				Expected(fmt.Sprintf("a row below %d", len(c.taken)), strconv.Itoa(row.Index))
		}
		if err := fn(i, rec, c); err != nil {
			return err
		}
	}
	return nil
}

func wrongKind(s *stream, want string) error {
	return robocache.Misuse("synth", robocache.Where{"stream": s.feature.Key}, "").
		Expected(want, string(s.feature.Kind))
}

// Gather copies rows of a numeric stream.
func (d *Dataset) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	s, err := d.streamOf(key)
	if err != nil {
		return err
	}
	size := s.feature.RowBytes()
	if size == 0 {
		return wrongKind(s, "a numeric stream")
	}
	if len(dst) != len(rows)*size {
		return robocache.Misuse("synth", robocache.Where{"stream": key}, "").
			Expected(fmt.Sprintf("%d bytes", len(rows)*size), strconv.Itoa(len(dst)))
	}
	return d.eachRow(rows, s, func(i int, r *recording, c *clocked) error {
		out, index := dst[i*size:(i+1)*size], rows[i].Index
		if s.numeric == nil {
			copy(out, r.columns[key][index*size:])
			return nil
		}
		now := worldAt(r.world, c.taken[index])
		s.numeric(&now, func(values ...float64) {
			for k, v := range values {
				binary.LittleEndian.PutUint32(out[4*k:], math.Float32bits(float32(v)))
			}
		})
		return nil
	})
}

// Text returns the tasks of rows, or the current activity of the arm.
func (d *Dataset) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	if key == "task" {
		for i, row := range rows {
			if err := d.checkEpisode(row.Episode); err != nil {
				return nil, err
			}
			out[i] = d.options.Tasks[d.tasks[row.Episode]]
		}
		return out, nil
	}
	s, err := d.streamOf(key)
	if err == nil && s.feature.Kind != robocache.KindText {
		err = wrongKind(s, "a text stream")
	}
	if err != nil {
		return nil, err
	}
	return out, d.eachRow(rows, s, func(i int, r *recording, c *clocked) error {
		now := worldAt(r.world, c.taken[rows[i].Index])
		out[i] = now.phaseText()
		return nil
	})
}

// phaseText returns the activity of the arm as text.
func (s *state) phaseText() string {
	far := max(math.Abs(s.goal[0]-s.q[0]), math.Abs(s.goal[1]-s.q[1]))
	switch {
	case far < near:
		return "hold"
	case far < 0.4:
		return "slow down"
	}
	return "go to the " + colours[s.task].name + " disc"
}

// GatherRagged generates point clouds of the arm, the discs and the table, in meters.
func (d *Dataset) GatherRagged(
	_ context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	s, err := d.streamOf(key)
	if err == nil && !s.feature.Ragged() {
		err = wrongKind(s, "a ragged stream")
	}
	if err != nil {
		return nil, nil, err
	}
	err = d.eachRow(rows, s, func(i int, r *recording, c *clocked) error {
		now := worldAt(r.world, c.taken[rows[i].Index])
		rng := d.options.newRand(rows[i].Episode, drawPoints)
		// The index is part of the seed, so that a cloud does not depend on earlier ones.
		rng = rand.New(rand.NewPCG(rng.Uint64(), uint64(rows[i].Index)))
		n := d.options.Points/2 + rng.IntN(d.options.Points-d.options.Points/2) + 1
		counts = append(counts, n)
		for range n {
			for _, v := range now.scanPoint(rng) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
			}
		}
		return nil
	})
	return data, counts, err
}

// scanPoint returns one point of a scanner: x, y, z, intensity.
func (s *state) scanPoint(rng *rand.Rand) [4]float64 {
	u, v := rng.Float64(), float64(2*math.Pi*rng.Float64())
	switch k := rng.IntN(8); {
	case k < 2: // a link
		elbow, tip := armPoints(s.q)
		from, to := [2]float64{}, elbow
		if k == 1 {
			from, to = elbow, tip
		}
		return [4]float64{
			from[0] + float64(u*(to[0]-from[0])),
			from[1] + float64(u*(to[1]-from[1])),
			0.12 + float64(0.03*math.Sin(v)),
			0.9,
		}
	case k < 2+discCount:
		p := s.discs[k-2]
		r := float64(discRadius * math.Sqrt(u))
		return [4]float64{
			p[0] + float64(r*math.Cos(v)),
			p[1] + float64(r*math.Sin(v)),
			0.02,
			0.3 + float64(0.2*float64(k-2)),
		}
	}
	return [4]float64{float64(2*u) - 1, float64(2*rng.Float64()) - 0.2, 0, 0.1}
}

// Frames draws images.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	s, err := d.streamOf(key)
	if err == nil && s.feature.Kind != robocache.KindImage {
		err = wrongKind(s, "images")
	}
	if err != nil {
		return err
	}
	e := d.easels.Get().(*easel)
	defer d.easels.Put(e)
	return d.eachRow(rows, s, func(i int, r *recording, c *clocked) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		taken := c.taken
		if s.number == 0 { // also for a camera whose images are not taken at the times of the rows
			taken = r.shots[s.camera]
		}
		now := worldAt(r.world, taken[rows[i].Index])
		can := e.canvases[s.camera]
		can.paint(&now, rows[i].Episode, rows[i].Index)
		var err error
		if s.feature.DType == robocache.Uint16 {
			out[i], err = d.options.depthImage(can)
		} else {
			out[i], err = d.options.encodeFrame(can)
		}
		return err
	})
}

// encodeFrame returns the image on the canvas in the dataset's coding.
func (o *Options) encodeFrame(c *canvas) (robocache.FrameRef, error) {
	switch o.Codec {
	case "raw":
		return robocache.FrameRef{
			Raw: &robocache.Raw{
				Pix:      bytes.Clone(c.rgb),
				Height:   c.height,
				Width:    c.width,
				Channels: 3,
				DType:    robocache.Uint8,
			},
		}, nil
	case "jpeg":
		var b bytes.Buffer
		// An opaque image is the same in both image types, but the encoder is fast only for RGBA.
		m := image.RGBA(*nrgba(c.rgb, c.width, c.height))
		err := jpeg.Encode(&b, &m, &jpeg.Options{Quality: 90})
		return robocache.FrameRef{Encoded: b.Bytes()}, err
	}
	b, err := encodePNG(c.rgb, c.width, c.height)
	return robocache.FrameRef{Encoded: b}, err
}

// depthImage returns the distances of the drawn objects, in mm: a tilted table, and objects
// that are 400 mm nearer.
func (o *Options) depthImage(c *canvas) (robocache.FrameRef, error) {
	m := image.NewGray16(image.Rect(0, 0, c.width, c.height))
	for y := range c.height {
		for x := range c.width {
			p := (y*c.width + x) * 3
			mm := 2400 - 1200*y/c.height
			if !bytes.Equal(c.rgb[p:p+3], c.background[p:p+3]) {
				mm -= 400
			}
			binary.BigEndian.PutUint16(m.Pix[2*(y*c.width+x):], uint16(mm))
		}
	}
	if o.Codec != "raw" {
		var b bytes.Buffer
		err := png.Encode(&b, m)
		return robocache.FrameRef{Encoded: b.Bytes()}, err
	}
	for i := 0; i < len(m.Pix); i += 2 {
		m.Pix[i], m.Pix[i+1] = m.Pix[i+1], m.Pix[i]
	}
	return robocache.FrameRef{
		Raw: &robocache.Raw{
			Pix:      m.Pix,
			Height:   c.height,
			Width:    c.width,
			Channels: 1,
			DType:    robocache.Uint16,
		},
	}, nil
}
