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

// encode makes an mp4 of one episode's pixels. n names it among those of the camera.
func (w *Writer) encode(ctx context.Context, c *outCamera, src VideoPart, rows, n int, look *stats.Pixels, p *preparedEpisode) (*encodedPart, error) {
	if err := w.openTemp(); err != nil {
		return nil, err
	}
	f := &c.feature
	if f.Width <= 0 || f.Height <= 0 {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "the size of the pictures is not known", Hint: "set the feature's Height and Width"}
	}
	name := fmt.Sprintf("%d-%06d.mp4", slices.Index(w.keys, f.Key), n)
	part := &encodedPart{cameraPart: cameraPart{lib: video.NewLibrary(w.tempStore.Open, 0), path: name, from: 0, to: rows, temp: true}, look: look}
	if w.cfg.PartsDir != "" {
		found, err := w.kept(part, rows, f, p)
		if found || err != nil {
			return part, err
		}
	}
	file, told := filepath.Join(w.temp, name), len(p.notes)
	enc, err := w.newEncoder(ctx, file, c, p)
	if err != nil {
		return nil, err
	}
	if err := w.feed(ctx, enc, f, src, rows, part); err != nil {
		enc.Abort()
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	if w.cfg.PartsDir != "" {
		return part, w.keep(part, rows, p.notes[told:])
	}
	return part, nil
}

// feed gives the encoder its pictures, and counts those that the statistics want.
func (w *Writer) feed(ctx context.Context, enc *video.Encoder, f *robocache.Feature, src VideoPart, rows int, part *encodedPart) error {
	count := part.look == nil
	if count {
		part.look = stats.PicturesOf(f)
	}
	chosen := map[int]bool{}
	for _, k := range w.cfg.Frames.Choose(rows) {
		chosen[k] = true
	}
	k := 0
	err := src.Frames(func(p []byte) error {
		if count && chosen[k] {
			if f.Depth != nil {
				part.look.Add16(p)
			} else {
				part.look.Add8(p)
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
	return err
}

// newEncoder starts the encoder of one episode. Where no codec was asked for and the default does not take the size, H.264 does.
func (w *Writer) newEncoder(ctx context.Context, path string, c *outCamera, p *preparedEpisode) (*video.Encoder, error) {
	v, f := w.cfg.Video, &c.feature
	cfg := video.EncodeConfig{Codec: video.Codec(v.Codec), GOP: v.GOP, CRF: v.CRF, Preset: v.Preset, Width: f.Width, Height: f.Height, Rate: w.cfg.FPS, Gray12: f.Depth != nil}
	e, err := video.NewEncoder(ctx, path, cfg)
	if v.Codec == "" && f.Depth == nil && errors.Is(err, robocache.ErrUnsupported) {
		cfg.Codec, cfg.Preset = video.H264, ""
		if h, herr := video.NewEncoder(ctx, path, cfg); herr == nil {
			p.note("codec-replaced", f.Key, "encoded as H.264: "+err.Error())
			return h, nil
		}
	}
	return e, err
}

// openTemp makes the folder for encoded episodes.
func (w *Writer) openTemp() error {
	w.tempMu.Lock()
	defer w.tempMu.Unlock()
	if w.temp != "" {
		return nil
	}
	var err error
	dir := w.cfg.PartsDir
	if dir != "" {
		err = os.MkdirAll(dir, 0o755)
	} else {
		dir, err = os.MkdirTemp(w.cfg.TempDir, "robocache-encode-*")
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
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
			if w.cfg.PartsDir == "" {
				_ = os.Remove(filepath.Join(w.temp, p.path))
			}
		}
	}
}
