package stats_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

func open(t *testing.T, name string) (robocache.Dataset, string, string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	path := realdata.Path(t, name)
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds, path, filepath.Join(dir, ".venv", "bin", "python")
}

// numpyScript computes the expected statistics with NumPy, from every row of the Parquet files and
// from the images of SampleFrames, decoded by PyAV.
const numpyScript = `
import sys, json, glob
import numpy as np, pyarrow.parquet as pq
root = sys.argv[1]
def stats(x):
    x = np.asarray(x, dtype=np.float64)
    m = x.astype(np.longdouble)
    q = np.quantile(x, [.01, .1, .5, .9, .99], axis=0)
    d = dict(min=x.min(0), max=x.max(0), mean=m.mean(0).astype(np.float64), std=m.std(0).astype(np.float64), q01=q[0], q10=q[1], q50=q[2], q90=q[3], q99=q[4])
    return {k: np.atleast_1d(v).tolist() for k, v in d.items()}
out, lengths = {}, {}
cols = {}
for p in sorted(glob.glob(root + "/data/*/*.parquet")):
    t = pq.read_table(p)
    for n in t.column_names:
        cols.setdefault(n, []).extend(t.column(n).to_pylist())
for n, v in cols.items():
    if not isinstance(v[0], (str, dict)):
        out[n] = stats(v)
for e in cols["episode_index"]:
    lengths[e] = lengths.get(e, 0) + 1
if len(sys.argv) > 2:
    import av
    key = sys.argv[2]
    frames = []
    for e in json.loads(sys.argv[3]):
        n = lengths[e]
        k = max(min(n, 100), min(int(n ** .75), 10000))
        want = set(np.round(np.linspace(0, n - 1, k)).astype(int).tolist())
        with av.open(glob.glob(f"{root}/videos/*/{key}/episode_{e:06d}.mp4")[0]) as c:
            for i, f in enumerate(c.decode(video=0)):
                if i in want:
                    frames.append(f.to_ndarray(format="rgb24"))
    f = np.stack(frames).reshape(-1, 3)
    out[key] = stats(f / 255.0)
    out[key]["count"] = [len(frames)]
print(json.dumps(out))
`

// TestComputeAgainstNumPy covers stats.S1, stats.S2 and stats.S4 on a real dataset: rows through
// Gather, images through the decoder.
func TestComputeAgainstNumPy(t *testing.T) {
	for name, camera := range map[string]string{
		"g1_v21":               "",
		"gr00t_picknplace_v20": "observation.images.ego_view",
		"g1_v30_drift":         "",
	} {
		t.Run(name, func(t *testing.T) {
			ds, path, py := open(t, name)
			if _, err := os.Stat(py); err != nil {
				t.Skipf("no Python with NumPy: %v", err)
			}
			opt := stats.Options{Frames: stats.NoFrames}
			args := []string{"-c", numpyScript, path}
			if camera != "" {
				if _, err := video.ActiveBackend(); err != nil {
					t.Skip(err)
				}
				args = append(args, camera, "[1]")
			}
			got, err := stats.Compute(t.Context(), ds, opt)
			if err != nil {
				t.Fatal(err)
			}
			if camera != "" {
				// Only one episode, because NumPy takes a minute for the quantiles of all pixels.
				look, err := stats.Compute(
					t.Context(),
					ds,
					stats.Options{Keys: []string{camera}, Episodes: []int{1}},
				)
				if err != nil {
					t.Fatal(err)
				}
				got[camera] = look[camera]
			}
			text, err := exec.Command(py, args...).Output()
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]map[string][]float64
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			compared := 0
			for key, w := range want {
				fs := got[key]
				if fs == nil {
					t.Errorf("no statistics of %s", key)
					continue
				}
				if c := w["count"]; c != nil && fs.Count != int64(c[0]) {
					t.Errorf("%s: %d images, want %v", key, fs.Count, c[0])
				}
				for _, n := range stats.Names {
					if n == "count" {
						continue
					}
					v := stats.Vector(fs, n)
					for i, x := range w[n] {
						exact := n != "mean" && n != "std"
						if exact && v[i] != x ||
							math.Abs(v[i]-x) > 1e-9*max(math.Abs(x), w["std"][i]) {
							t.Errorf("%s %s[%d] is %v, NumPy says %v", key, n, i, v[i], x)
						}
						compared++
					}
				}
			}
			t.Logf("%d numbers", compared)
			if camera != "" {
				all := stats.Options{Keys: []string{camera}, Frames: stats.AllFrames, Threads: 2}
				got, err := stats.Compute(t.Context(), ds, all)
				if err != nil {
					t.Fatal(err)
				}
				if n := got[camera].Count; n != ds.Info().Frames {
					t.Errorf("all frames: %d of %d", n, ds.Info().Frames)
				}
			}
		})
	}
}

// TestComputeBudget covers stats.S7: beyond the budget the rows are read again, and the results
// stay the same.
func TestComputeBudget(t *testing.T) {
	ds, _, _ := open(t, "g1_v21")
	a, err := stats.Compute(t.Context(), ds, stats.Options{Frames: stats.NoFrames})
	if err != nil {
		t.Fatal(err)
	}
	b, err := stats.Compute(t.Context(), ds, stats.Options{Frames: stats.NoFrames, Budget: 1})
	if err != nil {
		t.Fatal(err)
	}
	x, _ := stats.Marshal(a)
	y, _ := stats.Marshal(b)
	if string(x) != string(y) {
		t.Error("the budget changes the statistics")
	}
}

// TestComputeNoSuchEpisode checks that a missing episode is rejected, because zeros would look like
// statistics.
func TestComputeNoSuchEpisode(t *testing.T) {
	ds, _, _ := open(t, "g1_v21")
	for _, e := range []int{-1, ds.Info().Episodes} {
		if s, err := stats.Compute(t.Context(), ds,
			stats.Options{Episodes: []int{0, e}, Frames: stats.NoFrames}); !errors.Is(err,
			robocache.ErrMisuse) {
			t.Errorf("episode %d: %v, %v", e, s, err)
		}
	}
}
