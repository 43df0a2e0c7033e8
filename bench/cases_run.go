package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// CaseReport is a finished `bench peers` or `bench formats`.
type CaseReport struct {
	Name     string             `json:"-"` // peers, formats
	Command  string             `json:"command"`
	Machine  report.Machine     `json:"machine"`
	Versions map[string]string  `json:"versions"`
	Repeats  int                `json:"repeats"`
	Cases    []Case             `json:"-"`
	Results  []CaseResult       `json:"rows"`
	Families map[string]*Report `json:"families"`
}

// CaseResult is a case and how its bars came out.
type CaseResult struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Family  string         `json:"family"`
	Repeats int            `json:"repeats"`
	Checks  []report.Check `json:"bars"`
}

// RunCases runs the cases, a family at a time: all runners of its cases in one interleaved run. keep is given what there is after each family.
func RunCases(ctx context.Context, cases []Case, w CaseWork, repeats int, timeout time.Duration, keep func(*CaseReport) error, log func(format string, a ...any)) (p *CaseReport, err error) {
	defer guard.Into(&err)
	defer w.done()
	p = &CaseReport{Name: w.Name, Command: w.Command, Cases: cases, Repeats: repeats, Versions: map[string]string{}, Families: map[string]*Report{}, Machine: report.ThisMachine(w.Revision)}
	for _, f := range familiesOf(cases) {
		log("== %s", f.name)
		n := repeats
		if f.slow {
			n = (repeats + 1) / 2
		}
		results := guard.Must(Run(ctx, guard.Must(w.Runners(ctx, f.name, runnersOf(cases, f.name))), n, timeout, log))
		w.done()
		for _, r := range results {
			for _, o := range r.Runs {
				maps.Copy(p.Versions, o.Versions)
			}
		}
		p.Families[f.name] = &Report{Title: "bench " + w.Name + ": " + f.name, Unit: "samples", Machine: p.Machine, Command: p.Command, Results: results,
			Workload: map[string]any{"set": f.set, "window": f.window, "image_size": f.size, "batch_size": w.BatchSize, "workers": w.Workers, "seconds": w.Seconds, "seed": w.Seed, "repeats": n}}
		p.add(f.name, n, results)
		guard.Check(keep(p))
	}
	return p, nil
}

// add checks the bars of a family's cases.
func (p *CaseReport) add(family string, repeats int, results []Result) {
	for _, c := range p.Cases {
		if c.Family != family {
			continue
		}
		r := CaseResult{Name: c.Name, Title: c.Title, Family: c.Family, Repeats: repeats}
		for _, b := range c.Bars {
			r.Checks = append(r.Checks, checkBar(b, results))
		}
		p.Results = append(p.Results, r)
	}
	at := func(name string) int { return slices.IndexFunc(p.Cases, func(c Case) bool { return c.Name == name }) }
	slices.SortFunc(p.Results, func(a, b CaseResult) int { return cmp.Compare(at(a.Name), at(b.Name)) })
}

// runnersOf is the runners of a family's cases, each once, in their order.
func runnersOf(cases []Case, family string) (out []string) {
	for _, c := range cases {
		for _, a := range c.Runners {
			if c.Family == family {
				report.Find(&out, a)
			}
		}
	}
	return out
}

// Markdown writes the report as docs/PERFORMANCE.md shows it.
func (p *CaseReport) Markdown(w io.Writer) { p.document().Markdown(w) }

// Write puts NAME.json, NAME.csv, NAME.md and NAME.html into dir (peers or formats), and the same of each family.
func (p *CaseReport) Write(dir string) error {
	if err := p.document().Write(dir, p.Name); err != nil {
		return err
	}
	for name, r := range p.Families {
		r.Name = p.Name + "-" + name
		if err := r.Write(dir); err != nil {
			return err
		}
	}
	return nil
}

func (p *CaseReport) document() *report.Document {
	bars := &report.Table{Head: []string{"workload", "bar", "ours", "the other", "ratio", ""}}
	sheet := &report.Table{Head: []string{"workload", "bar", "metric", "arm", "other", "arm_median", "arm_min", "arm_max", "other_median", "other_min", "other_max", "ratio_median", "ratio_min", "ratio_max", "possible", "pass", "note"}}
	for _, r := range p.Results {
		title := r.Title
		for _, c := range r.Checks {
			ratio := report.Short(c.Ratio)
			if len(c.Ratio.Raw) > 0 {
				ratio += "×"
			}
			bars.AddBar(c.Pass, title, c.Bar.Text, inMetric(c.Bar.Metric, c.Ours), inMetric(c.Bar.Metric, c.Than), ratio, c.Word())
			title = ""
			rec := []string{r.Name, c.Bar.Text, c.Bar.Metric, c.Bar.Ours, c.Bar.Than}
			for _, s := range []report.Spread{c.Ours, c.Than, c.Ratio} {
				rec = append(rec, report.Cells(s)...)
			}
			sheet.Add(append(rec, report.Decimal(c.Possible), strconv.FormatBool(c.Pass), c.Note)...)
		}
	}
	d := &report.Document{Title: "robocache bench " + p.Name, Command: p.Command, Sheet: sheet, Raw: p, Sections: []report.Section{
		{Text: append(report.About(p.Command, p.Machine, "", p.Versions), "Median (min–max) of the repeats, runners interleaved, a fresh process each. Ratios are taken repeat by repeat, CPU s against CPU s unless the bar says otherwise; CPU s = CPU seconds of the process tree per 1,000 samples.")},
		{Table: bars},
	}}
	for _, f := range familiesOf(p.Cases) {
		r := p.Families[f.name]
		if r == nil {
			continue
		}
		title := "set " + f.set
		if f.window > 0 {
			title += fmt.Sprintf(", windows of %d", f.window)
		}
		if f.size > 0 {
			title += fmt.Sprintf(", %d×%d", f.size, f.size)
		}
		d.Sections = append(d.Sections, report.Section{Title: fmt.Sprintf("%s: batch %v, %v threads or workers, %v repeats", title, r.Workload["batch_size"], r.Workload["workers"], r.Workload["repeats"]), Table: r.table()})
	}
	return d
}

// CaseWork is what all cases share.
type CaseWork struct {
	Name      string // peers, formats
	Command   string // for the report, with the program's revision
	Revision  string
	BatchSize int
	Workers   int     // peers: worker processes or threads; ours: threads
	Seconds   float64 // of a window, at least; whole epochs
	Seed      int
	Tools     runners.Tools
	Sets      *Sets

	open []io.Closer // servers and sets of the family that runs
}

// httpLatency is the wait before each answer of the http store.
const httpLatency = 5 * time.Millisecond

// done closes what the runners of a family needed.
func (w *CaseWork) done() {
	for _, c := range w.open {
		c.Close()
	}
	w.open = nil
}

// runnerOf is how a runner of a family is started: its program, its setting in words (%d is the number of workers), and what its job has beside the family's.
type runnerOf struct {
	script  string // a Python runner, or else
	own     string // a kind of job of this program
	setting string
	job     func(j *Workload)
	more    map[string]any
	budget  int // ours: the memory, MiB, that it is held to
}

// ours are the loaders of ours.
var ours = map[string]runnerOf{
	"robocache":      {setting: "global shuffle", budget: 512},
	"robocache-pool": {setting: "pool shuffle, 1 GiB of resident frames", budget: 1536, job: func(j *Workload) { j.Shuffle, j.PoolSize = "pool", "1GiB" }},
	"robocache-ram":  {setting: "global shuffle, second epoch from the RAM cache", budget: 4096, job: func(j *Workload) { j.Cache, j.CacheBudget, j.Warm = "ram", "3584MiB", 2 }},
	"robocache-disk": {setting: "global shuffle, second epoch from the disk cache", budget: 512, job: func(j *Workload) { j.Warm = 2 }},
	"robocache-http": {setting: "global shuffle, over http with 5 ms a request", budget: 512},
}

const (
	workers    = ", %d persistent workers, prefetch 4, one torch thread"
	streaming  = "StreamingLeRobotDataset from the local folder, "
	unnumbered = "return_uint8, buffer 1000, no workers"
)

func alone(j *Workload) { j.Workers = 0 }

// peers are the others, and the limits.
var peers = map[string]runnerOf{
	"lerobot":               {script: "load_lerobot.py", setting: "LeRobotDataset, torchcodec, return_uint8" + workers},
	"lerobot-streaming":     {script: "load_lerobot.py", setting: streaming + unnumbered, job: alone, more: map[string]any{"streaming": true}},
	"lerobot-streaming-one": {script: "load_lerobot.py", setting: streaming + "the same frames in one mp4, " + unnumbered, job: alone, more: map[string]any{"streaming": true}},
	"torchcodec":            {script: "load_torchcodec.py", setting: "Dataset over (file, frame), decoders kept open, exact seeking, uint8" + workers},
	"torchcodec-batched":    {script: "load_torchcodec.py", setting: "the same, a batch's frames in one sorted call a file", more: map[string]any{"batched": true}},
	"pyav-pool":             {script: "load_pyav.py", setting: "PyAV decodes whole episodes in %d threads into a pool of 6, uint8"},
	"pyav-ram":              {script: "load_pyav.py", setting: "the plain pool with all frames in RAM, warm, %d threads, uint8", job: func(j *Workload) { j.Warm = 2 }, more: map[string]any{"ram": true}},
	"robomimic":             {script: "load_robomimic.py", setting: "SequenceDataset, hdf5_cache_mode=low_dim, no workers (two cost more), one torch thread", job: alone, more: map[string]any{"cache_mode": "low_dim"}},
	"robomimic-all":         {script: "load_robomimic.py", setting: "SequenceDataset, hdf5_cache_mode=all, no workers (two cost more), one torch thread", job: alone, more: map[string]any{"cache_mode": "all"}},
	"decode-floor":          {own: "decode", setting: "limit: one thread, no loader; decoders kept open; random", job: func(j *Workload) { j.Pattern = "random" }},
	"decode-sequential":     {own: "decode", setting: "limit: one thread, no loader; decoders kept open; sequential", job: func(j *Workload) { j.Pattern = "sequential" }},
	"memcpy":                {own: "memcpy", setting: "limit: frames copied from random places of memory into rotating batches, %d threads", job: func(j *Workload) { j.Seconds = max(j.Seconds, 1) }},
}

// Runners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func (w *CaseWork) Runners(ctx context.Context, name string, names []string) (out []Runner, err error) {
	defer guard.Into(&err)
	f := familyOf(name)
	var ref *reference
	if f != nil {
		ref = w.reference(ctx, guard.Must(w.Sets.Path(ctx, f.set)))
	}
	for _, n := range names {
		if f != nil {
			out = append(out, w.runner(ctx, f, n, ref))
			continue
		}
		out = append(out, w.formatRunner(ctx, name, n))
	}
	return out, nil
}

// reference opens a set; it is closed with the family's servers.
func (w *CaseWork) reference(ctx context.Context, root string) *reference {
	ds := guard.Must(robocache.Open(ctx, root, robocache.OpenOptions{}))
	w.open = append(w.open, ds)
	return guard.Must(newReference(ds, root, &Workload{}))
}

// failing is a runner that says why it cannot run.
func failing(a Runner, err error) Runner {
	a.Argv, a.Job, a.ref = []string{"printf", "%s", string(guard.Must(json.Marshal(Outcome{Error: err.Error()})))}, nil, nil
	return a
}

func (w *CaseWork) runner(ctx context.Context, f *family, name string, ref *reference) Runner {
	how, our := ours[name]
	if !our {
		var ok bool
		if how, ok = peers[name]; !ok {
			guard.Fail(report.UnknownName("runner", name, []string{"see --list"}))
		}
	}
	job := &Workload{URI: ref.root, BatchSize: w.BatchSize, Workers: w.Workers, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: f.window, Video: "none", More: maps.Clone(how.more)}
	if job.More == nil {
		job.More = map[string]any{}
	}
	a := Runner{Name: name, Env: w.Tools.Env(), Job: job, ref: ref, Checked: f.video, Setting: strings.ReplaceAll(how.setting, "%d", strconv.Itoa(w.Workers)), Argv: w.Tools.Script(how.script)}
	if f.video {
		job.Video, job.CheckFrames = "one", 64
	}
	if f.size > 0 {
		job.ImageSize = fmt.Sprintf("%dx%d", f.size, f.size)
	}
	if how.job != nil {
		how.job(job)
	}
	if how.own != "" { // a limit
		a.Argv, a.ref, a.Checked = w.Tools.Own(how.own), nil, false
	}
	if our {
		if job.Shuffle == "pool" && f.name == "av1-windows8" {
			how.budget, job.PoolSize = 768, "256MiB"
		}
		a.Argv, job.MemoryBudget = w.Tools.Script("load_robocache.py"), fmt.Sprint(how.budget<<20)
		a.Setting += fmt.Sprintf(", %d threads, memory_budget %d MiB", w.Workers, how.budget)
	}
	switch name {
	case "lerobot":
		a.Setting += map[bool]string{true: ", v2.Resize"}[f.size > 0]
	case "lerobot-streaming-one":
		job.URI = guard.Must(w.Sets.Path(ctx, "av1-one"))
		a.ref = w.reference(ctx, job.URI)
	case "robomimic", "robomimic-all":
		if err := guard.Try(func() { job.More["hdf5"] = w.Sets.HDF5(ctx) }); err != nil {
			return failing(a, err)
		}
	case "decode-floor", "decode-sequential":
		job.Count = f.count
		if job.Files, _, _ = filesBelow(filepath.Join(ref.root, "videos")); len(job.Files) == 0 {
			guard.Fail(&robocache.Error{Class: robocache.ErrNotFound, Op: "bench peers", Where: robocache.Where{"dataset": ref.root}, Msg: "no .mp4 here"})
		}
	case "memcpy":
		for _, v := range ref.ds.Info().Features {
			if v.Kind == robocache.KindVideo {
				job.Bytes = 3 * v.Height * v.Width
			}
		}
	case "robocache-disk":
		job.More["disk"] = filepath.Dir(ref.root)
	case "robocache-http":
		s := guard.Must(loopback.Serve(ref.root, loopback.Options{Latency: httpLatency}))
		w.open = append(w.open, s)
		job.URI = s.URL
	}
	return a
}

// formatRunner is a runner of a case of `bench formats`: runners/formats.py, but where ours reads by itself or a peer's loader is measured.
func (w *CaseWork) formatRunner(ctx context.Context, name, runner string) Runner {
	kind, rest, _ := strings.Cut(name, "-")
	job := &Workload{Seconds: w.Seconds, Seed: w.Seed, BatchSize: 1, More: map[string]any{"case": name, "runner": runner}}
	a := Runner{Name: runner, Env: w.Tools.Env(), Setting: "one process", Argv: w.Tools.Script("formats.py"), Job: job}
	var dir string
	if err := guard.Try(func() { dir = w.Sets.formatData(ctx, kind) }); err != nil {
		return failing(a, err)
	}
	job.URI = dir
	own := runner == "robocache" || runner == "robocache-batch"
	read := func(kind, setting string, env ...string) { // by this program
		if own {
			a.Argv, a.Setting, a.Env = w.Tools.Own(kind), setting, append(a.Env, env...)
		}
	}
	switch kind {
	case "hdf5":
		return w.hdf5(ctx, a, rest, dir)
	case "zarr":
		job.URI, job.RowsHZ, job.BatchSize = filepath.Join(dir, rest+".zarr"), "10", 4096
		if strings.HasSuffix(rest, "-img") {
			job.BatchSize = 32
		}
		read("read", "chunk by chunk, one core", "GOMAXPROCS=1")
	case "messages":
		job.URI, job.Key = filepath.Join(dir, rest), map[string]string{"joint": "sensor_msgs/msg/JointState", "imu": "sensor_msgs/msg/Imu"}[rest]
		read("messages", "one process", "GOMAXPROCS=1")
	case "windows":
		if files, _ := filepath.Glob(filepath.Join(dir, "*.mcap")); own && len(files) > 0 {
			job.URI = files[0]
		}
		job.Count, job.Key = 40, "joint_states.position"
		read("read", "one process")
	case "calvin":
		setting := "one frame at a time"
		if runner == "robocache-batch" {
			job.BatchSize, setting = 32, "batches of 32 on all cores"
		}
		read("read", setting)
	case "multirate":
		job.URI = filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "mcap_robot", "recording_zstd.mcap")
	case "augment":
		job.URI = filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "g1_h264_v30")
	case "rlds":
		if runner == "tfds" {
			a.Argv[0], a.Setting = ".venv-tfds/bin/python", "two threads, scripts/venv-tfds.sh"
		}
	}
	return a
}

// hdf5 is a runner on a file of robomimic's layout: whole epochs, windows of 16 of every stream.
func (w *CaseWork) hdf5(ctx context.Context, a Runner, which, dir string) Runner {
	file := cmp.Or(map[string]string{"gzip": "gzip.hdf5", "low16": "low.hdf5", "low100": "low.hdf5"}[which], "raw.hdf5")
	job := &Workload{URI: filepath.Join(dir, file), BatchSize: 16, Workers: 2, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: 16, Video: "none", More: map[string]any{}}
	if which == "low100" {
		job.BatchSize = 100
	}
	a.Job, a.Checked, a.ref = job, true, w.reference(ctx, job.URI)
	if a.Name != "robomimic" {
		if which == "cached" {
			job.Cache = "ram"
		}
		job.More["truth"] = job.URI
		a.Argv, a.Setting = w.Tools.Script("load_robocache.py"), "global shuffle, 2 threads"
		return a
	}
	mode := "None"
	if which == "cached" || file == "low.hdf5" {
		mode, job.More["cache_mode"] = "all", "all"
	}
	if file == "low.hdf5" {
		job.Workers = 0
	}
	a.Argv, a.Setting = w.Tools.Script("load_robomimic.py"), fmt.Sprintf("SequenceDataset, hdf5_cache_mode=%s, %d workers", mode, job.Workers)
	return a
}
