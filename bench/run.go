package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Runner is one timer: a command that runs the workload once and prints one JSON object, an Outcome, as its last line.
type Runner struct {
	Name    string   `json:"name"`
	Setting string   `json:"setting"` // what was chosen for it, in words
	Argv    []string `json:"argv"`
	Env     []string `json:"env,omitempty"`
	// BudgetMB is the memory_budget that the runner was given; 0: none.
	BudgetMB float64 `json:"budget_mb,omitempty"`
	// Checked: its frames are to be compared with the oracle's; a run in which none was is no result.
	Checked bool `json:"checked,omitempty"`

	job job
}

// Outcome is what one run of a runner says of itself.
type Outcome struct {
	Samples      int64   `json:"samples"` // delivered in the window
	Seconds      float64 `json:"seconds"` // wall time of the window
	CPUSeconds   float64 `json:"cpu_seconds"`
	ImportS      float64 `json:"import_s,omitempty"`
	OpenS        float64 `json:"open_s,omitempty"`
	FirstBatchS  float64 `json:"first_batch_latency_s,omitempty"`
	PSSPeakMB    float64 `json:"pss_peak_mb,omitempty"`
	OrderSHA256  string  `json:"order_sha256,omitempty"`
	DistinctFrac float64 `json:"shuffle_randomness_frac,omitempty"` // distinct episodes a batch ÷ batch
	IdealFrac    float64 `json:"randomness_ideal,omitempty"`
	Decoded      int64   `json:"frames_decoded,omitempty"`
	Delivered    int64   `json:"frames_delivered,omitempty"`
	Error        string  `json:"error,omitempty"`

	Epochs         int               `json:"epochs,omitempty"` // of a window of whole epochs
	FramesChecked  int64             `json:"frames_checked,omitempty"`
	WrongFrames    int64             `json:"wrong_frames,omitempty"`
	CoverageMin    int               `json:"coverage_min,omitempty"`
	CoverageMax    int               `json:"coverage_max,omitempty"` // 0: the runner has no order
	NeighbourShare float64           `json:"neighbour_share,omitempty"`
	Versions       map[string]string `json:"versions,omitempty"`
	Values         string            `json:"values_sha256,omitempty"` // of all that was read: runners of one case must agree

	// Of a window of seconds (Workload.Duration).
	IndexBuildS     float64       `json:"index_build_s,omitempty"`
	RSSPeakMB       float64       `json:"rss_peak_mb,omitempty"`
	OrderSamples    int64         `json:"order_samples,omitempty"` // that order_sha256 is over: the first epoch's, until the window closed
	OpenUnixNS      int64         `json:"window_open_unix_ns,omitempty"`
	ArrivalsUS      []int64       `json:"arrivals_us,omitempty"` // after the window opened, a batch each
	ArrivalRows     []int         `json:"arrival_rows,omitempty"`
	WaitS           float64       `json:"wait_s,omitempty"`     // of the window, for the next batch
	BytesRead       int64         `json:"bytes_read,omitempty"` // in the window; asked of files and sockets
	DeviceReadBytes int64         `json:"device_read_bytes,omitempty"`
	QueueBatches    []*float64    `json:"queue_batches,omitempty"` // ready and not taken, at both ends
	EpochsFinished  int           `json:"epochs_finished,omitempty"`
	SamplesLost     int64         `json:"samples_lost,omitempty"` // in finished epochs
	SamplesDoubled  int64         `json:"samples_doubled,omitempty"`
	StatsOpen       *loader.Stats `json:"stats_open,omitempty"`
	StatsClose      *loader.Stats `json:"stats_close,omitempty"`
	ConsumerStepS   float64       `json:"consumer_step_s,omitempty"`
	WaitPct         *float64      `json:"wait_pct,omitempty"`
	H2DWaitPct      *float64      `json:"h2d_wait_pct,omitempty"`
	SingleProc      *float64      `json:"single_proc_samples_per_s,omitempty"`
	Headspace       float64       `json:"headspace_samples_per_s,omitempty"` // the same loop on one batch that is there
	TotalTimeS      float64       `json:"total_time_s,omitempty"`
	Cameras         int           `json:"num_cameras,omitempty"`
	ImageShape      []int         `json:"image_shape,omitempty"`
	FPS             float64       `json:"fps,omitempty"`
	LoadedEpisodes  int           `json:"loaded_episodes,omitempty"`
	Seen            Seen          `json:"seen,omitzero"` // from outside
}

// Seen is what the harness saw of a run.
type Seen struct {
	ServerBytes    int64 `json:"server_bytes,omitempty"` // sent to this rank in its window
	ServerRequests int64 `json:"server_requests,omitempty"`
}

// Result is a runner with the outcomes of its repeats.
type Result struct {
	Runner      Runner        `json:"arm"`
	Runs        []Outcome     `json:"runs"`
	SamplesPerS report.Spread `json:"samples_per_s"`
	CPUPer1000  report.Spread `json:"cpu_s_per_1000_samples"`
	FirstBatchS report.Spread `json:"first_batch_latency_s"`
	PSSPeakMB   report.Spread `json:"pss_peak_mb"`
	Failed      string        `json:"failed,omitempty"`
}

// Run runs the runners in turn, repeats times, and gives a result a runner in the order given.
func Run(ctx context.Context, runners []Runner, repeats int, timeout time.Duration, log func(format string, a ...any)) ([]Result, error) {
	results := make([]Result, len(runners))
	for i, a := range runners {
		results[i].Runner = a
	}
	for rep := range repeats {
		for i := range results {
			r := &results[i]
			if r.Failed != "" {
				continue
			}
			o, err := runOnce(ctx, r.Runner, timeout)
			if ctx.Err() != nil {
				return results, ctx.Err()
			}
			if err != nil {
				r.Failed = err.Error()
				log("%s: failed: %v", r.Runner.Name, err)
				continue
			}
			r.Runs = append(r.Runs, o)
			log("%d/%d %-24s %8.1f /s  %7.3f CPU s per 1,000", rep+1, repeats, r.Runner.Name, o.rate(), o.cpuPer1000())
		}
	}
	agree(results)
	for i := range results {
		results[i].summarise()
	}
	return results, nil
}

// coverage is how often the samples came an epoch: least and most; 0, 0 where the runner has no order.
func (o *Outcome) coverage() (low, high int) { return o.CoverageMin, o.CoverageMax }

func (o *Outcome) rate() float64       { return float64(o.Samples) / o.Seconds }
func (o *Outcome) cpuPer1000() float64 { return 1000 * o.CPUSeconds / float64(o.Samples) }

// agree fails runners that read other values than the first that says what it read.
func agree(results []Result) {
	want, who := "", ""
	for i := range results {
		r := &results[i]
		for _, o := range r.Runs {
			switch {
			case o.Values == "" || o.Values == want:
			case want == "":
				want, who = o.Values, r.Runner.Name
			case r.Failed == "":
				r.Failed = "reads other values than " + who
			}
		}
	}
}

func (r *Result) summarise() {
	for _, o := range r.Runs {
		r.SamplesPerS.Add(o.rate())
		r.CPUPer1000.Add(o.cpuPer1000())
		r.FirstBatchS.Add(o.FirstBatchS)
		r.PSSPeakMB.Add(o.PSSPeakMB)
	}
}

// runOnce runs a fresh process in its own process group, so that a peer's stray workers end with it. Memory, CPU and bytes are read from outside, the
// order and the frames are counted and compared when it has ended.
func runOnce(ctx context.Context, r Runner, timeout time.Duration) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	j := r.job
	if j.ref != nil && j.order == "" {
		dir, err := os.MkdirTemp("", "robocache-bench-run-")
		if err != nil {
			return Outcome{}, robocache.At(err, nil)
		}
		defer os.RemoveAll(dir)
		j.order, j.frames = filepath.Join(dir, "order"), filepath.Join(dir, "frames")
		r.Argv = append(slices.Clone(r.Argv), "--order-out", j.order, "--frames-out", j.frames)
	}
	cmd, errs := runners.Command(ctx, r.Argv, r.Env)
	w := &watcher{srv: j.srv}
	out := &runners.Lines{Each: w.line}
	cmd.Stdout = out
	runErr := cmd.Start()
	if runErr == nil {
		w.start(cmd.Process.Pid)
		runErr = cmd.Wait()
		w.end()
	}
	var o Outcome
	if err := json.Unmarshal(out.Last(), &o); err != nil {
		if runErr == nil {
			runErr = err
		}
		if ctx.Err() != nil {
			runErr = fmt.Errorf("%w after %v", ctx.Err(), timeout)
		}
		return o, fmt.Errorf("%w: %s", runErr, runners.LastLine(errs.String()))
	}
	if o.Error != "" {
		return o, fmt.Errorf("%s", o.Error)
	}
	if runErr != nil {
		return o, fmt.Errorf("%w: %s", runErr, runners.LastLine(errs.String()))
	}
	if o.Samples <= 0 || o.Seconds <= 0 {
		return o, fmt.Errorf("no samples were delivered")
	}
	w.into(&o)
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil {
		o.Decoded, o.Delivered = b.FramesDecoded-a.FramesDecoded, b.Frames-a.Frames
	}
	if j.ref == nil {
		return o, nil
	}
	return o, j.check(ctx, &o)
}

// job is what the harness does around a run.
type job struct {
	ref           *reference // the set that order and frames are held against; nil: neither is looked at
	batch         int
	whole         bool // the window is whole epochs
	frames, order string
	srv           *loopback.Server
}

// check counts the order and compares frames, and writes what came of it into the outcome.
func (j *job) check(ctx context.Context, o *Outcome) error {
	t := newTally(j.ref.samples, len(j.ref.all), j.batch)
	t.limit, t.whole = j.ref.total, j.whole
	if err := replay(j.order, t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	t.into(o)
	o.IdealFrac = IdealDistinct(j.ref.lengths, j.batch)
	if !j.whole { // scenarios compare frames of all ranks together
		return nil
	}
	images, err := readHandedOver(j.frames)
	if err != nil || len(images) == 0 {
		return err
	}
	c, err := checkFrames(ctx, j.ref, images, true)
	o.FramesChecked, o.WrongFrames = o.FramesChecked+int64(c.Checked), o.WrongFrames+int64(c.Wrong)
	return err
}

// reference is a set as the harness knows it: what runners deliver is held against it.
type reference struct {
	ds      robocache.Dataset
	root    string // its local folder; "": remote, and frames are not compared
	lengths []int  // of the episodes that are taken
	samples int64  // in them
	all     []int  // lengths of all episodes
	total   int64
}

func newReference(ctx context.Context, ds robocache.Dataset, root string, w *Workload) (*reference, error) {
	r := &reference{ds: ds, root: root}
	list, err := w.episodes(ds.Info())
	if err != nil {
		return nil, err
	}
	for e := range ds.Info().Episodes {
		r.all = append(r.all, ds.Len(e))
		r.total += int64(ds.Len(e))
	}
	for _, e := range list {
		r.lengths = append(r.lengths, ds.Len(e))
		r.samples += int64(ds.Len(e))
	}
	return r, nil
}
