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

// TrainFigures is what a training run measures, by the keys of its row. null: not measured.
type TrainFigures struct {
	Params     int64    `json:"params"`
	DeviceUUID string   `json:"device_uuid"`
	LoadWaitMS float64  `json:"load_wait_ms"`
	H2DMS      *float64 `json:"h2d_ms"` // of the copies that the trainer makes
	// a step: what the compute stream waited for copies, the trainer's or the loader's
	H2DWaitMS     *float64 `json:"h2d_wait_ms"`
	H2DGBPerS     *float64 `json:"h2d_gb_per_s"`
	PreprocessMS  *float64 `json:"preprocess_ms"`
	ForwardMS     *float64 `json:"forward_ms"`
	BackwardMS    *float64 `json:"backward_ms"`
	OptimiserMS   *float64 `json:"optimiser_ms"`
	StarveMS      *float64 `json:"starve_ms"`
	StepP50MS     *float64 `json:"step_ms_p50"`
	StepP95MS     *float64 `json:"step_ms_p95"`
	StepP99MS     *float64 `json:"step_ms_p99"`
	GPUMemGB      *float64 `json:"gpu_mem_gb"`
	GPUUtilPct    *float64 `json:"gpu_util_pct"` // from here on of gpu.Summary
	SMUtilPct     *float64 `json:"sm_util_pct"`
	SMOccupancy   *float64 `json:"sm_occupancy_pct"`
	TensorUtilPct *float64 `json:"tensor_util_pct"`
	DRAMUtilPct   *float64 `json:"dram_util_pct"`
	PCIeRxGBPerS  *float64 `json:"pcie_rx_gb_s"`
	PowerW        *float64 `json:"power_w"`
	EnergyJ       *float64 `json:"energy_j"`
	SMClockMHz    *float64 `json:"sm_clock_mhz"`
	ClockReasons  *float64 `json:"clock_reasons"` // bits, as NVML gives them
	GPUReason     string   `json:"gpu_reason"`    // why the device's counters are null

	LossFirst    float64   `json:"loss_first"`
	LossLast     float64   `json:"loss_last"`
	Weights      string    `json:"weights_sha256"`
	Checked      int       `json:"batches_checked"`
	Wrong        int       `json:"batches_wrong"`
	RankSamples  []float64 `json:"rank_samples_per_s"`
	RankStarveMS []float64 `json:"rank_starve_ms"`

	Losses     []float64    `json:"losses" sheet:"-"` // of the first steps
	StepsMS    [][]float64  `json:"steps_ms" sheet:"-"`
	Epochs     []int64      `json:"epochs_unix_ns" sheet:"-"` // when epochs began, in the window
	GPUSamples []gpu.Sample `json:"gpu_samples,omitempty" sheet:"-"`
}

// TrainRun is what a training run says of itself: runners/robocache_bench/train.py.
type TrainRun struct {
	TrainFigures
	WindowSteps int `json:"window_steps"`
	// of the first steps: the means of state, action and mask
	Sums       [][3]float64 `json:"sums"`
	StarveP50  float64      `json:"starve_p50_ms"`
	WrongWhere []string     `json:"wrong"`
	OrderWrong int          `json:"order_wrong"`     // samples that are not the plan's
	Doubled    int          `json:"samples_doubled"` // in an epoch, over all ranks
	// the runner has an order of its own: the plan's is not asked of it
	OwnOrder bool `json:"own_order"`
	// what compared frames of another decoder differ by, in words
	Apart string `json:"frames_apart"`
}

// trainParts are the parts of a step in their order.
var trainParts = []string{"starve", "preprocess", "forward", "backward", "optimiser"}

// TrainRow is one runner's result. null: not measured. Figures without a spread are of the run with
// the median rate.
type TrainRow struct {
	Model     string `json:"model"`
	Runner    string `json:"arm"`
	Setting   string `json:"setting"`
	WorldSize int    `json:"world_size"`
	Rank      int    `json:"rank"` // -1: all
	BatchSize int    `json:"batch_size"`
	Steps     int    `json:"steps"`
	Warmup    int    `json:"warmup"`
	Precision string `json:"precision"`
	Loop      string `json:"loop"`
	Compile   bool   `json:"compile"`
	Graph     bool   `json:"graph"`
	Tiny      bool   `json:"tiny"`
	ImageSize string `json:"image_size"`
	ResizedBy string `json:"resized_by"` // loader | device | "": nobody
	Shuffle   string `json:"shuffle"`
	Cache     string `json:"cache"`
	Decode    string `json:"decode"` // where ours decode: cpu | gpu | auto
	// of the page cache before the run: cold | warm | "": as it was
	CacheState string `json:"cache_state"`
	Workers    int    `json:"workers"`
	Threads    int    `json:"threads"`
	Device     string `json:"device"`
	Seed       int    `json:"seed"`

	SamplesPerS float64 `json:"samples_per_s"`
	Headspace   float64 `json:"headspace_samples_per_s"`
	// of a repeat's last run against its first, the largest
	Drift       float64  `json:"headspace_drift_pct"`
	DataWaitPct *float64 `json:"data_wait_pct"`
	Utilisation *float64 `json:"utilisation"`
	Unexplained *float64 `json:"unexplained_pct"`
	// of a cold run: what its warm one takes longer than h2d
	PrepStallPct  *float64 `json:"prep_stall_pct"`
	FetchStallPct *float64 `json:"fetch_stall_pct"` // and what it takes longer than the warm one
	DataS         *float64 `json:"data_s"`          // of --loop sync
	UpdtS         *float64 `json:"updt_s"`
	CoresBusy     float64  `json:"cores_busy"`
	CoresNeeded   *float64 `json:"cores_needed"`
	CoresSuffice  *bool    `json:"cores_suffice"`
	RatioVsTorch  *float64 `json:"ratio_vs_torch"`
	FramesPerS    *float64 `json:"frames_per_s"`
	FirstBatchS   float64  `json:"first_batch_latency_s"`
	CPUPer1000    float64  `json:"cpu_s_per_1000_samples"`
	RSSPeakGB     float64  `json:"rss_peak_gb"`
	PSSPeakGB     float64  `json:"pss_peak_gb"`
	ReadGB        float64  `json:"read_gb"`        // in the window, of files and sockets
	DeviceReadGB  float64  `json:"device_read_gb"` // from the process's start on, of disks
	JPerSample    *float64 `json:"j_per_sample"`

	// the largest of 50 steps, against loss_with
	LossRelDiff *float64 `json:"loss_rel_diff"`
	// what is allowed: three times that of two runs of another runner, at least 1 %
	LossRelMost *float64                 `json:"loss_rel_noise"`
	LossWith    string                   `json:"loss_with"`
	OrderSHA256 string                   `json:"order_sha256"`
	Scaling     *float64                 `json:"scaling_efficiency"`
	SlowestRank *int                     `json:"slowest_rank"`
	Limit       string                   `json:"limit"` // gpu | cores | h2d | store | launch
	Spread      map[string]report.Spread `json:"spread"`
	Repeats     int                      `json:"repeats"`
	Failed      string                   `json:"failed"`
	Notes       []string                 `json:"notes"`
	Base        string                   `json:"runner"` // of modes
	// it trained on something else than the others
	Differs bool `json:"differs"`
	TrainFigures
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
			if k.WorldSize > 1 && one.WorldSize == 1 && k.RankSamples != nil &&
				one.Runner+fmt.Sprintf(" ×%d", k.WorldSize) == k.Runner &&
				one.SamplesPerS > 0 {
				slow := slices.Index(k.RankSamples, slices.Min(k.RankSamples))
				k.SlowestRank, k.Scaling = &slow, some(k.RankSamples[slow]/one.SamplesPerS)
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
	h2d, copied, before := 0.0, 0.0, len(r.Rows)
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
			k.Notes = append(
				k.Notes,
				fmt.Sprintf(
					"no verdict: headspace at the end of a repeat was %.1f %% off its beginning",
					drift,
				),
			)
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
	// The differences of DS-Analyzer: what reading takes beyond a warm page cache, and what
	// preparing takes beyond copying.
	for _, cold := range r.Rows[before:] {
		for _, warm := range r.Rows[before:] {
			if cold.CacheState == "cold" &&
				strings.Replace(cold.Runner, " cold", " warm", 1) == warm.Runner &&
				warm.SamplesPerS > 0 {
				cold.FetchStallPct = some(100 * (1 - cold.SamplesPerS/warm.SamplesPerS))
				// null where h2d was not run
				cold.PrepStallPct = some(100 * cold.SamplesPerS * (1/warm.SamplesPerS - 1/copied))
			}
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
	k := &TrainRow{
		Model:      j.Model,
		Runner:     p.Name,
		Setting:    p.Setting,
		WorldSize:  p.world,
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
		CacheState: p.pages,
		Workers:    w.Workers,
		Threads:    j.Threads,
		Device:     j.Device,
		Seed:       w.Seed,
		Repeats:    len(p.over.Runs),
		Spread:     map[string]report.Spread{},
		Notes:      []string{},
	}
	if p.world > 1 {
		k.Rank = -1
	}
	if w.ImageSize != "" {
		k.ResizedBy = "loader"
		if peerOfTrain(p.base) {
			k.ResizedBy = "device"
		}
	}
	if len(p.over.Runs) == 0 {
		return k
	}
	p.over.summarise()
	k.Spread["samples_per_s"], k.Spread["cpu_s_per_1000_samples"], k.Spread["first_batch_latency_s"] = p.over.SamplesPerS, p.over.CPUPer1000, p.over.FirstBatchS
	k.SamplesPerS = p.over.SamplesPerS.Median
	o := p.over.median()
	x := o.Train
	k.TrainFigures, k.OrderSHA256, k.FirstBatchS, k.CPUPer1000, k.CoresBusy = x.TrainFigures, o.OrderSHA256, o.FirstBatchS, p.over.CPUPer1000.Median, o.CPUSeconds/o.Seconds
	k.RSSPeakGB, k.PSSPeakGB, k.ReadGB, k.DeviceReadGB = o.RSSPeakMB*(1<<20)/1e9,
		p.over.PSSPeakMB.Max*(1<<20)/1e9, float64(o.BytesRead)/1e9, float64(o.DeviceReadBytes)/1e9
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil && b.Frames > a.Frames {
		k.FramesPerS = some(float64(b.Frames-a.Frames) / o.Seconds)
	}
	for _, n := range o.decoding() {
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
		k.DataS, k.UpdtS = some(x.LoadWaitMS/1e3),
			some(o.Seconds/float64(x.WindowSteps)-x.LoadWaitMS/1e3)
	}
	if x.EnergyJ != nil {
		k.JPerSample = some(*x.EnergyJ * float64(p.world) / float64(o.Samples)) // of one device
	}
	if j.Device == "cpu" {
		k.GPUReason = "trained on the CPU"
	}
	if o.Seconds < 0.99*w.Seconds && p.world == 1 {
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
	if n := len(x.Epochs); p.pages == "cold" && n > 1 {
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
