package inspect

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

const (
	sheetWidth = 1280
	sheetCols  = 8   // pictures a camera
	plotHeight = 200 // pixels
	maxCurves  = 12  // channels drawn of a stream
	linePx     = 16  // a line of text
	captionPx  = 2 * linePx
)

// ContactSheet writes a PNG of one episode: evenly spaced pictures of every camera, and the numeric streams below on
// the same time axis. The file appears whole or not at all.
func ContactSheet(ctx context.Context, ds robocache.Dataset, episode int, path string) error {
	ep, err := ds.Episode(ctx, episode)
	if err != nil {
		return err
	}
	if ep.Length == 0 {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "contact sheet", Where: robocache.Where{"episode": episode}, Msg: "the episode has no rows"}
	}
	var parts []image.Image
	features := ds.Info().Features
	for i := range features {
		f := &features[i]
		if f.Kind != robocache.KindVideo && f.Kind != robocache.KindImage {
			continue
		}
		strip, err := cameraStrip(ctx, ds, f, episode, ep.Length)
		if err != nil {
			return err
		}
		parts = append(parts, strip)
	}
	for i := range features {
		f := &features[i]
		if f.Kind != robocache.KindNumeric || f.Default {
			continue
		}
		p, err := streamPlot(ctx, ds, f, episode, ep.Length)
		if err != nil {
			return err
		}
		if p != nil {
			parts = append(parts, p)
		}
	}
	height := 0
	for _, p := range parts {
		height += p.Bounds().Dy()
	}
	sheet := image.NewRGBA(image.Rect(0, 0, sheetWidth, max(height, 1)))
	draw.Draw(sheet, sheet.Bounds(), image.White, image.Point{}, draw.Src)
	y := 0
	for _, p := range parts {
		draw.Draw(sheet, image.Rect(0, y, sheetWidth, y+p.Bounds().Dy()), p, p.Bounds().Min, draw.Src)
		y += p.Bounds().Dy()
	}
	return writePNG(path, sheet)
}

// cameraStrip decodes sheetCols pictures of a camera side by side, with its name and their row numbers above.
func cameraStrip(ctx context.Context, ds robocache.Dataset, f *robocache.Feature, episode, length int) (image.Image, error) {
	n := min(sheetCols, length)
	rows := make([]robocache.Row, n)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: i * (length - 1) / max(n-1, 1)}
	}
	refs := make([]robocache.FrameRef, n)
	if err := ds.Frames(ctx, f.Key, rows, refs); err != nil {
		return nil, err
	}
	w := sheetWidth / sheetCols
	h := w * 3 / 4
	if f.Width > 0 && f.Height > 0 {
		h = max(1, w*f.Height/f.Width)
	}
	tiles := make([]*image.RGBA, n)
	if err := decodeTiles(ctx, ds, refs, w, h, tiles); err != nil {
		return nil, robocache.At(err, robocache.Where{"stream": f.Key, "episode": episode})
	}
	labels := vgimg.New(vg.Length(sheetWidth)*vg.Inch/96, vg.Length(captionPx)*vg.Inch/96)
	style := vgdraw.TextStyle{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size = font.Points(8)
	dc := vgdraw.New(labels)
	for i := range rows {
		dc.FillText(style, vg.Point{X: dc.Max.X * vg.Length(i) / sheetCols, Y: 3}, fmt.Sprintf("row %d", rows[i].Index))
	}
	dc.FillText(style, vg.Point{Y: 3 + linePx*vg.Inch/96}, f.Key)
	strip := image.NewRGBA(image.Rect(0, 0, sheetWidth, captionPx+h))
	draw.Draw(strip, strip.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(strip, image.Rect(0, 0, sheetWidth, captionPx), labels.Image(), image.Point{}, draw.Over)
	for i, t := range tiles {
		if t != nil {
			draw.Draw(strip, image.Rect(i*w, captionPx, (i+1)*w, captionPx+h), t, image.Point{}, draw.Src)
		}
	}
	return strip, nil
}

func decodeTiles(ctx context.Context, ds robocache.Dataset, refs []robocache.FrameRef, w, h int, tiles []*image.RGBA) error {
	spec := &video.Spec{Width: w, Height: h, Pixel: video.RGB8}
	rgb := make([]byte, 3*w*h)
	put := func(i int) {
		t := image.NewRGBA(image.Rect(0, 0, w, h))
		for p := range w * h {
			copy(t.Pix[4*p:], rgb[3*p:3*p+3])
			t.Pix[4*p+3] = 255
		}
		tiles[i] = t
	}
	byFile := map[string][]int{}
	for i, r := range refs {
		switch {
		case r.Missing:
		case r.Path == "":
			if err := stillTile(&refs[i], spec, rgb); err != nil {
				return err
			}
			put(i)
		default:
			byFile[r.Path] = append(byFile[r.Path], i)
		}
	}
	lib, ok := robocache.As[withVideo](ds)
	if !ok || len(byFile) == 0 {
		return nil
	}
	pool := video.NewPool(64 << 20)
	defer pool.Close()
	for path, wanted := range byFile {
		err := func() error {
			file, err := lib.Video().Acquire(ctx, path)
			if err != nil {
				return err
			}
			defer file.Release()
			ordinals := make([]int, len(wanted))
			for k, i := range wanted {
				ordinals[k] = refs[i].Ordinal
			}
			for _, g := range video.Plan(file.Index, ordinals) {
				err := pool.Decode(ctx, file, g, func(ordinal int, pic video.Picture) error {
					if err := pic.Convert(spec, rgb); err != nil {
						return err
					}
					for _, i := range wanted {
						if refs[i].Ordinal == ordinal {
							put(i)
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// streamPlot draws a numeric stream against the episode's time; nil where it cannot be drawn as curves.
func streamPlot(ctx context.Context, ds robocache.Dataset, f *robocache.Feature, episode, length int) (image.Image, error) {
	if len(f.Shape) > 1 || f.Elements() == 0 {
		return nil, nil
	}
	times, err := ds.Times(ctx, episode, f.Key)
	if err != nil {
		return nil, err
	}
	length = min(length, len(times))
	rows := make([]robocache.Row, length)
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: i}
	}
	buf := make([]byte, length*f.RowBytes())
	if err := ds.Gather(ctx, f.Key, rows, buf); err != nil {
		return nil, err
	}
	values := robocache.Float64s(nil, f.DType, buf)
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s %v", f.Key, f.Shape)
	p.Title.TextStyle.Font.Size = font.Points(8)
	p.X.Label.Text = "s"
	d := f.Elements()
	for c := range min(d, maxCurves) {
		pts := make(plotter.XYs, length)
		for i := range pts {
			pts[i] = plotter.XY{X: float64(times[i]-times[0]) / 1e9, Y: values[i*d+c]}
		}
		line, err := plotter.NewLine(pts)
		if err != nil {
			return nil, nil // NaN or Inf: doctor reports those
		}
		line.Color = plotutil.Color(c)
		p.Add(line)
	}
	img := vgimg.New(vg.Length(sheetWidth)*vg.Inch/96, vg.Length(plotHeight)*vg.Inch/96)
	p.Draw(vgdraw.New(img))
	return img.Image(), nil
}

func writePNG(path string, img image.Image) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".sheet-*.png")
	if err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = robocache.At(err, robocache.Where{"file": path})
		}
	}()
	if err = png.Encode(f, img); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
