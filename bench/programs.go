package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// options are some of a Workload's, by the names of its JSON.
type options map[string]any

func (o options) into(w *Workload) { guard.Check(report.Fill(w, o)) }

// runner is a program with a job.
func (p program) runner(name string, w Workload, t *runners.Tools) Runner {
	w.More = map[string]any{"runner": name}
	p.Job.into(&w)
	argv := t.Own(p.Run)
	if strings.HasSuffix(p.Run, ".py") {
		argv = t.Script(p.Run)
	}
	if p.Python != "" {
		argv[0] = p.Python
	}
	return Runner{Name: name, Setting: strings.ReplaceAll(p.Setting, "%d", strconv.Itoa(w.Workers)), Env: append(t.Env(), p.Env...), Argv: argv, Job: &w}
}

// pick gives the runners of a table by name.
func pick(table map[string]program, names []string, w Workload, t *runners.Tools) (out []Runner) {
	for _, n := range names {
		p, ok := table[n]
		if !ok {
			guard.Fail(report.UnknownName("runner", n, slices.Sorted(maps.Keys(table))))
		}
		out = append(out, p.runner(n, w, t))
	}
	return out
}

// Passes measures whole passes of a workload through runners, interleaved: epochs of a loader, with Rows those of whole trajectories, with Files decoding.
// With threads each runner runs with each number of them.
func Passes(ctx context.Context, names []string, w Workload, threads []int, t runners.Tools, repeats int, timeout time.Duration, log func(string, ...any)) (_ []Result, err error) {
	defer guard.Into(&err)
	if w.Files != nil {
		if w.Pattern == "random" { // a process a frame would measure starting processes
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "ffmpeg" })
		}
		return Run(ctx, pick(tables().Decoders, names, w, &t), repeats, timeout, log)
	}
	ds := guard.Must(w.open(ctx))
	defer ds.Close()
	table := tables().Loaders
	if w.Rows > 0 {
		if table = tables().Trajectories; ds.Info().Format != "robomimic" || ds.Info().Episodes == 0 || w.HZ <= 0 {
			guard.Fail(robocache.Misuse("bench load", robocache.Where{"dataset": w.URI}, "--rows is for whole trajectories of a robomimic file with timestamps, at --hz").
				WithHint("robocache synth FILE.hdf5 --format robomimic --preset heterogeneous"))
		}
	}
	if w.Rows > 0 || threads != nil {
		w.Seconds = cmp.Or(w.Seconds, 2) // an epoch of ours is a fraction of that
	}
	ref := guard.Must(newReference(ds, "", &w))
	if threads == nil {
		threads = []int{w.Workers}
	}
	var field []Runner
	for _, n := range threads {
		w.Workers = n
		for _, r := range pick(table, names, w, &t) {
			if r.ref = ref; len(threads) > 1 {
				r.Name += fmt.Sprintf(", %d threads", n)
			}
			field = append(field, r)
		}
	}
	return Run(ctx, field, repeats, timeout, log)
}

// httpLatency is the wait before each answer of the http store.
const httpLatency = 5 * time.Millisecond

// Runners gives the runners of one family by name. What a runner needs is made first: a reason why it cannot be stands in the runner, which then fails with it.
func (w *CaseWork) Runners(ctx context.Context, name string, names []string) (out []Runner, err error) {
	defer guard.Into(&err)
	f := familyOf(name)
	var ref *reference
	if f.format == nil {
		ref = w.reference(ctx, guard.Must(w.Sets.Path(ctx, f.Set)))
	}
	for _, n := range names {
		r := Runner{Name: n}
		if err := guard.Try(func() {
			if f.format != nil {
				r = w.formatRunner(ctx, f.format, n)
			} else {
				r = w.peer(ctx, f, n, ref)
			}
		}); errors.Is(err, robocache.ErrUnsupported) {
			r.Argv, r.Job, r.ref = []string{"printf", "%s", string(guard.Must(json.Marshal(Outcome{Error: err.Error()})))}, nil, nil
		} else {
			guard.Check(err)
		}
		out = append(out, r)
	}
	return out, nil
}

// reference opens a set; it is closed with the family's servers.
func (w *CaseWork) reference(ctx context.Context, root string) *reference {
	ds := guard.Must(robocache.Open(ctx, root, robocache.OpenOptions{}))
	w.open = append(w.open, ds)
	return guard.Must(newReference(ds, root, &Workload{}))
}

// peer is a runner of a family of `bench peers`.
func (w *CaseWork) peer(ctx context.Context, f *family, name string, ref *reference) Runner {
	p, own := f.Runners[name]
	if !own {
		p = tables().Peers[name]
	}
	if p.Set != "" {
		ref = w.reference(ctx, guard.Must(w.Sets.Path(ctx, p.Set)))
	}
	job := Workload{URI: ref.root, BatchSize: w.BatchSize, Workers: w.Workers, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: f.Window, Video: "none"}
	if f.Video {
		job.Video, job.CheckFrames = "one", 64
	}
	if f.Size > 0 {
		job.ImageSize = fmt.Sprintf("%dx%d", f.Size, f.Size)
	}
	a := pick(map[string]program{name: p}, []string{name}, job, &w.Tools)[0]
	if strings.HasSuffix(p.Run, ".py") { // else it is a limit
		a.Checked, a.ref = f.Video, ref
	}
	switch name {
	case "robomimic", "robomimic-all":
		a.Job.More["hdf5"] = w.Sets.HDF5(ctx)
	case "decode-floor", "decode-sequential":
		a.Job.Count, a.Job.Files = f.Count, guard.Must(VideoFiles([]string{ref.root}))
	case "memcpy":
		for _, v := range ref.ds.Info().Features {
			if v.Kind == robocache.KindVideo {
				a.Job.Bytes = 3 * v.Height * v.Width
			}
		}
	case "robocache-disk":
		a.Job.More["disk"] = filepath.Dir(ref.root)
	case "robocache-http":
		s := guard.Must(loopback.Serve(ref.root, loopback.Options{Latency: httpLatency}))
		w.open = append(w.open, s)
		a.Job.URI = s.URL
	}
	return a
}

// formatRunner is a runner of a case of `bench formats`: runners/formats.py, but where loaders are measured.
func (w *CaseWork) formatRunner(ctx context.Context, c *tableCase, name string) Runner {
	p, ok := tables().Kinds[c.Kind][name]
	if !ok {
		p = program{Run: "formats.py", Setting: "one process"}
	}
	j := Workload{URI: filepath.Join(w.Sets.formatData(ctx, c.Data), c.File), Seconds: w.Seconds, Seed: w.Seed, BatchSize: 1}
	c.Job.into(&j)
	c.Jobs[name].into(&j)
	a := p.runner(name, j, &w.Tools)
	if a.Job.More["case"] = c.Name; p.Checked {
		a.Job.More["truth"] = j.URI
		a.Checked, a.ref = true, w.reference(ctx, j.URI)
	}
	return a
}
