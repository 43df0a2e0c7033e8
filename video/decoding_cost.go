package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
)

// AdvisedGOP is the GOP length advised for training in random order. It is a compromise: 4.5 frames
// are decoded per delivered frame, and the file is not much larger than with longer GOPs.
const AdvisedGOP = 8

// DecodedPerFrame returns the mean number of frames that are decoded to deliver one frame alone. It
// is (GOP + 1) / 2 if all GOPs have one length and frames are not reordered.
func (ix *Index) DecodedPerFrame() float64 {
	n := 0
	for k := range ix.NumFrames() {
		n += ix.DecodeIndex(k) - ix.Governing(k) + 1
	}
	return float64(n) / float64(max(1, ix.NumFrames()))
}

// engines lists the codecs that video/nvdec decodes on NVIDIA GPUs, with the smallest frame size
// that the engines support (docs/gpu/nvdec.md).
var engines = map[Codec][2]int{H264: {48, 16}, HEVC: {144, 144}, VP9: {128, 128}}

// OffEngine returns the reason why the engines of a GPU do not decode the frames of a sample entry,
// or "" if the entry gives no reason. It does not query a device, so a present device may still
// refuse.
func OffEngine(e *SampleEntry) (why string) {
	least, ok := engines[e.Codec]
	switch {
	case !ok:
		return fmt.Sprintf(
			"no GPU engine decodes %s: use h264, hevc or vp9",
			cmp.Or(string(e.Codec), e.FourCC),
		)
	case e.Width < least[0] || e.Height < least[1]:
		return fmt.Sprintf(
			"frames of %d×%d: the engines decode %s from %d×%d",
			e.Width,
			e.Height,
			e.Codec,
			least[0],
			least[1],
		)
	}
	x, err := NewElementary(e)
	if err != nil {
		return "" // the parameter sets may be in the samples
	}
	_ = func() error { // errors are ignored: the decoder reports unreadable parameter sets
		return eachNAL(x.parameterSets, func(nal []byte) error {
			if len(nal) < 4 || why != "" || !x.isKind(nal, 7, 33) {
				return nil
			}
			limit := Limits{}.orDefaults().MaxPixels
			var p *sequenceSet
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
				why = "the chroma format is not 4:2:0"
			case p.lumaBits+p.chromaBits > 0:
				why = fmt.Sprintf(
					"samples of %d bits: the engines decode 8 bits",
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

// Advised returns the codec that suits frames of this entry best on CPU and GPU. It is their own
// codec if engines decode it and an encoder exists, otherwise HEVC. For frames below the minimum
// size of the HEVC engines it is H.264.
func Advised(e *SampleEntry) Codec {
	switch {
	case OffEngine(e) == "" && encoders[e.Codec].name != "":
		return e.Codec
	case e.Width < engines[HEVC][0] || e.Height < engines[HEVC][1]:
		return H264
	}
	return HEVC
}

// FirstFile returns a file that represents a camera: the first readable file among the first 16
// episodes. It returns nil if there is none. The caller must call Release.
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

// firstPath returns the path of the first image of an episode, or "" if there is none. It skips
// missing images, because the first rows of a masked camera usually have none.
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
