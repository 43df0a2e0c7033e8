package lerobot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// encodedPart is an episode's pixels, encoded.
type encodedPart struct {
	cameraPart
	look *stats.Pixels
}

// encodeAll encodes the cameras of an episode that come as pixels, before anything of the episode is written: where pixels do not come, nothing
// of it is left.
func (w *Writer) encodeAll(ctx context.Context, ep *EpisodeData) (map[string]*encodedPart, error) {
	out := map[string]*encodedPart{}
	for _, key := range w.keys {
		src := ep.Videos[key]
		if src.Library != nil {
			continue
		}
		p := &encodedPart{look: ep.Pictures[key]}
		var err error
		if p.cameraPart, err = w.encode(ctx, w.cams[key], src, ep.Length, w.written, &p.look); err != nil {
			for _, o := range out {
				w.closeTemp([]cameraPart{o.cameraPart})
			}
			return nil, robocache.At(err, robocache.Where{"stream": key})
		}
		out[key] = p
	}
	return out, nil
}

// encode makes an mp4 of one episode's pixels.
func (w *Writer) encode(ctx context.Context, c *outCamera, src VideoPart, rows, episode int, look **stats.Pixels) (cameraPart, error) {
	if err := w.openTemp(); err != nil {
		return cameraPart{}, err
	}
	f := &c.feature
	if f.Width <= 0 || f.Height <= 0 {
		return cameraPart{}, &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "the size of the pictures is not known", Hint: "set the feature's Height and Width"}
	}
	name := fmt.Sprintf("%d-%06d.mp4", slices.Index(w.keys, f.Key), episode)
	file := filepath.Join(w.temp, name)
	enc, err := w.newEncoder(ctx, file, c)
	if err != nil {
		return cameraPart{}, err
	}
	count := *look == nil
	if count {
		*look = stats.PicturesOf(f)
	}
	chosen := map[int]bool{}
	for _, k := range w.cfg.Frames.Choose(rows) {
		chosen[k] = true
	}
	k := 0
	err = src.Frames(func(p []byte) error {
		if count && chosen[k] {
			if f.Depth != nil {
				(*look).Add16(p)
			} else {
				(*look).Add8(p)
			}
		}
		k++
		if k > rows {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "more pictures than rows"}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return enc.Write(p)
	})
	if err == nil && k != rows {
		err = &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "pictures", Want: strconv.Itoa(rows), Got: strconv.Itoa(k)}
	}
	if err != nil {
		enc.Abort()
		return cameraPart{}, err
	}
	if err := enc.Close(); err != nil {
		return cameraPart{}, err
	}
	return cameraPart{lib: video.NewLibrary(w.tempStore.Open, 0), path: name, from: 0, to: rows, temp: true}, nil
}

// newEncoder starts the encoder of one episode. Where no codec was asked for and the default does not take the size, H.264 does.
func (w *Writer) newEncoder(ctx context.Context, path string, c *outCamera) (*video.Encoder, error) {
	v, f := w.cfg.Video, &c.feature
	cfg := video.EncodeConfig{Codec: video.Codec(v.Codec), GOP: v.GOP, CRF: v.CRF, Preset: v.Preset, Width: f.Width, Height: f.Height, Rate: w.cfg.FPS, Gray12: f.Depth != nil}
	e, err := video.NewEncoder(ctx, path, cfg)
	if v.Codec == "" && f.Depth == nil && errors.Is(err, robocache.ErrUnsupported) {
		cfg.Codec, cfg.Preset = video.H264, ""
		if h, herr := video.NewEncoder(ctx, path, cfg); herr == nil {
			if !c.told {
				c.told = true
				w.find(robocache.SeverityInfo, "codec-replaced", f.Key, w.written, "encoded as H.264: "+err.Error(), 0)
			}
			return h, nil
		}
	}
	return e, err
}

// openTemp makes the folder for encoded episodes.
func (w *Writer) openTemp() error {
	if w.temp != "" {
		return nil
	}
	dir, err := os.MkdirTemp(w.cfg.TempDir, "robocache-encode-*")
	if err != nil {
		return robocache.At(err, robocache.Where{"file": w.cfg.TempDir})
	}
	w.temp = dir
	w.tempStore, err = store.Open(dir)
	return err
}

// closeTemp ends the use of parts that were encoded for this dataset, and removes them. Each has a library of its own: one closed
// too late would keep a removed file's space.
func (w *Writer) closeTemp(parts []cameraPart) {
	for _, p := range parts {
		if p.temp {
			_ = p.lib.Close()
			_ = os.Remove(filepath.Join(w.temp, p.path))
		}
	}
}
