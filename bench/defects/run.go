package defects

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/quality"
)

// Formats are the formats in which the set is measured.
func Formats() []string { return []string{"lerobot", "mcap", "robomimic", "rlds", "zarr"} }

// Options configures Run.
type Options struct {
	Clean   int                           `json:"clean"`   // clean episodes
	Repeats int                           `json:"repeats"` // planted episodes of each defect and size
	Seed    uint64                        `json:"seed"`
	Formats []string                      `json:"formats"`
	Work    string                        `json:"-"` // folder for the sets; existing ones are reused
	Log     func(format string, a ...any) `json:"-"`
}

// Run writes the set in each format, measures it and counts the findings.
func Run(ctx context.Context, opt Options) (*Report, error) {
	episodes := makeEpisodes(opt.Clean, opt.Repeats, opt.Seed)
	r := &Report{Options: opt, Machine: report.ThisMachine("")}
	for _, format := range opt.Formats {
		began := time.Now()
		t, err := measureFormat(ctx, opt, newSet(episodes), format)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"format": format})
		}
		f := countFindings(episodes, t)
		f.Format, f.Seconds = format, time.Since(began).Seconds()
		r.Formats = append(r.Formats, f)
		opt.Log("%s: %d episodes in %.0f s, recall %.3f, false alarms %.3f",
			format, len(episodes), f.Seconds, f.recall(), f.falseAlarms())
	}
	return r, nil
}

// measureFormat returns the table of the set in a format. An existing set is measured again.
func measureFormat(
	ctx context.Context, opt Options, src *set, format string,
) (*quality.Table, error) {
	name := fmt.Sprintf("%s-%d-%d-%d", format, opt.Clean, opt.Repeats, opt.Seed)
	dst := filepath.Join(opt.Work, name, "set"+map[string]string{
		"robomimic": ".hdf5", "mcap": "", "zarr": ".zarr",
	}[format])
	marker := filepath.Join(opt.Work, name, "complete")
	if _, err := os.Stat(marker); err != nil {
		if err := os.RemoveAll(filepath.Join(opt.Work, name)); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Join(opt.Work, name), 0o755); err != nil {
			return nil, err
		}
		w := robocache.WriteOptions{Options: map[string]string{}}
		if format == "lerobot" {
			w.Options["codec"] = "h264"
		}
		if _, err := convert.Write(ctx, src, format, dst,
			convert.Options{WriteOptions: w}); err != nil {
			return nil, err
		}
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			return nil, err
		}
	}
	ds, err := robocache.Open(ctx, dst, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if ds.Info().Episodes != len(src.episodes) {
		return nil, robocache.Malformed("quality", nil, "the set has %d episodes of %d",
			ds.Info().Episodes, len(src.episodes))
	}
	t, err := quality.Measure(ctx, ds, quality.Options{Threads: 2})
	if err != nil {
		return nil, err
	}
	return t, writeTable(ctx, filepath.Join(opt.Work, name), t, src.episodes)
}

// writeTable writes the table, and what was planted, beside the set.
func writeTable(ctx context.Context, dir string, t *quality.Table, episodes []*episode) error {
	planted := make([]string, len(episodes))
	for i, e := range episodes {
		planted[i] = fmt.Sprintf("%s:%d", e.defect, e.size)
	}
	if err := report.WriteJSON(filepath.Join(dir, "planted.json"), planted); err != nil {
		return err
	}
	return t.Write(ctx, filepath.Join(dir, "quality.csv"))
}

// countFindings compares the findings of a table with what was planted.
func countFindings(episodes []*episode, t *quality.Table) FormatResult {
	found := make([]map[string]bool, len(episodes))
	for _, f := range t.Findings() {
		e, isEpisode := f.Where["episode"].(int64)
		row := t.Row(e)
		if !isEpisode || row < 0 {
			continue
		}
		if found[row] == nil {
			found[row] = map[string]bool{}
		}
		name, _ := f.Where["metric"].(string)
		found[row][name] = true
	}
	r := FormatResult{ByMetric: map[string]int{}}
	for k := range allDefects {
		d := &allDefects[k]
		c := DefectCount{Defect: d.name, Sizes: d.sizesOf(), IsSpread: d.measure != nil}
		c.Planted, c.Found, c.Any = make([]int, 3), make([]int, 3), make([]int, 3)
		for i, e := range episodes {
			if e.defect != d.name {
				continue
			}
			c.Planted[e.size]++
			if len(found[i]) > 0 {
				c.Any[e.size]++
			}
			if slices.ContainsFunc(d.metrics, func(m string) bool { return found[i][m] }) {
				c.Found[e.size]++
			}
		}
		for i, e := range episodes {
			if e.defect == "" && slices.ContainsFunc(d.metrics,
				func(m string) bool { return found[i][m] }) {
				c.FalseAlarms++
			}
		}
		r.Defects = append(r.Defects, c)
	}
	for i, e := range episodes {
		if e.defect != "" {
			continue
		}
		r.Clean++
		if len(found[i]) > 0 {
			r.FalseAlarms++
		}
		for m := range found[i] {
			r.ByMetric[m]++
		}
	}
	return r
}
