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

// TrainRun is what a training run says of itself: runners/train.py.
type TrainRun struct {
	Params      int64              `json:"params"`
	Weights     string             `json:"weights_sha256"`
	Steps       int                `json:"steps"` // of the window
	LoadWaitMS  float64            `json:"load_wait_ms"`
	Losses      []float64          `json:"losses"` // of the first steps
	LossLast    float64            `json:"loss_last"`
	Sums        [][3]float64       `json:"sums"`     // of the first steps: the means of state, action and mask
	Parts       map[string]float64 `json:"parts_ms"` // of a step, by name, the mean
	StarveP50   float64            `json:"starve_p50_ms"`
	StepMS      map[string]float64 `json:"step_ms"` // p50, p95, p99
	StepsMS     [][]float64        `json:"steps_ms"`
	H2DMS       *float64           `json:"h2d_ms"`
	H2DBytes    float64            `json:"h2d_bytes"`
	Device      string             `json:"device_uuid"`
	MemGB       *float64           `json:"gpu_mem_gb"`
	Checked     int                `json:"batches_checked"`
	Wrong       int                `json:"batches_wrong"`
	WrongWhere  []string           `json:"wrong"`
	OrderWrong  int                `json:"order_wrong"`     // samples that are not the plan's
	Doubled     int                `json:"samples_doubled"` // in an epoch, over all ranks
	GPU         map[string]float64 `json:"gpu,omitempty"`   // gpu.Summary of the window
	GPUSamples  []gpu.Sample       `json:"gpu_samples,omitempty"`
	GPUReason   string             `json:"gpu_reason,omitempty"` // of counters that are not there
	Ranks       []float64          `json:"ranks"`                // samples per second
	RanksStarve []float64          `json:"ranks_starve_ms"`
}

// trainParts are the parts of a step in their order.
var trainParts = []string{"starve", "preprocess", "forward", "backward", "optimiser"}

// TrainRow is one runner's result. null: not measured. Figures without a spread are of the run with the median rate.
type TrainRow struct {
	Model      string `json:"model"`
	Params     int64  `json:"params"`
	Runner     string `json:"arm"`
	Setting    string `json:"setting"`
	WorldSize  int    `json:"world_size"`
	Rank       int    `json:"rank"` // -1: all
	BatchSize  int    `json:"batch_size"`
	Steps      int    `json:"steps"`
	Warmup     int    `json:"warmup"`
	Precision  string `json:"precision"`
	Loop       string `json:"loop"`
	Compile    bool   `json:"compile"`
	Tiny       bool   `json:"tiny"`
	ImageSize  string `json:"image_size"`
	ResizedBy  string `json:"resized_by"` // loader | device | "": nobody
	Shuffle    string `json:"shuffle"`
	Cache      string `json:"cache"`
	Workers    int    `json:"workers"`
	Threads    int    `json:"threads"`
	Device     string `json:"device"`
	DeviceUUID string `json:"device_uuid"`
	Seed       int    `json:"seed"`

	SamplesPerS   float64  `json:"samples_per_s"`
	Headspace     float64  `json:"headspace_samples_per_s"`
	Drift         float64  `json:"headspace_drift_pct"` // of a repeat's last run against its first, the largest
	LoadWaitMS    float64  `json:"load_wait_ms"`
	H2DMS         *float64 `json:"h2d_ms"`
	H2DWaitMS     *float64 `json:"h2d_wait_ms"`
	PreprocessMS  *float64 `json:"preprocess_ms"`
	ForwardMS     *float64 `json:"forward_ms"`
	BackwardMS    *float64 `json:"backward_ms"`
	OptimiserMS   *float64 `json:"optimiser_ms"`
	StarveMS      *float64 `json:"starve_ms"`
	StepP50MS     *float64 `json:"step_ms_p50"`
	StepP95MS     *float64 `json:"step_ms_p95"`
	StepP99MS     *float64 `json:"step_ms_p99"`
	DataWaitPct   *float64 `json:"data_wait_pct"`
	Utilisation   *float64 `json:"utilisation"`
	Unexplained   *float64 `json:"unexplained_pct"`
	DataS         *float64 `json:"data_s"` // of --loop sync
	UpdtS         *float64 `json:"updt_s"`
	CoresBusy     float64  `json:"cores_busy"`
	CoresNeeded   *float64 `json:"cores_needed"`
	CoresSuffice  *bool    `json:"cores_suffice"`
	RatioVsTorch  *float64 `json:"ratio_vs_torch"`
	FramesPerS    *float64 `json:"frames_per_s"`
	H2DGBPerS     *float64 `json:"h2d_gb_per_s"`
	FirstBatchS   float64  `json:"first_batch_latency_s"`
	CPUPer1000    float64  `json:"cpu_s_per_1000_samples"`
	PSSPeakGB     float64  `json:"pss_peak_gb"`
	GPUMemGB      *float64 `json:"gpu_mem_gb"`
	GPUUtilPct    *float64 `json:"gpu_util_pct"`
	SMUtilPct     *float64 `json:"sm_util_pct"`
	SMOccupancy   *float64 `json:"sm_occupancy_pct"`
	TensorUtilPct *float64 `json:"tensor_util_pct"`
	DRAMUtilPct   *float64 `json:"dram_util_pct"`
	PCIeRxGBPerS  *float64 `json:"pcie_rx_gb_s"`
	PowerW        *float64 `json:"power_w"`
	JPerSample    *float64 `json:"j_per_sample"`
	SMClockMHz    *float64 `json:"sm_clock_mhz"`
	ClockReasons  *float64 `json:"clock_reasons"` // bits, as NVML gives them
	GPUReason     string   `json:"gpu_reason"`    // why the device's counters are null

	LossFirst    float64                  `json:"loss_first"`
	LossLast     float64                  `json:"loss_last"`
	LossRelDiff  *float64                 `json:"loss_rel_diff"`  // the largest of 50 steps, against loss_with
	LossRelMost  *float64                 `json:"loss_rel_noise"` // what is allowed: three times that of two runs of another runner, at least 1 %
	LossWith     string                   `json:"loss_with"`
	Weights      string                   `json:"weights_sha256"`
	OrderSHA256  string                   `json:"order_sha256"`
	Checked      int                      `json:"batches_checked"`
	Wrong        int                      `json:"batches_wrong"`
	Scaling      *float64                 `json:"scaling_efficiency"`
	SlowestRank  *int                     `json:"slowest_rank"`
	RankSamples  []float64                `json:"rank_samples_per_s"`
	RankStarveMS []float64                `json:"rank_starve_ms"`
	Limit        string                   `json:"limit"` // gpu | cores | h2d | store | launch
	Spread       map[string]report.Spread `json:"spread"`
	Repeats      int                      `json:"repeats"`
	Failed       string                   `json:"failed"`
	Notes        []string                 `json:"notes"`

	Base    string      `json:"runner"`  // of TrainModes
	Differs bool        `json:"differs"` // it trained on something else than the others
	Losses  []float64   `json:"losses" sheet:"-"`
	StepsMS [][]float64 `json:"steps_ms" sheet:"-"`

	GPUSamples []gpu.Sample `json:"gpu_samples,omitempty" sheet:"-"`
}

// rows makes a row a runner, with what is wrong in it.
func (r *TrainReport) rows(t *Train, points []trainPoint) {
	for world := range slices.Values(slices.Compact([]int{1, t.Job.GPUs})) {
		var own []*trainPoint
		for i := range points {
			if points[i].world == world {
				own = append(own, &points[i])
			}
		}
		own[0].rows(r, t, own)
	}
	best := map[int]float64{}
	for _, k := range r.Rows {
		if k.Base == "torch" && k.Failed == "" {
			best[k.WorldSize] = max(best[k.WorldSize], k.SamplesPerS)
		}
	}
	for _, k := range r.Rows {
		if b := best[k.WorldSize]; b > 0 && k.SamplesPerS > 0 {
			k.RatioVsTorch = some(k.SamplesPerS / b)
		}
		for _, one := range r.Rows {
			if k.WorldSize > 1 && one.WorldSize == 1 && k.RankSamples != nil && one.Runner+fmt.Sprintf(" ×%d", k.WorldSize) == k.Runner && one.SamplesPerS > 0 {
				slow := slices.Index(k.RankSamples, slices.Min(k.RankSamples))
				k.SlowestRank, k.Scaling = &slow, some(k.RankSamples[slow]/one.SamplesPerS)
				k.Notes = append(k.Notes, fmt.Sprintf("%s: the slowest rank, %d, has %.1f samples/s: %.3f of one GPU's", k.Runner, slow, k.RankSamples[slow], *k.Scaling))
			}
		}
	}
}

func some(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// rows are those of one number of GPUs; the first and the last of own are headspace.
func (head *trainPoint) rows(r *TrainReport, t *Train, own []*trainPoint) {
	last := own[len(own)-1]
	drift, space := 0.0, report.Spread{}
	for i := range min(len(head.over.Runs), len(last.over.Runs)) {
		a, b := head.over.Runs[i].rate(), last.over.Runs[i].rate()
		drift = max(drift, 100*math.Abs(b/a-1))
		space.Add((a + b) / 2)
	}
	if why := last.over.Failed; why != "" {
		r.Notes = append(r.Notes, last.Name+" at the end of a repeat failed: "+why)
	}
	starve := 0.0
	if len(head.over.Runs) > 0 {
		starve = head.over.Runs[0].Train.StarveP50
	}
	wrong := checkTraining(own)
	h2d := 0.0
	for _, p := range own[:len(own)-1] {
		k := t.row(p)
		r.Rows = append(r.Rows, k)
		k.Failed, k.Base = p.over.Failed, p.base
		if w := wrong[p]; w != nil {
			k.LossRelDiff, k.LossRelMost, k.LossWith = w.diff, w.most, w.with
			if len(w.why) > 0 {
				k.Failed, k.Differs = strings.Join(w.why, "; "), true
			}
		}
		if len(p.over.Runs) == 0 {
			continue
		}
		util := report.Ratios(k.Spread["samples_per_s"], space)
		if len(util.Raw) == 0 {
			k.Notes = append(k.Notes, "no verdict: headspace has no figure")
			continue
		}
		k.Headspace, k.Drift, k.Utilisation = space.Median, drift, some(util.Median)
		k.Spread["utilisation"] = util
		if drift > 1 {
			k.Notes = append(k.Notes, fmt.Sprintf("no verdict: headspace at the end of a repeat was %.1f %% off its beginning", drift))
		}
		if k.StarveMS != nil {
			step := float64(k.BatchSize*p.world) / k.SamplesPerS * 1e3
			k.DataWaitPct = some(100 * (*k.StarveMS - starve) / step)
			k.Unexplained = some(100 - 100*util.Median - *k.DataWaitPct)
		}
		there := float64(runtime.NumCPU()*p.world) / float64(t.Job.GPUs)
		k.CoresNeeded = some(space.Median * k.CPUPer1000 / 1000)
		suffice := k.CoresNeeded != nil && *k.CoresNeeded <= 0.85*there
		k.CoresSuffice = &suffice
		if p.base == "h2d" {
			h2d = util.Median
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
}

// parts are those of trainParts.
func (k *TrainRow) parts() []**float64 {
	return []**float64{&k.StarveMS, &k.PreprocessMS, &k.ForwardMS, &k.BackwardMS, &k.OptimiserMS}
}

// row has what a point's runs say without the others.
func (t *Train) row(p *trainPoint) *TrainRow {
	w, j := p.Job, p.Job.Train
	k := &TrainRow{Model: j.Model, Runner: p.Name, Setting: p.Setting, WorldSize: p.world, BatchSize: w.BatchSize, Steps: j.Steps, Warmup: w.Warmup, Precision: j.Precision, Loop: j.Loop, Compile: j.Compile,
		Tiny: j.Tiny, ImageSize: w.ImageSize, Shuffle: w.Shuffle, Cache: w.Cache, Workers: w.Workers, Threads: j.Threads, Device: j.Device, Seed: w.Seed, Repeats: len(p.over.Runs), Spread: map[string]report.Spread{}, Notes: []string{}}
	if p.world > 1 {
		k.Rank = -1
	}
	if w.ImageSize != "" {
		k.ResizedBy = "loader"
		if p.base == "torch" || p.base == "lerobot" {
			k.ResizedBy = "device"
		}
	}
	if len(p.over.Runs) == 0 {
		return k
	}
	p.over.summarise()
	k.Spread["samples_per_s"], k.Spread["cpu_s_per_1000_samples"], k.Spread["first_batch_latency_s"] = p.over.SamplesPerS, p.over.CPUPer1000, p.over.FirstBatchS
	k.SamplesPerS = p.over.SamplesPerS.Median
	runs := slices.Clone(p.over.Runs)
	slices.SortStableFunc(runs, func(a, b Outcome) int { return int(math.Copysign(1, a.rate()-b.rate())) })
	o := runs[(len(runs)-1)/2]
	x := o.Train
	k.Params, k.DeviceUUID, k.Weights, k.OrderSHA256, k.Checked, k.Wrong, k.RankSamples, k.RankStarveMS = x.Params, x.Device, x.Weights, o.OrderSHA256, x.Checked, x.Wrong, x.Ranks, x.RanksStarve
	k.LoadWaitMS, k.H2DMS, k.GPUMemGB, k.FirstBatchS, k.CPUPer1000, k.PSSPeakGB = x.LoadWaitMS, x.H2DMS, x.MemGB, o.FirstBatchS, p.over.CPUPer1000.Median, p.over.PSSPeakMB.Max*(1<<20)/1e9
	k.CoresBusy, k.Losses, k.StepsMS, k.LossLast = o.CPUSeconds/o.Seconds, x.Losses, x.StepsMS, x.LossLast
	if len(x.Losses) > 0 {
		k.LossFirst = x.Losses[0]
	}
	if x.H2DMS != nil {
		k.H2DGBPerS = some(x.H2DBytes / *x.H2DMS / 1e6)
	}
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil && b.Frames > a.Frames {
		k.FramesPerS = some(float64(b.Frames-a.Frames) / o.Seconds)
	}
	for i, to := range k.parts() {
		if v, ok := x.Parts[trainParts[i]]; ok {
			*to = &v
		}
	}
	for to, from := range map[**float64]string{&k.StepP50MS: "p50", &k.StepP95MS: "p95", &k.StepP99MS: "p99"} {
		if v, ok := x.StepMS[from]; ok {
			*to = &v
		}
	}
	if j.Loop == "sync" {
		k.DataS, k.UpdtS = some(x.LoadWaitMS/1e3), some(o.Seconds/float64(x.Steps)-x.LoadWaitMS/1e3)
	}
	for name, to := range map[string]**float64{"gpu_util_pct": &k.GPUUtilPct, "sm_util_pct": &k.SMUtilPct, "sm_occupancy_pct": &k.SMOccupancy, "tensor_util_pct": &k.TensorUtilPct, "dram_util_pct": &k.DRAMUtilPct,
		"pcie_rx_gb_s": &k.PCIeRxGBPerS, "power_w": &k.PowerW, "sm_clock_mhz": &k.SMClockMHz, "clock_reasons": &k.ClockReasons} {
		if v, ok := x.GPU[name]; ok {
			*to = &v
		}
	}
	if v, ok := x.GPU["energy_j"]; ok {
		k.JPerSample = some(v * float64(p.world) / float64(o.Samples)) // of one device
	}
	if k.GPUReason, k.GPUSamples = x.GPUReason, x.GPUSamples; j.Device == "cpu" {
		k.GPUReason = "trained on the CPU"
	}
	return k
}
