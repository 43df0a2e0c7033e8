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

// options are some of a Workload's, by the names of its JSON.
type options map[string]any

func (o options) into(w *Workload) error { return report.Fill(w, o) }

// runner is a program with a job.
func (p program) runner(name string, w Workload, t *runners.Tools) (Runner, error) {
	w.More = map[string]any{"runner": name}
	if err := p.Job.into(&w); err != nil {
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

// pick gives the runners of a table by name.
func pick(
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
		runner, err := p.runner(n, w, t)
		if err != nil {
			return out, err
		}
		out = append(out, runner)
	}
	return out, nil
}

// Passes measures whole passes of a workload through runners, interleaved: epochs of a loader, with
// Rows those of whole trajectories, with Files decoding. With threads each runner runs with each
// number of them.
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
		if w.Pattern == "random" { // a process a frame would measure starting processes
			names = slices.DeleteFunc(
				slices.Clone(names),
				func(n string) bool { return n == "ffmpeg" },
			)
		}
		field, err := pick(tables().Decoders, names, w, &t)
		if err != nil {
			return nil, err
		}
		return Run(ctx, field, repeats, timeout, log)
	}
	ds, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	table := tables().Loaders
	if w.Rows > 0 {
		if table = tables().Trajectories; ds.Info().Format != "robomimic" ||
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
		w.Seconds = cmp.Or(w.Seconds, 2) // an epoch of ours is a fraction of that
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
		picked, err := pick(table, names, w, &t)
		if err != nil {
			return nil, err
		}
		for _, r := range picked {
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

// Runners gives the runners of one family by name. What a runner needs is made first: a reason why
// it cannot be stands in the runner, which then fails with it.
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
		if ref, err = w.reference(ctx, path); err != nil {
			return out, err
		}
	}
	for _, n := range names {
		var r Runner
		var err error
		if f.format != nil {
			r, err = w.formatRunner(ctx, f.format, n)
		} else {
			r, err = w.peer(ctx, f, n, ref)
		}
		if errors.Is(err, robocache.ErrUnsupported) {
			r, err = failing(n, err)
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

// failing returns a runner that fails with the message of err.
func failing(name string, err error) (Runner, error) {
	said, failed := json.Marshal(Outcome{Error: err.Error()})
	return Runner{Name: name, Argv: []string{"printf", "%s", string(said)}}, failed
}

// reference opens a set; it is closed with the family's servers.
func (w *CaseWork) reference(ctx context.Context, root string) (*reference, error) {
	ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
	if err != nil {
		return nil, err
	}
	w.open = append(w.open, ds)
	return newReference(ds, root, &Workload{})
}

// peer is a runner of a family of `robocache-bench peers`.
func (w *CaseWork) peer(
	ctx context.Context,
	f *family,
	name string,
	ref *reference,
) (Runner, error) {
	p, own := f.Runners[name]
	if !own {
		p = tables().Peers[name]
	}
	if p.Set != "" {
		path, err := w.Sets.Path(ctx, p.Set)
		if err != nil {
			return Runner{}, err
		}
		if ref, err = w.reference(ctx, path); err != nil {
			return Runner{}, err
		}
	}
	job := Workload{
		URI:       ref.root,
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
	a, err := p.runner(name, job, &w.Tools)
	if err != nil {
		return Runner{}, err
	}
	if strings.HasSuffix(p.Run, ".py") { // else it is a limit
		a.Checked, a.ref = f.Video, ref
	}
	switch name {
	case "robomimic", "robomimic-all":
		if a.Job.More["hdf5"], err = w.Sets.HDF5(ctx); err != nil {
			return Runner{}, err
		}
	case "decode-floor", "decode-sequential":
		if a.Job.Files, err = VideoFiles([]string{ref.root}); err != nil {
			return Runner{}, err
		}
		a.Job.Count = f.Count
	case "memcpy":
		for _, v := range ref.ds.Info().Features {
			if v.Kind == robocache.KindVideo {
				a.Job.Bytes = 3 * v.Height * v.Width
			}
		}
	case "robocache-disk":
		a.Job.More["disk"] = filepath.Dir(ref.root)
	case "robocache-http":
		s, err := loopback.Serve(ref.root, loopback.Options{Latency: httpLatency})
		if err != nil {
			return Runner{}, err
		}
		w.open = append(w.open, s)
		a.Job.URI = s.URL
	}
	return a, nil
}

// formatRunner is a runner of a case of `robocache-bench formats`:
// runners/robocache_bench/formats.py, but where loaders are measured.
func (w *CaseWork) formatRunner(ctx context.Context, c *tableCase, name string) (Runner, error) {
	p, ok := tables().Kinds[c.Kind][name]
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
	if err := c.Job.into(&j); err != nil {
		return Runner{}, err
	}
	if err := c.Jobs[name].into(&j); err != nil {
		return Runner{}, err
	}
	a, err := p.runner(name, j, &w.Tools)
	if err != nil {
		return Runner{}, err
	}
	if a.Job.More["case"] = c.Name; p.Checked {
		a.Job.More["truth"] = j.URI
		referenceValue, err := w.reference(ctx, j.URI)
		if err != nil {
			return Runner{}, err
		}
		a.Checked, a.ref = true, referenceValue
	}
	return a, nil
}
