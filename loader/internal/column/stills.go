package column

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/loader/internal/frames"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// StillFiles implements frames.Files for the still images of a column. An episode is a file, and
// frames are numbered by row.
type StillFiles struct{ Images *ImageColumn }

// Open returns an episode. path is its position in the dataset.
func (s StillFiles) Open(_ context.Context, path string) (frames.File, error) {
	episode, err := strconv.Atoi(path)
	return stillFile{s.Images, episode}, err
}

// Stats returns zeros: decoder statistics are of videos.
func (s StillFiles) Stats() video.PoolStats { return video.PoolStats{} }

// Close does nothing.
func (s StillFiles) Close() {}

// stillFile implements frames.File for the stills of one episode.
type stillFile struct {
	column  *ImageColumn
	episode int
}

// stillsPerJob limits the encoded images that one job holds in memory.
const stillsPerJob = 8

// Plan divides rows into groups of stillsPerJob.
func (s stillFile) Plan(_ *video.Planner, ordinals []int) (groups []video.Group) {
	for ; len(ordinals) > 0; ordinals = ordinals[min(stillsPerJob, len(ordinals)):] {
		groups = append(
			groups,
			video.Group{Ordinals: slices.Clone(ordinals[:min(stillsPerJob, len(ordinals))])},
		)
	}
	return groups
}

// Decode delivers the stills of groups. It continues after an error and returns the first one.
func (s stillFile) Decode(
	ctx context.Context, _ *video.Fetched, groups []video.Group,
	deliver func(ordinal int, f video.Frame) error,
) (first error) {
	for _, g := range groups {
		rows := make([]robocache.Row, len(g.Ordinals))
		refs := make([]robocache.FrameRef, len(g.Ordinals))
		for i, o := range g.Ordinals {
			rows[i] = robocache.Row{Episode: s.episode, Index: o}
		}
		done, err := leaseFrames(ctx, s.column.Source.Dataset, s.column.StreamKey(), rows, refs)
		for i := 0; err == nil && i < len(rows); i++ {
			if err := s.deliverStill(rows[i], &refs[i], deliver); err != nil && first == nil {
				first = err
			}
		}
		done()
		first = cmp.Or(first, err)
	}
	return first
}

// deliverStill delivers one still. It is decoded when deliver converts it.
func (s stillFile) deliverStill(
	r robocache.Row, ref *robocache.FrameRef, deliver func(ordinal int, f video.Frame) error,
) error {
	switch {
	case ref.Missing && s.column.Feature.Masked:
		return errMaskedFrame
	case ref.Missing:
		return s.column.Source.missingFrameError(s.column.Column, r, ref)
	case ref.Path != "":
		return robocache.Unsupported("loader", nil, "a still image that is in a video file")
	}
	f := stillFrame{ref: ref, width: s.column.Width, height: s.column.Height}
	if s.column.Spec.Width == 0 || s.column.Resize != options.Stretch {
		info, err := video.ImageSize(ref)
		if err != nil {
			return err
		}
		f.width, f.height = info.Width, info.Height
	}
	if err := deliver(r.Index, f); err != nil {
		return err
	}
	s.column.Source.Resources.StillsDecoded.Add(1)
	return nil
}

// leaseFrames reads frame references that are valid until done is called. It avoids garbage if the
// dataset implements FrameLeaser.
func leaseFrames(
	ctx context.Context, ds robocache.Dataset, key string, rows []robocache.Row,
	refs []robocache.FrameRef,
) (done func(), err error) {
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

// FetchBytes returns 0, because stills are not fetched ahead.
func (stillFile) FetchBytes(video.Group) int64 { return 0 }

func (stillFile) Identity() [32]byte { return [32]byte{} }

func (s stillFile) Size() (width, height int) { return s.column.Width, s.column.Height }

func (stillFile) TimeNS(int) int64 { return 0 }

func (stillFile) Release() {}

// Fetch is never called, because Remote returns false.
func (stillFile) Fetch(context.Context, []video.Group) (*video.Fetched, error) { return nil, nil }

// stillFrame is a still that is decoded when it is converted.
type stillFrame struct {
	ref           *robocache.FrameRef
	width, height int
}

func (f stillFrame) Size() (width, height int) { return f.width, f.height }

func (stillFrame) PixelFormat() string { return "still" }

// Bytes is never called.
func (stillFrame) Bytes(*video.Spec) (int, error) { return 0, nil }

// Convert decodes the still into dst.
func (f stillFrame) Convert(spec *video.Spec, dst []byte) error {
	return video.DecodeImage(f.ref, spec, dst)
}
