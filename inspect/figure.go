package inspect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"image"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	px         = vg.Inch / 96 // of a figure
	sheetWidth = 1280
	sheetCols  = 8    // frames a camera
	linePx     = 16   // a line of text
	mostMarks  = 2048 // rows of a stream that is not numbers
	plotHeight = 200
	markHeight = 96 // of a stream that is drawn by its times alone
	legendPx   = 280
	legendLine = 13
)

// part is a row of a figure: of its width, and a height in pixels.
type part struct {
	height int
	draw   func(vgdraw.Canvas)
}

// Plotted says what a figure shows.
type Plotted struct {
	File    string   `json:"file"`
	Episode int      `json:"episode"`
	Streams []string `json:"streams"`
	Notes   []string `json:"notes,omitempty"` // what is not drawn
}

// CheckPlot refuses the name of a figure whose suffix is none of .png, .svg and .html: it is asked before any work is done.
func CheckPlot(path string) error {
	if slices.Contains([]string{".png", ".svg", ".html"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "plot", Where: robocache.Where{"file": path}, Want: "a name that ends in .png, .svg or .html", Got: strconv.Quote(filepath.Ext(path))}
}

// Plot draws streams of an episode below each other, on one axis, the episode's whole time, each at its own timestamps. keys: the streams (of a camera: frames);
// none: all but cameras. The name's suffix says what is written: PNG, SVG, or a page that holds the SVG, without scripts. The file appears whole or not at all.
func Plot(ctx context.Context, ds robocache.Dataset, episode int, keys []string, path string) (*Plotted, error) {
	if err := CheckPlot(path); err != nil {
		return nil, err
	}
	return draw(ctx, ds, episode, keys, false, path)
}

// CheckSheet is CheckPlot for contact sheets: without a suffix they are PNG.
func CheckSheet(path string) error {
	if filepath.Ext(path) == "" {
		return nil
	}
	return CheckPlot(path)
}

// ContactSheet draws all of an episode: evenly spaced frames of every camera, and every other stream below on one time axis. What is not drawn is said at the end.
func ContactSheet(ctx context.Context, ds robocache.Dataset, episode int, path string) error {
	err := CheckSheet(path)
	if err == nil {
		_, err = draw(ctx, ds, episode, nil, true, path)
	}
	return err
}

// drawer draws the streams of an episode.
type drawer struct {
	ctx     context.Context
	ds      robocache.Dataset
	episode int
	all     *Timelines
	parts   []*part
	Plotted
}

func draw(ctx context.Context, ds robocache.Dataset, episode int, keys []string, cameras bool, path string) (_ *Plotted, err error) {
	defer guard.Into(&err)
	ep := guard.Must(ds.Episode(ctx, episode))
	d := &drawer{ctx: ctx, ds: ds, episode: episode, all: guard.Must(TimelinesOf(ctx, ds, episode)), Plotted: Plotted{File: path, Episode: episode}}
	title := fmt.Sprintf("episode %d of %s: %s", episode, robocache.Redact(ds.Info().URI), strings.Join(ep.Tasks, " | "))
	chosen := d.named(keys)
	if len(keys) == 0 {
		chosen = d.every(cameras)
	}
	if len(chosen) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "plot", Where: robocache.Where{"episode": episode}, Msg: "the episode has nothing to draw", Got: strings.Join(d.Notes, "; "), Hint: "--keys names cameras too: their frames are drawn"}
	}
	d.text(title)
	for _, i := range chosen {
		f, l := &ds.Info().Features[i], d.all.Streams[i]
		guard.Check(robocache.At(guard.Try(func() {
			if rank(f) == 0 {
				d.camera(f, l)
			} else {
				d.stream(f, l)
			}
		}), robocache.Where{"stream": f.Key, "episode": episode}))
		d.Streams = append(d.Streams, f.Key)
	}
	d.text(d.Notes...)
	return &d.Plotted, store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), d.render(cmp.Or(strings.ToLower(filepath.Ext(path)), ".png"), title))
}

// rank is where a stream stands: cameras first, then numbers, then what is marks.
func rank(f *robocache.Feature) int {
	switch f.Kind {
	case robocache.KindVideo, robocache.KindImage:
		return 0
	case robocache.KindNumeric:
		return 1
	}
	return 2
}

// every gives the streams that are drawn where none are named, and notes the others.
func (d *drawer) every(cameras bool) (chosen []int) {
	var left [3][]string
	features := d.ds.Info().Features
	for i := range features {
		f, l, why := &features[i], d.all.Streams[i], 0
		switch {
		case f.Default:
			why = 1
		case l.Rows == 0 && l.Problem != "":
			d.Notes = append(d.Notes, "not drawn: "+f.Key+": "+l.Problem)
			continue
		case l.Rows == 0:
			why = 2
		case rank(f) > 0 || cameras:
			chosen = append(chosen, i)
			continue
		}
		left[why] = append(left[why], f.Key)
	}
	for i, why := range []string{"cameras (--keys draws frames of them)", "columns of the format's bookkeeping", "no rows in this episode"} {
		if len(left[i]) > 0 {
			d.Notes = append(d.Notes, "not drawn, "+why+": "+strings.Join(left[i], ", "))
		}
	}
	slices.SortStableFunc(chosen, func(a, b int) int { return rank(&features[a]) - rank(&features[b]) })
	return chosen
}

// named gives the streams of keys.
func (d *drawer) named(keys []string) (chosen []int) {
	features := d.ds.Info().Features
	for _, key := range keys {
		i := slices.IndexFunc(features, func(f robocache.Feature) bool { return f.Key == key })
		switch {
		case i < 0:
			guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "plot", Where: robocache.Where{"stream": key}, Msg: "there is no such stream", Hint: "it has: " + strings.Join(d.ds.Info().Keys(), ", ")})
		case features[i].Default:
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "plot", Where: robocache.Where{"stream": key}, Msg: "a column of the format's bookkeeping is not drawn"})
		case d.all.Streams[i].Rows == 0:
			d.Notes = append(d.Notes, "not drawn, no rows in this episode: "+key)
		default:
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// seconds is the place of a timestamp on the axis.
func (d *drawer) seconds(l *Timeline, t int64) float64 {
	if l.Timeless {
		return float64(t) / 1e9 // its row
	}
	return float64(t-d.all.Start) / 1e9
}

// text draws lines of text, broken where the figure ends.
func (d *drawer) text(lines ...string) {
	const wide = 200 // letters
	var broken []string
	for _, l := range lines {
		r := []rune(l)
		for len(r) > wide {
			broken, r = append(broken, string(r[:wide])), r[wide:]
		}
		broken = append(broken, string(r))
	}
	d.parts = append(d.parts, &part{len(broken)*linePx + linePx/2, func(dc vgdraw.Canvas) {
		for i, l := range broken {
			dc.FillText(textStyle(), vg.Point{X: dc.Min.X + 3, Y: dc.Max.Y - vg.Length((i+1)*linePx)*px}, l)
		}
	}})
}

func textStyle() vgdraw.TextStyle {
	style := vgdraw.TextStyle{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler}
	style.Font.Size = font.Points(8)
	return style
}

// camera decodes sheetCols frames of a camera side by side, with its name, their row numbers and their times above.
func (d *drawer) camera(f *robocache.Feature, l *Timeline) {
	n := min(sheetCols, l.Rows)
	rows, refs, tiles := make([]robocache.Row, n), make([]robocache.FrameRef, n), make([]image.Image, n)
	for i := range rows {
		rows[i] = robocache.Row{Episode: d.episode, Index: i * (l.Rows - 1) / max(n-1, 1)}
	}
	guard.Check(d.ds.Frames(d.ctx, f.Key, rows, refs))
	const w = sheetWidth / sheetCols
	h := 1
	guard.Check(video.EachFrame(d.ctx, video.LibraryOf(d.ds), refs, video.Each{}, func(at []int, pic video.Frame) error {
		img, err := (&Painter{}).Paint(f, &refs[at[0]], pic, w)
		if err != nil || img == nil {
			return err
		}
		h = max(h, w*img.Rect.Dy()/img.Rect.Dx())
		for _, i := range at {
			tiles[i] = img
		}
		return nil
	}))
	d.parts = append(d.parts, &part{2*linePx + h, func(dc vgdraw.Canvas) {
		dc.FillText(textStyle(), vg.Point{X: dc.Min.X, Y: dc.Max.Y - linePx*px + 3}, f.Key)
		for i, tile := range tiles {
			text := fmt.Sprintf("row %d", rows[i].Index)
			if !l.Timeless {
				text += fmt.Sprintf(", %.2f s", d.seconds(l, l.Times[rows[i].Index]))
			}
			if tile == nil {
				text += ": none"
				tile = &image.Gray{Pix: []byte{224}, Stride: 1, Rect: image.Rect(0, 0, 1, 1)}
			}
			x, y := dc.Min.X+vg.Length(i*w)*px, dc.Max.Y-2*linePx*px
			dc.FillText(textStyle(), vg.Point{X: x, Y: y + 3}, text)
			dc.DrawImage(vg.Rectangle{Min: vg.Point{X: x, Y: dc.Min.Y}, Max: vg.Point{X: x + w*px, Y: y}}, tile)
		}
	}})
}

// stream draws a stream against the episode's time: curves with a legend, or a mark for each row.
func (d *drawer) stream(f *robocache.Feature, l *Timeline) {
	p := plot.New()
	p.Title.TextStyle.Font.Size = font.Points(8)
	p.X.Min, p.X.Max, p.X.Label.Text = 0, max(float64(d.all.End-d.all.Start)/1e9, 1e-3), "s"
	if l.Timeless {
		p.X.Max, p.X.Label.Text = max(float64(l.Rows-1), 1), "row"
	}
	height := plotHeight
	var names []string
	if Curves(f) {
		names = ChannelNames(f)
		p.Title.Text = d.curves(p, f, l)
		names = names[:min(len(names), MaxChannels)]
	} else {
		height = markHeight
		p.HideY()
		p.Title.Text = d.marks(p, f, l)
	}
	columns := min(max(1+(len(names)-1)/((plotHeight-2*legendLine)/legendLine), 1), 2)
	per := (len(names) + columns - 1) / columns
	height = max(height, (per+2)*legendLine)
	d.parts = append(d.parts, &part{height, func(dc vgdraw.Canvas) {
		p.Draw(vgdraw.Crop(dc, 0, -legendPx*px, 0, 0))
		for i, name := range names {
			x := dc.Max.X - legendPx*px + vg.Length(10+i/per*legendPx/columns)*px
			y := dc.Max.Y - vg.Length((i%per+2)*legendLine)*px
			dc.StrokeLine2(vgdraw.LineStyle{Color: channelColor(i), Width: 2 * px}, x, y+4*px, x+14*px, y+4*px)
			dc.FillText(textStyle(), vg.Point{X: x + 18*px, Y: y}, shortened(name, 42/columns))
		}
	}})
}

// curves adds the channels of a stream, interrupted where there is a gap or no finite value, and gives the title.
func (d *drawer) curves(p *plot.Plot, f *robocache.Feature, l *Timeline) (title string) {
	start := d.all.Start
	if l.Timeless {
		start = 0
	}
	s := guard.Must(SeriesOf(d.ctx, d.ds, f, l, d.episode, Whole(start)))
	for c, ys := range s.Y {
		var line plotter.XYs
		for i := 0; i <= len(ys); i++ {
			if i < len(ys) && !math.IsNaN(ys[i]) {
				line = append(line, plotter.XY{X: s.X[i] / 1e9, Y: ys[i]})
			} else if len(line) > 0 {
				addLine(p, line, channelColor(c))
				line = nil
			}
		}
	}
	title = fmt.Sprintf("%s  %s %v, %d rows", f.Key, f.DType, f.Shape, l.Rows)
	if f.Unit != "" {
		title += ", in " + f.Unit
	}
	if s.Columns < s.Of {
		title += fmt.Sprintf("; channels 0 to %d, the other %d are not drawn", s.Columns-1, s.Of-s.Columns)
	}
	if s.Missing > 0 {
		title += fmt.Sprintf("; %d values are missing or not finite", s.Missing)
	}
	return title
}

// marks adds a mark for each row of what is not numbers, and gives the title.
func (d *drawer) marks(p *plot.Plot, f *robocache.Feature, l *Timeline) (title string) {
	title = fmt.Sprintf("%s  %s, %d rows", f.Key, f.Kind, l.Rows)
	if f.Kind == robocache.KindText {
		texts := guard.Must(d.ds.Text(d.ctx, f.Key, []robocache.Row{{Episode: d.episode}}))
		title += fmt.Sprintf("; the first: %q", shortened(texts[0], 80))
	}
	step := max(1, l.Rows/mostMarks)
	for row := 0; row < l.Rows; row += step {
		x := d.seconds(l, l.Times[row])
		addLine(p, plotter.XYs{{X: x}, {X: x, Y: 1}}, color.Black)
	}
	if step > 1 {
		title += fmt.Sprintf("; every %dth is marked", step)
	}
	return title
}

func addLine(p *plot.Plot, xys plotter.XYs, c color.Color) {
	if len(xys) == 1 { // a line of one point shows nothing
		dot := guard.Must(plotter.NewScatter(xys))
		dot.Color, dot.Radius, dot.Shape = c, 1.5, vgdraw.CircleGlyph{}
		p.Add(dot)
		return
	}
	line := guard.Must(plotter.NewLine(xys))
	line.Color = c
	p.Add(line)
}

// channelColor gives neighbours colours that are far apart.
func channelColor(i int) color.Color {
	_, hue := math.Modf(0.6 + float64(i)*0.618034)
	return palette.HSVA{H: hue, S: 0.85, V: 0.85 - 0.3*float64(i%3)/2, A: 1}
}

func shortened(text string, letters int) string {
	if r := []rune(text); len(r) > letters {
		return string(r[:letters-1]) + "…"
	}
	return text
}

// render draws the parts below each other.
func (d *drawer) render(suffix, title string) []byte {
	height := 0
	for _, p := range d.parts {
		height += p.height
	}
	wide, high := vg.Length(sheetWidth)*px, vg.Length(height)*px
	var on interface {
		vg.CanvasSizer
		io.WriterTo
	} = vgsvg.New(wide, high)
	if suffix == ".png" {
		on = vgimg.PngCanvas{Canvas: vgimg.New(wide, high)}
	}
	dc := vgdraw.New(on)
	top := dc.Max.Y
	for _, p := range d.parts {
		c := dc
		c.Min.Y, c.Max.Y = top-vg.Length(p.height)*px, top
		p.draw(c)
		top = c.Min.Y
	}
	var b bytes.Buffer
	guard.Must(on.WriteTo(&b))
	if suffix == ".png" {
		return b.Bytes()
	}
	svg := bytes.ReplaceAll(b.Bytes(), []byte(`xlink:href="data:image/jpg;`), []byte(`xlink:href="data:image/png;`)) // which they are
	if suffix == ".svg" {
		return svg
	}
	if at := bytes.Index(svg, []byte("<svg")); at > 0 {
		svg = svg[at:]
	}
	return fmt.Appendf(nil, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title><style>body{margin:1em;background:#fff}svg{max-width:100%%;height:auto}</style></head><body>\n%s\n</body></html>\n", html.EscapeString(title), svg)
}
