package column

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/video"
)

// StillFiles gives the stills of a column to the store of frames: an episode is a file, whose frames are numbered by row.
type StillFiles struct{ Images *ImageColumn }

// Open gives an episode.
func (s StillFiles) Open(_ context.Context, path string) (frames.File, error) {
	episode, err := strconv.Atoi(path)
	return stillFile{s.Images, episode}, err
}

// Stats are none: the decoders are of videos.
func (s StillFiles) Stats() video.PoolStats { return video.PoolStats{} }

// Close has nothing to close.
func (s StillFiles) Close() {}

type stillFile struct {
	c       *ImageColumn
	episode int
}

// stillsPerJob bounds how many encoded images a job holds at once.
const stillsPerJob = 8

// Plan cuts rows into jobs.
func (s stillFile) Plan(_ *video.Planner, ordinals []int) (groups []video.Group) {
	for ; len(ordinals) > 0; ordinals = ordinals[min(stillsPerJob, len(ordinals)):] {
		groups = append(groups, video.Group{Ordinals: slices.Clone(ordinals[:min(stillsPerJob, len(ordinals))])})
	}
	return groups
}

// Decode delivers the stills of groups; of those that fail the first error, behind all others.
func (s stillFile) Decode(ctx context.Context, _ *video.Fetched, groups []video.Group, deliver func(ordinal int, f video.Frame) error) (first error) {
	for _, g := range groups {
		rows, refs := make([]robocache.Row, len(g.Ordinals)), make([]robocache.FrameRef, len(g.Ordinals))
		for i, o := range g.Ordinals {
			rows[i] = robocache.Row{Episode: s.episode, Index: o}
		}
		done, err := lease(ctx, s.c.Source.Dataset, s.c.Key, rows, refs)
		for i := 0; err == nil && i < len(rows); i++ {
			if err := s.still(rows[i], &refs[i], deliver); err != nil && first == nil {
				first = err
			}
		}
		done()
		first = cmp.Or(first, err)
	}
	return first
}

func (s stillFile) still(r robocache.Row, ref *robocache.FrameRef, deliver func(ordinal int, f video.Frame) error) error {
	switch {
	case ref.Missing && s.c.Feature.Masked:
		return errMasked
	case ref.Missing:
		return s.c.Source.missing(s.c.Column, r, ref)
	case ref.Path != "":
		return robocache.Unsupported("loader", nil, "a still image that is in a video file")
	}
	f := stillFrame{ref: ref, width: s.c.Width, height: s.c.Height}
	if s.c.Spec.Width == 0 || s.c.Resize != options.Stretch {
		info, err := video.ImageSize(ref)
		if err != nil {
			return err
		}
		f.width, f.height = info.Width, info.Height
	}
	if err := deliver(r.Index, f); err != nil {
		return err
	}
	s.c.Source.Resources.StillsDecoded.Add(1)
	return nil
}

// lease gets frames until done is called: without garbage, where the dataset can.
func lease(ctx context.Context, ds robocache.Dataset, key string, rows []robocache.Row, refs []robocache.FrameRef) (done func(), err error) {
	defer crash.Recover("loader", &err)
	done = func() {}
	release, err := robocache.LeaseFrames(ctx, ds, key, rows, refs)
	if release != nil {
		done = release
	}
	return done, err
}

func (stillFile) Remote() bool { return false }

func (stillFile) ReadsToDecode() {}

func (stillFile) FetchBytes(video.Group) int64 { return 0 }

func (stillFile) Identity() [32]byte { return [32]byte{} }

func (s stillFile) Size() (width, height int) { return s.c.Width, s.c.Height }

func (stillFile) TimeNS(int) int64 { return 0 }

func (stillFile) Release() {}

// Fetch is not asked for.
func (stillFile) Fetch(context.Context, []video.Group) (*video.Fetched, error) { return nil, nil }

// stillFrame is a still that is decoded when it is converted.
type stillFrame struct {
	ref           *robocache.FrameRef
	width, height int
}

func (f stillFrame) Size() (width, height int) { return f.width, f.height }

func (stillFrame) PixelFormat() string { return "still" }

// Bytes is not asked for.
func (stillFrame) Bytes(*video.Spec) (int, error) { return 0, nil }

// Convert decodes the still.
func (f stillFrame) Convert(spec *video.Spec, dst []byte) error {
	return video.DecodeImage(f.ref, spec, dst)
}
