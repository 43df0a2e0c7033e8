package bench

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/gpu"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/inspect/chart"
)

// TrainReport is the report of `robocache-bench train`.
type TrainReport struct {
	Command  string            `json:"command"`
	Machine  report.Machine    `json:"machine"`
	Versions map[string]string `json:"versions"`
	Rows     []*TrainRow       `json:"rows"`
	Notes    []string          `json:"notes,omitempty"`
}

// ReadTrainReport reads the file train.json at path.
func ReadTrainReport(path string) (*TrainReport, error) {
	r := &TrainReport{}
	err := report.ReadJSON(path, r)
	if err == nil && len(r.Rows) == 0 {
		err = robocache.At(
			errors.New("the file has no rows of robocache-bench train"),
			robocache.Where{"file": path},
		)
	}
	return r, err
}

// AllNotes returns the notes of all rows, without duplicates.
func (r *TrainReport) AllNotes() []string {
	all := slices.Clone(r.Notes)
	for _, k := range r.Rows {
		for _, n := range k.Notes {
			report.Find(&all, n)
		}
	}
	return all
}

// extraFiles returns train_steps.csv, gpu.csv and training_benchmark_results.json.
func (r *TrainReport) extraFiles() map[string]any {
	steps, seen := &report.Table{
		Head: append([]string{"arm", "step"}, trainParts...),
	}, &report.Table{
		Head: []string{"arm", "unix_ns"},
	}
	for _, c := range gpu.Counters {
		seen.Head = append(seen.Head, c.Key)
	}
	for _, k := range r.Rows {
		for _, s := range k.GPUSamples {
			line := []string{k.Runner, strconv.FormatInt(s.UnixNS, 10)}
			for _, c := range gpu.Counters {
				text := ""
				if v, ok := s.Values[c.Key]; ok {
					text = report.Decimal(v)
				}
				line = append(line, text)
			}
			seen.Add(line...)
		}
		for i, s := range k.StepsMS {
			line := []string{k.Runner, strconv.Itoa(i)}
			for _, v := range s {
				line = append(line, report.Decimal(v))
			}
			steps.Add(line...)
		}
	}
	out := map[string]any{
		"train_steps.csv":                 steps,
		"training_benchmark_results.json": r.earlierResults(),
	}
	if len(seen.Rows) > 0 {
		out["gpu.csv"] = seen
	}
	return out
}

// earlierResults returns the keys of the earlier suite's training_benchmark_results.json. All times
// are seconds of the window. data_time is the time that the device waited for data.
func (r *TrainReport) earlierResults() map[string]any {
	out := map[string]any{}
	side := func(name string) map[string]float64 {
		for _, k := range r.Rows {
			if k.Base == name && k.WorldSize == 1 && k.Failed == "" && k.StarveMS != nil {
				n := float64(k.Steps)
				total := n * float64(k.BatchSize) / k.SamplesPerS
				v := map[string]float64{
					"loss":       k.LossLast,
					"data_time":  n * *k.StarveMS / 1e3,
					"model_time": total - n**k.StarveMS/1e3,
					"total_time": total,
					"samples":    n * float64(k.BatchSize),
				}
				out[map[string]string{"torch": "baseline", "robocache": "robocache"}[name]] = v
				return v
			}
		}
		return nil
	}
	if a, b := side("torch"), side("robocache"); a != nil && b != nil {
		out["comparison"] = map[string]float64{
			"total_speedup": a["total_time"] / b["total_time"],
			"data_speedup":  a["data_time"] / max(b["data_time"], 1e-9),
		}
	}
	return out
}

// trainTable returns the main table, with one line per runner.
func (r *TrainReport) trainTable() *report.Table {
	t := &report.Table{
		Head: []string{
			"runner",
			"samples/s",
			"utilisation",
			"data wait %",
			"unexplained %",
			"starve/pre/fwd/bwd/opt ms",
			"cores busy",
			"cores needed",
			"limit",
			"× torch",
			"batches checked, wrong",
			"loss differs by",
			"",
		},
	}
	for _, k := range r.Rows {
		parts := "–"
		if k.StarveMS != nil {
			parts = fmt.Sprintf(
				"%.3g/%.3g/%.3g/%.3g/%.3g",
				*k.StarveMS,
				*k.PreprocessMS,
				*k.ForwardMS,
				*k.BackwardMS,
				*k.OptimiserMS,
			)
		}
		t.AddBar(
			k.Failed == "",
			k.Runner,
			report.Short(k.Spread["samples_per_s"]),
			report.Short(k.Spread["utilisation"]),
			showOptional(k.DataWaitPct),
			showOptional(k.Unexplained),
			parts,
			report.Digits(k.CoresBusy),
			showOptional(
				k.CoresNeeded,
			),
			k.Limit,
			showOptional(k.RatioVsTorch),
			fmt.Sprintf("%d, %d", k.Checked, k.Wrong),
			showOptional(k.LossRelDiff),
			k.Failed,
		)
	}
	return t
}

// Document returns train.{json,csv,md,html}, the extra files and the plots. The report counts as
// wrong if a runner trained on other data, or if a runner of RoboCache failed. A peer that cannot
// run does not count.
func (r *TrainReport) Document() *report.Document {
	d := &report.Document{
		Name:    "train",
		Title:   "robocache-bench train",
		Command: r.Command,
		Raw:     r,
		Sheet:   keysTable(r.Rows),
		Files:   r.extraFiles(),
	}
	d.Add("", r.trainTable(), append(append(
		report.About(r.Command, r.Machine, "", r.Versions),
		"Median (min–max) of the repeats, runners in turn, a fresh process each. Utilisation is "+
			"the rate divided by that of headspace, the same loop on one batch that is on the "+
			"device already. Starve is what the device waited for a batch.",
	), r.AllNotes()...)...)
	var wrong []string
	rate := &report.Figure{
		Name:  "throughput_comparison",
		Title: "Samples per second (median, min to max of the repeats)",
		Unit:  "samples/s",
	}
	step := &report.Figure{Name: "latency_comparison", Title: "Time of a step", Unit: "ms"}
	ratio := &report.Figure{
		Name:  "speedup_comparison",
		Title: "Samples per second, times those of torch, or of headspace where torch did not run",
		Unit:  "times",
	}
	parts := &report.Figure{
		Name:    "step_breakdown",
		Title:   "Where a step's time goes",
		Unit:    "ms",
		Stacked: true,
	}
	loss := &report.Figure{Name: "loss_curves", Title: "Loss", X: "step", Unit: "loss"}
	util := &report.Figure{
		Name:  "gpu_utilisation",
		Title: "Multiprocessors with work (else: any kernel resident); triangles: an epoch begins",
		X:     "s",
		Unit:  "%",
	}
	threads := &report.Figure{
		Name:  "threads",
		Title: "Samples per second over threads of the loader",
		X:     "threads",
		Unit:  "samples/s",
	}
	for _, k := range r.Rows {
		if k.Failed != "" && (k.Differs || !isTrainPeer(k.Base)) {
			wrong = append(wrong, k.Runner+": "+k.Failed)
		}
		if k.SamplesPerS == 0 {
			continue
		}
		if len(k.GPUSamples) > 1 {
			begin := k.GPUSamples[0].UnixNS
			for _, s := range k.GPUSamples {
				v, ok := s.Values["sm_util_pct"]
				if !ok {
					v = s.Values["gpu_util_pct"]
				}
				util.Point(k.Runner, float64(s.UnixNS-begin)/1e9, v)
			}
			for _, t := range k.Epochs {
				c := &util.Curves[len(util.Curves)-1]
				c.Marks = append(c.Marks, chart.Point{X: float64(t-begin) / 1e9})
			}
		}
		if k.Threads > 0 {
			threads.Point(
				strings.Replace(k.Runner, fmt.Sprintf("/%d", k.Threads), "", 1),
				float64(k.Threads),
				k.SamplesPerS,
			)
		}
		rate.Set("", k.Runner, k.Spread["samples_per_s"])
		one := func(f *report.Figure, name string, v *float64) {
			if v != nil {
				f.Set(name, k.Runner, report.SpreadOf([]float64{*v}))
			}
		}
		one(step, "p50", k.StepP50MS)
		one(step, "p95", k.StepP95MS)
		one(step, "p99", k.StepP99MS)
		for i, v := range k.stepParts() {
			one(parts, trainParts[i], *v)
		}
		if one(ratio, "", k.RatioVsTorch); k.RatioVsTorch == nil {
			one(ratio, "", k.Utilisation)
		}
		for i, v := range k.Losses {
			if k.OrderSHA256 != "" {
				loss.Point(k.Runner, float64(i), v)
			}
		}
	}
	d.Wrong = strings.Join(wrong, "; ")
	d.Plot(rate, step, ratio, parts, loss, util, threads, r.scalingFigure("scaling"))
	if util.Curves != nil {
		t := &report.Table{Head: []string{"counter", "is", "is not"}}
		for _, c := range gpu.Counters {
			t.Add(c.Key, c.Is, c.IsNot)
		}
		d.Add("What the GPU's counters say", t)
	}
	return d.WithRaw()
}

// scalingFigure plots the rate over the number of GPUs, and multiples of the rate of one GPU as a
// limit.
func (r *TrainReport) scalingFigure(name string) *report.Figure {
	f := &report.Figure{
		Name: name,
		Title: "Samples per second over GPUs (processes on a CPU); dashed: so many times " +
			"headspace on one",
		X:    "GPUs",
		Unit: "samples/s",
	}
	most, one := 0, 0.0
	for _, k := range r.Rows {
		most = max(most, k.WorldSize)
	}
	for _, k := range r.Rows {
		if most > 1 && k.SamplesPerS > 0 {
			f.Point(
				strings.TrimSuffix(k.Runner, fmt.Sprintf(" ×%d", k.WorldSize)),
				float64(k.WorldSize),
				k.SamplesPerS,
			)
		}
		if k.Base == "headspace" && k.WorldSize == 1 {
			one = k.SamplesPerS
		}
	}
	if f.Curves != nil {
		f.Curves = append(
			f.Curves,
			report.Curve{
				Limit:  true,
				Points: []chart.Point{{X: 1, Y: one}, {X: float64(most), Y: one * float64(most)}},
			},
		)
	}
	return f
}
