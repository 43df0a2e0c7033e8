package hdf5

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/aloha"
	_ "github.com/goatnote-inc/robocache/format/robomimic"
)

// TestNumbersOfFiles checks that a folder with one episode per file uses the numbers in the file
// names, if they are unique.
func TestNumbersOfFiles(t *testing.T) {
	const (
		alohaFile = `
def put(name, n):
    with h5py.File(f"{name}.hdf5", "w") as f:
        f["action"] = np.full((4, 2), n, np.float32); f["observations/qpos"] = np.full((4, 2), n, np.float32)
`
		demoFile = `
def put(name, n):
    with h5py.File(f"{name}.hdf5", "w") as f:
        f["data/demo_0/actions"] = np.full((4, 2), n, np.float32); f["data/demo_0/obs/x"] = np.full((4, 2), n, np.float32)
        f["data/demo_0"].attrs["num_samples"] = 4
`
		arrayFile = `
def put(name, n):
    with h5py.File(f"{name}.hdf5", "w") as f:
        f["action"] = np.full((4, 2), n, np.float32); f["state"] = np.full((4, 2), n, np.float32)
`
	)
	for name, c := range map[string]struct {
		script string
		format string
		want   []int64
	}{
		"aloha": {
			alohaFile + `for n in (3, 10, 7): put(f"episode_{n}", n)`,
			"aloha",
			[]int64{3, 7, 10},
		},
		"aloha padded": {
			alohaFile + `for n in (30, 100, 7): put(f"episode_{n:06d}", n)`,
			"aloha",
			[]int64{7, 30, 100},
		},
		"aloha from 0": {
			alohaFile + `for n in range(3): put(f"episode_{n}", n)`,
			"aloha",
			[]int64{0, 1, 2},
		},
		"aloha one": {alohaFile + `put("episode_5", 5)`, "aloha", []int64{5}},
		"aloha twice": {
			alohaFile + `put("demo_4", 0); put("episode_4", 1)`,
			"aloha",
			[]int64{0, 1},
		},
		"aloha no number": {
			alohaFile + `put("episode_4", 0); put("first", 1)`,
			"aloha",
			[]int64{0, 1},
		},
		"demos": {
			demoFile + `for n in (3, 10, 7): put(f"demo_{n}", n)`,
			"robomimic",
			[]int64{3, 7, 10},
		},
		"arrays": {
			arrayFile + `for n in (3, 10, 7): put(f"traj_{n}", n)`,
			"hdf5",
			[]int64{3, 7, 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := robocache.Open(
				t.Context(),
				write(t, c.script),
				robocache.OpenOptions{Format: c.format},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var got []int64
			for e := range d.Info().Episodes {
				ep, err := d.Episode(t.Context(), e)
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 8)
				key := d.Info().Features[0].Key
				if err := d.Gather(t.Context(), key, []robocache.Row{{Episode: e}}, b); err != nil {
					t.Fatal(err)
				}
				if v := robocache.Float64s(nil, robocache.Float32, b); v[0] != float64(ep.Index) {
					t.Errorf("episode %d holds the rows of %v", ep.Index, v[0])
				}
				got = append(got, ep.Index)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("episodes %v, want %v", got, c.want)
			}
			if at, err := d.Info().
				EpisodePosition(c.want[len(c.want)-1]); err != nil ||
				at != len(c.want)-1 {
				t.Errorf("the last episode is at %d: %v", at, err)
			}
		})
	}
}

// TestNumberOfBadFile checks that the finding of an unreadable file contains the number of its
// episode.
func TestNumberOfBadFile(t *testing.T) {
	d, err := robocache.Open(t.Context(), write(t, `
for n in (3, 10):
    with h5py.File(f"episode_{n}.hdf5", "w") as f:
        f["action"] = np.zeros((4, 2), np.float32); f["observations/qpos"] = np.zeros((4, 2), np.float32)
open("episode_7.hdf5", "wb").write(b"\x89HDF\r\n\x1a\n" + bytes(100))
`), robocache.OpenOptions{Format: "aloha"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, f := range d.Info().Findings {
		if f.Code == "unreadable-episode" {
			if f.Where["episode"] != int64(7) || f.Where["file"] != "episode_7.hdf5" {
				t.Errorf("%+v", f)
			}
			return
		}
	}
	t.Errorf("no finding of the file: %+v", d.Info().Findings)
}

// TestCoarseEpochTimes checks that times since 1970 stored as float32 are an error that explains
// it.
func TestCoarseEpochTimes(t *testing.T) {
	dir := write(t, `
with h5py.File("run.hdf5", "w") as f:
    f["action"] = np.zeros((90, 2), np.float32); f["state"] = np.zeros((90, 2), np.float32)
    f["timestamps"] = (1.7e9 + np.arange(90) / 30).astype(np.float32)
`)
	d := open(
		t,
		filepath.Join(dir, "run.hdf5"),
		robocache.OpenOptions{Options: map[string]string{"timestamps": "timestamps"}},
	)
	_, err := d.Times(t.Context(), 0, "action")
	if !errors.Is(err, robocache.ErrNoClock) || !strings.Contains(err.Error(), "float32") {
		t.Error(err)
	}
	if !slices.ContainsFunc(d.Info().Findings, func(f robocache.Finding) bool {
		return f.Code == "timestamp-unit" && strings.Contains(f.Message, "float32")
	}) {
		t.Errorf("%+v", d.Info().Findings)
	}
}
