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

// Runner is one measured program: a command that does its job once and prints an Outcome as one
// JSON object on its last line.
type Runner struct {
	Name    string    `json:"name"`
	Setting string    `json:"setting"` // the chosen options, in words
	Argv    []string  `json:"argv"`
	Job     *Workload `json:"job,omitempty"` // appended to Argv as JSON
	Env     []string  `json:"env,omitempty"`
	// Checked requires that frames of this runner are compared with a reference decode. A run
	// without a compared frame then fails.
	Checked bool `json:"checked,omitempty"`

	// reference is the set that order and frames are compared with. nil disables both checks.
	reference *reference
	// isTimedWindow is true if the window has a duration. The caller then compares frames after all
	// ranks have ended.
	isTimedWindow bool
	server        *loopback.Server

	finished *Finished // completed runs, by key and repeat; nil disables saving
	runKey   any
}

// Outcome holds the figures that one run of a runner reports, and the figures that the harness
// adds. The embedded structs group the figures; in JSON all keys are on one level.
type Outcome struct {
	Samples    int64             `json:"samples"` // delivered in the window
	Seconds    float64           `json:"seconds"` // wall time of the window
	CPUSeconds float64           `json:"cpu_seconds"`
	Error      string            `json:"error,omitempty"`
	Versions   map[string]string `json:"versions,omitempty"`
	// hash of all values that were read; runners of one case must report the same
	Values string    `json:"values_sha256,omitempty"`
	Train  *TrainRun `json:"train,omitempty"`

	OpeningFigures
	WindowFigures
	OrderFigures
	FrameFigures
	MemoryFigures
	ByteFigures
	ConsumerFigures
	SetFacts

	Ranks      []Outcome `json:"-"` // the outcomes that this one combines
	commonSpan *commonSpan
}

// OpeningFigures are times before the window.
type OpeningFigures struct {
	ImportS     float64 `json:"import_s,omitempty"`
	OpenS       float64 `json:"open_s,omitempty"`
	IndexBuildS float64 `json:"index_build_s,omitempty"`
	FirstBatchS float64 `json:"first_batch_latency_s,omitempty"`
}

// WindowFigures describe the measured window.
type WindowFigures struct {
	Epochs     int   `json:"epochs,omitempty"` // in a window of whole epochs
	OpenUnixNS int64 `json:"window_open_unix_ns,omitempty"`
	// one entry per batch: time since the window opened
	ArrivalsUS  []int64 `json:"arrivals_us,omitempty"`
	ArrivalRows []int   `json:"arrival_rows,omitempty"`
	// time spent waiting for the next batch in the window
	WaitS float64 `json:"wait_s,omitempty"`
	// ready batches that were not yet delivered, at both ends of the window
	QueueBatches []*float64    `json:"queue_batches,omitempty"`
	StatsOpen    *loader.Stats `json:"stats_open,omitempty"`
	StatsClose   *loader.Stats `json:"stats_close,omitempty"`
	TotalTimeS   float64       `json:"total_time_s,omitempty"`
}

// OrderFigures describe the order of the samples, as orderTally counts it.
type OrderFigures struct {
	OrderSHA256 string `json:"order_sha256,omitempty"`
	// number of samples in order_sha256: in a window with a duration, those of the first epoch until
	// the window closes
	OrderSamples int64 `json:"order_samples,omitempty"`
	// mean of: distinct episodes in a batch ÷ batch size
	DistinctFrac   float64 `json:"shuffle_randomness_frac,omitempty"`
	IdealFrac      float64 `json:"randomness_ideal,omitempty"`
	NeighbourShare float64 `json:"neighbour_share,omitempty"`
	CoverageMin    int     `json:"coverage_min,omitempty"`
	CoverageMax    int     `json:"coverage_max,omitempty"` // 0 if the runner logs no order
	EpochsFinished int     `json:"epochs_finished,omitempty"`
	SamplesLost    int64   `json:"samples_lost,omitempty"` // in finished epochs
	SamplesDoubled int64   `json:"samples_doubled,omitempty"`
}

// FrameFigures count decoded frames, and compare some of them with a reference decode.
type FrameFigures struct {
	Decoded       int64    `json:"frames_decoded,omitempty"`
	Delivered     int64    `json:"frames_delivered,omitempty"`
	FramesChecked int64    `json:"frames_checked,omitempty"`
	WrongFrames   int64    `json:"wrong_frames,omitempty"`
	Compared      bool     `json:"-"` // frames were compared with the reference decode
	WrongWhere    []string `json:"-"` // descriptions of the first wrong frames
	Note          string   `json:"-"` // why frames were not compared, or only some
}

// MemoryFigures are peaks of the process tree.
type MemoryFigures struct {
	PSSPeakMB float64 `json:"pss_peak_mb,omitempty"`
	RSSPeakMB float64 `json:"rss_peak_mb,omitempty"`
}

// ByteFigures count the bytes that the process tree read.
type ByteFigures struct {
	// bytes requested from files and sockets in the window
	BytesRead       int64 `json:"bytes_read,omitempty"`
	DeviceReadBytes int64 `json:"device_read_bytes,omitempty"`
	// bytes that the server sent to this rank in its window
	ServerBytes int64 `json:"server_bytes,omitempty"`
}

// ConsumerFigures are measured with a consumer of a fixed step time, and with a single thread.
type ConsumerFigures struct {
	ConsumerStepS float64  `json:"consumer_step_s,omitempty"`
	WaitPct       *float64 `json:"wait_pct,omitempty"`
	H2DWaitPct    *float64 `json:"h2d_wait_pct,omitempty"`
	SingleProc    *float64 `json:"single_proc_samples_per_s,omitempty"`
}

// SetFacts describe the set as the runner read it.
type SetFacts struct {
	Cameras        int     `json:"num_cameras,omitempty"`
	ImageShape     []int   `json:"image_shape,omitempty"`
	FPS            float64 `json:"fps,omitempty"`
	LoadedEpisodes int     `json:"loaded_episodes,omitempty"`
	CacheState     string  `json:"cache_state,omitempty"` // of the page cache
}

// Result holds a runner and the outcomes of its repeats.
type Result struct {
	Runner      Runner        `json:"arm"`
	Runs        []Outcome     `json:"runs"`
	SamplesPerS report.Spread `json:"samples_per_s"`
	CPUPer1000  report.Spread `json:"cpu_s_per_1000_samples"`
	FirstBatchS report.Spread `json:"first_batch_latency_s"`
	PSSPeakMB   report.Spread `json:"pss_peak_mb"`
	Failed      string        `json:"failed,omitempty"`
}

// runInTurns runs each runner once per repeat, interleaved. A runner that fails is skipped in later
// repeats.
func runInTurns(
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

// Run runs the runners interleaved, repeats times, and returns one result per runner in the given
// order.
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
	err := runInTurns(ctx, turns, repeats, log, func(i, rep int) (Outcome, error) {
		r := runners[i]
		return Once(
			r.finished,
			[]any{r.runKey, rep},
			func() (Outcome, error) { return runOnce(ctx, r, timeout) },
		)
	})
	failDifferingValues(results)
	for i := range results {
		results[i].summarizeRuns()
	}
	return results, err
}

// decodingNotes returns one note per video source: the frames that the device and the CPU decoded
// in the window, the failures, and the streams that only the CPU decodes.
func (o *Outcome) decodingNotes() (notes []string) {
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

// failDifferingValues fails each runner whose hash of read values differs from the first reported
// one.
func failDifferingValues(results []Result) {
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

// summarizeRuns computes the spreads over the repeats.
func (r *Result) summarizeRuns() {
	for _, o := range r.Runs {
		r.SamplesPerS.Add(o.rate())
		r.CPUPer1000.Add(o.cpuPer1000())
		r.FirstBatchS.Add(o.FirstBatchS)
		r.PSSPeakMB.Add(o.PSSPeakMB)
	}
}

// medianRun returns the run with the median rate. With an even number of runs it returns the lower
// of the two middle ones.
func (r *Result) medianRun() *Outcome {
	runs := slices.Clone(r.Runs)
	slices.SortStableFunc(runs, func(a, b Outcome) int { return cmp.Compare(a.rate(), b.rate()) })
	return &runs[(len(runs)-1)/2]
}

// runOnce runs the runner in a fresh process. The process has its own process group, so that worker
// processes of a peer end with it. Memory, CPU time and bytes are measured from outside. Order and
// frames are checked after the process has ended.
func runOnce(ctx context.Context, r Runner, timeout time.Duration) (o Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	argv, w := r.Argv, Workload{}
	if r.Job != nil {
		w = *r.Job
		if r.reference != nil && w.OrderOut == "" {
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
	watch := &watcher{srv: r.server}
	out := &runners.Lines{Each: watch.receiveLine}
	cmd.Stdout = out
	if err = cmd.Start(); err == nil {
		watch.startWatching(cmd.Process.Pid)
		err = cmd.Wait()
		watch.endWatch()
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
	watch.fillUsage(&o)
	if a, b := o.StatsOpen, o.StatsClose; a != nil && b != nil {
		o.Decoded, o.Delivered = b.FramesDecoded-a.FramesDecoded, b.Frames-a.Frames
	}
	if r.reference != nil {
		err = r.checkDelivery(ctx, &w, &o)
	}
	return o, err
}

// checkDelivery counts the logged order and writes the result into o. It also compares frames,
// except for a window with a duration: there, other ranks may still run.
func (r *Runner) checkDelivery(ctx context.Context, w *Workload, o *Outcome) (err error) {
	t := newOrderTally(r.reference.samples, len(r.reference.allLengths), w.BatchSize)
	t.sampleLimit, t.wholeEpochs = r.reference.totalSamples, !r.isTimedWindow
	if err := replayOrder(w.OrderOut, t.recordEvent); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	t.fillOrder(o)
	if o.IdealFrac = IdealDistinct(r.reference.lengths, w.BatchSize); !r.isTimedWindow {
		images, err := readDelivered(w.FramesOut)
		if err != nil {
			return err
		}
		return r.checkFrames(ctx, images, o)
	}
	return nil
}

// perRank returns the outcome of each rank, or o itself if there is only one.
func (o *Outcome) perRank() []Outcome {
	if o.Ranks != nil {
		return o.Ranks
	}
	return []Outcome{*o}
}

// reference describes a set. The harness compares the deliveries of runners with it.
type reference struct {
	dataset      robocache.Dataset
	localRoot    string // local folder; empty for a remote set, whose frames are not compared
	lengths      []int  // lengths of the selected episodes
	samples      int64  // number of samples in the selected episodes
	allLengths   []int  // lengths of all episodes
	totalSamples int64
}

func newReference(ds robocache.Dataset, root string, w *Workload) (*reference, error) {
	r := &reference{dataset: ds, localRoot: root}
	size := func(e int) int {
		if w.Rows > 0 { // whole trajectories: one sample per episode
			return 1
		}
		return ds.Len(e)
	}
	for e := range ds.Info().Episodes {
		r.allLengths = append(r.allLengths, size(e))
		r.totalSamples += int64(size(e))
	}
	list, err := w.episodePositions(ds.Info())
	for _, e := range list {
		r.lengths = append(r.lengths, size(e))
		r.samples += int64(size(e))
	}
	return r, err
}
