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

// Limits of the frames that are compared for each camera.
const (
	psnrFrames = 64
	psnrBytes  = 256 << 20 // decoded frames of the source, as RGB
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
		sourceRows, resultRows := encodedRows(w, &f)
		p, err := v.cameraPSNR(ctx, ds, &f, sourceRows, resultRows)
		if err != nil {
			return nil, err
		}
		if p.Frames > 0 {
			out[f.Key] = p
		}
	}
	return out, nil
}

// encodedRows returns rows of a camera whose frames were encoded: the rows of the planned dataset
// and the same rows of the result. If psnrFrames or psnrBytes does not allow all such rows, evenly
// spaced ones are returned.
func encodedRows(
	w *write.Report,
	f *robocache.Feature,
) (sourceRows, resultRows []robocache.Row) {
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
			sourceRows = append(sourceRows, robocache.Row{Episode: e, Index: k})
			resultRows = append(resultRows, robocache.Row{Episode: m.New, Index: k})
		}
	}
	frameBytes := max(1, 3*f.Width*f.Height)
	n := min(len(resultRows), psnrFrames, max(1, psnrBytes/frameBytes))
	for i := range n {
		k := (2*i + 1) * len(resultRows) / (2 * n)
		sourceRows[i], resultRows[i] = sourceRows[k], resultRows[k]
	}
	return sourceRows[:n], resultRows[:n]
}

// cameraPSNR compares the frames of rows of the result with those of the source.
func (v *planDataset) cameraPSNR(
	ctx context.Context,
	result robocache.Dataset,
	f *robocache.Feature,
	sourceRows, resultRows []robocache.Row,
) (PSNR, error) {
	spec := &video.Spec{Pixel: video.RGB8, Width: f.Width, Height: f.Height}
	frames := make([][]byte, len(sourceRows))
	keep := func(i int, pix []byte) { frames[i] = slices.Clone(pix) }
	if err := eachFrame(ctx, v, f.Key, sourceRows, spec, keep); err != nil {
		return PSNR{}, err
	}
	p := PSNR{Min: math.Inf(1)}
	compare := func(i int, pix []byte) {
		if frames[i] == nil {
			return // the source frame is black
		}
		sum := 0
		for j, x := range pix {
			d := int(x) - int(frames[i][j])
			sum += d * d
		}
		db := min(100, 10*math.Log10(255*255*float64(len(pix))/float64(sum)))
		p.Min = min(p.Min, db)
		p.Mean += db
		p.Frames++
	}
	if err := eachFrame(ctx, result, f.Key, resultRows, spec, compare); err != nil {
		return PSNR{}, err
	}
	p.Min = math.Round(100*p.Min) / 100
	p.Mean = math.Round(100*p.Mean/float64(p.Frames)) / 100
	return p, nil
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
