package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
)

// folders are datasets whose files are found by listing: name → real file, and the files that are
// replaced by other objects.
var folders = map[string]struct {
	files   map[string]string
	victims []string
}{
	"aloha": {
		map[string]string{
			"episode_0.hdf5": "aloha_like/episode_0.hdf5",
			"episode_1.hdf5": "aloha_like/episode_1.hdf5",
		},
		[]string{"episode_0.hdf5", "episode_1.hdf5"},
	},
	"robomimic": {
		map[string]string{
			"a_0.hdf5": "robomimic_like/earliest_gzip.hdf5",
			"a_1.hdf5": "robomimic_like/earliest_gzip.hdf5",
		},
		[]string{"a_0.hdf5", "a_1.hdf5"},
	},
	"hdf5": {
		map[string]string{"a_0.h5": "hdf5_features/v108.hdf5", "a_1.h5": "hdf5_features/v108.hdf5"},
		[]string{"a_0.h5", "a_1.h5"},
	},
	"kitti": {
		map[string]string{
			"velodyne/000000.bin": "pointclouds/kitti/000000.bin",
			"velodyne/000001.bin": "pointclouds/kitti/000000.bin",
		},
		[]string{"velodyne/000000.bin", "velodyne/000001.bin"},
	},
	"nuscenes": {
		map[string]string{
			"samples/LIDAR_TOP/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083900561.pcd.bin": "pointclouds/nuscenes/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083900561.pcd.bin",
			"samples/LIDAR_TOP/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083950561.pcd.bin": "pointclouds/nuscenes/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083900561.pcd.bin",
		},
		[]string{
			"samples/LIDAR_TOP/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083950561.pcd.bin",
		},
	},
	"mcap": {
		map[string]string{
			"a_0.mcap": "rosbag2/py/mcap/talker/talker.mcap",
			"a_1.mcap": "rosbag2/py/mcap/talker/talker.mcap",
		},
		[]string{"a_0.mcap", "a_1.mcap"},
	},
	"rosbag2": {
		map[string]string{
			"a_0.db3":         "rosbag2/py/sqlite3/talker/talker.db3",
			"b/metadata.yaml": "rosbag2/py/sqlite3/wbag/metadata.yaml",
			"b/wbag_0.db3":    "rosbag2/py/sqlite3/wbag/wbag_0.db3",
			"b/wbag_1.db3":    "rosbag2/py/sqlite3/wbag/wbag_1.db3",
			"b/wbag_2.db3":    "rosbag2/py/sqlite3/wbag/wbag_2.db3",
			"b/wbag_3.db3":    "rosbag2/py/sqlite3/wbag/wbag_3.db3",
			"b/wbag_4.db3":    "rosbag2/py/sqlite3/wbag/wbag_4.db3",
		},
		[]string{"a_0.db3", "b/wbag_0.db3", "b/metadata.yaml"},
	},
	"calvin": {
		map[string]string{
			"episode_0000000.npz": "calvin_like/training/episode_0000000.npz",
			"episode_0000001.npz": "calvin_like/training/episode_0000001.npz",
			"episode_0000002.npz": "calvin_like/training/episode_0000002.npz",
		},
		[]string{"episode_0000000.npz", "episode_0000001.npz", "episode_0000002.npz"},
	},
	"rlds": {
		map[string]string{
			"1.0.0/features.json":                                "bridge_rlds/bridge_dataset/1.0.0/features.json",
			"1.0.0/dataset_info.json":                            "bridge_rlds/bridge_dataset/1.0.0/dataset_info.json",
			"1.0.0/bridge_dataset-train.tfrecord-00000-of-00001": "bridge_rlds/bridge_dataset/1.0.0/bridge_dataset-train.tfrecord-00000-of-00001",
			"1.0.0/bridge_dataset-val.tfrecord-00000-of-00001":   "bridge_rlds/bridge_dataset/1.0.0/bridge_dataset-val.tfrecord-00000-of-00001",
		},
		[]string{"1.0.0/bridge_dataset-train.tfrecord-00000-of-00001", "1.0.0/features.json"},
	},
	"zarr": {
		map[string]string{
			".zgroup":                   "diffusion_policy_zarr/replay_buffer.zarr/.zgroup",
			"data/.zgroup":              "diffusion_policy_zarr/replay_buffer.zarr/data/.zgroup",
			"meta/.zgroup":              "diffusion_policy_zarr/replay_buffer.zarr/meta/.zgroup",
			"data/action/.zarray":       "diffusion_policy_zarr/replay_buffer.zarr/data/action/.zarray",
			"data/action/0.0":           "diffusion_policy_zarr/replay_buffer.zarr/data/action/0.0",
			"meta/episode_ends/.zarray": "diffusion_policy_zarr/replay_buffer.zarr/meta/episode_ends/.zarray",
			"meta/episode_ends/0":       "diffusion_policy_zarr/replay_buffer.zarr/meta/episode_ends/0",
		},
		[]string{"data/action/0.0", "data/action/.zarray"},
	},
	"lerobot": {
		map[string]string{
			info:                 small + "/" + info,
			eptab:                small + "/" + eptab,
			"meta/tasks.parquet": small + "/meta/tasks.parquet",
			"meta/stats.json":    small + "/meta/stats.json",
			table:                small + "/" + table,
			mp4:                  small + "/" + mp4,
		},
		[]string{table, mp4, eptab, "meta/tasks.parquet", "meta/stats.json"},
	},
}

// faults opens a dataset as doctor does and returns its problems and its number of episodes.
func faults(
	t *testing.T,
	dir, format string,
	opt robocache.OpenOptions,
) (said []string, episodes int) {
	t.Helper()
	if opt.Options = nil; format == "rlds" {
		opt.Options = map[string]string{"split": "all"}
	}
	ds, err := robocache.Open(t.Context(), dir, opt)
	if err != nil {
		sound(t, err)
		return []string{err.Error()}, 0
	}
	defer ds.Close()
	if got := ds.Info().Format; got != format {
		t.Errorf("opened as %s", got)
	}
	findings, err := diagnose.Run(t.Context(), ds, robocache.DiagnoseOptions{})
	if err != nil {
		sound(t, err)
		return []string{err.Error()}, 0
	}
	for _, f := range findings {
		if f.Severity == robocache.SeverityError {
			said = append(said, fmt.Sprint(f.Code, " ", f.Where, " ", f.Message))
		}
	}
	return said, ds.Info().Episodes
}

// trains reads an epoch as training does.
func trains(t *testing.T, dir, format, onBad string, follow bool) (loader.Stats, error) {
	t.Helper()
	opt := robocache.OpenOptions{FollowLinks: follow}
	switch format {
	case "rlds":
		opt.Options = map[string]string{"split": "all"}
	case "hdf5": // the files have no clock
		opt.HZ = robocache.Rate{Num: 10, Den: 1}
	}
	ds, err := robocache.Open(t.Context(), dir, opt)
	if err != nil {
		return loader.Stats{}, err
	}
	defer ds.Close()
	cfg := loader.Config{
		Order: loader.Order{
			BatchSize:    2,
			OnBadEpisode: loader.OnBad(onBad),
			Split:        robocache.SplitAll,
		},
	}
	if _, err := video.ActiveBackend(); err != nil {
		cfg.Keys = []string{}
		for _, f := range ds.Info().Features {
			if f.Kind != robocache.KindVideo {
				cfg.Keys = append(cfg.Keys, f.Key)
			}
		}
	}
	m, err := loader.NewMap(t.Context(), ds, cfg)
	if err == nil {
		m.Close()
	}
	l, lerr := loader.New(t.Context(), ds, cfg)
	if (err == nil) != (lerr == nil) {
		t.Errorf("a map: %v; a loader: %v", err, lerr)
	}
	if lerr != nil {
		return loader.Stats{}, lerr
	}
	defer l.Close()
	for {
		b, err := l.Next(t.Context())
		if err == io.EOF {
			return l.Stats(), nil
		}
		if err != nil {
			return l.Stats(), err
		}
		b.Release()
	}
}

// e2e.C3: a truncated RLDS shard stops training with an error that names it. With skip, training
// continues without the lost episodes and lists them.
func TestCutShardStopsTraining(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "set")
	const victim = "bridge_dataset-train.tfrecord-00000-of-00001"
	for name, from := range folders["rlds"].files {
		b, err := os.ReadFile(realdata.Path(t, from))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(name) == victim {
			b = b[:len(b)-100]
		}
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := trains(t, dir, "rlds", "error", false); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), victim) {
		t.Errorf("training says %v", err)
	}
	stats, err := trains(t, dir, "rlds", "skip", false)
	if err != nil || stats.Samples == 0 ||
		!strings.Contains(fmt.Sprint(stats.BadEpisodes), victim) {
		t.Errorf("with skip: %v, %d samples, %v", err, stats.Samples, stats.BadEpisodes)
	}
}

// e2e.C3: if another object replaces a listed file, there is an error that names it. The file does
// not vanish silently.
func TestNothingVanishes(t *testing.T) {
	for format, set := range folders {
		t.Run(format, func(t *testing.T) {
			data := map[string][]byte{}
			for name, from := range set.files {
				b, err := os.ReadFile(realdata.Path(t, from))
				if err != nil {
					t.Fatal(err)
				}
				data[name] = b
			}
			write := func(dir, name string) {
				t.Helper()
				p := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, data[name], 0o644); err != nil {
					t.Fatal(err)
				}
			}
			outside := t.TempDir()
			dir := t.TempDir()
			for name := range data {
				write(outside, name)
				write(dir, name)
			}
			whole, err := trains(t, dir, format, "error", false)
			if err != nil {
				t.Fatalf("the whole set: %v", err)
			}
			before, episodes := faults(t, dir, format, robocache.OpenOptions{})
			for _, victim := range set.victims {
				for what, make := range map[string]func(p string) error{
					"dangling link": func(p string) error {
						return os.Symlink("nowhere/"+filepath.Base(victim), p)
					},
					"link to outside": func(p string) error {
						return os.Symlink(filepath.Join(outside, victim), p)
					},
					"FIFO":   func(p string) error { return syscall.Mkfifo(p, 0o644) },
					"folder": func(p string) error { return os.Mkdir(p, 0o755) },
					"dangling, outside": func(p string) error {
						return os.Symlink("../../../../annex/objects/x", p)
					},
				} {
					dir := filepath.Join(t.TempDir(), "set")
					for name := range data {
						if name != victim {
							write(dir, name)
						}
					}
					if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, victim)), 0o755); err !=
						nil {
						t.Fatal(err)
					}
					if err := make(filepath.Join(dir, victim)); err != nil {
						t.Fatal(err)
					}
					said, _ := faults(t, dir, format, robocache.OpenOptions{})
					unused := victim == "meta/stats.json" // training on raw values does not use it
					if _, err := trains(t, dir, format, "error", false); !unused && (err == nil ||
						!strings.Contains(err.Error(), filepath.Base(victim)) ||
						!errors.Is(err, robocache.ErrMalformed)) {
						t.Errorf("%s for %s: training says %v", what, victim, err)
					}
					stats, err := trains(t, dir, format, "skip", false)
					if listed := fmt.Sprint(err, stats.BadEpisodes); !unused &&
						!strings.Contains(listed, filepath.Base(victim)) {
						t.Errorf("%s for %s: with skip %s", what, victim, listed)
					}
					sameAnchor := format != "rosbag2" // its two recordings have different topics
					if err == nil && !unused && sameAnchor && stats.Samples >= whole.Samples {
						t.Errorf(
							"%s for %s: %d samples of %d",
							what,
							victim,
							stats.Samples,
							whole.Samples,
						)
					}
					if all := strings.Join(said, "\n"); !strings.Contains(all,
						filepath.Base(victim)) {
						t.Errorf("%s for %s is not named: %q", what, victim, all)
					} else if what == "link to outside" {
						if !strings.Contains(all, "link") {
							t.Errorf("%s for %s: %q", what, victim, all)
						}
						if said, n := faults(t, dir, format,
							robocache.OpenOptions{FollowLinks: true}); len(said) != len(before) ||
							n != episodes {
							t.Errorf(
								"%s is followed: %d episodes of %d, %q",
								victim,
								n,
								episodes,
								said,
							)
						}
						if got, err := trains(t, dir, format, "error", true); err != nil ||
							got.Samples != whole.Samples {
							t.Errorf(
								"%s is followed: %d samples of %d, %v",
								victim,
								got.Samples,
								whole.Samples,
								err,
							)
						}
					}
				}
			}
			// In the cache of the hub, each file is a link to a blob next to the snapshots. It
			// needs no flag.
			hub := filepath.Join(t.TempDir(), "datasets--o--n")
			snapshot := filepath.Join(hub, "snapshots", "c0ffee")
			n := 0
			for name, b := range data {
				n++
				blob := filepath.Join(hub, "blobs", fmt.Sprint("b", n))
				for _, dir := range []string{
					filepath.Dir(blob),
					filepath.Dir(filepath.Join(snapshot, name)),
				} {
					if err := os.MkdirAll(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(blob, b, 0o644); err != nil {
					t.Fatal(err)
				}
				to, err := filepath.Rel(filepath.Dir(filepath.Join(snapshot, name)), blob)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, filepath.Join(snapshot, name)); err != nil {
					t.Fatal(err)
				}
			}
			if said, n := faults(t, snapshot, format, robocache.OpenOptions{}); len(said) !=
				len(before) || n != episodes {
				t.Errorf("a snapshot of the hub's cache: %d episodes of %d, %q", n, episodes, said)
			}
			if got, err := trains(t, snapshot, format, "error", false); err != nil ||
				got.Samples != whole.Samples {
				t.Errorf(
					"a snapshot of the hub's cache: %d samples of %d, %v",
					got.Samples,
					whole.Samples,
					err,
				)
			}
		})
	}
}

// TestMissingStorage checks that the error names the files of a bag that were not fetched.
func TestMissingStorage(t *testing.T) {
	b := []byte(
		"rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n  " +
			"relative_file_paths:\n    - run_0.db3\n  duration:\n    nanoseconds: 1\n  " +
			"starting_time:\n    nanoseconds_since_epoch: 1\n  message_count: 0\n  " +
			"topics_with_message_count: []\n  compression_format: \"\"\n  compression_mode: \"\"\n",
	)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "metadata.yaml"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := robocache.Open(t.Context(), dir)
	if !errors.Is(err, robocache.ErrNotFound) || !strings.Contains(err.Error(), "run_0.db3") {
		t.Error(err)
	}
}
