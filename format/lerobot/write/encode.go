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

// encodedPart is an episode's encoded frames of one camera.
type encodedPart struct {
	cameraPart
	pixels *stats.Pixels
}

// tempFile is a file that was encoded for this dataset. It is closed and removed when all of its
// parts have been joined. It has its own library, because an open file would keep its disk space
// after removal.
type tempFile struct {
	lib  *video.Library
	path string // "" if the file is not removed
	uses atomic.Int32
}

// release ends one use of the file. The last one closes and removes it.
func (t *tempFile) release() {
	if t.uses.Add(-1) == 0 {
		_ = t.lib.Close()
		if t.path != "" {
			_ = os.Remove(t.path)
		}
	}
}

// encodedGroup is a set of episodes whose frames of one camera are encoded by one encoder.
type encodedGroup struct {
	writer   *Writer
	camera   *outCamera
	video    VideoConfig
	suffix   string // suffix of the name if the frames are the ends of episodes
	number   int
	episodes []*EpisodeData
	targets  []encodedTarget // per episode
	file     *tempFile
	name     string
	parts    []*encodedPart // per episode, nil if it failed
	errs     []error
	notes    []preparedNote
}

// encodedTarget is the part of an episode's video that encoded frames become.
type encodedTarget struct {
	episode int // index in the episodes of one call of Prepare
	part    int // 0, or 1 for the frames after a copied segment
}

// longGOP is the GOP length above which one encoder per episode costs less than filling up the last
// GOP of an episode.
const longGOP = 16

// gop returns the number of frames between key frames.
func (g *encodedGroup) gop() int {
	if g.video.GOP > 0 {
		return g.video.GOP
	}
	return 2 // the default of video.EncodeConfig
}

// encodeAll encodes the parts of all episodes. Each episode in a file must begin at a sync sample.
// The last GOP of the previous episode is therefore filled up with its last frame.
func (g *encodedGroup) encodeAll(ctx context.Context) {
	g.parts = make([]*encodedPart, len(g.episodes))
	g.errs = make([]error, len(g.episodes))
	if g.gop() > longGOP && len(g.episodes) > 1 {
		for j, ep := range g.episodes {
			one := &encodedGroup{
				writer:   g.writer,
				camera:   g.camera,
				video:    g.video,
				suffix:   g.suffix,
				number:   g.number + j,
				episodes: []*EpisodeData{ep},
			}
			one.encodeAll(ctx)
			g.parts[j], g.errs[j] = one.parts[0], one.errs[0]
			g.notes = append(g.notes, one.notes...)
		}
		return
	}
	if err := g.encodeTogether(ctx); err != nil {
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

// addPart adds the part of episode j, which begins at frame from of the file.
func (g *encodedGroup) addPart(j, from int) *encodedPart {
	g.file.uses.Add(1)
	p := &encodedPart{
		cameraPart: cameraPart{
			lib:      g.file.lib,
			path:     g.name,
			from:     from,
			to:       from + g.episodes[j].Length,
			tempFile: g.file,
		},
		pixels: g.episodes[j].FrameStats[g.camera.feature.Key],
	}
	g.parts[j] = p
	return p
}

// encodeTogether encodes all episodes of the group into one file. With Config.PartsDir it keeps
// that file for a resumed run, and uses the file that an interrupted run has kept.
func (g *encodedGroup) encodeTogether(ctx context.Context) (err error) {
	defer crash.Recover("write lerobot", &err)
	w := g.writer
	f := &g.camera.feature
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
	g.name = fmt.Sprintf("%d-%06d%s.mp4", slices.Index(w.cameraKeys, f.Key), g.number, g.suffix)
	file := filepath.Join(w.tempDir, g.name)
	g.file = &tempFile{lib: video.NewLibrary(w.tempStore.Open, 0), path: file}
	keepsParts := w.cfg.PartsDir != ""
	if keepsParts {
		g.file.path = "" // tempFile.release does not remove a kept file
		if g.reuseKept(file) {
			return nil
		}
	}
	w.encoders <- struct{}{} // limits how many encoders run at once
	defer func() { <-w.encoders }()
	unfinished := file
	if keepsParts {
		// A unique name, because the encoder of a killed run may still be writing its file.
		unfinished = strings.TrimSuffix(file, ".mp4") + "-" + rand.Text() + ".mp4"
	}
	enc, replaced, err := newEncoder(ctx, unfinished, g.video, w.cfg.FPS, f)
	if err != nil {
		return err
	}
	if replaced != "" {
		g.notes = append(g.notes, preparedNote{"codec-replaced", f.Key, replaced})
	}
	isClosed := false
	defer func() {
		if !isClosed { // after an error or a panic, no encoder must remain
			enc.Abort()
		}
	}()
	frames, err := g.feedEpisodes(ctx, enc)
	if err != nil {
		return err
	}
	if frames == 0 { // no episode yielded a frame
		return nil
	}
	isClosed = true
	if err := enc.Close(); err != nil || !keepsParts {
		return err
	}
	if err := robocache.At(os.Rename(unfinished, file), robocache.Where{"file": file}); err != nil {
		return err
	}
	for _, err := range g.errs {
		if err != nil {
			return nil // an incomplete file is not kept
		}
	}
	return g.writeKept(file)
}

// feedEpisodes writes the frames of all episodes to the encoder, and returns their number. The
// error of an episode is stored, and the others are still written.
func (g *encodedGroup) feedEpisodes(
	ctx context.Context,
	enc *video.Encoder,
) (frames int, err error) {
	for j := range g.episodes {
		n, last, err := g.feedFrames(ctx, enc, j, frames)
		if err != nil {
			if enc.Failed() != nil || ctx.Err() != nil {
				return frames, err
			}
			g.errs[j] = err
			if g.parts[j] != nil {
				g.parts[j] = nil
				g.file.uses.Add(-1) // release would remove the file while it is encoded
			}
		}
		frames += n
		if j == len(g.episodes)-1 || last == nil {
			continue
		}
		for ; frames%g.gop() > 0; frames++ { // the next episode begins with a key frame
			if err := enc.Write(last); err != nil {
				return frames, err
			}
		}
	}
	return frames, nil
}

// feedFrames writes the frames of episode j to the encoder, and counts the pixels of the frames
// that the statistics need. The episode begins at frame at of the file. n is the number of frames
// written. last is the frame that fills the last GOP of the episode.
func (g *encodedGroup) feedFrames(
	ctx context.Context,
	enc *video.Encoder,
	j, at int,
) (n int, last []byte, err error) {
	// An error of the frame source affects this episode only.
	defer crash.Recover("write lerobot", &err)
	ep := g.episodes[j]
	f := &g.camera.feature
	part := g.addPart(j, at)
	needsPixels := part.pixels == nil
	if needsPixels {
		part.pixels = g.writer.cfg.Frames.Images(f)
	}
	chosen := map[int]bool{}
	for _, k := range g.writer.cfg.Frames.Choose(ep.Length) {
		chosen[k] = true
	}
	err = ep.Videos[f.Key].Frames(func(p []byte) error {
		if n == ep.Length {
			return misuse(nil, "more frames than rows", "", "", "")
		}
		if needsPixels && chosen[n] {
			if f.Depth != nil {
				part.pixels.Add16(p, f.Width)
			} else {
				part.pixels.Add8(p, f.Width)
			}
		}
		if err := cmp.Or(ctx.Err(), enc.Write(p)); err != nil {
			return err
		}
		if ep.frameEncoded != nil {
			ep.frameEncoded()
		}
		n++
		if n == ep.Length || last == nil {
			// a failed episode fills its GOP with its first frame
			last = append(last[:0], p...)
		}
		return nil
	})
	if err == nil && n != ep.Length {
		err = misuse(nil, "images", strconv.Itoa(ep.Length), strconv.Itoa(n), "")
	}
	return n, last, err
}

// newEncoder starts the encoder of a camera. If the caller chose no codec and the default one does
// not support the size, it uses H.264. replaced is then the reason.
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
		cfg.Codec = video.H264
		cfg.Preset = ""
		if fallback, fallbackErr := video.NewEncoder(ctx, path, cfg); fallbackErr == nil {
			return fallback, "encoded as H.264: " + err.Error(), nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	return e, "", nil
}

// openTemp creates the folder for encoded episodes.
func (w *Writer) openTemp() error {
	w.tempMu.Lock()
	defer w.tempMu.Unlock()
	if w.tempDir != "" {
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
	w.tempDir = dir
	w.tempStore, err = store.Open(dir)
	if err != nil {
		return err
	}
	return nil
}

// closeTemp releases parts that were encoded for this dataset.
func (w *Writer) closeTemp(parts []cameraPart) {
	for _, p := range parts {
		if p.tempFile != nil {
			p.tempFile.release()
		}
	}
}
