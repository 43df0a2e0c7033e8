package write

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// encodedPart is an episode's pixels, encoded.
type encodedPart struct {
	cameraPart
	look *stats.Pixels
}

// tempFile is an encoded file of ours: closed, and removed, once every part of it was joined. It
// has a library of its own: one closed too late would keep a removed file's space.
type tempFile struct {
	lib  *video.Library
	path string // "" = it stays where it is
	uses atomic.Int32
}

func (t *tempFile) release() {
	if t.uses.Add(-1) == 0 {
		_ = t.lib.Close()
		if t.path != "" {
			_ = os.Remove(t.path)
		}
	}
}

// encodedGroup is episodes whose frames of one camera go through one encoder.
type encodedGroup struct {
	w      *Writer
	camera *outCamera
	video  VideoConfig
	ends   string // of the name, where the frames are the ends of episodes
	n      int
	eps    []*EpisodeData
	at     [][2]int // where each stands among those of Prepare, and which part of its episode it is
	file   *tempFile
	name   string
	parts  []*encodedPart // of each, nil where it failed
	errs   []error
	notes  []preparedNote
}

// longGOP is where to fill up a GOP at the end of an episode costs more than an encoder for each.
const longGOP = 16

func (g *encodedGroup) gop() int {
	if g.video.GOP > 0 {
		return g.video.GOP
	}
	return 2 // video.EncodeConfig's
}

// encode makes the parts. Episodes in one file begin at sync samples: the last GOP of the one
// before is filled up with its last frame.
func (g *encodedGroup) encode(ctx context.Context) {
	g.parts, g.errs = make([]*encodedPart, len(g.eps)), make([]error, len(g.eps))
	if g.gop() > longGOP && len(g.eps) > 1 {
		for j, ep := range g.eps {
			one := &encodedGroup{
				w:      g.w,
				camera: g.camera,
				video:  g.video,
				ends:   g.ends,
				n:      g.n + j,
				eps:    []*EpisodeData{ep},
			}
			one.encode(ctx)
			g.parts[j], g.errs[j] = one.parts[0], one.errs[0]
			g.notes = append(g.notes, one.notes...)
		}
		return
	}
	if err := g.together(ctx); err != nil {
		for j := range g.errs {
			if g.parts[j] != nil {
				g.file.release()
				g.parts[j] = nil
			}
			if g.errs[j] == nil {
				g.errs[j] = err
			}
		}
	}
}

// part is that of episode j, from a frame on.
func (g *encodedGroup) part(j, from int) *encodedPart {
	g.file.uses.Add(1)
	p := &encodedPart{
		cameraPart: cameraPart{
			lib:  g.file.lib,
			path: g.name,
			from: from,
			to:   from + g.eps[j].Length,
			temp: g.file,
		},
		look: g.eps[j].FrameStats[g.camera.feature.Key],
	}
	g.parts[j] = p
	return p
}

func (g *encodedGroup) together(ctx context.Context) (err error) {
	defer crash.Recover("write lerobot", &err)
	w, f := g.w, &g.camera.feature
	if err := w.openTemp(); err != nil {
		return err
	}
	if f.Width <= 0 || f.Height <= 0 {
		return misuse(
			nil,
			"the size of the frames is not known",
			"",
			"",
			"set the feature's Height and Width",
		)
	}
	g.name = fmt.Sprintf("%d-%06d%s.mp4", slices.Index(w.keys, f.Key), g.n, g.ends)
	file := filepath.Join(w.temp, g.name)
	g.file = &tempFile{lib: video.NewLibrary(w.tempStore.Open, 0), path: file}
	if w.cfg.PartsDir != "" {
		if g.file.path = ""; g.kept(file) {
			return nil
		}
	}
	w.encoders <- struct{}{}
	defer func() { <-w.encoders }()
	made := file
	if w.cfg.PartsDir != "" {
		// Under a name of its own: the encoder of a run that was killed may still be ending its
		// file.
		made = strings.TrimSuffix(file, ".mp4") + "-" + rand.Text() + ".mp4"
	}
	enc, replaced, err := newEncoder(ctx, made, g.video, w.cfg.FPS, f)
	if err != nil {
		return err
	}
	if replaced != "" {
		g.notes = append(g.notes, preparedNote{"codec-replaced", f.Key, replaced})
	}
	ended := false
	defer func() {
		if !ended { // an error, or a panic: no encoder stays behind
			enc.Abort()
		}
	}()
	at, failed := 0, false
	for j := range g.eps {
		n, last, err := g.feed(ctx, enc, j, at)
		if err != nil {
			if enc.Failed() != nil || ctx.Err() != nil {
				return err
			}
			g.errs[j], failed = err, true
			if g.parts[j] != nil {
				g.parts[j] = nil
				g.file.uses.Add(-1)
			}
		}
		if at += n; j == len(g.eps)-1 || last == nil {
			continue
		}
		for ; at%g.gop() > 0; at++ {
			if err := enc.Write(last); err != nil {
				return err
			}
		}
	}
	if at == 0 { // no episode gave a frame
		return nil
	}
	ended = true
	if err := enc.Close(); err != nil || made == file {
		return err
	}
	if err := robocache.At(os.Rename(made, file), robocache.Where{"file": file}); err != nil {
		return err
	}
	if !failed {
		if err := g.keep(file); err != nil {
			return err
		}
	}
	return nil
}

// feed gives the encoder the frames of episode j, and counts those that the statistics want. n is
// how many were written, last the last of them.
func (g *encodedGroup) feed(
	ctx context.Context,
	enc *video.Encoder,
	j, at int,
) (n int, last []byte, err error) {
	// A fault of the frame source affects this episode only.
	defer crash.Recover("write lerobot", &err)
	ep, f := g.eps[j], &g.camera.feature
	part := g.part(j, at)
	count := part.look == nil
	if count {
		part.look = g.w.cfg.Frames.Images(f)
	}
	chosen := map[int]bool{}
	for _, k := range g.w.cfg.Frames.Choose(ep.Length) {
		chosen[k] = true
	}
	err = ep.Videos[f.Key].Frames(func(p []byte) error {
		if n == ep.Length {
			return misuse(nil, "more frames than rows", "", "", "")
		}
		if count && chosen[n] {
			if f.Depth != nil {
				part.look.Add16(p, f.Width)
			} else {
				part.look.Add8(p, f.Width)
			}
		}
		if err := cmp.Or(ctx.Err(), enc.Write(p)); err != nil {
			return err
		}
		if ep.frameEncoded != nil {
			ep.frameEncoded()
		}
		if n++; n == ep.Length || last == nil {
			// an episode that fails fills its GOP with its first frame
			last = append(last[:0], p...)
		}
		return nil
	})
	if err == nil && n != ep.Length {
		err = misuse(nil, "images", strconv.Itoa(ep.Length), strconv.Itoa(n), "")
	}
	return n, last, err
}

// newEncoder starts the encoder of a camera. Where no codec was asked for and the default does not
// take the size, H.264 does: replaced says why.
func newEncoder(
	ctx context.Context,
	path string,
	v VideoConfig,
	rate robocache.Rate,
	f *robocache.Feature,
) (_ *video.Encoder, replaced string, err error) {
	cfg := video.EncodeConfig{
		Codec:  video.Codec(v.Codec),
		GOP:    v.GOP,
		CRF:    v.CRF,
		Preset: v.Preset,
		Width:  f.Width,
		Height: f.Height,
		Rate:   rate,
		Gray12: f.Depth != nil,
		Behind: v.Behind,
	}
	e, err := video.NewEncoder(ctx, path, cfg)
	if v.Codec == "" && f.Depth == nil && errors.Is(err, robocache.ErrUnsupported) {
		cfg.Codec, cfg.Preset = video.H264, ""
		if h, herr := video.NewEncoder(ctx, path, cfg); herr == nil {
			return h, "encoded as H.264: " + err.Error(), nil
		}
	}
	if err != nil {
		return nil, replaced, err
	}
	return e, "", nil
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
	if err := robocache.At(err, robocache.Where{"file": dir}); err != nil {
		return err
	}
	w.temp = dir
	w.tempStore, err = store.Open(dir)
	if err != nil {
		return err
	}
	return nil
}

// closeTemp ends the use of parts that were encoded for this dataset.
func (w *Writer) closeTemp(parts []cameraPart) {
	for _, p := range parts {
		if p.temp != nil {
			p.temp.release()
		}
	}
}
