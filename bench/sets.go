package bench

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Sets makes the sets that the rows want out of one dataset, in a work folder; what is there is used again.
type Sets struct {
	URI      string
	Work     string
	Episodes int // of each set: a seeded choice of the dataset's; fewer are repeated. 0 = all, as they are
	Seed     uint64
	Tools    runners.Tools
	Log      func(format string, a ...any)
}

// setRecipe is how a set differs from the dataset.
type setRecipe struct {
	Codec      string // "" = no video
	GOP, Files int    // mp4s, about
}

// Path makes a set by name and says where it is.
func (s *Sets) Path(ctx context.Context, name string) (dir string, err error) {
	defer guard.Into(&err)
	r, ok := tables().Sets[name]
	if !ok {
		return "", report.UnknownName("set", name, nil)
	}
	dir = filepath.Join(s.folder(), name)
	if !exists(filepath.Join(dir, "meta", "info.json")) { // written last: a folder with it is complete
		s.make(ctx, r, dir)
		s.Log("made %s", dir)
	}
	return dir, nil
}

// folder is the work folder of this dataset and these choices.
func (s *Sets) folder() string {
	h := fnv.New64a()
	fmt.Fprintln(h, s.URI, s.Episodes, s.Seed)
	return filepath.Join(s.Work, strings.TrimSuffix(filepath.Base(s.URI), "/")+"-"+hex.EncodeToString(h.Sum(nil))[:8])
}

func (s *Sets) make(ctx context.Context, r setRecipe, dir string) {
	ds := guard.Must(robocache.Open(ctx, s.URI, robocache.OpenOptions{}))
	defer ds.Close()
	opt := convert.Options{WriteOptions: robocache.WriteOptions{Episodes: chooseOrRepeat(ds.Info().Episodes, s.Episodes, s.Seed), Options: map[string]string{}}}
	camera := ""
	for _, f := range ds.Info().Features {
		switch {
		case f.Kind == robocache.KindVideo && camera == "" && r.Codec != "":
			camera = f.Key
			if f.Codec != r.Codec || r.Codec != "av1" { // an AV1 set is taken as it is, whatever its GOP
				opt.Options["video_codec"], opt.Options["gop"] = r.Codec, strconv.Itoa(r.GOP)
			}
		case f.Key != "observation.state" && f.Key != "action":
			continue
		}
		opt.Keys = append(opt.Keys, f.Key)
	}
	if r.Codec != "" && camera == "" {
		guard.Fail(robocache.Unsupported("bench peers", robocache.Where{"dataset": s.URI}, "the dataset has no video").
			WithHint("--workload novideo-w16"))
	}
	write := func() int {
		guard.Check(os.RemoveAll(dir)) // what a killed run left, or the first of two
		return guard.Must(convert.Write(ctx, ds, "lerobot", dir, opt)).Episodes
	}
	if episodes := write(); r.Files <= 1 || opt.Options["video_codec"] != "" || episodes < r.Files {
		return
	}
	// The size of the mp4s is known only now: made again in about equal files, so that more than one is open.
	if _, size, err := filesBelow(filepath.Join(dir, "videos")); err != nil || size > 0 {
		guard.Check(err)
		opt.Options["video_file_bytes"] = strconv.FormatInt(size/int64(r.Files)+size/64, 10)
		write()
	}
}

// chooseOrRepeat gives n of have: a seeded choice, each twice or more where there are too few.
func chooseOrRepeat(have, n int, seed uint64) []int {
	if n <= 0 || have <= 0 {
		return nil
	}
	out := make([]int, max(have, n))
	for i := range out {
		out[i] = i % have
	}
	return ChooseEpisodes(out, n, seed)
}

// once makes a file or a folder, where it is not there.
func (s *Sets) once(to string, make func()) string {
	if exists(to + ".made") {
		return to
	}
	guard.Check(os.RemoveAll(to)) // what a killed run left
	guard.Check(os.MkdirAll(filepath.Dir(to), 0o755))
	make()
	s.Log("made %s", to)
	guard.Check(report.WriteFile(to+".made", nil))
	return to
}

// run has a program make it.
func (s *Sets) run(ctx context.Context, to, hint string, argv ...string) {
	if _, err := runners.Output(ctx, argv, s.Tools.Env()); err != nil {
		guard.Check(ctx.Err())
		guard.Fail(robocache.Unsupported("bench", robocache.Where{"dataset": to}, "%s", filepath.Base(argv[1])).
			WithCause(err).WithHint("%s", hint))
	}
}

// HDF5 makes robomimic's file of the table.
func (s *Sets) HDF5(ctx context.Context) string {
	root := guard.Must(s.Path(ctx, "table"))
	return s.once(filepath.Join(s.folder(), "table.hdf5"), func() {
		ds := guard.Must(robocache.Open(ctx, root, robocache.OpenOptions{}))
		defer ds.Close()
		guard.Must(convert.Write(ctx, ds, "robomimic", filepath.Join(s.folder(), "table.hdf5"), convert.Options{}))
	})
}

// formatData makes the data of cases of `bench formats` once, and says where it lies.
func (s *Sets) formatData(ctx context.Context, kind string) string {
	dir := filepath.Join(s.Work, "formats", kind)
	return s.once(dir, func() {
		if kind != "hdf5" {
			if from := map[string]string{"zarr": "diffusion_policy_zarr", "rlds": "bridge_rlds"}[kind]; from != "" {
				if st, err := os.Stat(filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), from)); err != nil || !st.IsDir() {
					guard.Fail(robocache.Unsupported("bench formats", robocache.Where{"dataset": dir}, "it is made of the shared data's %s, which is not here", from).
						WithHint("ROBOCACHE_TESTDATA=FOLDER names the shared data"))
				}
			}
			s.run(ctx, dir, "make peers installs what the peers need", append(s.Tools.Script("formats.py"), string(guard.Must(json.Marshal(Workload{URI: dir, More: map[string]any{"case": kind, "runner": "make"}}))))...)
			return
		}
		guard.Check(os.MkdirAll(dir, 0o755))
		for name, options := range tables().HDF5 {
			s.run(ctx, dir, "", slices.Concat(s.Tools.Self, []string{"synth", filepath.Join(dir, name+".hdf5")}, strings.Fields(options))...)
		}
	})
}

// Train makes a set that training learns from by default.
func (s *Sets) Train(ctx context.Context, name string, tiny bool) (_ string, err error) {
	defer guard.Into(&err)
	r := tables().TrainSets[name]
	dir, options := filepath.Join(s.Work, "train", r.Name), r.Whole
	if tiny {
		dir, options = filepath.Join(s.Work, "train-tiny", r.Name), r.Tiny
	}
	return s.once(dir, func() {
		s.run(ctx, dir, "give a set of your own", slices.Concat(s.Tools.Self, []string{"synth", dir}, strings.Fields(options))...)
	}), nil
}

func exists(path string) bool { _, err := os.Stat(path); return !errors.Is(err, fs.ErrNotExist) }
