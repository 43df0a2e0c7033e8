package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/gpu"
	"github.com/goatnote-inc/robocache/bench/report"
)

// TrainFigures holds the measured figures of a training run, by their keys in the report. null
// means not measured. It is part of TrainRun and of TrainRow.
type TrainFigures struct {
	Params int64 `json:"params"`
	StepFigures
	DeviceFigures

	LossFirst    float64   `json:"loss_first"`
	LossLast     float64   `json:"loss_last"`
	Weights      string    `json:"weights_sha256"`
	Checked      int       `json:"batches_checked"`
	Wrong        int       `json:"batches_wrong"`
	RankSamples  []float64 `json:"rank_samples_per_s"`
	RankStarveMS []float64 `json:"rank_starve_ms"`

	Losses     []float64    `json:"losses" sheet:"-"` // of the first steps
	StepsMS    [][]float64  `json:"steps_ms" sheet:"-"`
	Epochs     []int64      `json:"epochs_unix_ns" sheet:"-"` // start of each epoch in the window
	GPUSamples []gpu.Sample `json:"gpu_samples,omitempty" sheet:"-"`
}

// StepFigures are the times of a training step, as means over the window.
type StepFigures struct {
	LoadWaitMS float64  `json:"load_wait_ms"`
	H2DMS      *float64 `json:"h2d_ms"` // time of copies that the trainer makes
	// time per step that the compute stream waits for copies of the trainer or the loader
	H2DWaitMS    *float64 `json:"h2d_wait_ms"`
	H2DGBPerS    *float64 `json:"h2d_gb_per_s"`
	PreprocessMS *float64 `json:"preprocess_ms"`
	ForwardMS    *float64 `json:"forward_ms"`
	BackwardMS   *float64 `json:"backward_ms"`
	OptimiserMS  *float64 `json:"optimiser_ms"`
	StarveMS     *float64 `json:"starve_ms"`
	StepP50MS    *float64 `json:"step_ms_p50"`
	StepP95MS    *float64 `json:"step_ms_p95"`
	StepP99MS    *float64 `json:"step_ms_p99"`
}

// DeviceFigures describe the GPU. The figures after GPUMemGB are from gpu.Summary.
type DeviceFigures struct {
	DeviceUUID    string   `json:"device_uuid"`
	GPUMemGB      *float64 `json:"gpu_mem_gb"`
	GPUUtilPct    *float64 `json:"gpu_util_pct"`
	SMUtilPct     *float64 `json:"sm_util_pct"`
	SMOccupancy   *float64 `json:"sm_occupancy_pct"`
	TensorUtilPct *float64 `json:"tensor_util_pct"`
	DRAMUtilPct   *float64 `json:"dram_util_pct"`
	PCIeRxGBPerS  *float64 `json:"pcie_rx_gb_s"`
	PowerW        *float64 `json:"power_w"`
	EnergyJ       *float64 `json:"energy_j"`
	SMClockMHz    *float64 `json:"sm_clock_mhz"`
	ClockReasons  *float64 `json:"clock_reasons"` // bits as defined by NVML
	GPUReason     string   `json:"gpu_reason"`    // why the GPU counters are null
}

// TrainRun holds the figures that a training runner reports. See runners/robocache_bench/train.py.
type TrainRun struct {
	TrainFigures
	WindowSteps int `json:"window_steps"`
	// for each of the first steps: the means of state, action and mask
	Sums       [][3]float64 `json:"sums"`
	StarveP50  float64      `json:"starve_p50_ms"`
	WrongWhere []string     `json:"wrong"`
	OrderWrong int          `json:"order_wrong"` // number of samples that differ from the plan
	// samples delivered twice in an epoch, over all ranks
	Doubled int `json:"samples_doubled"`
	// the runner chooses its own order, so the plan is not checked
	OwnOrder bool `json:"own_order"`
	// describes how compared frames of another decoder differ
	Apart string `json:"frames_apart"`
}

// trainParts lists the parts of a step in order.
var trainParts = []string{"starve", "preprocess", "forward", "backward", "optimiser"}

// TrainRow is the result of one runner. null means not measured. Figures without a spread are those
// of the run with the median rate. The embedded structs group the figures; in JSON all keys are on
// one level.
type TrainRow struct {
	TrainSettings
	RateFigures
	StallFigures
	CostFigures
	LossFigures

	// limiting resource: gpu | cores | h2d | store | launch
	Limit   string                   `json:"limit"`
	Spread  map[string]report.Spread `json:"spread"`
	Repeats int                      `json:"repeats"`
	Failed  string                   `json:"failed"`
	Notes   []string                 `json:"notes"`
	Base    string                   `json:"runner"` // the name in the modes of cases.yaml
	TrainFigures
}

// TrainSettings are the settings of a training run.
type TrainSettings struct {
	Model     string `json:"model"`
	Runner    string `json:"arm"`
	Setting   string `json:"setting"`
	WorldSize int    `json:"world_size"`
	Rank      int    `json:"rank"` // -1 means all ranks
	BatchSize int    `json:"batch_size"`
	Steps     int    `json:"steps"`
	Warmup    int    `json:"warmup"`
	Precision string `json:"precision"`
	Loop      string `json:"loop"`
	Compile   bool   `json:"compile"`
	Graph     bool   `json:"graph"`
	Tiny      bool   `json:"tiny"`
	ImageSize string `json:"image_size"`
	ResizedBy string `json:"resized_by"` // loader | device | "" (not resized)
	Shuffle   string `json:"shuffle"`
	Cache     string `json:"cache"`
	Decode    string `json:"decode"` // where RoboCache decodes: cpu | gpu | auto
	// page cache before the run: cold | warm | "" (unchanged)
	CacheState string `json:"cache_state"`
	Workers    int    `json:"workers"`
	Threads    int    `json:"threads"`
	Device     string `json:"device"`
	Seed       int    `json:"seed"`
}

// RateFigures compare the rate of a runner with headspace, with torch, and with one GPU.
type RateFigures struct {
	SamplesPerS float64 `json:"samples_per_s"`
	Headspace   float64 `json:"headspace_samples_per_s"`
	// largest change of headspace between the start and the end of a repeat
	Drift        float64  `json:"headspace_drift_pct"`
	Utilisation  *float64 `json:"utilisation"`
	RatioVsTorch *float64 `json:"ratio_vs_torch"`
	Scaling      *float64 `json:"scaling_efficiency"`
	SlowestRank  *int     `json:"slowest_rank"`
	FramesPerS   *float64 `json:"frames_per_s"`
	FirstBatchS  float64  `json:"first_batch_latency_s"`
}

// StallFigures describe what a training step waits for.
type StallFigures struct {
	DataWaitPct *float64 `json:"data_wait_pct"`
	Unexplained *float64 `json:"unexplained_pct"`
	// cold runs only: extra time of the warm run compared with h2d
	PrepStallPct  *float64 `json:"prep_stall_pct"`
	FetchStallPct *float64 `json:"fetch_stall_pct"` // extra time compared with the warm run
	DataS         *float64 `json:"data_s"`          // with --loop sync only
	UpdtS         *float64 `json:"updt_s"`
}

// CostFigures are the resources that a runner uses.
type CostFigures struct {
	CoresBusy    float64  `json:"cores_busy"`
	CoresNeeded  *float64 `json:"cores_needed"`
	CoresSuffice *bool    `json:"cores_suffice"`
	CPUPer1000   float64  `json:"cpu_s_per_1000_samples"`
	RSSPeakGB    float64  `json:"rss_peak_gb"`
	PSSPeakGB    float64  `json:"pss_peak_gb"`
	ReadGB       float64  `json:"read_gb"`        // from files and sockets, in the window
	DeviceReadGB float64  `json:"device_read_gb"` // from disks, since the start of the process
	JPerSample   *float64 `json:"j_per_sample"`
}

// LossFigures compare the order and the losses of a runner with those of another runner.
type LossFigures struct {
	OrderSHA256 string `json:"order_sha256"`
	// largest relative difference of the first 50 losses from those of loss_with
	LossRelDiff *float64 `json:"loss_rel_diff"`
	// tolerance: three times the difference between two runs of another runner, at least 1 %
	LossRelMost *float64 `json:"loss_rel_noise"`
	LossWith    string   `json:"loss_with"`
	Differs     bool     `json:"differs"` // the runner trained on other data than the rest
}

// addRows adds one row per runner to the report, with the problems found.
func (r *TrainReport) addRows(t *Train, points []trainPoint) {
	for world := range slices.Values(slices.Compact([]int{1, t.Job.GPUs})) {
		var own []*trainPoint
		for i := range points {
			if points[i].worldSize == world {
				own = append(own, &points[i])
			}
		}
		own[0].addWorldRows(r, t, own)
	}
	best := map[int]float64{}
	for _, k := range r.Rows {
		if k.Base == "torch" && k.Failed == "" {
			best[k.WorldSize] = max(best[k.WorldSize], k.SamplesPerS)
		}
	}
	for _, k := range r.Rows {
		if b := best[k.WorldSize]; b > 0 && k.SamplesPerS > 0 {
			k.RatioVsTorch = finiteOrNil(k.SamplesPerS / b)
		}
		for _, one := range r.Rows {
			if k.WorldSize > 1 && one.WorldSize == 1 && k.RankSamples != nil &&
				one.Runner+fmt.Sprintf(" ×%d", k.WorldSize) == k.Runner &&
				one.SamplesPerS > 0 {
				slow := slices.Index(k.RankSamples, slices.Min(k.RankSamples))
				k.SlowestRank, k.Scaling = &slow, finiteOrNil(k.RankSamples[slow]/one.SamplesPerS)
				k.Notes = append(
					k.Notes,
					fmt.Sprintf(
						"%s: the slowest rank, %d, has %.1f samples/s: %.3f of one GPU's",
						k.Runner,
						slow,
						k.RankSamples[slow],
						*k.Scaling,
					),
				)
			}
		}
	}
}

// finiteOrNil returns a pointer to v, or nil if v is not finite.
func finiteOrNil(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// addWorldRows adds the rows of one number of GPUs. The first and the last point of own are
// headspace.
func (head *trainPoint) addWorldRows(r *TrainReport, t *Train, own []*trainPoint) {
	last := own[len(own)-1]
	drift, space := 0.0, report.Spread{}
	for i := range min(len(head.result.Runs), len(last.result.Runs)) {
		a, b := head.result.Runs[i].rate(), last.result.Runs[i].rate()
		drift = max(drift, 100*math.Abs(b/a-1))
		space.Add((a + b) / 2)
	}
	if why := last.result.Failed; why != "" {
		r.Notes = append(r.Notes, last.Name+" at the end of a repeat failed: "+why)
	}
	starve := 0.0
	if len(head.result.Runs) > 0 {
		starve = head.result.Runs[0].Train.StarveP50
	}
	wrong := checkTraining(own)
	h2d, copied, before := 0.0, 0.0, len(r.Rows)
	for _, p := range own[:len(own)-1] {
		k := t.pointRow(p)
		r.Rows = append(r.Rows, k)
		k.Failed, k.Base = p.result.Failed, p.baseName
		if w := wrong[p]; w != nil {
			k.LossRelDiff, k.LossRelMost, k.LossWith = w.lossDiff, w.allowedDiff, w.comparedWith
			if len(w.problems) > 0 {
				k.Failed, k.Differs = strings.Join(w.problems, "; "), true
			}
		}
		if len(p.result.Runs) == 0 {
			continue
		}
		util := report.Ratios(k.Spread["samples_per_s"], space)
		if len(util.Raw) == 0 {
			k.Notes = append(k.Notes, "no verdict: headspace has no figure")
			continue
		}
		k.Headspace, k.Drift, k.Utilisation = space.Median, drift, finiteOrNil(util.Median)
		k.Spread["utilisation"] = util
		if drift > 1 {
			k.Notes = append(
				k.Notes,
				fmt.Sprintf(
					"no verdict: headspace at the end of a repeat was %.1f %% off its beginning",
					drift,
				),
			)
		}
		if k.StarveMS != nil {
			step := float64(k.BatchSize*p.worldSize) / k.SamplesPerS * 1e3
			k.DataWaitPct = finiteOrNil(100 * (*k.StarveMS - starve) / step)
			k.Unexplained = finiteOrNil(100 - 100*util.Median - *k.DataWaitPct)
		}
		there := float64(runtime.NumCPU()*p.worldSize) / float64(t.Job.GPUs)
		k.CoresNeeded = finiteOrNil(space.Median * k.CPUPer1000 / 1000)
		suffice := k.CoresNeeded != nil && *k.CoresNeeded <= 0.85*there
		k.CoresSuffice = &suffice
		if p.baseName == "h2d" {
			h2d, copied = util.Median, k.SamplesPerS
		}
		switch waits := k.DataWaitPct != nil && *k.DataWaitPct > 2; {
		case util.Median >= 0.97:
			k.Limit = "gpu"
		case k.CoresBusy >= 0.9*there:
			k.Limit = "cores"
		case h2d > 0 && h2d < 0.97 && util.Median >= h2d-0.02:
			k.Limit = "h2d"
		case waits:
			k.Limit = "store"
		default:
			k.Limit = "launch"
		}
	}
	// These are the differences that DS-Analyzer computes. The fetch stall is the extra time with a
	// cold page cache. The preparation stall is the extra time compared with copying alone.
	for _, cold := range r.Rows[before:] {
		for _, warm := range r.Rows[before:] {
			if cold.CacheState == "cold" &&
				strings.Replace(cold.Runner, " cold", " warm", 1) == warm.Runner &&
				warm.SamplesPerS > 0 {
				cold.FetchStallPct = finiteOrNil(100 * (1 - cold.SamplesPerS/warm.SamplesPerS))
				// null if h2d was not run
				cold.PrepStallPct = finiteOrNil(
					100 * cold.SamplesPerS * (1/warm.SamplesPerS - 1/copied),
				)
			}
		}
	}
}

// stepParts returns pointers to the figures in trainParts.
func (k *TrainRow) stepParts() []**float64 {
	return []**float64{&k.StarveMS, &k.PreprocessMS, &k.ForwardMS, &k.BackwardMS, &k.OptimiserMS}
}

// pointRow returns the row of a point, without figures that depend on other points.
func (t *Train) pointRow(p *trainPoint) *TrainRow {
	w, j := p.Job, p.Job.Train
	k := &TrainRow{
		Repeats: len(p.result.Runs),
		Spread:  map[string]report.Spread{},
		Notes:   []string{},
		TrainSettings: TrainSettings{
			Model:      j.Model,
			Runner:     p.Name,
			Setting:    p.Setting,
			WorldSize:  p.worldSize,
			BatchSize:  w.BatchSize,
			Steps:      j.Steps,
			Warmup:     w.Warmup,
			Precision:  j.Precision,
			Loop:       j.Loop,
			Compile:    j.Compile,
			Graph:      j.Graph,
			Tiny:       j.Tiny,
			ImageSize:  w.ImageSize,
			Shuffle:    w.Shuffle,
			Cache:      w.Cache,
			Decode:     w.Decode,
			CacheState: p.cacheState,
			Workers:    w.Workers,
			Threads:    j.Threads,
			Device:     j.Device,
			Seed:       w.Seed,
		},
	}
	if p.worldSize > 1 {
		k.Rank = -1
	}
	if w.ImageSize != "" {
		k.ResizedBy = "loader"
		if isTrainPeer(p.baseName) {
			k.ResizedBy = "device"
		}
	}
	if len(p.result.Runs) == 0 {
		return k
	}
	p.result.summarizeRuns()
	k.Spread["samples_per_s"] = p.result.SamplesPerS
	k.Spread["cpu_s_per_1000_samples"] = p.result.CPUPer1000
	k.Spread["first_batch_latency_s"] = p.result.FirstBatchS
	k.SamplesPerS = p.result.SamplesPerS.Median
	o := p.result.medianRun()
	x := o.Train
	k.TrainFigures, k.OrderSHA256, k.FirstBatchS = x.TrainFigures, o.OrderSHA256, o.FirstBatchS
	k.CPUPer1000, k.CoresBusy = p.result.CPUPer1000.Median, o.CPUSeconds/o.Seconds
	k.RSSPeakGB, k.PSSPeakGB, k.ReadGB, k.DeviceReadGB = o.RSSPeakMB*(1<<20)/1e9,
		p.result.PSSPeakMB.Max*(1<<20)/1e9, float64(o.BytesRead)/1e9, float64(o.DeviceReadBytes)/1e9
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil && b.Frames > a.Frames {
		k.FramesPerS = finiteOrNil(float64(b.Frames-a.Frames) / o.Seconds)
	}
	for _, n := range o.decodingNotes() {
		k.Notes = append(k.Notes, p.Name+": "+n)
	}
	if x.OwnOrder {
		k.Notes = append(
			k.Notes,
			p.Name+": its own order: compared by samples, not with the order and the losses of "+
				"the others",
		)
	}
	if x.Apart != "" {
		k.Notes = append(k.Notes, p.Name+": "+x.Apart)
	}
	if j.Loop == "sync" {
		k.DataS, k.UpdtS = finiteOrNil(x.LoadWaitMS/1e3),
			finiteOrNil(o.Seconds/float64(x.WindowSteps)-x.LoadWaitMS/1e3)
	}
	if x.EnergyJ != nil {
		// energy of one device
		k.JPerSample = finiteOrNil(*x.EnergyJ * float64(p.worldSize) / float64(o.Samples))
	}
	if j.Device == "cpu" {
		k.GPUReason = "trained on the CPU"
	}
	if o.Seconds < 0.99*w.Seconds && p.worldSize == 1 {
		k.Notes = append(
			k.Notes,
			fmt.Sprintf(
				"%s: the window took %.1f s in place of %.0f: the set is too small, its plan has "+
					"no more steps",
				p.Name,
				o.Seconds,
				w.Seconds,
			),
		)
	}
	if n := len(x.Epochs); p.cacheState == "cold" && n > 1 {
		k.Notes = append(
			k.Notes,
			fmt.Sprintf(
				"%s: %d epochs began in the window; only the first found a cold page cache",
				p.Name,
				n,
			),
		)
	}
	return k
}
