package clouds_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/clouds"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

const points = "observation.points"

func TestSuite(t *testing.T) {
	formattest.Run(
		t,
		formattest.Fixture{URI: realdata.Path(t, "pointclouds/kitti"), Format: "kitti"},
		formattest.Fixture{URI: realdata.Path(t, "pointclouds/nuscenes"), Format: "nuscenes"},
	)
}

// TestOracle compares every column of every scan with NumPy (clouds.P1, clouds.P2).
func TestOracle(t *testing.T) {
	dir := realdata.Path(t, "pointclouds")
	b, err := os.ReadFile(filepath.Join(dir, "oracle/points.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, format := range []string{"kitti", "nuscenes"} {
		d, err := clouds.Open(
			t.Context(),
			filepath.Join(dir, format),
			format,
			robocache.OpenOptions{},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		files := map[int64]string{} // by number of points
		for name, raw := range o {
			var f struct{ Points int64 }
			if strings.HasPrefix(name, format) && json.Unmarshal(raw, &f) == nil {
				files[f.Points] = name
			}
		}
		var names []string
		_ = json.Unmarshal(d.Info().Features[0].Names, &names)
		for e := range d.Info().Episodes {
			for k := range d.Len(e) {
				data, counts, err := d.GatherRagged(
					t.Context(),
					points,
					[]robocache.Row{{Episode: e, Index: k}},
				)
				if err != nil {
					t.Fatal(err)
				}
				var want struct {
					Columns map[string]struct{ SHA256 string }
				}
				if err := json.Unmarshal(o[files[int64(counts[0])]], &want); err != nil {
					t.Fatal(counts[0], err)
				}
				for c, name := range names {
					h := sha256.New()
					for p := range counts[0] {
						h.Write(data[(p*len(names)+c)*4:][:4])
					}
					if got := hex.EncodeToString(h.Sum(nil)); got != want.Columns[name].SHA256 {
						t.Errorf("%s %d %d: %s differs", format, e, k, name)
					}
					checked++
				}
			}
		}
		if format == "nuscenes" {
			ts, err := d.Times(t.Context(), 1, "")
			if err != nil || len(ts) != 1 || ts[0] != 1532402927647951000 {
				t.Error(ts, err)
			}
		}
	}
	if checked != 2*4+2*5 {
		t.Error(checked, "columns checked")
	}
}

func scan(rows ...[4]float32) []byte {
	var b []byte
	for _, r := range rows {
		for _, v := range r {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTimestampsAndDamage checks clouds.P2, clouds.P3 and clouds.P4, and truncated files.
func TestTimestampsAndDamage(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(-1))
	dir := folder(t, map[string][]byte{
		"drive/velodyne_points/data/0000000000.bin": scan(
			[4]float32{1, 2, 3, 4},
			[4]float32{nan, 2, 3, 4},
			[4]float32{5, 6, 7, nan},
			[4]float32{1, 2, inf, 4},
		),
		"drive/velodyne_points/data/0000000002.bin": {},
		"drive/velodyne_points/data/0000000003.bin": scan([4]float32{9, 9, 9, 9})[:15],
		"drive/velodyne_points/timestamps.txt": []byte(
			"2011-09-26 13:02:25.951199337\n\n2011-09-26 13:02:26.1\n2011-09-26 13:02:26.2\n",
		),
		"drive/image_00/data/0000000000.png": {},
	})
	d, err := clouds.Open(t.Context(), dir, "kitti", robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ts, err := d.Times(t.Context(), 0, points)
	if err != nil || len(ts) != 3 || ts[0] != 1317042145951199337 || ts[1] != 1317042146100000000 {
		t.Error(ts, err)
	}
	data, counts, err := d.GatherRagged(
		t.Context(),
		points,
		[]robocache.Row{{Index: 1}, {Index: 0}, {Index: 1}, {Index: 0}},
	)
	if err != nil || counts[0] != 0 || counts[1] != 2 || counts[3] != 2 || len(data) != 64 {
		t.Error(counts, len(data), err)
	}
	if want := scan([4]float32{1, 2, 3, 4}); string(data[32:48]) != string(want) {
		t.Errorf("% x", data)
	}
	_, _, err = d.GatherRagged(t.Context(), points, []robocache.Row{{Index: 2}})
	if !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "the remainder is 15 bytes") {
		t.Error(err)
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	codes := map[string]int64{}
	for _, f := range found {
		codes[f.Code] += max(f.Count, 1)
		if f.Code == "not-finite" && (f.Where["episode"] != int64(0) || f.Where["row"] != 0) {
			t.Errorf("place of %+v, want row 0 of episode 0", f)
		}
	}
	if err != nil || codes["bad-scan"] != 1 || codes["not-finite"] != 2 ||
		codes["empty-clouds"] != 1 {
		t.Error(found, err)
	}
	// The size of the same file is not a multiple of points with five columns.
	five, err := clouds.Open(
		t.Context(),
		dir,
		"kitti",
		robocache.OpenOptions{Options: map[string]string{"columns": "x,y,z,intensity,ring"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer five.Close()
	if _, _, err := five.GatherRagged(t.Context(), points,
		[]robocache.Row{{Index: 0}}); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	small, err := clouds.Open(t.Context(), dir, "kitti", robocache.OpenOptions{MemoryBudget: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if _, _, err := small.GatherRagged(t.Context(), points,
		[]robocache.Row{{Index: 0}, {Index: 0}}); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Error(err)
	}
}

// TestDetected checks that KITTI's trees are detected at their roots for any names of drives, and
// that a folder of other .bin files is not.
func TestDetected(t *testing.T) {
	for file, want := range map[string]string{
		"000000.bin":                                "kitti",
		"training/velodyne/000000.bin":              "kitti",
		"07/velodyne/000000.bin":                    "kitti",
		"sequences/08/velodyne/000000.bin":          "kitti",
		"dataset/sequences/21/velodyne/000000.bin":  "kitti",
		"drive/velodyne_points/data/0000000000.bin": "kitti",
		"2011_09_26/2011_09_26_drive_0001_sync/velodyne_points/data/0000000000.bin": "kitti",
		"samples/LIDAR_TOP/n008-2018-08-01-15-16-36-0400__LIDAR_TOP__1.pcd.bin":     "nuscenes",
		"a/b/velodyne/000000.bin": "",
		"weights/model.bin":       "",
	} {
		ds, err := robocache.Open(
			t.Context(),
			folder(t, map[string][]byte{file: scan([4]float32{1, 2, 3, 4})}),
			robocache.OpenOptions{},
		)
		if want == "" {
			if !errors.Is(err, robocache.ErrNotFound) {
				t.Error(file, err)
			}
			continue
		}
		if err != nil {
			t.Error(file, err)
			continue
		}
		if ds.Info().Format != want {
			t.Error(file, ds.Info().Format)
		}
		ds.Close()
	}
}

// TestBadTimestamps checks that a malformed file of timestamps is an error with its line.
func TestBadTimestamps(t *testing.T) {
	for text, line := range map[string]string{
		"0.1\nx\n":   "line 2",
		"0.2\n0.1\n": "line 2",
		"1e300\n2\n": "line 1",
		"NaN\n1\n":   "line 1",
	} {
		dir := folder(
			t,
			map[string][]byte{
				"velodyne/000000.bin": {},
				"velodyne/000001.bin": {},
				"times.txt":           []byte(text),
			},
		)
		_, err := clouds.Open(t.Context(), dir, "kitti", robocache.OpenOptions{})
		if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestListOfTimestamps checks that as many times as scans are assigned in order, and that a blank
// line keeps its position. Other lists are errors that contain both counts. A list without times is
// ignored.
func TestListOfTimestamps(t *testing.T) {
	for _, c := range []struct {
		names string
		text  string
		times []int64 // in ms; nil means an error
		code  string
	}{
		{"000000 000001 000002", "0.5\n0.6\n0.7\n", []int64{500, 600, 700}, ""},
		{"000007 000008 000012", "0.5\n0.6\n0.7", []int64{500, 600, 700}, ""},
		{"000000 000001 000002", "0.5\n0.6\n0.7\n\n\n", []int64{500, 600, 700}, ""},
		// A lost scan has no file: the line stays blank.
		{"000000 000001 000003 000004", "0.5\n0.6\n\n0.8\n0.9\n", []int64{500, 600, 800, 900}, ""},
		{
			"000001 000002 000004 000005",
			"0.5\n0.6\n  \n0.8\n0.9\n",
			[]int64{500, 600, 800, 900},
			"",
		},
		// A file whose line is blank has no time.
		{
			"000000 000001 000002 000003",
			"0.5\n\n0.7\n0.8\n",
			[]int64{500, 700, 800},
			"short-timestamps",
		},
		{"000000 000001 000002", "\n0.6\n0.7\n", []int64{600, 700}, "short-timestamps"},
		{"000000 000001 000002", "0.5\n0.6\n\n", []int64{500, 600}, "short-timestamps"},
		{"000000 000001", "\n\n", []int64{0, 100}, "no-timestamps"},
		{"000000 000001 000002", "0.5\n0.7\n", nil, "2 timestamps in 2 lines for 3 scans"},
		{"000000 000002", "0.5\n0.6\n0.7\n", nil, "3 timestamps in 3 lines for 2 scans"},
		{
			"000000 000001 000002 000003",
			"0.5\n0.6\n\n0.8\n0.9\n",
			nil,
			"4 timestamps in 5 lines for 4 scans",
		},
		{
			"000000 000001 000002",
			"0.5\n\n0.7\n0.8\n0.9\n",
			nil,
			"4 timestamps in 5 lines for 3 scans",
		},
		{"000010", "1\n2\n3\n", nil, "3 timestamps in 3 lines for 1 scans"},
	} {
		files := map[string][]byte{"times.txt": []byte(c.text)}
		for i, n := range strings.Fields(c.names) {
			files["velodyne/"+n+".bin"] = scan([4]float32{float32(i), 0, 0, 0})
		}
		d, err := clouds.Open(t.Context(), folder(t, files), "kitti", robocache.OpenOptions{})
		if c.times == nil {
			if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), c.code) ||
				!strings.Contains(err.Error(), "times.txt") {
				t.Errorf("%v %q: %v", c.names, c.text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v %q: %v", c.names, c.text, err)
			continue
		}
		code := ""
		for _, f := range d.Info().Findings {
			code = f.Code
		}
		times, err := d.Times(t.Context(), 0, "")
		for i := range times {
			times[i] /= 1e6
		}
		if err != nil || !slices.Equal(times, c.times) || d.Len(0) != len(c.times) ||
			code != c.code {
			t.Errorf("%v %q: %v, finding %q, %v", c.names, c.text, times, code, err)
		}
		if c.text[0] == '\n' && c.code == "short-timestamps" { // the first row is the second file
			data, _, err := d.GatherRagged(t.Context(), points, []robocache.Row{{}})
			if err != nil || string(data) != string(scan([4]float32{1, 0, 0, 0})) {
				t.Errorf("% x %v", data, err)
			}
		}
		d.Close()
	}
}

// TestInsideKITTI opens velodyne_points of a raw drive, and the folder of scans itself, with the
// timestamps next to it.
func TestInsideKITTI(t *testing.T) {
	for _, c := range []struct{ scans, timestamps, open string }{
		{"velodyne_points/data", "velodyne_points/timestamps.txt", "velodyne_points"},
		{"velodyne_points/data", "velodyne_points/timestamps.txt", "velodyne_points/data"},
		{"sequences/00/velodyne", "sequences/00/times.txt", "sequences/00/velodyne"},
		{"velodyne_points/data", "velodyne_points/timestamps.txt", ""},
	} {
		dir := folder(
			t,
			map[string][]byte{
				c.scans + "/0000000000.bin": make([]byte, 16),
				c.scans + "/0000000001.bin": make([]byte, 16),
				c.timestamps:                []byte("0.5\n0.7\n"),
			},
		)
		d, err := robocache.Open(t.Context(), dir+"/"+c.open, robocache.OpenOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.open, err)
			continue
		}
		times, err := d.Times(t.Context(), 0, "")
		if err != nil || !slices.Equal(times, []int64{500e6, 700e6}) || d.Info().Format != "kitti" {
			t.Errorf("%s: %v, %v", c.open, times, err)
		}
		d.Close()
	}
}

// npy returns an npy file with an array.
func npy(descr, order, shape string, data []byte) []byte {
	h := "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }"
	for (10+len(h)+1)%64 != 0 {
		h += " "
	}
	h += "\n"
	return append([]byte("\x93NUMPY\x01\x00"+string([]byte{byte(len(h)), 0})+h), data...)
}

// TestArrays checks that points of npy clouds need no rate but their times do. Any float type in
// any order is accepted.
func TestArrays(t *testing.T) {
	var f8 []byte
	for _, v := range []float64{1, 4, 2, 5, 3, math.NaN()} { // columns of two points
		f8 = binary.BigEndian.AppendUint64(f8, math.Float64bits(v))
	}
	dir := folder(t, map[string][]byte{"scan_7.npy": npy(">f8", "True", "(2, 3)", f8)})
	bare, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{Format: "clouds"})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if _, err := bare.Times(t.Context(), 0, ""); !errors.Is(err, robocache.ErrNoClock) {
		t.Error(err)
	}
	d, err := robocache.Open(
		t.Context(),
		dir,
		robocache.OpenOptions{Format: "clouds", HZ: robocache.Rate{Num: 10, Den: 1}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	data, counts, err := robocache.GatherRagged(t.Context(), d, points, []robocache.Row{{}})
	if err != nil || counts[0] != 1 {
		t.Fatal(counts, err)
	}
	if v := robocache.Float64s(nil, robocache.Float64, data); len(v) != 3 || v[0] != 1 ||
		v[1] != 2 || v[2] != 3 {
		t.Error(v)
	}
}
