package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// AdvisedGOP is a compromise for training on frames in any order: 4.5 frames are decoded for one,
// of a file not much larger than with longer GOPs.
const AdvisedGOP = 8

// DecodedPerFrame is how many frames are decoded for one that is asked for alone, on the mean over
// all frames: (GOP + 1) / 2 where GOPs are even and frames come in order.
func (ix *Index) DecodedPerFrame() float64 {
	n := 0
	for k := range ix.NumFrames() {
		n += ix.DecodeIndex(k) - ix.Governing(k) + 1
	}
	return float64(n) / float64(max(1, ix.NumFrames()))
}

// engines are the codecs that NVIDIA's engines are asked to decode (video/nvdec), each with the
// least size that they take (docs/gpu/nvdec.md).
var engines = map[Codec][2]int{H264: {48, 16}, HEVC: {144, 144}, VP9: {128, 128}}

// OffEngine says why a GPU's engines do not decode the frames of an entry, by what the entry says
// of itself; "" where nothing speaks against it. It asks no device: the engines of one at hand have
// the last word.
func OffEngine(e *SampleEntry) (why string) {
	least, ok := engines[e.Codec]
	switch {
	case !ok:
		return fmt.Sprintf(
			"no GPU engine is used for %s: h264, hevc and vp9 have one",
			cmp.Or(string(e.Codec), e.FourCC),
		)
	case e.Width < least[0] || e.Height < least[1]:
		return fmt.Sprintf(
			"frames of %d×%d: engines take %s from %d×%d on",
			e.Width,
			e.Height,
			e.Codec,
			least[0],
			least[1],
		)
	}
	x, err := NewElementary(e)
	if err != nil {
		return "" // parameter sets may come with the frames
	}
	_ = func() error { // a set that cannot be read is the decoder's matter
		return nals(x.sets, func(nal []byte) error {
			if len(nal) < 4 || why != "" || !x.is(nal, 7, 33) {
				return nil
			}
			limit := Limits{}.orDefaults().MaxPixels
			var p *frameSet
			if e.Codec == HEVC {
				var err error
				if p, err = parseSPS265(nal, limit); err != nil {
					return err
				}
			} else {
				var err error
				if p, err = parseSPS264(nal, limit); err != nil {
					return err
				}
			}
			switch {
			case p.chroma != 1:
				why = "colour is not stored 4:2:0"
			case p.lumaBits+p.chromaBits > 0:
				why = fmt.Sprintf(
					"samples of %d bits: engines are asked for 8",
					8+max(p.lumaBits, p.chromaBits),
				)
			case p.fields:
				why = "interlaced frames"
			}
			return nil
		})
	}()
	return why
}

// Advised is the codec in which frames like an entry's are best kept for CPU and GPU: the one that
// they have, where engines take it and an encoder is known, else HEVC, or H.264 for frames smaller
// than HEVC's engines take.
func Advised(e *SampleEntry) Codec {
	switch {
	case OffEngine(e) == "" && encoders[e.Codec].name != "":
		return e.Codec
	case e.Width < engines[HEVC][0] || e.Height < engines[HEVC][1]:
		return H264
	}
	return HEVC
}

// FirstFile gives the file that speaks for a camera: that of the first episode, of sixteen, whose
// file can be read. nil where there is none. It is to be released.
func FirstFile(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
) (_ *File, err error) {
	lib := LibraryOf(ds)
	if lib == nil {
		return nil, nil
	}
	for e := range min(ds.Info().Episodes, 16) {
		if ds.Len(e) == 0 {
			continue
		}
		var file *File
		failed := func() error {
			if path, err := firstPath(ctx, ds, f, e); err != nil {
				return err
			} else if path != "" {
				acquire, err := lib.Acquire(ctx, path)
				if err != nil {
					return err
				}
				file = acquire
			}
			return nil
		}()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case file != nil:
			return file, nil
		case errors.Is(failed, robocache.ErrInternal):
			return nil, failed
		case failed != nil:
			err = failed
		}
	}
	return nil, err
}

// firstPath is the file of the first image of an episode; "" where it has none. The first rows of a
// masked camera mostly have none.
func firstPath(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	ep int,
) (string, error) {
	n := 1
	if f.Masked {
		var err error
		if n, err = robocache.RowsIn(ctx, ds, ep, f); err != nil {
			return "", err
		}
	}
	for at, step := 0, 1; at < n; at, step = at+step, min(4*step, 4096) {
		rows := robocache.RowsOf(ep, at, min(step, n-at))
		refs := make([]robocache.FrameRef, len(rows))
		if err := ds.Frames(ctx, f.Key, rows, refs); err != nil {
			return "", err
		}
		for _, r := range refs {
			if !r.Missing {
				return r.Path, nil
			}
		}
	}
	return "", nil
}
