package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Report is the report of an interleaved measurement.
type Report struct {
	Name     string         `json:"-"` // base name of its files
	Title    string         `json:"title"`
	Command  string         `json:"command"`
	Workload map[string]any `json:"workload"`
	Machine  report.Machine `json:"machine"`
	Unit     string         `json:"unit"` // name of a sample in tables, for example samples or frames
	Results  []Result       `json:"results"`
}

// Document returns NAME.json and so on, and the plots.
func (r *Report) Document() *report.Document {
	d := &report.Document{
		Name:    r.Name,
		Title:   r.Title,
		Command: r.Command,
		Raw:     r,
		Wrong:   strings.Join(r.wrongRunners(), "; "),
		Missed:  r.slowerWithThreads(),
	}
	d.Sheet = &report.Table{
		Head: []string{
			"arm",
			"setting",
			"run",
			"samples",
			"seconds",
			"cpu_seconds",
			"samples_per_s",
			"cpu_s_per_1000_samples",
			"open_s",
			"first_batch_latency_s",
			"pss_peak_mb",
			"shuffle_randomness_frac",
			"randomness_ideal",
			"order_sha256",
		},
	}
	rates := &report.Figure{Name: r.Name + "-rate", Title: r.Unit + " a second", Unit: "/s"}
	cpu := &report.Figure{
		Name:  r.Name + "-cpu",
		Title: "CPU seconds a 1,000 " + r.Unit,
		Unit:  "CPU s",
	}
	for i := range r.Results {
		x := &r.Results[i]
		for k, o := range x.Runs {
			d.Sheet.Add(
				x.Runner.Name,
				x.Runner.Setting,
				strconv.Itoa(k),
				strconv.FormatInt(o.Samples, 10),
				report.Decimal(o.Seconds),
				report.Decimal(o.CPUSeconds),
				report.Decimal(o.rate()),
				report.Decimal(o.cpuPer1000()),
				report.Decimal(
					o.OpenS,
				),
				report.Decimal(o.FirstBatchS),
				report.Decimal(o.PSSPeakMB),
				report.Decimal(o.DistinctFrac),
				report.Decimal(o.IdealFrac),
				o.OrderSHA256,
			)
		}
		rates.Set("", x.Runner.Name, x.SamplesPerS)
		cpu.Set("", x.Runner.Name, x.CPUPer1000)
	}
	d.Add("", nil, report.About(r.Command, r.Machine, "", nil)...)
	d.Add("", r.runnerTable(), "Median (min–max) of the repeats.")
	d.Plot(rates, cpu)
	return d.WithRaw()
}

// wrongRunners describes the runners whose figures are invalid. Such a runner lost or doubled
// samples, delivered wrong frames, or belongs to RoboCache and failed. A peer that cannot run is
// not wrong. A runner without a job is one whose data cannot be made here.
func (r *Report) wrongRunners() (why []string) {
	for i := range r.Results {
		x := &r.Results[i]
		failed := x.deliveryFault()
		if x.Runner.Job != nil &&
			(strings.HasPrefix(x.Runner.Name, "engine") ||
				strings.HasPrefix(x.Runner.Name, "robocache")) {
			failed = cmp.Or(x.Failed, failed)
		}
		if failed != "" {
			why = append(why, x.Runner.Name+": "+failed)
		}
	}
	return why
}

// slowerWithThreads describes runners that are slower with more threads than with fewer, by more
// than both spreads.
func (r *Report) slowerWithThreads() (out []string) {
	name := func(x *Result) string { n, _, _ := strings.Cut(x.Runner.Name, ", "); return n }
	for i := range r.Results {
		for k := range r.Results[:i] {
			more, fewer := &r.Results[i], &r.Results[k]
			if name(more) == name(fewer) && len(more.Runs) > 0 &&
				more.Runner.Job.Workers > fewer.Runner.Job.Workers &&
				more.SamplesPerS.Max < (1-minChange)*fewer.SamplesPerS.Min {
				out = append(
					out,
					fmt.Sprintf(
						"slower with more threads: %s: %s /s, fewer than with %d: %s",
						more.Runner.Name,
						report.Short(more.SamplesPerS),
						fewer.Runner.Job.Workers,
						report.Short(fewer.SamplesPerS),
					),
				)
			}
		}
	}
	return out
}

// runnerTable returns the main table, with one line per runner.
func (r *Report) runnerTable() *report.Table {
	t := &report.Table{
		Head: []string{
			"runner",
			"setting",
			r.Unit + "/s",
			"CPU s",
			"cores busy",
			"first batch s",
			"peak PSS MB",
			"of ideal shuffle",
			"wrong of checked",
			"times an epoch",
			"order",
		},
	}
	for i := range r.Results {
		x := &r.Results[i]
		if x.Failed != "" {
			t.Add(
				x.Runner.Name,
				x.Runner.Setting,
				"failed: "+x.Failed,
				"",
				"",
				"",
				"",
				"",
				"",
				"",
				"",
			)
			continue
		}
		checked, wrong := int64(0), int64(0)
		times, order, right, shuffle, first := "–", "–", "–", "–", "–"
		for _, o := range x.Runs {
			checked, wrong = checked+o.FramesChecked, wrong+o.WrongFrames
			switch {
			case o.CoverageMax == 0:
			case o.CoverageMin == o.CoverageMax:
				times = fmt.Sprint(o.CoverageMin)
			default:
				times = fmt.Sprintf("%d–%d", o.CoverageMin, o.CoverageMax)
			}
			if o.OrderSHA256 != "" {
				order = o.OrderSHA256[:8]
			}
		}
		if checked > 0 {
			right = fmt.Sprintf("%d of %d", wrong, checked)
		}
		if s := x.metricSpread("randomness"); len(s.Raw) > 0 {
			shuffle = fmt.Sprintf("%.2f", s.Median)
		}
		if x.FirstBatchS.Max > 0 {
			first = report.Short(x.FirstBatchS)
		}
		t.Add(
			x.Runner.Name,
			x.Runner.Setting,
			report.Short(x.SamplesPerS),
			report.Short(x.CPUPer1000),
			report.Digits(x.SamplesPerS.Median*x.CPUPer1000.Median/1000),
			first,
			report.Short(x.PSSPeakMB),
			shuffle,
			right,
			times,
			order,
		)
	}
	return t
}

// SuiteReport is the report of `robocache-bench load`.
type SuiteReport struct {
	Command string        `json:"command"`
	Results []PointResult `json:"results"`
	Explain bool          `json:"-"` // the text includes the explanation of the limit
}

// Document returns load.{json,csv,md,html} with all rows, the plots, and one JSON and CSV file per
// rank. The files have the names that the original benchmark uses. With several ranks there is also
// a merged file. With several runners, each has its own folder for these files.
func (r *SuiteReport) Document() *report.Document {
	d := &report.Document{
		Name:    "load",
		Title:   "robocache-bench load",
		Command: r.Command,
		Raw:     r,
		Files:   map[string]any{},
	}
	d.Add(
		"",
		r.scenarioTable(),
		"Rates: median (min–max) over the repeats, a fresh process each; the other figures are "+
			"of the run with the median rate. A dash: not measured.",
	)
	d.Plot(r.suiteFigures()...)
	var merged []*Keys
	var runners, wrong []string
	for _, x := range r.Results {
		report.Find(&runners, x.Merged.Runner)
	}
	for _, x := range r.Results {
		k, to := x.Merged, ""
		if merged = append(merged, k); k.Failed != "" {
			wrong = append(
				wrong,
				fmt.Sprintf("%s bs%d %s: %s", k.Scenario, k.BatchSize, k.Runner, k.Failed),
			)
		}
		if len(runners) > 1 {
			to = k.Runner
		}
		files := func(k *Keys, rank string) {
			path := filepath.Join(
				to,
				rankFileStem(k.Scenario, k.BatchSize, k.NumWorkers, rank, k.WorldSize),
			)
			d.Files[path+".json"], d.Files[path+".csv"] = k, keysTable([]*Keys{k})
		}
		for _, k := range x.Keys {
			files(k, fmt.Sprint(k.Rank))
		}
		if len(x.Keys) != 1 {
			files(k, "merged")
		}
		text := []string{k.Store + "; " + k.Setting}
		if k.SlowestRank != nil {
			text = append(
				text,
				fmt.Sprintf(
					"Slowest rank: %d with %.1f samples/s.",
					*k.SlowestRank,
					*k.SlowestSamplesPerS,
				),
			)
		}
		d.Add(
			fmt.Sprintf("%s, batch %d, %s", k.Scenario, k.BatchSize, k.Runner),
			nil,
			append(append(text, k.Notes...), k.Errors...)...)
		d.Sections = append(
			d.Sections,
			report.Section{Pre: strings.Join(x.Explain, "\n"), Web: !r.Explain},
		)
	}
	if d.Sheet, d.Wrong = keysTable(merged), strings.Join(wrong, "; "); len(merged) > 0 {
		d.Add(
			"Environment",
			nil,
			append(
				report.About(r.Command, merged[0].Machine, "", nil),
				"Page cache before the first run: "+merged[0].CacheState+".",
			)...)
	}
	return d.WithRaw()
}

// scenarioTable returns the main table, with one line per point.
func (r *SuiteReport) scenarioTable() *report.Table {
	t := &report.Table{
		Head: []string{
			"scenario",
			"batch",
			"runner",
			"samples/s",
			"CPU s per 1,000",
			"first batch s",
			"p50/p95/p99 ms",
			"wait %",
			"peak PSS GB",
			"of ideal shuffle",
			"frames checked, wrong",
			"resume",
			"page cache",
			"",
		},
	}
	for _, p := range r.Results {
		k := p.Merged
		t.AddBar(
			k.Failed == "",
			k.Scenario,
			fmt.Sprint(k.BatchSize),
			k.Runner,
			report.Short(k.Spread["samples_per_s"]),
			fmt.Sprintf("%.3f", 1e3*k.CPUPerSample),
			fmt.Sprintf("%.2f", k.FirstBatchLatencyS),
			fmt.Sprintf(
				"%.3g/%.3g/%.3g",
				k.P50SampleLatencyMS,
				k.P95SampleLatencyMS,
				k.P99SampleLatencyMS,
			),
			showOptional(k.WaitPct),
			fmt.Sprintf(
				"%.2f",
				k.PSSPeakGB,
			),
			showOptional(k.RandomnessVsIdeal),
			showOptional(k.FramesChecked)+", "+
				showOptional(k.WrongFrames),
			showOptional(k.ResumeExact),
			k.CacheState,
			k.Failed,
		)
	}
	return t
}

// showOptional formats a pointer to a figure. nil means not measured.
func showOptional(v any) string {
	r := reflect.ValueOf(v)
	if r.IsNil() {
		return "–"
	}
	if f, ok := v.(*float64); ok {
		return fmt.Sprintf("%.3g", *f)
	}
	return fmt.Sprint(r.Elem().Interface())
}

// suiteFigures returns the plots of the report: rate, time between samples, and ratio. The ratio is
// relative to the last runner. With a single runner it is relative to the first row.
func (r *SuiteReport) suiteFigures() []*report.Figure {
	rates := &report.Figure{
		Name:  "throughput_comparison",
		Title: "Samples per second (median, min to max of the repeats)",
		Unit:  "samples/s",
	}
	gaps := &report.Figure{
		Name:  "latency_comparison",
		Title: "Time between samples",
		Unit:  "ms a sample",
	}
	ratio := &report.Figure{
		Name:  "speedup_comparison",
		Title: "Samples per second, times those of ",
		Unit:  "times",
	}
	group := func(k *Keys) string { return fmt.Sprintf("%s bs%d", k.Scenario, k.BatchSize) }
	for _, p := range r.Results {
		if k := p.Merged; k.SamplesPerS > 0 {
			rates.Set(k.Runner, group(k), k.Spread["samples_per_s"])
			for i, v := range []float64{
				k.P50SampleLatencyMS,
				k.P95SampleLatencyMS,
				k.P99SampleLatencyMS,
			} {
				gaps.Set(
					[]string{"p50", "p95", "p99"}[i],
					group(k)+" "+k.Runner,
					report.SpreadOf([]float64{v}),
				)
			}
		}
	}
	if rates.Series == nil {
		return nil
	}
	base, than := rates.Series[len(rates.Series)-1], ""
	if ratio.Title += base.Name; len(rates.Series) == 1 {
		than = rates.Groups[0]
		ratio.Title += " in " + than
	}
	for _, s := range rates.Series {
		for _, name := range rates.Groups {
			if v, ok := s.Values[name]; ok {
				ratio.Set(
					s.Name,
					name,
					report.SpreadOf([]float64{v.Median / base.Values[cmp.Or(than, name)].Median}),
				)
			}
		}
	}
	return []*report.Figure{rates, gaps, ratio}
}

// keysTable returns one row per result and the columns of all. The cell of a missing value is
// empty.
func keysTable[T any](rows []*T) *report.Table {
	t := &report.Table{Rows: make([][]string, len(rows))}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, opt, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("sheet") == "-" || f.Anonymous {
			continue
		}
		some := opt != "omitempty"
		column := make([]string, len(rows))
		for n, k := range rows {
			v := reflect.ValueOf(k).Elem().FieldByIndex(f.Index)
			if opt == "omitempty" && v.IsNil() {
				continue
			}
			some = true
			column[n] = keyText(v.Interface())
		}
		if some {
			t.Head = append(t.Head, name)
			for n := range rows {
				t.Rows[n] = append(t.Rows[n], column[n])
			}
		}
	}
	return t
}

// keyText formats a value as a cell: JSON, but strings without quotes, and an empty cell for null.
func keyText(v any) string {
	switch s := v.(type) {
	case string:
		return s
	case *string:
		return *s
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return ""
	}
	return string(b)
}
