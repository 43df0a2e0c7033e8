package lerobot

import (
	"context"
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

// encode makes an mp4 of one episode's pixels.
func (w *Writer) encode(ctx context.Context, c *outCamera, src VideoPart, rows, episode int, look **stats.Pixels) (cameraPart, error) {
	if err := w.openTemp(c); err != nil {
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
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	if err == nil && k != rows {
		err = &robocache.Error{Class: robocache.ErrMisuse, Op: "write lerobot", Msg: "pictures", Want: strconv.Itoa(rows), Got: strconv.Itoa(k)}
	}
	if err != nil {
		_ = os.Remove(file)
		return cameraPart{}, err
	}
	return cameraPart{lib: c.temp, path: name, from: 0, to: rows, temp: true}, nil
}

// codecDefaults are the reference's, but for the coding that GPUs can decode (video.md section 7).
func codecDefaults(c VideoConfig, depth bool) VideoConfig {
	if depth {
		return VideoConfig{Codec: "hevc", GOP: 2}
	}
	if c.Codec == "" {
		c.Codec = "av1"
	}
	if c.GOP == 0 {
		c.GOP = 2
	}
	if c.CRF == 0 {
		c.CRF = 30
		if c.Codec != "av1" {
			c.CRF = 23
		}
	}
	if c.Preset == "" && c.Codec == "av1" {
		c.Preset = "12"
	}
	return c
}

// openTemp makes the folder and the library for encoded episodes.
func (w *Writer) openTemp(c *outCamera) error {
	if w.temp == "" {
		dir, err := os.MkdirTemp(w.cfg.TempDir, "robocache-encode-*")
		if err != nil {
			return robocache.At(err, robocache.Where{"file": w.cfg.TempDir})
		}
		w.temp = dir
	}
	if c.temp == nil {
		s, err := store.Open(w.temp)
		if err != nil {
			return err
		}
		c.temp = video.NewLibrary(s.Open, 0)
	}
	return nil
}

// closeTemp ends the use of the episodes that were encoded for a file, and removes them.
func (w *Writer) closeTemp(c *outCamera) {
	if c.temp == nil {
		return
	}
	_ = c.temp.Close()
	c.temp = nil
	for _, p := range c.parts {
		if p.temp {
			_ = os.Remove(filepath.Join(w.temp, p.path))
		}
	}
}

type pictureEncoder interface {
	Write([]byte) error
	Close() error
}

func (w *Writer) newEncoder(ctx context.Context, path string, c *outCamera) (pictureEncoder, error) {
	return nil, &robocache.Error{Class: robocache.ErrUnsupported}
}
