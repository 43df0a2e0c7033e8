package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Runner is one timer: a command that does its job once and prints one JSON object, an Outcome, as
// its last line.
type Runner struct {
	Name    string    `json:"name"`
	Setting string    `json:"setting"` // what was chosen for it, in words
	Argv    []string  `json:"argv"`
	Job     *Workload `json:"job,omitempty"` // its last argument, as JSON
	Env     []string  `json:"env,omitempty"`
	// Checked: its frames are to be compared with the oracle's; a run in which none was is no
	// result.
	Checked bool `json:"checked,omitempty"`

	ref     *reference // the set that order and frames are held against; nil: neither is looked at
	seconds bool       // the window is seconds, and frames are compared when all ranks have ended
	srv     *loopback.Server

	done *Finished // has the runs that are over, by key and repeat; nil: nothing is kept
	key  any
}

// Outcome is what one run of a runner says of itself.
type Outcome struct {
	Samples     int64   `json:"samples"` // delivered in the window
	Seconds     float64 `json:"seconds"` // wall time of the window
	CPUSeconds  float64 `json:"cpu_seconds"`
	ImportS     float64 `json:"import_s,omitempty"`
	OpenS       float64 `json:"open_s,omitempty"`
	FirstBatchS float64 `json:"first_batch_latency_s,omitempty"`
	PSSPeakMB   float64 `json:"pss_peak_mb,omitempty"`
	OrderSHA256 string  `json:"order_sha256,omitempty"`
	// distinct episodes a batch ÷ batch
	DistinctFrac float64 `json:"shuffle_randomness_frac,omitempty"`
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
	// of all that was read: runners of one case must agree
	Values string `json:"values_sha256,omitempty"`

	// Of a window of seconds (Workload.Duration).
	IndexBuildS float64 `json:"index_build_s,omitempty"`
	RSSPeakMB   float64 `json:"rss_peak_mb,omitempty"`
	// that order_sha256 is over: the first epoch's, until the window closed
	OrderSamples int64 `json:"order_samples,omitempty"`
	OpenUnixNS   int64 `json:"window_open_unix_ns,omitempty"`
	// after the window opened, a batch each
	ArrivalsUS  []int64 `json:"arrivals_us,omitempty"`
	ArrivalRows []int   `json:"arrival_rows,omitempty"`
	WaitS       float64 `json:"wait_s,omitempty"` // of the window, for the next batch
	// in the window; asked of files and sockets
	BytesRead       int64 `json:"bytes_read,omitempty"`
	DeviceReadBytes int64 `json:"device_read_bytes,omitempty"`
	// ready and not taken, at both ends
	QueueBatches   []*float64    `json:"queue_batches,omitempty"`
	EpochsFinished int           `json:"epochs_finished,omitempty"`
	SamplesLost    int64         `json:"samples_lost,omitempty"` // in finished epochs
	SamplesDoubled int64         `json:"samples_doubled,omitempty"`
	StatsOpen      *loader.Stats `json:"stats_open,omitempty"`
	StatsClose     *loader.Stats `json:"stats_close,omitempty"`
	ConsumerStepS  float64       `json:"consumer_step_s,omitempty"`
	WaitPct        *float64      `json:"wait_pct,omitempty"`
	H2DWaitPct     *float64      `json:"h2d_wait_pct,omitempty"`
	SingleProc     *float64      `json:"single_proc_samples_per_s,omitempty"`
	TotalTimeS     float64       `json:"total_time_s,omitempty"`
	Cameras        int           `json:"num_cameras,omitempty"`
	ImageShape     []int         `json:"image_shape,omitempty"`
	FPS            float64       `json:"fps,omitempty"`
	LoadedEpisodes int           `json:"loaded_episodes,omitempty"`
	ServerBytes    int64         `json:"server_bytes,omitempty"` // sent to this rank in its window
	CacheState     string        `json:"cache_state,omitempty"`
	Train          *TrainRun     `json:"train,omitempty"`

	Compared   bool      `json:"-"` // frames were held against the oracle
	WrongWhere []string  `json:"-"` // the first wrong frames
	Note       string    `json:"-"` // why no frame was compared, or fewer
	Ranks      []Outcome `json:"-"` // of which it is the sum
	common     *common
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

// measure lets runners take turns, repeats times. One that fails takes no more.
func measure(
	ctx context.Context,
	results []*Result,
	repeats int,
	log func(format string, a ...any),
	once func(i, rep int) (Outcome, error),
) error {
	for rep := range repeats {
		for i, r := range results {
			if r.Failed != "" {
				continue
			}
			o, err := once(i, rep)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				r.Failed = err.Error()
				log("%s: failed: %v", r.Runner.Name, err)
			default:
				r.Runs = append(r.Runs, o)
				log(
					"%d/%d %-28s %10.1f samples/s %8.3f CPU s per 1,000",
					rep+1,
					repeats,
					r.Runner.Name,
					o.rate(),
					o.cpuPer1000(),
				)
			}
		}
	}
	return nil
}

// Run runs the runners in turn, repeats times, and gives a result a runner in the order given.
func Run(
	ctx context.Context,
	runners []Runner,
	repeats int,
	timeout time.Duration,
	log func(format string, a ...any),
) ([]Result, error) {
	results, turns := make([]Result, len(runners)), make([]*Result, len(runners))
	for i, r := range runners {
		results[i].Runner, turns[i] = r, &results[i]
	}
	err := measure(ctx, turns, repeats, log, func(i, rep int) (Outcome, error) {
		r := runners[i]
		return Once(
			r.done,
			[]any{r.key, rep},
			func() (Outcome, error) { return runOnce(ctx, r, timeout) },
		)
	})
	agree(results)
	for i := range results {
		results[i].summarise()
	}
	return results, err
}

// decoding says what a device decoded in the window and what the CPU did, of each source, and which
// streams stay there.
func (o *Outcome) decoding() (notes []string) {
	if o.StatsOpen == nil || o.StatsClose == nil {
		return nil
	}
	for i, d := range o.StatsClose.Decoding {
		if i < len(o.StatsOpen.Decoding) {
			before := &o.StatsOpen.Decoding[i]
			d.GPU, d.CPU, d.Failed = d.GPU-before.GPU, d.CPU-before.CPU, d.Failed-before.Failed
		}
		n := fmt.Sprintf(
			"decoded by %s: %d frames, by the CPU: %d, groups that the device failed at: %d",
			d.Device,
			d.GPU,
			d.CPU,
			d.Failed,
		)
		for _, s := range d.OnCPU {
			n += fmt.Sprintf("; %s (%s): %s", s.File, s.Codec, s.Reason)
		}
		notes = append(notes, n)
	}
	return notes
}

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

// median is the run whose rate is the median of the repeats (the lower one of two).
func (r *Result) median() *Outcome {
	runs := slices.Clone(r.Runs)
	slices.SortStableFunc(runs, func(a, b Outcome) int { return cmp.Compare(a.rate(), b.rate()) })
	return &runs[(len(runs)-1)/2]
}

// runOnce runs a fresh process in its own process group, so that a peer's stray workers end with
// it. Memory, CPU and bytes are read from outside, the order and the frames are counted and
// compared when it has ended.
func runOnce(ctx context.Context, r Runner, timeout time.Duration) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	argv, w := r.Argv, Workload{}
	if r.Job != nil {
		w = *r.Job
		if r.ref != nil && w.OrderOut == "" {
			dir, err := os.MkdirTemp("", "robocache-bench-run-")
			if err != nil {
				return o, err
			}
			defer os.RemoveAll(dir)
			w.OrderOut, w.FramesOut = filepath.Join(dir, "order"), filepath.Join(dir, "frames")
		}
		encoded, err := json.Marshal(w)
		if err != nil {
			return o, err
		}
		argv = append(slices.Clone(argv), string(encoded))
	}
	cmd, errs := runners.Command(ctx, argv, r.Env)
	watch := &watcher{srv: r.srv}
	out := &runners.Lines{Each: watch.line}
	cmd.Stdout = out
	if err = cmd.Start(); err == nil {
		watch.start(cmd.Process.Pid)
		err = cmd.Wait()
		watch.end()
	}
	said := json.Unmarshal(out.Last(), &o)
	switch {
	case said == nil && o.Error != "":
		return o, errors.New(o.Error)
	case said != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w after %v", ctx.Err(), timeout)
	case err == nil:
		err = said
	}
	if err != nil {
		return o, fmt.Errorf("%w: %s", err, runners.LastLine(errs.String()))
	}
	if o.Samples <= 0 || o.Seconds <= 0 {
		return o, errors.New("no samples were delivered")
	}
	watch.into(&o)
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil {
		o.Decoded, o.Delivered = b.FramesDecoded-a.FramesDecoded, b.Frames-a.Frames
	}
	if r.ref != nil {
		err = r.check(ctx, &w, &o)
	}
	return o, err
}

// check counts the order, and writes what came of it into the outcome; frames too, where no other
// rank still runs.
func (r *Runner) check(ctx context.Context, w *Workload, o *Outcome) (err error) {
	t := newTally(r.ref.samples, len(r.ref.all), w.BatchSize)
	t.limit, t.whole = r.ref.total, !r.seconds
	if err := replay(w.OrderOut, t.take); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	t.into(o)
	if o.IdealFrac = IdealDistinct(r.ref.lengths, w.BatchSize); !r.seconds {
		images, err := readDelivered(w.FramesOut)
		if err != nil {
			return err
		}
		return r.checkFrames(ctx, images, o)
	}
	return nil
}

// each is the outcome of each rank.
func (o *Outcome) each() []Outcome {
	if o.Ranks != nil {
		return o.Ranks
	}
	return []Outcome{*o}
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

func newReference(ds robocache.Dataset, root string, w *Workload) (*reference, error) {
	r := &reference{ds: ds, root: root}
	size := func(e int) int {
		if w.Rows > 0 { // whole trajectories
			return 1
		}
		return ds.Len(e)
	}
	for e := range ds.Info().Episodes {
		r.all = append(r.all, size(e))
		r.total += int64(size(e))
	}
	list, err := w.episodes(ds.Info())
	for _, e := range list {
		r.lengths = append(r.lengths, size(e))
		r.samples += int64(size(e))
	}
	return r, err
}
