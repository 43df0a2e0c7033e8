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
	sheetCols  = 8    // frames per camera
	linePx     = 16   // height of a line of text
	maxMarks   = 2048 // marks of a stream that is not numeric
	plotHeight = 200
	markHeight = 96 // height of a stream that is drawn as marks
	legendPx   = 300
	legendLine = 13
)

// figurePart is a full-width row of a figure, with a height in pixels.
type figurePart struct {
	height int
	draw   func(c *chart.Canvas, top float64)
}

// Plotted describes a figure.
type Plotted struct {
	File    string   `json:"file"`
	Episode int64    `json:"episode"`
	Streams []string `json:"streams"`
	Notes   []string `json:"notes,omitempty"` // streams that are not drawn
}

// CheckPlot returns an error if the name of a figure does not end in .png, .svg or .html. It is
// called before any work is done.
func CheckPlot(path string) error {
	if slices.Contains([]string{".png", ".svg", ".html"}, strings.ToLower(filepath.Ext(path))) {
		return nil
	}
	return robocache.Misuse("plot", robocache.Where{"file": path}, "").
		Expected("a name that ends in .png, .svg or .html", strconv.Quote(filepath.Ext(path)))
}

// Plot draws streams of an episode one below the other. All share one axis with the time of the
// whole episode. keys names the streams; if it is empty, all except cameras are drawn. The suffix
// of path selects PNG, SVG, or an HTML page with the SVG and without scripts. The file is written
// atomically.
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
	return drawFigure(ctx, ds, episode, keys, false, path)
}

// CheckSheet is CheckPlot for contact sheets. A name without a suffix is a PNG.
func CheckSheet(path string) error {
	if filepath.Ext(path) == "" {
		return nil
	}
	return CheckPlot(path)
}

// ContactSheet draws the whole episode: evenly spaced frames of every camera, and below them every
// other stream on one time axis. The end of the sheet lists what is not drawn.
func ContactSheet(ctx context.Context, ds robocache.Dataset, episode int, path string) error {
	err := CheckSheet(path)
	if err == nil {
		_, err = drawFigure(ctx, ds, episode, nil, true, path)
	}
	return err
}

// drawer draws the streams of an episode.
type drawer struct {
	ctx       context.Context
	ds        robocache.Dataset
	episode   int
	timelines *Timelines
	parts     []*figurePart
	Plotted
}

func drawFigure(
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
		ctx:       ctx,
		ds:        ds,
		episode:   episode,
		timelines: timelinesOf,
		Plotted:   Plotted{File: path, Episode: ep.Index},
	}
	title := fmt.Sprintf(
		"episode %d of %s: %s",
		ep.Index,
		robocache.Redact(ds.Info().URI),
		strings.Join(ep.Tasks, " | "),
	)
	chosen, err := d.streamsOf(keys)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		chosen = d.defaultStreams(cameras)
	}
	if len(chosen) == 0 {
		return nil, robocache.Unsupported(
			"plot",
			robocache.Where{"episode": ep.Index},
			"the episode has nothing to draw",
		).Expected("", strings.Join(d.Notes, "; ")).
			WithHint("%s names cameras too: their frames are drawn", robocache.Option("keys"))
	}
	d.addText(title)
	for _, i := range chosen {
		f, l := &ds.Info().Features[i], d.timelines.Streams[i]
		if err := robocache.At(func() error {
			if drawOrder(f) == 0 {
				if err := d.addCamera(f, l); err != nil {
					return err
				}
			} else {
				if err := d.addStream(f, l); err != nil {
					return err
				}
			}
			return nil
		}(), robocache.Where{"stream": f.Key, "episode": ep.Index}); err != nil {
			return nil, err
		}
		d.Streams = append(d.Streams, f.Key)
	}
	d.addText(d.Notes...)
	render, err := d.render(cmp.Or(strings.ToLower(filepath.Ext(path)), ".png"), title)
	if err != nil {
		return nil, err
	}
	return &d.Plotted, store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), render)
}

// drawOrder returns the group of a stream: 0 for cameras, 1 for numbers, 2 for streams drawn as
// marks.
func drawOrder(f *robocache.Feature) int {
	switch f.Kind {
	case robocache.KindVideo, robocache.KindImage:
		return 0
	case robocache.KindNumeric:
		return 1
	}
	return 2
}

// defaultStreams returns the streams that are drawn if none are named, and notes the others.
func (d *drawer) defaultStreams(cameras bool) (chosen []int) {
	var left [3][]string
	features := d.ds.Info().Features
	for i := range features {
		f, l, why := &features[i], d.timelines.Streams[i], 0
		switch {
		case f.Default:
			why = 1
		case l.Rows == 0 && l.Problem != "":
			d.Notes = append(d.Notes, "not drawn: "+f.Key+": "+l.Problem)
			continue
		case l.Rows == 0:
			why = 2
		case drawOrder(f) > 0 || cameras:
			chosen = append(chosen, i)
			continue
		}
		left[why] = append(left[why], f.Key)
	}
	for i, why := range []string{
		"cameras (" + robocache.Option("keys") + " draws frames of them)",
		"columns of the format's bookkeeping",
		"no rows in this episode",
	} {
		if len(left[i]) > 0 {
			d.Notes = append(d.Notes, "not drawn, "+why+": "+strings.Join(left[i], ", "))
		}
	}
	slices.SortStableFunc(
		chosen,
		func(a, b int) int { return drawOrder(&features[a]) - drawOrder(&features[b]) },
	)
	return chosen
}

// streamsOf returns the streams with the given keys.
func (d *drawer) streamsOf(keys []string) (chosen []int, err error) {
	features := d.ds.Info().Features
	for _, key := range keys {
		i := slices.IndexFunc(features, func(f robocache.Feature) bool { return f.Key == key })
		switch {
		case i < 0:
			return chosen, robocache.Misuse(
				"plot",
				robocache.Where{"stream": key},
				"there is no such stream",
			).WithHint("it has: %s", strings.Join(d.ds.Info().Keys(), ", "))
		case features[i].Default:
			return chosen, robocache.Unsupported(
				"plot",
				robocache.Where{"stream": key},
				"a column of the format's bookkeeping is not drawn",
			)
		case d.timelines.Streams[i].Rows == 0:
			d.Notes = append(d.Notes, "not drawn, no rows in this episode: "+key)
		default:
			chosen = append(chosen, i)
		}
	}
	return chosen, nil
}

// axisSeconds returns the position of a timestamp on the axis.
func (d *drawer) axisSeconds(l *Timeline, t int64) float64 {
	if l.Timeless {
		return float64(t) / 1e9 // the row number
	}
	return float64(t-d.timelines.Start) / 1e9
}

// addText adds lines of text. Long lines are broken.
func (d *drawer) addText(lines ...string) {
	const wide = 200 // characters
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
		&figurePart{len(broken)*linePx + linePx/2, func(c *chart.Canvas, top float64) {
			for i, l := range broken {
				c.Text(3, top+float64((i+1)*linePx), 0, 0, l)
			}
		}},
	)
}

// addCamera adds sheetCols frames of a camera side by side, with its name, row numbers and times
// above them.
func (d *drawer) addCamera(f *robocache.Feature, l *Timeline) error {
	n := min(sheetCols, l.Rows)
	rows, refs, tiles := make([]robocache.Row, n), make([]robocache.FrameRef, n),
		make([]image.Image, n)
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
	d.parts = append(d.parts, &figurePart{2*linePx + h, func(c *chart.Canvas, top float64) {
		c.Text(0, top+linePx-3, 0, 0, f.Key)
		for i, tile := range tiles {
			text := fmt.Sprintf("row %d", rows[i].Index)
			if !l.Timeless {
				text += fmt.Sprintf(", %.2f s", d.axisSeconds(l, l.Times[rows[i].Index]))
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

// addStream adds a stream as a plot over the time of the episode: curves with a legend, or a mark
// for each row.
func (d *drawer) addStream(f *robocache.Feature, l *Timeline) error {
	p := &chart.Plot{
		X: chart.Axis{
			Label: "s",
			Holds: []float64{0, max(float64(d.timelines.End-d.timelines.Start)/1e9, 1e-3)},
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
		if p.Title, err = d.addCurves(p, f, l); err != nil {
			return err
		}
		names = names[:min(len(names), MaxChannels)]
	} else {
		height = markHeight
		p.Y.Hidden = true
		var err error
		if p.Title, err = d.addMarks(p, f, l); err != nil {
			return err
		}
	}
	columns := min(max(1+(len(names)-1)/((plotHeight-2*legendLine)/legendLine), 1), 2)
	per := (len(names) + columns - 1) / columns
	height = max(height, (per+2)*legendLine)
	d.parts = append(d.parts, &figurePart{height, func(c *chart.Canvas, top float64) {
		p.Draw(c, chart.Rect{Y: top, W: sheetWidth - legendPx, H: float64(height)})
		for i, name := range names {
			c.Legend(
				float64(sheetWidth-legendPx+10+i/per*legendPx/columns),
				top+float64((i%per+2)*legendLine),
				chart.Line{Color: channelColor(i), Width: 2},
				shortenText(name, 40/columns),
			)
		}
	}})
	return nil
}

// addCurves adds the channels of a stream and returns the title. A curve is interrupted at a gap
// and at a value that is not finite.
func (d *drawer) addCurves(
	p *chart.Plot,
	f *robocache.Feature,
	l *Timeline,
) (title string, err error) {
	start := d.timelines.Start
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

// addMarks adds a mark for each row of a stream that is not numeric, and returns the title.
func (d *drawer) addMarks(
	p *chart.Plot,
	f *robocache.Feature,
	l *Timeline,
) (title string, err error) {
	title = fmt.Sprintf("%s  %s, %d rows", f.Key, f.Kind, l.Rows)
	if f.Kind == robocache.KindText {
		texts, err := d.ds.Text(d.ctx, f.Key, []robocache.Row{{Episode: d.episode}})
		if err != nil {
			return title, err
		}
		title += fmt.Sprintf("; the first: %q", shortenText(texts[0], 80))
	}
	step := max(1, l.Rows/maxMarks)
	for row := 0; row < l.Rows; row += step {
		x := d.axisSeconds(l, l.Times[row])
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

// channelColor returns a colour for channel i that differs clearly from its neighbours' colours. It
// converts from hue, saturation and value.
func channelColor(i int) color.RGBA {
	_, hue := math.Modf(0.6 + float64(i)*0.618034)
	value := 0.85 - 0.3*float64(i%3)/2
	part := func(n float64) uint8 {
		k := math.Mod(n+6*hue, 6)
		return uint8(255 * value * (1 - 0.85*max(0, min(k, 4-k, 1))))
	}
	return color.RGBA{part(5), part(3), part(1), 255}
}

func shortenText(text string, letters int) string {
	if r := []rune(text); len(r) > letters {
		return string(r[:letters-1]) + "…"
	}
	return text
}

// render draws the parts one below the other and encodes the figure.
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
		"<!doctype html>\n<html lang=\"en\"><head><meta "+
			"charset=\"utf-8\"><title>%s</title><style>body{margin:1em;background:#fff}svg{max-width:100%%;height:auto}</style></head><body>\n%s\n</body></html>\n",
		html.EscapeString(title),
		svg,
	), nil
}
