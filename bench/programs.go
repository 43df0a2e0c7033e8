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
	"github.com/goatnote-inc/robocache/store/loopback"
)

// options overrides fields of a Workload, by their JSON names.
type options map[string]any

func (o options) applyTo(w *Workload) error { return report.Fill(w, o) }

// newRunner returns the runner of the program with a job.
func (p program) newRunner(name string, w Workload, t *runners.Tools) (Runner, error) {
	w.More = map[string]any{"runner": name}
	if err := p.Job.applyTo(&w); err != nil {
		return Runner{}, err
	}
	argv := t.Own(p.Run)
	if strings.HasSuffix(p.Run, ".py") {
		argv = t.Script(p.Run)
	}
	if p.Python != "" {
		argv[0] = p.Python
	}
	return Runner{
		Name:    name,
		Setting: strings.ReplaceAll(p.Setting, "%d", strconv.Itoa(w.Workers)),
		Env:     append(t.Env(), p.Env...),
		Argv:    argv,
		Job:     &w,
	}, nil
}

// pickRunners returns the named runners of a table.
func pickRunners(
	table map[string]program,
	names []string,
	w Workload,
	t *runners.Tools,
) (out []Runner, err error) {
	for _, n := range names {
		p, ok := table[n]
		if !ok {
			return out, report.UnknownName("runner", n, slices.Sorted(maps.Keys(table)))
		}
		runner, err := p.newRunner(n, w, t)
		if err != nil {
			return out, err
		}
		out = append(out, runner)
	}
	return out, nil
}

// Passes measures whole passes of a workload, with interleaved runners. A pass is an epoch of a
// loader. With w.Rows it is an epoch of whole trajectories, and with w.Files it decodes all files.
// If threads is not nil, each runner runs once per number of threads.
func Passes(
	ctx context.Context,
	names []string,
	w Workload,
	threads []int,
	t runners.Tools,
	repeats int,
	timeout time.Duration,
	log func(string, ...any),
) (_ []Result, err error) {
	if w.Files != nil {
		if w.Pattern == "random" { // starting a process per frame would dominate the measurement
			names = slices.DeleteFunc(
				slices.Clone(names),
				func(n string) bool { return n == "ffmpeg" },
			)
		}
		field, err := pickRunners(caseTables().Decoders, names, w, &t)
		if err != nil {
			return nil, err
		}
		return Run(ctx, field, repeats, timeout, log)
	}
	ds, err := w.openDataset(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	table := caseTables().Loaders
	if w.Rows > 0 {
		if table = caseTables().Trajectories; ds.Info().Format != "robomimic" ||
			ds.Info().Episodes == 0 ||
			w.HZ <= 0 {
			return nil, robocache.Misuse(
				"load",
				robocache.Where{"dataset": w.URI},
				"--rows is for whole trajectories of a robomimic file with timestamps, at --hz",
			).
				WithHint("robocache synth FILE.hdf5 --format robomimic --preset heterogeneous")
		}
	}
	if w.Rows > 0 || threads != nil {
		w.Seconds = cmp.Or(w.Seconds, 2) // an epoch of RoboCache takes a fraction of this
	}
	ref, err := newReference(ds, "", &w)
	if err != nil {
		return nil, err
	}
	if threads == nil {
		threads = []int{w.Workers}
	}
	var field []Runner
	for _, n := range threads {
		w.Workers = n
		picked, err := pickRunners(table, names, w, &t)
		if err != nil {
			return nil, err
		}
		for _, r := range picked {
			if r.reference = ref; len(threads) > 1 {
				r.Name += fmt.Sprintf(", %d threads", n)
			}
			field = append(field, r)
		}
	}
	return Run(ctx, field, repeats, timeout, log)
}

// httpLatency is the delay before each response of the http store.
const httpLatency = 5 * time.Millisecond

// Runners returns the named runners of a family, and makes the data that they need. If that is
// unsupported here, the runner fails with the reason when it runs.
func (w *CaseWork) Runners(
	ctx context.Context,
	name string,
	names []string,
) (out []Runner, err error) {
	f := familyOf(name)
	var ref *reference
	if f.format == nil {
		path, err := w.Sets.Path(ctx, f.Set)
		if err != nil {
			return out, err
		}
		if ref, err = w.openReference(ctx, path); err != nil {
			return out, err
		}
	}
	for _, n := range names {
		var r Runner
		var err error
		switch {
		case f.format == nil:
			r, err = w.peerRunner(ctx, f, n, ref)
		case f.format.Package != "":
			r, err = w.clientRunner(f.format, n)
		default:
			r, err = w.formatRunner(ctx, f.format, n)
		}
		if errors.Is(err, robocache.ErrUnsupported) {
			r, err = failingRunner(n, err)
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// failingRunner returns a runner that fails with the message of err.
func failingRunner(name string, err error) (Runner, error) {
	said, failed := json.Marshal(Outcome{Error: err.Error()})
	return Runner{Name: name, Argv: []string{"printf", "%s", string(said)}}, failed
}

// openReference opens a set. closeOpened closes it.
func (w *CaseWork) openReference(ctx context.Context, root string) (*reference, error) {
	ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	w.opened = append(w.opened, ds)
	return newReference(ds, root, &Workload{})
}

// peerRunner returns a runner of a family of `robocache-bench peers`.
func (w *CaseWork) peerRunner(
	ctx context.Context,
	f *family,
	name string,
	ref *reference,
) (Runner, error) {
	p, own := f.Runners[name]
	if !own {
		p = caseTables().Peers[name]
	}
	if p.Set != "" {
		path, err := w.Sets.Path(ctx, p.Set)
		if err != nil {
			return Runner{}, err
		}
		if ref, err = w.openReference(ctx, path); err != nil {
			return Runner{}, err
		}
	}
	job := Workload{
		URI:       ref.localRoot,
		BatchSize: w.BatchSize,
		Workers:   w.Workers,
		Epochs:    1,
		Seconds:   w.Seconds,
		Seed:      w.Seed,
		Window:    f.Window,
		Video:     "none",
	}
	if f.Video {
		job.Video, job.CheckFrames = "one", 64
	}
	if f.Size > 0 {
		job.ImageSize = fmt.Sprintf("%dx%d", f.Size, f.Size)
	}
	a, err := p.newRunner(name, job, &w.Tools)
	if err != nil {
		return Runner{}, err
	}
	if strings.HasSuffix(p.Run, ".py") { // a job of Serve measures a limit and has nothing to check
		a.Checked, a.reference = f.Video, ref
	}
	switch name {
	case "robomimic", "robomimic-all":
		if a.Job.More["hdf5"], err = w.Sets.HDF5(ctx); err != nil {
			return Runner{}, err
		}
	case "decode-floor", "decode-sequential":
		if a.Job.Files, err = VideoFiles([]string{ref.localRoot}); err != nil {
			return Runner{}, err
		}
		a.Job.Count = f.Count
	case "memcpy":
		for _, v := range ref.dataset.Info().Features {
			if v.Kind == robocache.KindVideo {
				a.Job.Bytes = 3 * v.Height * v.Width
			}
		}
	case "robocache-disk":
		a.Job.More["disk"] = filepath.Dir(ref.localRoot)
	case "robocache-http":
		s, err := loopback.Serve(ref.localRoot, loopback.Options{Latency: httpLatency})
		if err != nil {
			return Runner{}, err
		}
		w.opened = append(w.opened, s)
		a.Job.URI = s.URL
	}
	return a, nil
}

// formatRunner returns a runner of a case of `robocache-bench formats`. Most cases use
// runners/robocache_bench/formats.py; cases that measure loaders use the runners of loaders.
func (w *CaseWork) formatRunner(ctx context.Context, c *tableCase, name string) (Runner, error) {
	p, ok := caseTables().Kinds[c.Kind][name]
	if !ok {
		p = program{Run: "formats.py", Setting: "one process"}
	}
	formatData, err := w.Sets.formatData(ctx, c.Data)
	if err != nil {
		return Runner{}, err
	}
	j := Workload{
		URI:       filepath.Join(formatData, c.File),
		Seconds:   w.Seconds,
		Seed:      w.Seed,
		BatchSize: 1,
	}
	if err := c.Job.applyTo(&j); err != nil {
		return Runner{}, err
	}
	if err := c.Jobs[name].applyTo(&j); err != nil {
		return Runner{}, err
	}
	a, err := p.newRunner(name, j, &w.Tools)
	if err != nil {
		return Runner{}, err
	}
	if a.Job.More["case"] = c.Name; p.Checked {
		a.Job.More["truth"] = j.URI
		referenceValue, err := w.openReference(ctx, j.URI)
		if err != nil {
			return Runner{}, err
		}
		a.Checked, a.reference = true, referenceValue
	}
	return a, nil
}
