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
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/synth"
)

// Sets derives the sets of all cases from one dataset, in a work folder. Existing sets are reused.
type Sets struct {
	URI  string
	Work string
	// Each set contains this many episodes, chosen at random with a seed. If the dataset has fewer,
	// they are repeated. 0 means all episodes once.
	Episodes int
	Seed     uint64
	Tools    runners.Tools
	Log      func(format string, a ...any)
}

// setRecipe describes how a set differs from the dataset.
type setRecipe struct {
	Codec      string // empty: no video
	GOP, Files int    // approximate number of mp4 files
}

// Path returns the folder of the named set, and makes the set if it does not exist.
func (s *Sets) Path(ctx context.Context, name string) (dir string, err error) {
	r, ok := caseTables().Sets[name]
	if !ok {
		return "", report.UnknownName("set", name, nil)
	}
	dir = filepath.Join(s.workFolder(), name)
	// info.json is written last, so a folder that contains it is complete.
	if !fileExists(filepath.Join(dir, "meta", "info.json")) {
		if err := s.makeSet(ctx, r, dir); err != nil {
			return dir, err
		}
		s.Log("made %s", dir)
	}
	return dir, nil
}

// workFolder returns the work folder for this dataset and these options.
func (s *Sets) workFolder() string {
	h := fnv.New64a()
	fmt.Fprintln(h, s.URI, s.Episodes, s.Seed)
	return filepath.Join(
		s.Work,
		strings.TrimSuffix(filepath.Base(s.URI), "/")+"-"+hex.EncodeToString(h.Sum(nil))[:8],
	)
}

// makeSet writes the set of recipe r to dir.
func (s *Sets) makeSet(ctx context.Context, r setRecipe, dir string) error {
	ds, err := robocache.Open(ctx, s.URI, robocache.OpenOptions{})
	if err != nil {
		return err
	}
	defer ds.Close()
	opt := convert.Options{
		WriteOptions: robocache.WriteOptions{
			Episodes: chooseOrRepeat(ds.Info().Episodes, s.Episodes, s.Seed),
			Options:  map[string]string{},
		},
	}
	camera := ""
	for _, f := range ds.Info().Features {
		switch {
		case f.Kind == robocache.KindVideo && camera == "" && r.Codec != "":
			camera = f.Key
			// an AV1 set is used unchanged, with any GOP
			if f.Codec != r.Codec || r.Codec != "av1" {
				opt.Options["video_codec"], opt.Options["gop"] = r.Codec, strconv.Itoa(r.GOP)
			}
		case f.Key != "observation.state" && f.Key != "action":
			continue
		}
		opt.Keys = append(opt.Keys, f.Key)
	}
	if r.Codec != "" && camera == "" {
		return robocache.Unsupported(
			"peers",
			robocache.Where{"dataset": s.URI},
			"the dataset has no video",
		).
			WithHint("--workload novideo-w16")
	}
	write := func() (int, error) {
		// An interrupted run, or the first call, may have left the folder.
		if err := os.RemoveAll(dir); err != nil {
			return 0, err
		}
		written, err := convert.Write(ctx, ds, "lerobot", dir, opt)
		if err != nil {
			return 0, err
		}
		return written.Episodes, nil
	}
	if episodes, err := write(); err != nil {
		return err
	} else if r.Files <= 1 || opt.Options["video_codec"] != "" || episodes < r.Files {
		return nil
	}
	// The size of the video is known only after the first pass. The second pass divides it into
	// files of about equal size, so that the loader opens more than one.
	_, size, err := filesBelow(filepath.Join(dir, "videos"))
	if err != nil || size == 0 {
		return err
	}
	opt.Options["video_file_bytes"] = strconv.FormatInt(size/int64(r.Files)+size/64, 10)
	_, err = write()
	return err
}

// chooseOrRepeat returns n of have episodes, chosen at random with a seed. If n is larger, episodes
// are repeated.
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

// makeOnce calls make if the file or folder does not exist yet.
func (s *Sets) makeOnce(to string, make func() error) (string, error) {
	if fileExists(to + ".made") {
		return to, nil
	}
	if err := os.RemoveAll(to); err != nil { // an interrupted run may have left it
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	if err := make(); err != nil {
		return "", err
	}
	s.Log("made %s", to)
	return to, report.WriteFile(to+".made", nil)
}

// synthRecipe describes a synthetic set: options of synth and of the writer of its format.
type synthRecipe struct {
	synth.Options
	WriteOptions map[string]string `json:"write_options"`
}

// writeSet writes the set to dst.
func (r *synthRecipe) writeSet(ctx context.Context, dst string) error {
	format := cmp.Or(r.Format, robocache.DefaultFormat())
	f, err := convert.Writer(format)
	if err != nil {
		return err
	}
	ds, options, err := synth.For(r.Options, f, false)
	if err != nil {
		return err
	}
	maps.Copy(options, r.WriteOptions)
	_, err = convert.Write(
		ctx,
		ds,
		format,
		dst,
		convert.Options{WriteOptions: robocache.WriteOptions{Options: options}},
	)
	return err
}

// HDF5 returns the set "table" as a robomimic file, and makes it if needed.
func (s *Sets) HDF5(ctx context.Context) (string, error) {
	root, err := s.Path(ctx, "table")
	if err != nil {
		return "", err
	}
	return s.makeOnce(filepath.Join(s.workFolder(), "table.hdf5"), func() error {
		ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
		if err != nil {
			return err
		}
		defer ds.Close()
		_, err = convert.Write(
			ctx,
			ds,
			"robomimic",
			filepath.Join(s.workFolder(), "table.hdf5"),
			convert.Options{},
		)
		return err
	})
}

// formatData returns the folder with the data for cases of `robocache-bench formats`, and makes it
// if needed.
func (s *Sets) formatData(ctx context.Context, kind string) (string, error) {
	dir := filepath.Join(s.Work, "formats", kind)
	return s.makeOnce(dir, func() error {
		if kind != "hdf5" {
			if from := map[string]string{
				"zarr": "diffusion_policy_zarr",
				"rlds": "bridge_rlds",
			}[kind]; from != "" {
				if st, err := os.Stat(filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), from)); err !=
					nil || !st.IsDir() {
					return robocache.Unsupported(
						"formats",
						robocache.Where{"dataset": dir},
						"the shared data has no %s",
						from,
					).
						WithHint("ROBOCACHE_TESTDATA=FOLDER names the shared data")
				}
			}
			encoded, err := json.Marshal(
				Workload{URI: dir, More: map[string]any{"case": kind, "runner": "make"}},
			)
			if err != nil {
				return err
			}
			_, err = runners.Output(
				ctx,
				append(s.Tools.Script("formats.py"), string(encoded)),
				s.Tools.Env(),
			)
			if err == nil || ctx.Err() != nil {
				return ctx.Err()
			}
			return robocache.Unsupported("formats", robocache.Where{"dataset": dir}, "formats.py").
				WithCause(err).WithHint("make peers installs what the peers need")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for name, recipe := range caseTables().HDF5 {
			if err := recipe.writeSet(ctx, filepath.Join(dir, name+".hdf5")); err != nil {
				return err
			}
		}
		return nil
	})
}

// Train returns the default set of a training model, and makes it if needed. tiny selects a small
// version.
func (s *Sets) Train(ctx context.Context, name string, tiny bool) (_ string, err error) {
	r := caseTables().TrainSets[name]
	dir, recipe := filepath.Join(s.Work, "train", r.Name), r.Whole
	if tiny {
		dir, recipe = filepath.Join(s.Work, "train-tiny", r.Name), r.Tiny
	}
	return s.makeOnce(dir, func() error {
		return recipe.writeSet(ctx, dir)
	})
}

func fileExists(
	path string,
) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
