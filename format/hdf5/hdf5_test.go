package hdf5

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// write creates files with h5py. It skips the test if there is no h5py.
func write(t *testing.T, script string) string {
	t.Helper()
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with h5py: ", err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(
		t.Context(),
		py,
		"-c",
		"import h5py, numpy as np, io\nfrom PIL import Image\n"+script,
	)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func open(t *testing.T, path string, opt robocache.OpenOptions) robocache.Dataset {
	t.Helper()
	d, err := robocache.Open(t.Context(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if d.Info().Format != "hdf5" {
		t.Fatal(d.Info().Format)
	}
	return d
}

func keysOf(d robocache.Dataset) string {
	var out []string
	for _, f := range d.Info().Features {
		out = append(out, f.Key)
	}
	return strings.Join(out, " ")
}

// TestGroups checks that numbered groups are episodes in the order of their numbers, with the
// length of action (hdf5.G1, hdf5.G2).
func TestGroups(t *testing.T) {
	dir := write(t, `
with h5py.File('t.h5', 'w') as f:
    f.attrs['fps'] = 25.0
    for k in (0, 1, 2, 10):
        g = f.create_group(f'traj_{k}')
        g['actions'] = np.full((4 + k, 2), k, 'f4')
        g['obs/pos'] = np.arange(3 * (4 + k), dtype='>f8').reshape(-1, 3)
        g['obs/rgb'] = np.full((4 + k, 16, 20, 3), k, 'u1')
        g['obs/depth'] = np.full((4 + k, 16, 20), k, 'u2')
        g['extra'] = np.zeros((6 + k, 2))
        g['text'] = [f'{k} {i}' for i in range(4 + k)]
        g['point'] = np.array([(i, i / 2) for i in range(4 + k)], dtype=[('n', '>i4'), ('v', '<f8')])
        g.attrs['instruction'] = f'go {k}'
`)
	d := open(t, filepath.Join(dir, "t.h5"), robocache.OpenOptions{})
	info := d.Info()
	if info.Episodes != 4 || d.Len(3) != 14 || info.FPS.Float() != 25 || len(info.Tasks) != 4 ||
		info.Tasks[3].Text != "go 10" {
		t.Fatalf("%+v", info)
	}
	if got := keysOf(d); got != "actions obs.depth obs.pos obs.rgb point.n point.v text" {
		t.Error(got)
	}
	if f := info.Feature("obs.depth"); f.Kind != robocache.KindImage ||
		f.DType != robocache.Uint16 || f.Channels != 1 {
		t.Errorf("%+v", f)
	}
	if f := info.Findings; len(f) != 1 || f[0].Code != "no-stream" ||
		!strings.Contains(f[0].Message, "[6 2]") {
		t.Error(f)
	}
	pos := make([]byte, 24)
	if err := d.Gather(t.Context(), "obs.pos", []robocache.Row{{Episode: 1, Index: 2}}, pos); err !=
		nil {
		t.Fatal(err)
	}
	if v := robocache.Float64s(nil, robocache.Float64, pos); v[0] != 6 || v[2] != 8 {
		t.Error(v)
	}
	n := make([]byte, 8)
	if err := d.Gather(t.Context(), "point.n",
		[]robocache.Row{{Episode: 3, Index: 13}, {Episode: 0, Index: 1}}, n); err != nil ||
		!bytes.Equal(n, []byte{13, 0, 0, 0, 1, 0, 0, 0}) {
		t.Error(n, err)
	}
	text, err := d.Text(
		t.Context(),
		"text",
		[]robocache.Row{{Episode: 2, Index: 1}, {Episode: 2, Index: 2}},
	)
	if err != nil || text[0] != "2 1" || text[1] != "2 2" {
		t.Error(text, err)
	}
}

// TestClocks reads timestamps of files in their unit. Without timestamps, the error names the rate
// option (hdf5.G4).
func TestClocks(t *testing.T) {
	dir := write(t, `
for k in range(2):
    with h5py.File(f'run{k}.hdf5', 'w') as f:
        f['q'] = np.zeros((3, 2), 'f4')
        f['master/joint'] = np.ones((3, 7), 'f4')
        f['t_us'] = np.array([10, 20, 35], 'i8')
        f['img'] = np.zeros((3, 9, 9), 'f4')
b = io.BytesIO(); Image.fromarray(np.zeros((12, 30, 3), 'u1')).save(b, 'PNG')
with h5py.File('run2.hdf5', 'w') as f:
    f['q'] = np.zeros((1, 2), 'f4'); f['master/joint'] = np.ones((2, 7), 'f4'); f['t_us'] = np.array([10], 'i8'); f['img'] = np.zeros((1, 9, 9), 'f4')
`)
	d := open(t, dir, robocache.OpenOptions{})
	if _, err := d.Times(t.Context(), 0, ""); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "OpenOptions.HZ") {
		t.Error(err)
	}
	d = open(
		t,
		dir,
		robocache.OpenOptions{
			Options: map[string]string{"timestamps": "t_us", "timestamp_unit": "us"},
		},
	)
	ts, err := d.Times(t.Context(), 1, "q")
	if err != nil || ts[0] != 10_000 || ts[2] != 35_000 {
		t.Error(ts, err)
	}
	d = open(
		t,
		dir,
		robocache.OpenOptions{
			Map: &robocache.Mapping{
				Streams: map[string]robocache.StreamMapping{
					"q": {From: []string{"q"}, Clock: "timestamps:t_us", TimestampUnit: "ms"},
				},
			},
		},
	)
	if ts, err = d.Times(t.Context(), 1, ""); err != nil || ts[2] != 35_000_000 {
		t.Error(ts, err)
	}
	// In the third file, master/joint has another length than its q. The error must name it and
	// affect only that stream.
	dst := make([]byte, 28)
	err = d.Gather(t.Context(), "master.joint", []robocache.Row{{Episode: 2}}, dst)
	if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "1 rows") ||
		!strings.Contains(err.Error(), "run2.hdf5") {
		t.Error(err)
	}
	if err = d.Gather(t.Context(), "q", []robocache.Row{{Episode: 2}}, dst[:8]); err != nil {
		t.Error(err)
	}
}

// TestEncoded reads images from rows of bytes of variable length, with and without padding
// (hdf5.G3).
func TestEncoded(t *testing.T) {
	dir := write(t, `
def enc(k, kind):
    b = io.BytesIO(); Image.fromarray(np.full((12, 30, 3), 40 * k, 'u1')).save(b, kind); return np.frombuffer(b.getvalue(), 'u1')
with h5py.File('a.hdf5', 'w') as f:
    v = f.create_dataset('vlen', (3,), dtype=h5py.vlen_dtype(np.uint8))
    for k in range(3): v[k] = enc(k, 'PNG')
    rows = [enc(k, 'JPEG') for k in range(3)]
    a = np.zeros((3, 2000), 'u1')
    for k, r in enumerate(rows): a[k, :len(r)] = r
    a[1] = 0
    f['padded'] = a
    f['numbers'] = np.ones((3, 80), 'u1')
`)
	d := open(t, dir, robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}})
	if k := d.Info().Feature("numbers"); k == nil || k.Kind != robocache.KindNumeric {
		t.Errorf("%+v", k)
	}
	for _, key := range []string{"vlen", "padded"} {
		f := d.Info().Feature(key)
		if f.Kind != robocache.KindImage || f.Height != 12 || f.Width != 30 {
			t.Errorf("%+v", f)
		}
		refs := make([]robocache.FrameRef, 3)
		if err := d.Frames(t.Context(), key, []robocache.Row{{Index: 0}, {Index: 1}, {Index: 2}},
			refs); err != nil {
			t.Fatal(err)
		}
		if refs[1].Missing != (key == "padded") || len(refs[2].Encoded) == 0 ||
			refs[2].Encoded[len(refs[2].Encoded)-1] == 0 {
			t.Errorf("%s %+v", key, refs)
		}
	}
}

// TestFeatures opens the file of HDF5 features. Data sets that are not streams must be reported.
func TestFeatures(t *testing.T) {
	d := open(
		t,
		realdata.Path(t, "hdf5_features/latest.hdf5"),
		robocache.OpenOptions{Options: map[string]string{"length": "layout/contiguous"}},
	)
	if d.Len(0) != 200 || d.Info().Feature("layout.lzf_shuffle") == nil {
		t.Errorf("%+v", d.Info().Features)
	}
}

// TestDiagnose checks that missing streams, odd shapes and undecodable images are reported with
// their episode.
func TestDiagnose(t *testing.T) {
	dir := write(t, `
with h5py.File('t.h5', 'w') as f:
    for k in range(5):
        g = f.create_group(f'ep_{k}')
        g['action'] = np.ones((6, 2), 'f4')
        png = io.BytesIO(); Image.fromarray(np.full((9, 9), 700, 'u2')).save(png, 'PNG')
        g['depth'] = np.frombuffer(png.getvalue().ljust(99, b'\0'), 'u1')[None].repeat(6, 0)
        g.create_dataset('rgb', data=np.full((6, 9, 9, 3), k, 'u1'), chunks=(2, 9, 9, 3), fletcher32=True)
        if k != 2: g['q'] = np.zeros((6 if k != 3 else 5, 1))
with h5py.File('t.h5') as f:
    at = f['ep_4/rgb'].id.get_chunk_info(1).byte_offset
with open('t.h5', 'r+b') as f:
    f.seek(at + 10); f.write(b'\x77')
`)
	d := open(
		t,
		filepath.Join(dir, "t.h5"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	found, err := d.Capabilities().Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	if err != nil {
		t.Fatal(err)
	}
	found = append(found, d.Info().Findings...)
	got := map[string]string{}
	for _, f := range found {
		got[f.Where.String()] = f.Code
	}
	want := map[string]string{
		"2 q":   robocache.LackingStream,
		"3 q":   "bad-stream",
		"4 rgb": "unreadable-rows",
	}
	if len(got) != len(want) {
		t.Error(found)
	}
	for k, code := range want {
		e, key, _ := strings.Cut(k, " ")
		if c := got["file t.h5, episode "+e+", stream "+key]; c != code {
			t.Error(k, c, found)
		}
	}
}

// TestCrowded reads streams whose chunks do not fit into memory together, which decodes them for
// every row. The doctor must report this with a sufficient budget.
func TestCrowded(t *testing.T) {
	dir := write(t, `
rng = np.random.default_rng(0)
with h5py.File('t.h5', 'w') as f:
    for k in range(2):
        g = f.create_group(f'ep_{k}')
        for key in 'abc':
            g.create_dataset(key, data=rng.integers(0, 255, (64, 10_000), 'u1'), chunks=(64, 10_000), compression=1)
`)
	for _, c := range []struct {
		budget   int64
		thrashes bool
	}{{1 << 20, true}, {3 << 20, false}} {
		d := open(
			t,
			filepath.Join(dir, "t.h5"),
			robocache.OpenOptions{HZ: robocache.Rate{Num: 10, Den: 1}, MemoryBudget: c.budget},
		)
		found, err := d.Capabilities().Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range found {
			if f.Code == "chunks-above-memory" {
				n++
				if !strings.Contains(f.Hint, "3 MiB") {
					t.Error(f)
				}
			}
		}
		if n != map[bool]int{true: 1}[c.thrashes] {
			t.Errorf("budget %d: %v", c.budget, found)
		}
		cache := d.(interface{ CacheStats() h5.CacheStats })
		b := make([]byte, 10_000)
		var before int64 // reads for opening the data sets and for their first chunks
		for row := range 64 {
			for _, key := range []string{"a", "b", "c"} {
				if err := d.Gather(t.Context(), key, []robocache.Row{{Episode: 0, Index: row}},
					b); err != nil {
					t.Fatal(err)
				}
			}
			if row == 0 {
				before = cache.CacheStats().Loads
			}
		}
		if loads := cache.CacheStats().Loads - before; c.thrashes != (loads >= 3*63) ||
			!c.thrashes && loads > 0 {
			t.Errorf("budget %d: %d loads for 63 more rows of 3 streams", c.budget, loads)
		}
	}
}

// TestOneMore checks that ManiSkill's observations, which have one row more than the actions, lose
// their last row, and that a finding names it (hdf5.G3).
func TestOneMore(t *testing.T) {
	dir := write(t, `
with h5py.File('t.h5', 'w') as f:
    for k in range(3):
        g = f.create_group(f'traj_{k}')
        n = 4 + k
        g['actions'] = np.full((n, 2), k, 'f4')
        g['obs/agent/qpos'] = np.arange(n + 1, dtype='f4')[:, None] + 100 * k if k < 2 else np.zeros((n, 1), 'f4')
        g['obs/sensor_data/base/rgb'] = np.full((n + 1, 16, 16, 3), k, 'u1')
        g['env_states'] = np.zeros((n + 1, 3))
        g['success'] = np.zeros(n, '?')
        g['odd'] = np.zeros(n + 2)
`)
	d := open(
		t,
		filepath.Join(dir, "t.h5"),
		robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}},
	)
	if got := keysOf(d); got !=
		"actions env_states obs.agent.qpos obs.sensor_data.base.rgb success" {
		t.Fatal(got)
	}
	rows := []robocache.Row{{Episode: 1, Index: 0}, {Episode: 1, Index: 4}}
	b := make([]byte, 8)
	if err := d.Gather(t.Context(), "obs.agent.qpos", rows, b); err != nil {
		t.Fatal(err)
	}
	if v := robocache.Float64s(nil, robocache.Float32, b); v[0] != 100 || v[1] != 104 {
		t.Error(v)
	}
	if err := d.Gather(t.Context(), "obs.agent.qpos", []robocache.Row{{Episode: 1, Index: 5}},
		b[:4]); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("the row after the last action:", err)
	}
	if err := d.Gather(t.Context(), "obs.agent.qpos", []robocache.Row{{Episode: 2}},
		b[:4]); !errors.Is(err, robocache.ErrMalformed) {
		t.Error("an episode without the last observation:", err)
	}
	found := 0
	for _, f := range d.Info().Findings {
		if f.Code == "last-observation" && f.Count == 3 &&
			strings.Contains(f.Message, "obs.agent.qpos") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%+v", d.Info().Findings)
	}
}
