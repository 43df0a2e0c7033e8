package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/gpu"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
)

// TrainJob holds the options of a training runner that Workload does not contain. See
// runners/robocache_bench/train.py.
type TrainJob struct {
	Runner    string `json:"runner"`
	Model     string `json:"model"`
	Plan      string `json:"plan"`      // path of the plan file
	Device    string `json:"device"`    // cuda | cpu
	Precision string `json:"precision"` // bf16 | tf32 | fp32
	Loop      string `json:"loop"`      // async | sync
	Timing    string `json:"timing"`    // on | off
	Steps     int    `json:"steps"`
	// threads of the RoboCache loader; 0 lets the loader choose
	Threads int  `json:"threads,omitempty"`
	GPUs    int  `json:"gpus"` // number of GPUs that share the CPU cores
	Compile bool `json:"compile,omitempty"`
	Graph   bool `json:"graph,omitempty"`
	Tiny    bool `json:"tiny,omitempty"` // networks small enough for a CPU
	// path of a framePlaces file, for runners that read frames by file and number
	Places string `json:"places,omitempty"`
}

// Train describes a run of `robocache-bench train`.
type Train struct {
	Base    Workload // Workers 0 means two settings for peers: 8, and the number of cores minus two
	Job     TrainJob
	Mode    string // a mode of cases.yaml; its runners are used if Runners is nil
	Runners []string
	Threads []int
	States  []string // page cache before each run: cold, warm; empty leaves it unchanged
	Repeats int
	Timeout time.Duration
	Monitor time.Duration // interval at which the GPU counters are read
	Program string        // revision of this program
	Sets    *Sets         // makes the default set of the model if Base.URI is empty
	Tools   runners.Tools
	Log     func(format string, a ...any)
	Done    *Finished // nil disables saving

	workFolder string
	planFacts  map[string]trainPlan
}

// trainPlan holds the facts that train.py prints when it writes a plan.
type trainPlan struct {
	CUDADevices int               `json:"cuda_devices"`
	Note        string            `json:"note"`
	Error       string            `json:"error"`
	Versions    map[string]string `json:"versions"`
}

// trainPoint is a runner with one setting and one number of GPUs.
type trainPoint struct {
	Runner
	baseName   string // the name in the modes of cases.yaml
	cacheState string // one of Train.States, or empty
	planName   string
	worldSize  int
	result     Result
}

// TrainValues returns the allowed values of the option name.
func TrainValues(name string) []string {
	switch name {
	case "model":
		return slices.Sorted(maps.Keys(caseTables().Models))
	case "mode":
		return slices.Sorted(maps.Keys(caseTables().Modes))
	}
	return map[string][]string{
		"precision": {"bf16", "tf32", "fp32"},
		"loop":      {"async", "sync"},
		"device":    {"cuda", "cpu"},
		"timing":    {"on", "off"},
		"shuffle":   {"global", "pool"}, "cache": {"ram", "disk"}, "decode": {"cpu", "gpu", "auto"},
		"cache-state": {"cold", "warm", "cold,warm"},
	}[name]
}

// Run runs all training runners interleaved and returns one row per runner.
func (t *Train) Run(ctx context.Context) (_ *TrainReport, err error) {
	defer robocache.Locate(&err, nil)
	given := map[string]string{
		"model":       t.Job.Model,
		"mode":        t.Mode,
		"precision":   t.Job.Precision,
		"loop":        t.Job.Loop,
		"device":      t.Job.Device,
		"timing":      t.Job.Timing,
		"shuffle":     t.Base.Shuffle,
		"cache":       cmp.Or(t.Base.Cache, "ram"),
		"decode":      cmp.Or(t.Base.Decode, "cpu"),
		"cache-state": cmp.Or(strings.Join(t.States, ","), "cold"),
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if of := TrainValues(name); !slices.Contains(of, given[name]) {
			return nil, report.UnknownName(name, given[name], of)
		}
	}
	if t.Job.Steps < 1 || t.Base.Warmup < 1 || t.Repeats < 1 || t.Job.GPUs < 1 ||
		t.Base.BatchSize < 0 {
		return nil, robocache.Misuse(
			"train",
			nil,
			"--steps, --warmup, --repeats, --gpus and --batch-size: expected 1 or more",
		)
	}
	t.Base.Warmup = min(t.Base.Warmup, t.Job.Steps) // a short run has a short warm-up
	if t.Job.Compile && t.Job.Device == "cpu" {
		return nil, robocache.Unsupported("train", nil, "--compile with --device cpu: inductor's "+
			"C++ of these networks takes minutes a run").
			WithHint("leave --compile out, or --device cuda")
	}
	if t.Job.Graph && (t.Job.Compile || t.Job.Device == "cpu" || t.Job.GPUs > 1) {
		return nil, robocache.Misuse("train", nil, "--graph is of one GPU, without --compile")
	}
	model := caseTables().Models[t.Job.Model]
	t.Base.BatchSize = cmp.Or(t.Base.BatchSize, model.Batch)
	if t.Base.URI == "" {
		if t.Base.URI, err = t.Sets.Train(ctx, model.Set, t.Job.Tiny); err != nil {
			return nil, err
		}
	}
	if t.workFolder, err = os.MkdirTemp("", "robocache-bench-train-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(t.workFolder)
	points, err := t.trainPoints(ctx, model.Frames)
	if err != nil {
		return nil, err
	}
	machine := report.ThisMachine(t.Program)
	turns := make([]*Result, len(points))
	for i := range points {
		turns[i] = &points[i].result
	}
	err = runInTurns(ctx, turns, t.Repeats, t.Log, func(i, rep int) (Outcome, error) {
		p := &points[i]
		job, plan := *p.Job, *p.Job.Train // the path of the plan differs in each process
		plan.Plan, job.Train = p.planName, &plan
		o, err := Once(
			t.Done,
			[]any{
				"train",
				p.Name,
				job,
				i,
				rep,
				machine.Revision,
				machine.CPU,
				machine.Cores,
				t.planFacts[p.planName].Versions,
			},
			func() (Outcome, error) { return t.runMonitored(ctx, p) },
		)
		if err == nil && o.Train == nil {
			err = errors.New("it did not say how it trained")
		}
		return o, err
	})
	if err := cmp.Or(err, t.Done.writeError()); err != nil {
		return nil, err
	}
	r := &TrainReport{Machine: machine, Versions: map[string]string{}}
	for _, f := range t.planFacts {
		if maps.Copy(r.Versions, f.Versions); f.Note != "" {
			r.Notes = append(r.Notes, f.Note)
		}
	}
	r.addRows(t, points)
	return r, nil
}

// runMonitored runs a runner once while a monitor reads the GPU counters.
func (t *Train) runMonitored(ctx context.Context, p *trainPoint) (Outcome, error) {
	if p.cacheState != "" {
		files, _, err := filesBelow(t.Base.URI)
		if err = cmp.Or(
			err,
			map[string]func([]string) error{"cold": evictPages, "warm": warmPages}[p.cacheState](
				files,
			),
		); err != nil {
			return Outcome{}, err
		}
	}
	if t.Job.Device == "cpu" {
		return runOnce(ctx, p.Runner, t.Timeout)
	}
	m, missing := gpu.Start(t.Monitor)
	o, err := runOnce(ctx, p.Runner, t.Timeout)
	if missing != nil && o.Train != nil {
		o.Train.GPUReason = missing.Error()
	}
	if missing != nil {
		return o, err
	}
	samples, reasons := m.Stop()
	if x := o.Train; x != nil {
		found := gpu.Summary(samples, x.DeviceUUID, o.OpenUnixNS, o.OpenUnixNS+int64(o.Seconds*1e9))
		x.GPUReason = gpu.Missing(found, samples, x.DeviceUUID, reasons)
		x.GPUSamples = slices.DeleteFunc(
			samples,
			func(s gpu.Sample) bool {
				return s.UUID != x.DeviceUUID || s.UnixNS < o.OpenUnixNS-1e9
			},
		)
		delete(found, "gpu_mem_gb") // keep torch's own figure
		text, bad := json.Marshal(found)
		err = cmp.Or(err, bad, json.Unmarshal(text, &x.TrainFigures))
	}
	return o, err
}

// trainPoints returns the runners in the order of one repeat. For each number of GPUs, headspace
// runs first and again last.
func (t *Train) trainPoints(ctx context.Context, frames bool) (out []trainPoint, err error) {
	ds, err := t.Base.openDataset(ctx)
	if err != nil {
		return out, err
	}
	info := ds.Info()
	defer ds.Close()
	if frames &&
		!slices.ContainsFunc(
			info.Features,
			func(f robocache.Feature) bool {
				return f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage
			},
		) {
		return out, robocache.Misuse(
			"train",
			robocache.Where{"dataset": t.Base.URI},
			"%s learns from frames, and this set has no camera",
			t.Job.Model,
		).
			WithHint("--model diffusion-lowdim, or a set with a camera")
	}
	names := t.Runners
	if names == nil {
		names = slices.DeleteFunc(slices.Clone(caseTables().Modes[t.Mode]), func(n string) bool {
			return n == "lerobot" && info.Format != "lerobot" ||
				!frames && (strings.HasPrefix(n, "robocache-") || decodesOnGPU(n))
		})
	}
	known := append(slices.Clone(caseTables().Modes["compare"]), caseTables().Modes["video"]...)
	for _, n := range names {
		if !slices.Contains(known, n) {
			slices.Sort(known)
			return out, report.UnknownName("runner", n, slices.Compact(known))
		}
	}
	if slices.ContainsFunc(names, decodesOnGPU) {
		if err := t.writePlaces(ctx, ds); err != nil {
			return out, err
		}
	}
	for _, world := range slices.Compact([]int{1, t.Job.GPUs}) {
		for _, n := range append(append([]string{
			"headspace",
		}, slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			return n == "headspace"
		})...), "headspace") {
			list := []int{0}
			switch {
			case isTrainPeer(n):
				if list = []int{t.Base.Workers}; t.Base.Workers == 0 {
					cores := runtime.NumCPU() / t.Job.GPUs
					list = slices.Compact([]int{min(8, max(cores, 1)), max(cores-2, 1)})
				}
			case strings.HasPrefix(n, "robocache") && len(t.Threads) > 0:
				list = t.Threads
			}
			states := t.States
			if len(states) == 0 || n == "headspace" || n == "h2d" {
				states = []string{""}
			}
			for _, pages := range states {
				for i, v := range list {
					p, err := t.newTrainPoint(
						ctx,
						n,
						pages,
						world,
						v,
						i > 0 || len(list) > 1 && len(t.Threads) > 0,
					)
					if err != nil {
						return out, err
					}
					out = append(out, p)
				}
			}
		}
	}
	return out, nil
}

// isTrainPeer reports whether the runner belongs to another library. A peer that cannot run is not
// a failure.
func isTrainPeer(name string) bool {
	return name == "torch" || name == "lerobot" || decodesOnGPU(name)
}

// decodesOnGPU reports whether the runner is a peer that receives files and frame numbers and
// decodes on the GPU.
func decodesOnGPU(name string) bool {
	return name == "torchcodec-cuda" || name == "dali"
}

// framePlaces holds the file and the frame number of one camera for each row of the set.
type framePlaces struct {
	Camera  string   `json:"camera"`
	Files   []string `json:"files"`
	Lengths []int    `json:"lengths"` // number of rows of each episode
	File    []int    `json:"file"`
	Number  []int    `json:"number"`
}

// writePlaces writes the framePlaces file for runners that read frames by number.
func (t *Train) writePlaces(ctx context.Context, ds robocache.Dataset) error {
	root, info := localFolder(t.Base.URI), ds.Info()
	cameras := (&Workload{Video: "one"}).selectedCameras(info)
	if root == "" || len(cameras) == 0 {
		return robocache.Misuse(
			"train",
			robocache.Where{"dataset": t.Base.URI},
			"torchcodec-cuda and dali read video files of a local folder",
		)
	}
	p := framePlaces{Camera: cameras[0]}
	for e := range info.Episodes {
		n := ds.Len(e)
		rows, refs := make([]robocache.Row, n), make([]robocache.FrameRef, n)
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		if err := ds.Frames(ctx, cameras[0], rows, refs); err != nil {
			return err
		}
		for _, r := range refs {
			path := filepath.Join(root, r.Path)
			k := slices.Index(p.Files, path)
			if k < 0 {
				k, p.Files = len(p.Files), append(p.Files, path)
			}
			p.File, p.Number = append(p.File, k), append(p.Number, r.Ordinal)
		}
		p.Lengths = append(p.Lengths, n)
	}
	t.Job.Places = filepath.Join(t.workFolder, "places.json")
	encoded, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return report.WriteFile(t.Job.Places, encoded)
}

// newTrainPoint returns one runner. width is the number of workers or threads. If named is true,
// the name of the runner contains it.
func (t *Train) newTrainPoint(
	ctx context.Context,
	name, pages string,
	world, width int,
	named bool,
) (trainPoint, error) {
	w, job := t.Base, t.Job
	w.Train, job.Runner, w.World = &job, name, world
	p := trainPoint{
		Runner: Runner{
			Name: name,
			Env:  t.Tools.Env(),
			Job:  &w,
			Argv: t.Tools.Script("train.py"),
		},
		baseName:   name,
		cacheState: pages,
		worldSize:  world,
	}
	switch name {
	case "headspace", "h2d":
		p.Setting, w.Cache, w.Decode = map[string]string{
			"headspace": "one batch that is on the device",
			"h2d":       "one batch, copied from page-locked memory each step",
		}[name], "", ""
	case "torch", "lerobot":
		w.Workers, w.Cache = width, ""
		p.Setting = fmt.Sprintf(
			"DataLoader, %d persistent workers, prefetch 4, pinned, copied a batch ahead",
			width,
		)
	case "torchcodec-cuda":
		w.Workers, w.Cache = width, ""
		p.Setting = fmt.Sprintf(
			"VideoDecoder(device=%q), exact seeking, %d threads with decoders of their own, a "+
				"batch's frames in one sorted call a file, two batches ahead a thread",
			job.Device,
			width,
		)
	case "dali":
		w.Workers, w.Cache = width, ""
		p.Setting = fmt.Sprintf(
			"fn.readers.video(device=\"gpu\", sequence_length=1, random_shuffle=True), %d "+
				"pipelines, a shard each; its own order",
			width,
		)
	default:
		own := strings.Split(name, "-")[1:] // words such as pool, ram, disk, gpu
		if slices.Contains(own, "pool") {
			w.Shuffle = "pool"
		}
		if slices.Contains(own, "gpu") {
			w.Decode = "gpu"
		}
		for _, kind := range []string{"ram", "disk"} {
			if slices.Contains(own, kind) {
				w.Cache = kind
			}
		}
		job.Threads = width
		p.Setting = fmt.Sprintf(
			"Loader(device=%q), shuffle %s, cache %q, decode %s, threads %d",
			job.Device,
			w.Shuffle,
			w.Cache,
			cmp.Or(w.Decode, "cpu"),
			width,
		)
	}
	if named {
		p.Name += fmt.Sprintf("/%d", width)
	}
	p.Name = strings.TrimSpace(p.Name + " " + pages)
	if world > 1 {
		p.Name += fmt.Sprintf(" ×%d", world)
		p.Argv = slices.Insert(
			p.Argv,
			1,
			"-m",
			"torch.distributed.run",
			"--standalone",
			"--nproc-per-node",
			fmt.Sprint(world),
		)
	}
	p.planName = fmt.Sprintf("%s-%d", w.Shuffle, world)
	job.Plan = filepath.Join(t.workFolder, p.planName+".npz")
	if err := t.writePlan(ctx, p.planName, w, job); err != nil {
		return trainPoint{}, err
	}
	p.result.Runner = p.Runner
	return p, nil
}

// writePlan makes train.py write the order and the value ranges for a shuffle and a number of GPUs,
// once.
func (t *Train) writePlan(ctx context.Context, name string, w Workload, job TrainJob) error {
	if _, ok := t.planFacts[name]; ok {
		return nil
	}
	job.Runner, w.Train = "plan", &job
	encoded, err := json.Marshal(w)
	if err != nil {
		return err
	}
	out, err := runners.Output(
		ctx,
		append(t.Tools.Script("train.py"), string(encoded)),
		t.Tools.Env(),
	)
	var f trainPlan
	if err == nil {
		err = json.Unmarshal([]byte(runners.LastLine(string(out))), &f)
	}
	e := robocache.Unsupported("train", robocache.Where{"dataset": w.URI}, "").WithCause(err)
	_, module, lacks := strings.Cut(fmt.Sprint(err), "No module named ")
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case lacks && err != nil:
		e.Msg, e.Hint, e.Err = t.Tools.Python+" has no "+module, "--python names an interpreter "+
			"with torch; make peers installs one", nil
	case err != nil:
		e.Msg = "the plan"
	case strings.Contains(f.Error, "Errno 28"):
		e.Class, e.Msg, e.Hint = robocache.ErrResourceLimit, "the disk of "+t.workFolder+
			" is full", "TMPDIR names a folder with room"
	case strings.HasPrefix(f.Error, "Misuse: "): // an error of the loader
		e.Class, e.Msg = robocache.ErrMisuse, strings.TrimPrefix(f.Error, "Misuse: misuse: ")
	case f.Error != "":
		e.Msg = f.Error
	case job.Device != "cpu" && f.CUDADevices < w.World:
		e.Msg, e.Hint = fmt.Sprintf("%d CUDA devices found, %d requested", f.CUDADevices,
			w.World), "--device cpu --tiny trains small networks"
	default:
		if t.planFacts == nil {
			t.planFacts = map[string]trainPlan{}
		}
		t.planFacts[name] = f
		return nil
	}
	return e
}
