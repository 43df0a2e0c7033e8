package synth

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
)

// Write makes a LeRobot v3.0 dataset at dst, where there is none yet.
func Write(ctx context.Context, dst string, opt Options) (*Report, error) {
	o, fps, err := opt.settled()
	if err != nil {
		return nil, err
	}
	if err := o.room(); err != nil {
		return nil, err
	}
	s, err := store.OpenWritable(dst)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close(s) }()
	r, err := o.write(ctx, s, fps)
	return r, robocache.At(err, robocache.Where{"dataset": s.URI()})
}

// room says that the images can hold their bar code.
func (o *Options) room() error {
	if side, columns, rows := codeLayout(o.Width, o.Height); rows*side*2 > o.Height || columns < 1 {
		return misuse("the images have no room for their bar code", "a wider or higher image", strconv.Itoa(o.Width)+" x "+strconv.Itoa(o.Height))
	}
	return nil
}

func (o *Options) write(ctx context.Context, dst store.Writable, fps robocache.Rate) (*Report, error) {
	width, found, err := o.widths(fps)
	if err != nil {
		return nil, err
	}
	cfg := write.Config{FPS: fps, Robot: o.Robot, Features: o.features(width, fps), Tasks: o.Tasks, Video: write.VideoConfig{GOP: o.GOP}}
	if o.Codec != "png" {
		cfg.Video.Codec = o.Codec
	}
	w, err := write.NewWriter(ctx, dst, cfg)
	if err != nil {
		return nil, err
	}
	defer w.Abort() // after Close it does nothing
	canvases := make([]*canvas, o.Cameras)
	for i := range canvases {
		canvases[i] = newCanvas(i, o.Width, o.Height)
	}
	for e := range o.Episodes {
		ep, err := o.episode(e, fps, width)
		if err != nil {
			return nil, err
		}
		text, _ := o.task(e)
		data := write.EpisodeData{Length: ep.length, Columns: ep.columns, Tasks: []string{o.Tasks[text]}, Videos: map[string]write.VideoPart{}, Images: map[string][][]byte{}}
		for i, c := range canvases {
			frames := ep.frames(c, e, ep.shots[i])
			if o.Codec != "png" {
				data.Videos[camera(i)] = write.VideoPart{Frames: frames}
				continue
			}
			if data.Images[camera(i)], err = stills(frames, o.Width, o.Height); err != nil {
				return nil, err
			}
		}
		if err := w.AddEpisode(ctx, data); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(e+1, o.Episodes)
		}
	}
	if err := w.Close(ctx); err != nil {
		return nil, err
	}
	r := &Report{URI: dst.URI(), Episodes: o.Episodes, Frames: w.Frames(), FPS: fps.Float(), Tasks: o.Tasks, Seed: o.Seed, Findings: append(found, w.Findings()...)}
	for _, f := range cfg.Features {
		r.Keys = append(r.Keys, f.Key)
	}
	return r, nil
}

// frames gives an episode's images of one camera, one after the other.
func (ep *episode) frames(c *canvas, e int, shots []int64) func(func([]byte) error) error {
	return func(yield func([]byte) error) error {
		for row, t := range shots {
			s := at(ep.world, t)
			if err := yield(c.paint(&s, e, row)); err != nil {
				return err
			}
		}
		return nil
	}
}

func stills(frames func(func([]byte) error) error, width, height int) ([][]byte, error) {
	var out [][]byte
	err := frames(func(rgb []byte) error {
		b, err := stillOf(rgb, width, height)
		out = append(out, b)
		return err
	})
	return out, err
}

// stillOf is an RGB image as PNG.
func stillOf(rgb []byte, width, height int) ([]byte, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, nrgba(rgb, width, height)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func nrgba(rgb []byte, width, height int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for i, j := 0, 0; i < len(rgb); i, j = i+3, j+4 {
		m.Pix[j], m.Pix[j+1], m.Pix[j+2], m.Pix[j+3] = rgb[i], rgb[i+1], rgb[i+2], 255
	}
	return m
}
