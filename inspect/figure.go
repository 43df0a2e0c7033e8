package inspect

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"image"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect/chart"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	sheetWidth = 1280
	sheetCols  = 8    // frames a camera
	linePx     = 16   // a line of text
	mostMarks  = 2048 // rows of a stream that is not numbers
	plotHeight = 200
	markHeight = 96 // of a stream that is drawn by its times alone
	legendPx   = 300
	legendLine = 13
)

// part is a row of a figure: of its width, and a height in pixels.
type part struct {
	height int
	draw   func(c *chart.Canvas, top float64)
}

// Plotted says what a figure shows.
type Plotted struct {
	File    string   `json:"file"`
	Episode int64    `json:"episode"`
	Streams []string `json:"streams"`
	Notes   []string `json:"notes,omitempty"` // what is not drawn
}

// CheckPlot refuses the name of a figure whose suffix is none of .png, .svg and .html: it is asked
// before any work is done.
func CheckPlot(path string) error {
	if slices.Contains([]string{".png", ".svg", ".html"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	return robocache.Misuse("plot", robocache.Where{"file": path}, "").
		Expected("a name that ends in .png, .svg or .html", strconv.Quote(filepath.Ext(path)))
}

// Plot draws streams of an episode below each other, on one axis, the episode's whole time, each at
// its own timestamps. keys: the streams (of a camera: frames); none: all but cameras. The name's
// suffix says what is written: PNG, SVG, or a page that holds the SVG, without scripts. The file
// appears whole or not at all.
func Plot(
	ctx context.Context,
	ds robocache.Dataset,
	episode int,
	keys []string,
	path string,
) (*Plotted, error) {
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

// ContactSheet draws all of an episode: evenly spaced frames of every camera, and every other
// stream below on one time axis. What is not drawn is said at the end.
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

func draw(
	ctx context.Context,
	ds robocache.Dataset,
	episode int,
	keys []string,
	cameras bool,
	path string,
) (_ *Plotted, err error) {
	ep, err := ds.Episode(ctx, episode)
	if err != nil {
		return nil, err
	}
	timelinesOf, err := TimelinesOf(ctx, ds, episode)
	if err != nil {
		return nil, err
	}
	d := &drawer{
		ctx:     ctx,
		ds:      ds,
		episode: episode,
		all:     timelinesOf,
		Plotted: Plotted{File: path, Episode: ep.Index},
	}
	title := fmt.Sprintf(
		"episode %d of %s: %s",
		ep.Index,
		robocache.Redact(ds.Info().URI),
		strings.Join(ep.Tasks, " | "),
	)
	chosen, err := d.named(keys)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		chosen = d.every(cameras)
	}
	if len(chosen) == 0 {
		return nil, robocache.Unsupported("plot", robocache.Where{"episode": ep.Index}, "the episode has nothing to draw").
			Expected("", strings.Join(d.Notes, "; ")).
			WithHint("%s names cameras too: their frames are drawn", robocache.Option("keys"))
	}
	d.text(title)
	for _, i := range chosen {
		f, l := &ds.Info().Features[i], d.all.Streams[i]
		if err := robocache.At(func() error {
			if rank(f) == 0 {
				if err := d.camera(f, l); err != nil {
					return err
				}
			} else {
				if err := d.stream(f, l); err != nil {
					return err
				}
			}
			return nil
		}(), robocache.Where{"stream": f.Key, "episode": ep.Index}); err != nil {
			return nil, err
		}
		d.Streams = append(d.Streams, f.Key)
	}
	d.text(d.Notes...)
	render, err := d.render(cmp.Or(strings.ToLower(filepath.Ext(path)), ".png"), title)
	if err != nil {
		return nil, err
	}
	return &d.Plotted, store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), render)
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
	for i, why := range []string{"cameras (" + robocache.Option("keys") + " draws frames of them)", "columns of the format's bookkeeping", "no rows in this episode"} {
		if len(left[i]) > 0 {
			d.Notes = append(d.Notes, "not drawn, "+why+": "+strings.Join(left[i], ", "))
		}
	}
	slices.SortStableFunc(
		chosen,
		func(a, b int) int { return rank(&features[a]) - rank(&features[b]) },
	)
	return chosen
}

// named gives the streams of keys.
func (d *drawer) named(keys []string) (chosen []int, err error) {
	features := d.ds.Info().Features
	for _, key := range keys {
		i := slices.IndexFunc(features, func(f robocache.Feature) bool { return f.Key == key })
		switch {
		case i < 0:
			return chosen, robocache.Misuse("plot", robocache.Where{"stream": key}, "there is no such stream").
				WithHint("it has: %s", strings.Join(d.ds.Info().Keys(), ", "))
		case features[i].Default:
			return chosen, robocache.Unsupported(
				"plot",
				robocache.Where{"stream": key},
				"a column of the format's bookkeeping is not drawn",
			)
		case d.all.Streams[i].Rows == 0:
			d.Notes = append(d.Notes, "not drawn, no rows in this episode: "+key)
		default:
			chosen = append(chosen, i)
		}
	}
	return chosen, nil
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
	d.parts = append(
		d.parts,
		&part{len(broken)*linePx + linePx/2, func(c *chart.Canvas, top float64) {
			for i, l := range broken {
				c.Text(3, top+float64((i+1)*linePx), 0, 0, l)
			}
		}},
	)
}

// camera decodes sheetCols frames of a camera side by side, with its name, their row numbers and
// their times above.
func (d *drawer) camera(f *robocache.Feature, l *Timeline) error {
	n := min(sheetCols, l.Rows)
	rows, refs, tiles := make(
		[]robocache.Row,
		n,
	), make(
		[]robocache.FrameRef,
		n,
	), make(
		[]image.Image,
		n,
	)
	for i := range rows {
		rows[i] = robocache.Row{Episode: d.episode, Index: i * (l.Rows - 1) / max(n-1, 1)}
	}
	if err := d.ds.Frames(d.ctx, f.Key, rows, refs); err != nil {
		return err
	}
	const w = sheetWidth / sheetCols
	h := 1
	if err := video.EachFrame(
		d.ctx,
		video.LibraryOf(d.ds),
		refs,
		video.Each{},
		func(at []int, pic video.Frame) error {
			img, err := (&Painter{}).Paint(f, &refs[at[0]], pic, w)
			if err != nil || img == nil {
				return err
			}
			h = max(h, w*img.Rect.Dy()/img.Rect.Dx())
			for _, i := range at {
				tiles[i] = img
			}
			return nil
		},
	); err != nil {
		return err
	}
	d.parts = append(d.parts, &part{2*linePx + h, func(c *chart.Canvas, top float64) {
		c.Text(0, top+linePx-3, 0, 0, f.Key)
		for i, tile := range tiles {
			text := fmt.Sprintf("row %d", rows[i].Index)
			if !l.Timeless {
				text += fmt.Sprintf(", %.2f s", d.seconds(l, l.Times[rows[i].Index]))
			}
			if tile == nil {
				text += ": none"
				tile = &image.Gray{Pix: []byte{224}, Stride: 1, Rect: image.Rect(0, 0, 1, 1)}
			}
			to := chart.Rect{X: float64(i * w), Y: top + 2*linePx, W: w, H: float64(h)}
			c.Text(to.X, to.Y-3, 0, 0, text)
			c.Image(to, tile)
		}
	}})
	return nil
}

// stream draws a stream against the episode's time: curves with a legend, or a mark for each row.
func (d *drawer) stream(f *robocache.Feature, l *Timeline) error {
	p := &chart.Plot{
		X: chart.Axis{
			Label: "s",
			Holds: []float64{0, max(float64(d.all.End-d.all.Start)/1e9, 1e-3)},
		},
	}
	if l.Timeless {
		p.X = chart.Axis{Label: "row", Holds: []float64{0, max(float64(l.Rows-1), 1)}}
	}
	height := plotHeight
	var names []string
	if Curves(f) {
		names = ChannelNames(f)
		var err error
		if p.Title, err = d.curves(p, f, l); err != nil {
			return err
		}
		names = names[:min(len(names), MaxChannels)]
	} else {
		height = markHeight
		p.Y.Hidden = true
		var err error
		if p.Title, err = d.marks(p, f, l); err != nil {
			return err
		}
	}
	columns := min(max(1+(len(names)-1)/((plotHeight-2*legendLine)/legendLine), 1), 2)
	per := (len(names) + columns - 1) / columns
	height = max(height, (per+2)*legendLine)
	d.parts = append(d.parts, &part{height, func(c *chart.Canvas, top float64) {
		p.Draw(c, chart.Rect{Y: top, W: sheetWidth - legendPx, H: float64(height)})
		for i, name := range names {
			c.Legend(
				float64(sheetWidth-legendPx+10+i/per*legendPx/columns),
				top+float64((i%per+2)*legendLine),
				chart.Line{Color: channelColor(i), Width: 2},
				shortened(name, 40/columns),
			)
		}
	}})
	return nil
}

// curves adds the channels of a stream, interrupted where there is a gap or no finite value, and
// gives the title.
func (d *drawer) curves(
	p *chart.Plot,
	f *robocache.Feature,
	l *Timeline,
) (title string, err error) {
	start := d.all.Start
	if l.Timeless {
		start = 0
	}
	s, err := SeriesOf(d.ctx, d.ds, f, l, d.episode, Whole(start))
	if err != nil {
		return title, err
	}
	for c, ys := range s.Y {
		line := make([]chart.Point, len(ys))
		for i, y := range ys {
			line[i] = chart.Point{X: s.X[i] / 1e9, Y: y}
		}
		p.Lines = append(p.Lines, chart.Line{Color: channelColor(c), Width: 1, Points: line})
	}
	title = fmt.Sprintf("%s  %s %v, %d rows", f.Key, f.DType, f.Shape, l.Rows)
	if f.Unit != "" {
		title += ", in " + f.Unit
	}
	if s.Columns < s.Of {
		title += fmt.Sprintf(
			"; channels 0 to %d, the other %d are not drawn",
			s.Columns-1,
			s.Of-s.Columns,
		)
	}
	if s.Missing > 0 {
		title += fmt.Sprintf("; %d values are missing or not finite", s.Missing)
	}
	return title, nil
}

// marks adds a mark for each row of what is not numbers, and gives the title.
func (d *drawer) marks(p *chart.Plot, f *robocache.Feature, l *Timeline) (title string, err error) {
	title = fmt.Sprintf("%s  %s, %d rows", f.Key, f.Kind, l.Rows)
	if f.Kind == robocache.KindText {
		texts, err := d.ds.Text(d.ctx, f.Key, []robocache.Row{{Episode: d.episode}})
		if err != nil {
			return title, err
		}
		title += fmt.Sprintf("; the first: %q", shortened(texts[0], 80))
	}
	step := max(1, l.Rows/mostMarks)
	for row := 0; row < l.Rows; row += step {
		x := d.seconds(l, l.Times[row])
		p.Lines = append(
			p.Lines,
			chart.Line{Color: chart.Black, Width: 1, Points: []chart.Point{{X: x}, {X: x, Y: 1}}},
		)
	}
	if step > 1 {
		title += fmt.Sprintf("; every %dth is marked", step)
	}
	return title, nil
}

// channelColor gives neighbours colours that are far apart: hue, saturation and value by the usual
// formula.
func channelColor(i int) color.RGBA {
	_, hue := math.Modf(0.6 + float64(i)*0.618034)
	value := 0.85 - 0.3*float64(i%3)/2
	part := func(n float64) uint8 {
		k := math.Mod(n+6*hue, 6)
		return uint8(255 * value * (1 - 0.85*max(0, min(k, 4-k, 1))))
	}
	return color.RGBA{part(5), part(3), part(1), 255}
}

func shortened(text string, letters int) string {
	if r := []rune(text); len(r) > letters {
		return string(r[:letters-1]) + "…"
	}
	return text
}

// render draws the parts below each other.
func (d *drawer) render(suffix, title string) ([]byte, error) {
	height := 0
	for _, p := range d.parts {
		height += p.height
	}
	c := &chart.Canvas{Width: sheetWidth, Height: float64(height)}
	top := 0
	for _, p := range d.parts {
		p.draw(c, float64(top))
		top += p.height
	}
	if suffix == ".png" {
		return c.PNG()
	}
	svg, err := c.SVG()
	if err != nil {
		return nil, err
	}
	if suffix == ".svg" {
		return svg, nil
	}
	return fmt.Appendf(
		nil,
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title><style>body{margin:1em;background:#fff}svg{max-width:100%%;height:auto}</style></head><body>\n%s\n</body></html>\n",
		html.EscapeString(title),
		svg,
	), nil
}
