package edit

import (
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/video"
)

// PSNR compares encoded frames with their originals, in dB over red, green and blue. Equal frames
// count as 100.
type PSNR struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	// Frames is the number of compared frames. They are evenly spaced among the encoded ones.
	Frames int `json:"frames"`
}

const (
	psnrFrames = 64
	psnrBytes  = 256 << 20
)

// comparePSNR compares the encoded frames of a result with the source, for each camera. Depth is
// skipped because it is encoded without loss.
func (v *planDataset) comparePSNR(
	ctx context.Context,
	dst string,
	w *write.Report,
) (map[string]PSNR, error) {
	out := map[string]PSNR{}
	ds, err := robocache.Open(ctx, dst, robocache.OpenOptions{Format: robocache.DefaultFormat()})
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	for _, f := range ds.Info().Features {
		source := v.info.Feature(f.Key)
		if f.Kind != robocache.KindVideo || f.Depth != nil {
			continue
		}
		if source == nil || source.Kind != robocache.KindVideo {
			continue
		}
		var was, is []robocache.Row // rows with encoded frames, in the source and in the result
		for e, m := range w.Episodes {
			if m.New < 0 {
				continue
			}
			isCopied := m.Video[f.Key] == "copied"
			ends := m.Ends[f.Key] // frames that were encoded at the two ends of a copied segment
			for k := range m.Length {
				if isCopied && k >= ends[0] && k < m.Length-ends[1] {
					continue
				}
				was = append(was, robocache.Row{Episode: e, Index: k})
				is = append(is, robocache.Row{Episode: m.New, Index: k})
			}
		}
		n := min(len(is), psnrFrames, max(1, psnrBytes/max(1, 3*f.Width*f.Height)))
		for i := range n {
			k := (2*i + 1) * len(is) / (2 * n)
			was[i], is[i] = was[k], is[k]
		}
		spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
		frames := make([][]byte, n)
		err := eachFrame(
			ctx,
			v,
			f.Key,
			was[:n],
			spec,
			func(i int, pix []byte) { frames[i] = slices.Clone(pix) },
		)
		if err != nil {
			return nil, err
		}
		p := PSNR{Min: math.Inf(1)}
		if err := eachFrame(ctx, ds, f.Key, is[:n], spec, func(i int, pix []byte) {
			if frames[i] == nil {
				return // the source frame is black
			}
			sum := 0
			for j, x := range pix {
				d := int(x) - int(frames[i][j])
				sum += d * d
			}
			db := min(100, 10*math.Log10(255*255*float64(len(pix))/float64(sum)))
			p.Min, p.Mean, p.Frames = min(p.Min, db), p.Mean+db, p.Frames+1
		}); err != nil {
			return nil, err
		}
		if p.Frames > 0 {
			out[f.Key] = PSNR{
				math.Round(100*p.Min) / 100,
				math.Round(100*p.Mean/float64(p.Frames)) / 100,
				p.Frames,
			}
		}
	}
	return out, nil
}

// eachFrame decodes the frames of rows of a camera and calls fn for each. pix is valid until the
// next call.
func eachFrame(
	ctx context.Context,
	ds robocache.Dataset,
	key string,
	rows []robocache.Row,
	spec *video.Spec,
	fn func(i int, pix []byte),
) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(ctx, key, rows, refs); err != nil {
		return err
	}
	var buf []byte
	return video.EachFrame(
		ctx,
		video.LibraryOf(ds),
		refs,
		video.Each{},
		func(at []int, pic video.Frame) (err error) {
			if pic == nil {
				return nil
			}
			if buf, err = video.ConvertTo(buf, pic, spec); err == nil {
				for _, i := range at {
					fn(i, buf)
				}
			}
			return err
		},
	)
}
