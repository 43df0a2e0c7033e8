package bench

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// opsPlot is one plot of a report.
type opsPlot struct {
	name string
	draw func() (*plot.Plot, vg.Length, error)
}

func (p *OpsReport) plots() []opsPlot {
	var out []opsPlot
	if names, points := p.curves(); len(names) > 0 {
		for _, cold := range []bool{false, true} {
			word := "hot"
			if cold {
				word = "cold"
			}
			if anyFigure(points[names[0]], cold) {
				out = append(out, opsPlot{"curve-" + word, func() (*plot.Plot, vg.Length, error) { return drawCurves(names, points, cold) }})
			}
		}
	}
	if f := p.speedups(); len(f.Groups) > 0 {
		out = append(out, opsPlot{"speedup", f.draw})
	}
	return out
}

func anyFigure(rows []*OpsResult, cold bool) bool {
	for _, r := range rows {
		if a := r.runner(OpsOurs); a != nil && len(a.us(cold).Raw) > 0 {
			return true
		}
	}
	return false
}

// drawCurves shows GB/s over bytes, both logarithmic, with the copies of the same run as a dashed line.
func drawCurves(names []string, points map[string][]*OpsResult, cold bool) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text = "Bytes touched a second, caches hot"
	if cold {
		p.Title.Text = "Bytes touched a second, caches cold"
	}
	p.X.Label.Text, p.Y.Label.Text = "bytes touched by a call", "GB/s"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	line := func(rows []*OpsResult, of func(r *OpsResult) *OpsRunner) plotter.XYs {
		var xy plotter.XYs
		for _, r := range rows {
			if a := of(r); a != nil && a.Failed == "" && len(a.us(cold).Raw) > 0 {
				xy = append(xy, plotter.XY{X: float64(r.Bytes), Y: math.Max(r.gbps(a.us(cold).Median), 1e-6)})
			}
		}
		return xy
	}
	add := func(name string, xy plotter.XYs, i int, dashed bool) error {
		if len(xy) == 0 {
			return nil
		}
		l, s, err := plotter.NewLinePoints(xy)
		if err != nil {
			return err
		}
		l.Color, s.Color, s.Radius = palette[i%len(palette)], palette[i%len(palette)], vg.Points(2)
		if dashed {
			l.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(l, s)
		p.Legend.Add(name, l)
		return nil
	}
	for i, n := range names {
		if err := add(n, line(points[n], func(r *OpsResult) *OpsRunner { return r.runner(OpsOurs) }), i, false); err != nil {
			return nil, 0, err
		}
	}
	if err := add("copy of as many bytes", line(points[names[0]], func(r *OpsResult) *OpsRunner { return r.limit(cold) }), len(palette)-1, true); err != nil {
		return nil, 0, err
	}
	return p, 620, nil
}

// speedups are how many times as fast as each peer ours is, a group a row.
func (p *OpsReport) speedups() *figure {
	f := &figure{Name: "speedup", Title: "Ours against the peers (1 = as fast; the copy: share of its rate)", Unit: "times"}
	var rows []*OpsResult
	for _, r := range p.Rows {
		if a := r.runner(OpsOurs); r.Curve == "" && a != nil && len(a.Hot.Raw) > 0 {
			rows = append(rows, r)
			name := r.Name
			if p.Device == nil {
				name = fmt.Sprintf("%s %dt", r.Name, r.Threads)
			}
			f.Groups = append(f.Groups, name)
		}
	}
	for _, n := range append([]string{"the copy"}, peerNames(rows)...) {
		if n == "np.interp" || n == "reference" {
			continue // two orders of magnitude: nothing else could be read beside it
		}
		s := series{Name: n}
		some := false
		for _, r := range rows {
			a := r.runner(n)
			if n == "the copy" {
				a = r.limit(false)
			}
			v := math.NaN()
			if a != nil && a.Failed == "" && len(a.Hot.Raw) > 0 {
				v, some = a.Hot.Median/r.runner(OpsOurs).Hot.Median, true
			}
			s.Values = append(s.Values, v)
		}
		if some {
			f.Series = append(f.Series, s)
		}
	}
	if len(f.Series) == 0 {
		f.Groups = nil
	}
	return f
}
