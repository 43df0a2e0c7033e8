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

// Sets makes the sets that the rows want out of one dataset, in a work folder; what is there is
// used again.
type Sets struct {
	URI  string
	Work string
	// of each set: a seeded choice of the dataset's; fewer are repeated. 0 = all, as they are
	Episodes int
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
	r, ok := tables().Sets[name]
	if !ok {
		return "", report.UnknownName("set", name, nil)
	}
	dir = filepath.Join(s.folder(), name)
	// written last: a folder with it is complete
	if !exists(filepath.Join(dir, "meta", "info.json")) {
		if err := s.make(ctx, r, dir); err != nil {
			return dir, err
		}
		s.Log("made %s", dir)
	}
	return dir, nil
}

// folder is the work folder of this dataset and these choices.
func (s *Sets) folder() string {
	h := fnv.New64a()
	fmt.Fprintln(h, s.URI, s.Episodes, s.Seed)
	return filepath.Join(
		s.Work,
		strings.TrimSuffix(filepath.Base(s.URI), "/")+"-"+hex.EncodeToString(h.Sum(nil))[:8],
	)
}

func (s *Sets) make(ctx context.Context, r setRecipe, dir string) error {
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
			// an AV1 set is taken as it is, whatever its GOP
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
		// A killed run, or the first of two, may have left the folder.
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
	// The size of the mp4s is known only now: made again in about equal files, so that more than
	// one is open.
	_, size, err := filesBelow(filepath.Join(dir, "videos"))
	if err != nil || size == 0 {
		return err
	}
	opt.Options["video_file_bytes"] = strconv.FormatInt(size/int64(r.Files)+size/64, 10)
	_, err = write()
	return err
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
func (s *Sets) once(to string, make func() error) (string, error) {
	if exists(to + ".made") {
		return to, nil
	}
	if err := os.RemoveAll(to); err != nil { // a killed run may have left it
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

// synthRecipe is a synthetic set: options of synth, and of the writer of its format.
type synthRecipe struct {
	synth.Options
	WriteOptions map[string]string `json:"write_options"`
}

// write makes the set at dst.
func (r *synthRecipe) write(ctx context.Context, dst string) error {
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

// HDF5 makes robomimic's file of the table.
func (s *Sets) HDF5(ctx context.Context) (string, error) {
	root, err := s.Path(ctx, "table")
	if err != nil {
		return "", err
	}
	return s.once(filepath.Join(s.folder(), "table.hdf5"), func() error {
		ds, err := robocache.Open(ctx, root, robocache.OpenOptions{})
		if err != nil {
			return err
		}
		defer ds.Close()
		_, err = convert.Write(
			ctx,
			ds,
			"robomimic",
			filepath.Join(s.folder(), "table.hdf5"),
			convert.Options{},
		)
		return err
	})
}

// formatData makes the data of cases of `robocache-bench formats` once, and says where it lies.
func (s *Sets) formatData(ctx context.Context, kind string) (string, error) {
	dir := filepath.Join(s.Work, "formats", kind)
	return s.once(dir, func() error {
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
						"it is made of the shared data's %s, which is not here",
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
		for name, recipe := range tables().HDF5 {
			if err := recipe.write(ctx, filepath.Join(dir, name+".hdf5")); err != nil {
				return err
			}
		}
		return nil
	})
}

// Train makes a set that training learns from by default.
func (s *Sets) Train(ctx context.Context, name string, tiny bool) (_ string, err error) {
	r := tables().TrainSets[name]
	dir, recipe := filepath.Join(s.Work, "train", r.Name), r.Whole
	if tiny {
		dir, recipe = filepath.Join(s.Work, "train-tiny", r.Name), r.Tiny
	}
	return s.once(dir, func() error {
		return recipe.write(ctx, dir)
	})
}

func exists(path string) bool { _, err := os.Stat(path); return !errors.Is(err, fs.ErrNotExist) }
