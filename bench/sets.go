package bench

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
)

// Sets makes the sets that the rows want out of one dataset, in a work folder; what is there is used again.
type Sets struct {
	URI      string
	Work     string
	Episodes int // of each set: a seeded choice of the dataset's; fewer are repeated. 0 = all, as they are
	Seed     uint64
	Tools    runners.Tools
	Log      func(format string, a ...any)

	made map[string]string
}

// setRecipe is how a set differs from the dataset.
type setRecipe struct {
	codec string // "" = no video
	gop   int
	files int // mp4s, about
}

var setRecipes = map[string]setRecipe{
	"av1":       {codec: "av1", gop: 2, files: 3},
	"av1-one":   {codec: "av1", gop: 2, files: 1},
	"h264-g30":  {codec: "h264", gop: 30, files: 3},
	"h264-g250": {codec: "h264", gop: 250, files: 3},
	"table":     {},
}

// Path makes a set by name and says where it is.
func (s *Sets) Path(ctx context.Context, name string) (string, error) {
	if p := s.made[name]; p != "" {
		return p, nil
	}
	r, ok := setRecipes[name]
	if !ok {
		return "", report.UnknownName("set", name, nil)
	}
	dir := filepath.Join(s.folder(), name)
	if !exists(filepath.Join(dir, "meta", "info.json")) { // written last: a folder with it is complete
		if err := os.RemoveAll(dir); err != nil { // what a killed run left
			return "", robocache.At(err, robocache.Where{"file": dir})
		}
		if err := s.make(ctx, r, dir); err != nil {
			return "", err
		}
		s.Log("made %s", dir)
	}
	if s.made == nil {
		s.made = map[string]string{}
	}
	s.made[name] = dir
	return dir, nil
}

// folder is the work folder of this dataset and these choices.
func (s *Sets) folder() string {
	h := fnv.New64a()
	fmt.Fprintln(h, s.URI, s.Episodes, s.Seed)
	return filepath.Join(s.Work, strings.TrimSuffix(filepath.Base(s.URI), "/")+"-"+hex.EncodeToString(h.Sum(nil))[:8])
}

func (s *Sets) make(ctx context.Context, r setRecipe, dir string) error {
	ds, err := robocache.Open(ctx, s.URI, robocache.OpenOptions{})
	if err != nil {
		return err
	}
	defer ds.Close()
	opt := convert.Options{WriteOptions: robocache.WriteOptions{Episodes: chooseOrRepeat(ds.Info().Episodes, s.Episodes, s.Seed), Options: map[string]string{}}}
	camera := ""
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		switch {
		case f.Kind == robocache.KindVideo && camera == "" && r.codec != "":
			camera = f.Key
			if f.Codec != r.codec || r.codec != "av1" { // an AV1 set is taken as it is, whatever its GOP
				opt.Options["video_codec"], opt.Options["gop"] = r.codec, strconv.Itoa(r.gop)
			}
		case f.Key == "observation.state" || f.Key == "action":
		default:
			continue
		}
		opt.Keys = append(opt.Keys, f.Key)
	}
	if r.codec != "" && camera == "" {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench peers", Where: robocache.Where{"dataset": s.URI}, Msg: "the dataset has no video", Hint: "--workload novideo-w16"}
	}
	report, err := convert.Write(ctx, ds, "lerobot", dir, opt)
	if err != nil || r.files <= 1 || opt.Options["video_codec"] != "" {
		return err
	}
	// The size of the mp4s is known only now: made again in about equal files, so that more than one is open.
	_, size, err := filesBelow(filepath.Join(dir, "videos"))
	if err != nil {
		return err
	}
	if report.Episodes < r.files || size == 0 {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	opt.Options["video_file_bytes"] = strconv.FormatInt(size/int64(r.files)+size/64, 10)
	_, err = convert.Write(ctx, ds, "lerobot", dir, opt)
	return err
}

// chooseOrRepeat gives n of have: a seeded choice, each twice or more where there are too few.
func chooseOrRepeat(have, n int, seed uint64) []int {
	if n <= 0 || have <= 0 {
		return nil
	}
	var out []int
	if have > n {
		out = rand.New(rand.NewPCG(seed, 0)).Perm(have)[:n]
		slices.Sort(out)
		return out
	}
	for i := range n {
		out = append(out, i%have)
	}
	return out
}

// HDF5 makes robomimic's file of the table.
func (s *Sets) HDF5(ctx context.Context) (string, error) {
	root, err := s.Path(ctx, "table")
	if err != nil {
		return "", err
	}
	out := filepath.Join(s.folder(), "table.hdf5")
	if exists(out) {
		return out, nil
	}
	return out, s.python(ctx, "load_robomimic.py", Workload{URI: root, More: map[string]any{"make": true, "hdf5": out}})
}

// formatData makes the data of cases of `bench formats` once, and says where it lies.
func (s *Sets) formatData(ctx context.Context, kind string) (string, error) {
	if kind == "windows" {
		kind = "recordings"
	}
	dir := filepath.Join(s.Work, "formats", kind)
	if kind == "multirate" || kind == "augment" || exists(dir+".made") {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil { // what a killed run left
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	if err := s.python(ctx, "formats.py", Workload{URI: dir, More: map[string]any{"case": kind, "runner": "make"}}); err != nil {
		return "", err
	}
	s.Log("made %s", dir)
	return dir, report.WriteFile(dir+".made", nil)
}

// trainSets are what `bench train` learns from: options of synth. tiny is for small networks.
var trainSets = map[string]struct {
	name        string
	whole, tiny []string
}{
	"frames":        {"frames", []string{"--episodes", "40", "--seconds", "17", "--cameras", "1", "--size", "640x480", "--gop", "2"}, []string{"--episodes", "6", "--cameras", "1", "--size", "96x96"}},
	"rtx":           {"rtx.hdf5", []string{"--preset", "rtx"}, []string{"--preset", "rtx", "--episodes", "24"}},
	"heterogeneous": {"heterogeneous.hdf5", []string{"--preset", "heterogeneous"}, []string{"--preset", "heterogeneous", "--episodes", "10"}},
}

// Train makes a set of trainSets.
func (s *Sets) Train(ctx context.Context, name string, tiny bool) (string, error) {
	r := trainSets[name]
	dir, options := filepath.Join(s.Work, "train", r.name), r.whole
	if tiny {
		dir, options = filepath.Join(s.Work, "train-tiny", r.name), r.tiny
	}
	if exists(dir + ".made") {
		return dir, nil
	}
	err := os.RemoveAll(dir) // what a killed run left
	if err == nil {
		err = os.MkdirAll(filepath.Dir(dir), 0o755)
	}
	if err != nil {
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	s.Log("making %s", dir)
	cmd, errs := runners.Command(ctx, append([]string{s.Tools.Self, "synth", dir}, options...), s.Tools.Env())
	if err := cmd.Run(); err != nil {
		return "", cmp.Or(ctx.Err(), error(&robocache.Error{Class: robocache.ErrUnsupported, Op: "bench train", Where: robocache.Where{"dataset": dir}, Msg: "synth: " + runners.LastLine(errs.String()), Hint: "give a set of your own", Err: err}))
	}
	return dir, report.WriteFile(dir+".made", nil)
}

// python has a script make data.
func (s *Sets) python(ctx context.Context, script string, w Workload) error {
	job, err := json.Marshal(w)
	if err != nil {
		return err
	}
	cmd, errs := runners.Command(ctx, append(s.Tools.Script(script), string(job)), s.Tools.Env())
	if err := cmd.Run(); err != nil {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench", Msg: script + ": " + runners.LastLine(errs.String()), Hint: "make peers installs what the peers need", Err: err}
	}
	return nil
}

func exists(path string) bool { _, err := os.Stat(path); return !errors.Is(err, fs.ErrNotExist) }
