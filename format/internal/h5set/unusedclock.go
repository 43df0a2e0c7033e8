package h5set

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
)

// clocksRead is the number of episodes whose times are read to find faults.
const clocksRead = 64

// clockFault is the reason why data sets of one form cannot be used as a clock.
type clockFault struct {
	reason string // "" if there is no fault
	none   bool   // the data set is not meant as a clock
}

// faultOfForm returns the reason why the type or row shape of a data set does not fit a clock.
func faultOfForm(path string, d *h5.Dataset) clockFault {
	if len(d.Shape) == 0 || d.Null {
		return clockFault{none: true}
	}
	t, dims := elementOf(d)
	values := 1
	for _, n := range dims {
		values *= n
	}
	f := clockFault{}
	switch {
	case d.Type.IsText || d.Type.Class == h5.Text:
		f.reason = "holds text and no numbers"
	case t.Size() == 0 || t == robocache.Bool:
		f.reason = fmt.Sprintf("holds values of type %s and no numbers", d.Type)
	case len(dims) > 1 || values != 1:
		f.reason = fmt.Sprintf("has %d values for each row", values)
	}
	f.none = f.reason != "" && robocache.NamesClockWeakly(path)
	return f
}

// findUnusedClocks records the time data sets of the rows that have a fault. It does nothing if the
// caller sets the rate. Shapes are compared in all episodes of the survey. Values are read in the
// first clocksRead of them.
func (s *Set) findUnusedClocks(ctx context.Context, v *survey) error {
	if s.hz {
		return nil
	}
	read := map[string]bool{} // the paths that Times reads
	for i := range s.Episodes {
		if path := s.Episodes[i].Times; path != "" {
			read[path] = true
		}
	}
	if s.rowTimes != "" {
		read[s.rowTimes] = true
	}
	var paths []string
	for _, path := range v.paths {
		if read[path] || len(read) == 0 && robocache.NamesClock(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := s.examineClock(ctx, v, path, read[path]); err != nil {
			return err
		}
	}
	return nil
}

// examineClock records the faults of one time data set in all episodes. read means that Times uses
// its values. A clock that is constant in every episode whose values are read is not used.
func (s *Set) examineClock(ctx context.Context, v *survey, path string, read bool) error {
	id := v.pathIDs[path]
	forms := map[formID]clockFault{}
	examined, constant, most := 0, 0, clocksRead
	if robocache.IsRemote(s.Bytes) {
		most = 1
	}
	found := false
	report := func(e *Episode, reason string) {
		found = true
		where := robocache.Where{"episode": e.Index, "file": e.File.Name()}
		s.About.AddUnusedClock(robocache.UnusedClock{Stream: path, Where: where, Reason: reason})
	}
	for i := range v.episodes {
		e := &s.Episodes[i]
		here := func(x surveyEntry) bool { return x.path == id && x.form != unknownForm }
		k := slices.IndexFunc(v.episodes[i], here)
		if k < 0 || e.Length == 0 {
			continue
		}
		x := v.episodes[i][k]
		fault, known := forms[x.form]
		var values []float64
		err, failed := Tolerate(func() error {
			w, err := e.Walker(ctx)
			if err != nil {
				return err
			}
			if !known {
				d, err := w.Dataset(path)
				if err != nil {
					return err
				}
				fault = faultOfForm(path, d)
				forms[x.form] = fault
			}
			// the state after the last action
			longer := e.Acts && !read && x.rows == int64(e.Length)+1
			if fault.reason == "" && !fault.none && x.rows != int64(e.Length) && !longer {
				fault.reason = robocache.ClockLengthFault(x.rows, int64(e.Length))
			}
			if fault.reason == "" && !fault.none && examined < most {
				values, _, err = s.rawTimes(ctx, e, path)
			}
			return err
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			continue // reported when the episode is read
		}
		if fault.none {
			return nil
		}
		if fault.reason == "" && len(values) > 0 {
			examined++
			fault.reason = robocache.ClockFault(values)
			if robocache.IsConstantClock(values) {
				constant++
			}
		}
		if fault.reason != "" {
			report(e, fault.reason)
		}
	}
	if constant > 0 && constant == examined && read && !s.TimesNamed {
		s.ignoreTimes(path)
	}
	if assumed := s.isRateAssumed(); !found && !read && (s.About.FPS.Zero() || assumed) {
		s.About.AddUnusedClock(s.unreadClock(path))
	}
	return nil
}

// ignoreTimes makes Times use the rate in place of the values of a data set.
func (s *Set) ignoreTimes(path string) {
	for i := range s.Episodes {
		if s.Episodes[i].Times == path {
			s.Episodes[i].Times = ""
		}
	}
	s.noRowTimes = s.noRowTimes || s.rowTimes == path
}

// isRateAssumed reports whether the rate of the rows is only an assumption.
func (s *Set) isRateAssumed() bool {
	assumed := func(f robocache.Finding) bool { return f.Code == "rate-assumed" }
	return slices.ContainsFunc(s.About.Findings, assumed)
}

// unreadClock describes a time data set that the format does not use by default.
func (s *Set) unreadClock(path string) robocache.UnusedClock {
	c := robocache.UnusedClock{Stream: path, Sound: true}
	c.Reason = "is not taken as the clock of the rows"
	c.Advice = "Name it: " + robocache.Option("options", "timestamps", path)
	if s.About.Format != "hdf5" {
		c.Reason += " by the format " + s.About.Format
		c.Advice = "Open the files as " + robocache.Option("format", "hdf5") + " with " +
			robocache.Option("options", "timestamps", path)
	}
	return c
}
