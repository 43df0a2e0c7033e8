package h5set

import (
	"context"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
)

// unit is the unit of the timestamps at one path of the episodes.
type unit struct {
	seconds float64
	// median step of the episode from which the unit was inferred; 0 if the unit is set
	step float64
	err  error // set if the unit cannot be determined
}

const (
	// askedForUnit limits the episodes whose timestamps are read to infer a unit.
	askedForUnit = 8
	// unlikeStep is the ratio of median steps above which two episodes have different units.
	unlikeStep = 200
)

// isTimes reports whether a data set can hold one timestamp per row.
func isTimes(d *h5.Dataset) bool {
	t, dims := elementOf(d)
	return t.Size() > 0 && len(d.Shape) > 0 && (len(dims) == 0 || len(dims) == 1 && dims[0] == 1)
}

// inferUnits infers the units of all timestamps.
func (s *Set) inferUnits(ctx context.Context) error {
	s.units = map[string]unit{}
	for i := range s.Episodes {
		if path := s.Episodes[i].Times; path != "" {
			if err := s.inferUnit(ctx, path, true); err != nil {
				return err
			}
		}
	}
	if s.rowTimes != "" {
		if err := s.inferUnit(ctx, s.rowTimes, false); err != nil {
			return err
		}
	}
	for i := range s.Streams {
		if path := s.Streams[i].times; path != "" {
			if err := s.inferUnit(ctx, path, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// inferUnit infers the unit at a path, unless the caller sets it. Timestamps of a single stream
// (rows is false) have a documented unit, which is used unless their magnitude rules it out.
func (s *Set) inferUnit(ctx context.Context, path string, rows bool) error {
	if _, done := s.units[path]; done {
		return nil
	}
	if s.TimestampUnit != 0 {
		s.units[path] = unit{seconds: s.TimestampUnit}
		return nil
	}
	out := unit{seconds: 1}
	asked := 0
	for i := range s.Episodes {
		e := &s.Episodes[i]
		if e.Length == 0 || rows && e.Times != path {
			continue
		}
		if asked++; asked > askedForUnit {
			break
		}
		var values []float64
		var integer bool
		tolerate, err := Tolerate(func() error {
			var err error
			if values, integer, err = s.rawTimes(ctx, e, path); err != nil {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		if tolerate != nil {
			continue // reported when the episode is read
		}
		usual := "s"
		if integer && rows {
			usual = ""
		} else if integer {
			usual = "ns"
			out.seconds = 1e-9
		}
		g, err := robocache.InferTimeUnit(values, usual, s.About.FPS)
		if !rows && err != nil && !g.Coarse {
			break // the documented unit is used
		}
		if g.Rows && rows && !s.About.FPS.Zero() {
			s.dropTimes(path)
			return nil
		}
		if g.Unit == "" && err == nil {
			continue // too few rows: another episode may determine the unit
		}
		if f := robocache.UnitFinding(g, err, usual,
			robocache.Where{"file": e.File.Name(), "pointer": path}); f != nil {
			s.About.Findings = append(s.About.Findings, *f)
		}
		if out.err, out.step = err, g.Step; err == nil {
			out.seconds = float64(robocache.TimeUnits[g.Unit]) / 1e9
		}
		break
	}
	s.units[path] = out
	return nil
}

// dropTimes uses the rate of the rows in place of timestamps that only count the rows.
func (s *Set) dropTimes(path string) {
	for i := range s.Episodes {
		if s.Episodes[i].Times == path {
			s.Episodes[i].Times = ""
		}
	}
	s.Find(
		robocache.SeverityInfo,
		"row-numbers",
		robocache.Where{"pointer": path},
		fmt.Sprintf(
			"the values are row numbers, not times: the rows are at %s Hz, as the file states",
			s.About.FPS,
		),
		"Pass "+robocache.Option(
			"options",
			"timestamp_unit",
			"ms",
		)+" (or s, us, ns) if they are times",
	)
}

// rawTimes reads the stored timestamps at a path of an episode.
func (s *Set) rawTimes(
	ctx context.Context,
	e *Episode,
	path string,
) (values []float64, integer bool, err error) {
	walker, err := e.Walker(ctx)
	if err != nil {
		return values, integer, err
	}
	d, err := walker.Dataset(path)
	if err != nil {
		return values, integer, err
	}
	if err := d.Claim(); err != nil {
		return values, integer, err
	}
	if !isTimes(d) || d.Rows() > math.MaxInt32 {
		return nil, false, nil
	}
	t, _ := elementOf(d)
	n := min(d.Rows(), 4096)
	raw := make([]byte, n*d.RowBytes())
	if err := d.ReadRows(ctx, 0, n, raw); err != nil {
		return values, integer, err
	}
	return robocache.Float64s(nil, t, raw), t.Integer(), nil
}

// checkStep rejects an episode whose timestamps seem to have another unit than the episode from
// which the unit was inferred.
func (u *unit) checkStep(times []int64) error {
	step := float64(robocache.Period(times)) / 1e9
	want := u.step * u.seconds
	if step == 0 || want == 0 || step/want < unlikeStep && want/step < unlikeStep {
		return nil
	}
	return robocache.Malformed("", nil, "").
		Expected(
			fmt.Sprintf("a median step of about %.3g s, as the unit of other episodes gives", want),
			fmt.Sprintf("%.3g s", step),
		).
		WithHint(
			"the episode is in another unit: convert it alone with %s (or s, us, ns)",
			robocache.Option("options", "timestamp_unit", "ms"),
		)
}
