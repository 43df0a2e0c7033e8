package bench

import (
	"context"
	"embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

//go:embed runners/*.py
var scripts embed.FS

// Tools says where the runners' programs are.
type Tools struct {
	Self       string // this robocache
	Python     string // an interpreter with the peers
	PythonPath string // a folder with our package, when it is not installed
	dir        string // the unpacked scripts
}

// Unpack writes the Python runners to a temporary folder; the caller calls the function returned to remove it.
func (t *Tools) Unpack() (func(), error) {
	dir, err := os.MkdirTemp("", "robocache-bench-")
	if err != nil {
		return nil, robocache.At(err, nil)
	}
	t.dir = dir
	entries, err := scripts.ReadDir("runners")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := scripts.ReadFile("runners/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o644); err != nil {
			return nil, robocache.At(err, nil)
		}
	}
	return func() { os.RemoveAll(dir) }, nil
}

func (t *Tools) env() []string {
	env := []string{"OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1"}
	if t.PythonPath != "" {
		// Ours first; a peer that stands in a folder of its own (open3d) stays to be found.
		env = append(env, "PYTHONPATH="+strings.TrimSuffix(t.PythonPath+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), string(os.PathListSeparator)))
	}
	return env
}

// script is a Python runner.
func (t *Tools) script(name string, args ...string) []string {
	return append([]string{t.Python, filepath.Join(t.dir, name)}, args...)
}

// own is a runner of this program.
func (t *Tools) own(name string, args ...string) []string {
	return append([]string{t.Self, "bench", "run-" + name}, args...)
}

// LoadRunners gives runners by name: "engine" (the Go loader, no Python), "robocache" (into torch tensors), "lerobot".
func LoadRunners(names []string, w Workload, t Tools) ([]Runner, error) {
	var runners []Runner
	workers := strconv.Itoa(w.Workers)
	for _, n := range names {
		r := Runner{Name: n, Env: t.env()}
		switch n {
		case "engine":
			r.Setting, r.Argv = workers+" threads, no Python", t.own("load", w.args()...)
		case "robocache":
			r.Setting, r.Argv = workers+" threads, into torch tensors", t.script("load_robocache.py", w.args()...)
		case "lerobot":
			r.Setting = workers + " workers, persistent, torchcodec, return_uint8=" + strconv.FormatBool(!w.Float32) + ", one torch thread"
			r.Argv = t.script("load_lerobot.py", w.args()...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "engine, robocache, lerobot"}
		}
		runners = append(runners, r)
	}
	return runners, nil
}

// RunLoad measures whole epochs of the workload through runners, interleaved.
func RunLoad(ctx context.Context, names []string, w Workload, t Tools, repeats int, timeout time.Duration, log func(string, ...any)) ([]Result, error) {
	runners, err := LoadRunners(names, w, t)
	if err != nil {
		return nil, err
	}
	ds, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	ref, err := newReference(ctx, ds, "", &w)
	if err != nil {
		return nil, err
	}
	for i := range runners {
		runners[i].job = job{ref: ref, batch: w.BatchSize, whole: true}
	}
	return Run(ctx, runners, repeats, timeout, log)
}

// DecodeRunners gives the runners of `bench decode`: "robocache", "ffmpeg", "torchcodec", "pyav".
func DecodeRunners(names []string, pattern string, count int, files []string, t Tools) ([]Runner, error) {
	var runners []Runner
	for _, n := range names {
		r := Runner{Name: n, Env: t.env(), Setting: "one thread, " + pattern}
		switch n {
		case "robocache":
			r.Argv = t.own("decode", append([]string{"--pattern", pattern, "--count", strconv.Itoa(count)}, files...)...)
		case "ffmpeg", "torchcodec", "pyav":
			if n == "ffmpeg" && pattern != "sequential" {
				continue // a process a frame would measure starting processes
			}
			r.Argv = t.script("decode_peer.py", append([]string{n, pattern, strconv.Itoa(count)}, files...)...)
		default:
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Msg: "no runner named " + strconv.Quote(n), Hint: "robocache, ffmpeg, torchcodec, pyav"}
		}
		runners = append(runners, r)
	}
	return runners, nil
}
