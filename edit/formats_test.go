package edit_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
)

// The verbs also work on other formats. The result has the same format if it has a writer.
func TestFormats(t *testing.T) {
	for name, at := range map[string]string{
		"rlds":      "bridge_rlds/bridge_dataset/1.0.0",
		"robomimic": "robomimic_like/earliest_contiguous.hdf5",
		"zarr":      "diffusion_policy_zarr/replay_buffer.zarr",
	} {
		t.Run(name, func(t *testing.T) {
			set, file, _ := strings.Cut(at, "/")
			from := filepath.Join(data(t, set), file)
			src := open(t, from)
			dst := filepath.Join(t.TempDir(), filepath.Base(from))
			r, err := edit.Run(
				t.Context(),
				&edit.Request{Sources: []string{from}, DST: dst, Verbs: []edit.Verb{
					{
						Verb:   "delete",
						Choice: edit.Choice{Episodes: "0"},
					},
					{Verb: "trim", From: "2r", To: "-1r", Choice: edit.Choice{Episodes: "2"}},
				}},
			)
			if err != nil {
				t.Fatal(err)
			}
			var places []place
			for e := 1; e < src.Info().Episodes; e++ {
				p := place{e, 0, src.Len(e)}
				if e == 2 {
					p.from, p.n = 2, p.n-3
				}
				places = append(places, p)
			}
			out := open(t, dst)
			if r.Format != name || out.Info().Format != name {
				t.Errorf("%s became %s", name, out.Info().Format)
			}
			same(t, out, src, places, nil)
		})
	}
}

// A recording keeps its clocks: each stream has the samples of the kept time range.
func TestRecording(t *testing.T) {
	from := made(
		t,
		"mcap",
		synth.Options{
			Episodes: 1,
			Seconds:  2,
			Cameras:  -1,
			Rates:    map[string]float64{"camera": 30, "joints": 100, "force": 333},
		},
		nil,
	)
	src := open(t, from)
	dst := filepath.Join(t.TempDir(), "out.mcap")
	if _, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{from}, DST: dst,
		Verbs: []edit.Verb{{Verb: "trim", From: "0.5", To: "-0.5"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := inPlace(t, from, edit.Verb{Verb: "trim", From: "0.5", To: "-0.5"}); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(from); err != nil || !i.Mode().IsRegular() {
		t.Fatal("a file became a folder", err)
	}
	if err := edit.Undo(from); err != nil {
		t.Fatal(err)
	}
	out := open(t, dst)
	if out.Info().Format != "mcap" {
		t.Fatal(out.Info().Format)
	}
	rows, err := out.Times(t.Context(), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range src.Info().Features {
		if f.Clock == "" || out.Info().Feature(f.Key) == nil {
			continue
		}
		all, err := src.Times(t.Context(), 0, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		have, err := out.Times(t.Context(), 0, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		if len(have) == 0 || len(have) >= len(all) || have[0] < rows[0] ||
			!slices.Contains(all, have[0]) ||
			!slices.Contains(all, have[len(have)-1]) {
			t.Errorf("%s: %d of %d samples", f.Key, len(have), len(all))
		}
	}
}

// tasks returns the task of each row of an episode.
func tasks(t *testing.T, ds robocache.Dataset, e int) []string {
	t.Helper()
	out, err := ds.Text(t.Context(), "task", robocache.RowsOf(e, 0, ds.Len(e)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Relabelling changes only the named rows. Unused texts are removed.
func TestRelabel(t *testing.T) {
	from := made(t, "lerobot", synth.Options{Episodes: 3, Seconds: 1, Cameras: -1}, nil)
	src := open(t, from)
	dst, _ := run(
		t,
		from,
		edit.Verb{Verb: "relabel", Rows: "1:4-9", Text: "wait"},
		edit.Verb{Verb: "set-task", Text: "other", Choice: edit.Choice{Episodes: "2"}},
	)
	out := open(t, dst)
	for e := range 3 {
		want := tasks(t, src, e)
		for k := range want {
			if e == 2 {
				want[k] = "other"
			} else if e == 1 && k >= 4 && k < 9 {
				want[k] = "wait"
			}
		}
		if got := tasks(t, out, e); !slices.Equal(got, want) {
			t.Errorf("episode %d: %v", e, got)
		}
	}
	same(t, out, src, whole(src, 0, 1, 2), nil)
	healthy(t, dst)
	a, b := tasks(t, src, 0)[0], tasks(t, src, 1)[0]
	next, _ := run(t, from, edit.Verb{Verb: "relabel", Names: map[string]string{a: b, b: a}})
	swapped := open(t, next)
	if tasks(t, swapped, 0)[0] != b || tasks(t, swapped, 1)[0] != a ||
		len(swapped.Info().Tasks) != len(src.Info().Tasks) {
		t.Errorf("%v", swapped.Info().Tasks)
	}
	if _,
		r := run(t, dst, edit.Verb{Verb: "keep", Choice: edit.Choice{Task: "oth*"}}); r.Episodes !=
		1 {
		t.Errorf("%d episodes", r.Episodes)
	}
}

// Features are renamed, removed and added. A column of a file is joined row by row.
func TestFeatures(t *testing.T) {
	from := made(t, "lerobot", synth.Options{Episodes: 2, Seconds: 1, Cameras: -1}, nil)
	src := open(t, from)
	dst, _ := run(
		t,
		from,
		edit.Verb{Verb: "add", Features: []string{"robot_id"}, From: "7"},
		edit.Verb{Verb: "add", Features: []string{"note"}, From: "left arm"},
		edit.Verb{
			Verb:  "rename",
			Names: map[string]string{"action": "act"},
		},
		edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "0"}},
	)
	out := open(t, dst)
	same(t, out, src, whole(src, 1), map[string]string{"act": "action"})
	if f := out.Info().
		Feature("robot_id"); f == nil || f.DType != robocache.Int64 ||
		out.Info().Feature("action") != nil {
		t.Errorf("%v", out.Info().Keys())
	}
	if note, err := out.Text(t.Context(), "note", robocache.RowsOf(0, 0, 1)); err != nil ||
		note[0] != "left arm" {
		t.Error(note, err)
	}
	healthy(t, dst)
	back, _ := run(t, dst, edit.Verb{Verb: "remove", Features: []string{"robot_id", "note"}})
	if n := len(open(t, back).Info().Features); n != len(src.Info().Features) {
		t.Errorf("%d features", n)
	}
}

// Differing datasets are merged as requested, or rejected with the name of the difference.
func TestMergeDiffering(t *testing.T) {
	opt := synth.Options{Episodes: 2, Seconds: 1, Cameras: -1}
	a := made(t, "lerobot", opt, nil)
	opt.Seed = 5
	plain := made(t, "lerobot", opt, nil)
	b, _ := run(t, plain, edit.Verb{Verb: "add", Features: []string{"extra"}, From: "1.5"})
	merge := func(v edit.Verb, sources ...string) (string, *edit.Report, error) {
		v.Verb = "merge"
		dst := filepath.Join(t.TempDir(), "out")
		r, err := edit.Run(
			t.Context(),
			&edit.Request{Sources: sources, Verbs: []edit.Verb{v}, DST: dst},
		)
		return dst, r, err
	}
	for says, call := range map[string]func() (string, *edit.Report, error){
		"extra":       func() (string, *edit.Report, error) { return merge(edit.Verb{}, a, b) },
		"twice":       func() (string, *edit.Report, error) { return merge(edit.Verb{}, a, a) },
		"two or more": func() (string, *edit.Report, error) { return merge(edit.Verb{}, a) },
	} {
		if _, _, err := call(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	// Two datasets with the same shapes and lengths are different.
	dst, r, err := merge(edit.Verb{HZ: "15"}, a, plain)
	if err != nil || r.Episodes != 4 ||
		open(t, dst).Info().FPS != (robocache.Rate{Num: 15, Den: 1}) {
		t.Fatal(err, r)
	}
	dst, r, err = merge(edit.Verb{Keys: "intersection"}, a, b)
	if err != nil || open(t, dst).Info().Feature("extra") != nil || len(r.Notes) != 1 {
		t.Fatal(err, r)
	}
	healthy(t, dst)
	dst, _, err = merge(edit.Verb{Keys: "union"}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	out := open(t, dst)
	mask := make([]byte, 1)
	for e, want := range []byte{0, 0, 1, 1} {
		if err := out.Gather(t.Context(), "extra.valid", robocache.RowsOf(e, 3, 1), mask); err !=
			nil || mask[0] != want {
			t.Errorf("episode %d: valid %d, %v", e, mask[0], err)
		}
	}
	healthy(t, dst)
}

// doctor --fix on copies with one fault each (acceptance case 6): it removes the fixable faults,
// and names the others. No promised fix is missing.
func TestFix(t *testing.T) {
	py := realdata.Python(t, "pyarrow", "numpy")
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip(err)
	}
	whole := made(
		t,
		"lerobot",
		synth.Options{Episodes: 3, Seconds: 1, Cameras: 1, Codec: "jpeg"},
		map[string]string{"images": "video", "codec": "h264", "gop": "10"},
	)
	broken := t.TempDir()
	if out, err := exec.Command(py, "testdata/break.py", whole, broken).
		CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	// faults that no edit can repair
	beyond := []string{"task of a row", "NaN", "lost frames", "lost file"}
	for _, what := range []string{
		"totals",
		"splits",
		"phantom feature",
		"template",
		"statistics",
		"no statistics",
		"tasks",
		"task of a row",
		"index",
		"frame index",
		"drift",
		"order",
		"length",
		"file number",
		"last row",
		"NaN",
		"lost frames",
		"lost file",
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(broken, what)
			before, dst := tree(t, dir), filepath.Join(t.TempDir(), "out")
			x, err := edit.Fix(
				t.Context(),
				&edit.Request{Sources: []string{dir}, DryRun: true},
				robocache.DiagnoseOptions{},
				false,
			)
			if err != nil {
				if !slices.Contains(beyond, what) {
					t.Fatal(err)
				}
				t.Log("named:", err)
				return
			}
			codes := func(list []robocache.Finding) (out []string) {
				for _, f := range list {
					out = append(out, f.Code)
				}
				return out
			}
			t.Log("an edit removes", codes(x.Fixable), "none", codes(x.Beyond), x.Error)
			if len(x.Fixable)+len(x.Beyond) == 0 ||
				(len(x.Beyond) > 0 || x.Error != "") != slices.Contains(beyond, what) ||
				!maps.Equal(tree(t, dir), before) {
				t.Fatalf("%+v", x)
			}
			y, err := edit.Fix(
				t.Context(),
				&edit.Request{Sources: []string{dir}, DST: dst},
				robocache.DiagnoseOptions{},
				false,
			)
			switch {
			case slices.Contains(beyond, what):
				if err == nil &&
					slices.ContainsFunc(y.Stayed, func(f robocache.Finding) bool {
						return !slices.Contains(codes(x.Beyond), f.Code)
					}) {
					t.Errorf("stayed: %v", codes(y.Stayed))
				}
				t.Log(err)
			case err != nil || len(y.Stayed) != 0:
				t.Errorf("%v %+v", err, y)
			}
		})
	}
}

// Several plans of one dataset are executed in one pass.
func TestApply(t *testing.T) {
	from := made(t, "lerobot", synth.Options{Episodes: 4, Seconds: 1, Cameras: -1}, nil)
	src := open(t, from)
	var plans []*edit.Plan
	for _, v := range []edit.Verb{
		{Verb: "delete", Choice: edit.Choice{Episodes: "0"}},
		{Verb: "rename", Names: map[string]string{"action": "act"}},
		{Verb: "trim", From: "3r", Choice: edit.Choice{Episodes: "2"}},
	} {
		r, err := edit.Run(
			t.Context(),
			&edit.Request{Sources: []string{from}, Verbs: []edit.Verb{v}, DryRun: true},
		)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r) // the output of a dry run
		if err != nil {
			t.Fatal(err)
		}
		p, err := edit.ParsePlan(b)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	dst := filepath.Join(t.TempDir(), "out")
	if _, err := edit.Run(t.Context(), &edit.Request{Plans: plans, DST: dst}); err != nil {
		t.Fatal(err)
	}
	same(
		t,
		open(t, dst),
		src,
		[]place{{1, 0, src.Len(1)}, {2, 3, src.Len(2) - 3}, {3, 0, src.Len(3)}},
		map[string]string{"act": "action"},
	)
	healthy(t, dst)
	if _, err := edit.Run(t.Context(), &edit.Request{Plans: []*edit.Plan{func() *edit.Plan {
		p := *plans[0]
		p.Sources = slices.Clone(p.Sources)
		p.Sources[0].Fingerprint = "x"
		return &p
	}()}, DST: dst + "2"}); err == nil || !strings.Contains(err.Error(), "fingerprint") {
		t.Error(err)
	}
	// The state covers all episodes, so a change in the middle is noticed too.
	file := filepath.Join(from, "data", "chunk-000", "file-000.parquet")
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := edit.Run(t.Context(), &edit.Request{Plans: plans, DST: dst + "3"})
	if !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
}

// A manually changed plan is rejected if it refers to rows beyond its source.
func TestHostilePlan(t *testing.T) {
	from := made(t, "lerobot", synth.Options{Episodes: 2, Seconds: 1, Cameras: -1}, nil)
	for says, change := range map[string]func(p *edit.Plan){
		"more rows": func(p *edit.Plan) { p.Episodes[1].To = 1 << 50 },
		"no order":  func(p *edit.Plan) { p.Keys[0].Order = [][]int{{99}} },
	} {
		r, err := edit.Run(
			t.Context(),
			&edit.Request{Sources: []string{from}, Verbs: []edit.Verb{dropFirst}, DryRun: true},
		)
		if err != nil {
			t.Fatal(err)
		}
		r.Plan.Episodes = append(r.Plan.Episodes, edit.Episode{Episode: 0, To: 1})
		change(r.Plan)
		_, err = edit.Run(
			t.Context(),
			&edit.Request{Plans: []*edit.Plan{r.Plan}, DST: filepath.Join(t.TempDir(), "out")},
		)
		if err == nil || errors.Is(err, robocache.ErrInternal) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// described returns a copy of a LeRobot dataset with a changed description of one feature.
func described(t *testing.T, from, key string, change func(feature map[string]any)) string {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "set")
	if err := os.CopyFS(dst, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dst, "meta", "info.json")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var info map[string]any
	if err := json.Unmarshal(b, &info); err != nil {
		t.Fatal(err)
	}
	change(info["features"].(map[string]any)[key].(map[string]any))
	if b, err = json.Marshal(info); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return dst
}

// Channels are matched by name. If two have the same name, or the row shapes differ, the order is
// unknown.
func TestMergePermuted(t *testing.T) {
	opt := synth.Options{Episodes: 1, Seconds: 1, Cameras: -1}
	a := made(t, "lerobot", opt, nil)
	opt.Seed = 5
	b := made(t, "lerobot", opt, nil)
	width := open(t, a).Info().Feature("action").Elements()
	var fore, back []any
	for i := range width {
		name := "joint" + strconv.Itoa(i)
		fore, back = append(fore, name), append([]any{name}, back...)
	}
	named := func(from string, names []any) string {
		return described(t, from, "action", func(f map[string]any) { f["names"] = names })
	}
	dst := filepath.Join(t.TempDir(), "out")
	r, err := edit.Run(t.Context(), &edit.Request{
		Sources: []string{named(a, fore), named(b, back)},
		Verbs:   []edit.Verb{{Verb: "merge"}},
		DST:     dst,
	})
	if err != nil || len(r.Notes) != 1 {
		t.Fatal(err, r)
	}
	out, src := open(t, dst), open(t, b)
	size := src.Info().Feature("action").RowBytes()
	x, y := make([]byte, size), make([]byte, size)
	for k := range src.Len(0) {
		err := errors.Join(out.Gather(t.Context(), "action", robocache.RowsOf(1, k, 1), x),
			src.Gather(t.Context(), "action", robocache.RowsOf(0, k, 1), y))
		if err != nil {
			t.Fatal(err)
		}
		for c := range width {
			if !bytes.Equal(x[4*c:4*c+4], y[4*(width-1-c):4*(width-c)]) {
				t.Fatalf("row %d: %x of %x", k, x, y)
			}
		}
	}
	healthy(t, dst)
	with := func(from string, shape ...int) string {
		dst, _ := run(t, from, edit.Verb{
			Verb:     "add",
			Features: []string{"x"},
			From:     npy(t, make([]float32, src.Len(0)*6), append([]int{src.Len(0)}, shape...)...),
		})
		return dst
	}
	twice := func(from string, names ...any) string {
		return described(t, with(from, 6), "x", func(f map[string]any) { f["names"] = names })
	}
	for says, sources := range map[string][]string{
		"channels": {
			twice(a, "l", "m", "m", "n", "o", "p"),
			twice(b, "m", "l", "m", "n", "o", "p"),
		},
		"shape": {with(a, 2, 3), with(b, 3, 2)},
	} {
		_, err := edit.Run(t.Context(), &edit.Request{
			Sources: sources,
			Verbs:   []edit.Verb{{Verb: "merge"}},
			DST:     filepath.Join(t.TempDir(), "out"),
		})
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// npy writes an array to a file.
func npy(t *testing.T, values []float32, shape ...int) string {
	t.Helper()
	axes := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", ",")
	b := []byte(
		"\x93NUMPY\x01\x00\x76\x00" + fmt.Sprintf(
			"%-117s\n",
			"{'descr': '<f4', 'fortran_order': False, 'shape': ("+axes+",), }",
		),
	)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	name := filepath.Join(t.TempDir(), "x.npy")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestWhere checks the episodes that expressions select, including NaN and depth.
func TestWhere(t *testing.T) {
	from := made(t, "lerobot", synth.Options{Episodes: 3, Seconds: 1, Cameras: -1}, nil)
	n := open(t, from).Len(0)
	values := make([]float32, 3*n)
	for i := range values {
		values[i] = float32(i/n) - float32(i%n)/100
	}
	values[n+2] = float32(math.NaN())
	add := edit.Verb{Verb: "add", Features: []string{"x"}, From: npy(t, values, len(values))}
	for where, want := range map[string][]int{
		"first(x) >= 1":      {1, 2},
		"max(x) > -9":        {0, 2},
		"max(x) != 5":        {0, 2},
		"mean(x) == mean(x)": {0, 2},
		"count(x) == " + strconv.Itoa(n): {
			0,
			1,
			2,
		},
		"-index <= -2 or index == 0":               {0, 2},
		"task != 'nothing'\nand length > 3":        {0, 1, 2},
		"index < 2 and (index == 1 or index == 2)": {1},
		"min(abs(x)) < 1e-3 and last('x') < 0": {
			0,
		},
		strings.Repeat("(", 90) + "index == 1" + strings.Repeat(")", 90): {1}, "task == 'or' or " +
			"index == 1": {
			1,
		},
		strings.Repeat("(", 5000) + "1": nil,
		strings.Repeat("-", 4000) + "(": nil,
		"max(task) > 1":                 nil,
		"task < 'a'":                    nil,
		"max(x[3]) > 0":                 nil,
		"1e999 > 0":                     nil,
		"":                              nil,
		"index":                         nil,
		"index + 1 < 2":                 nil,
		"func() { } == 1":               nil,
		"max(x, x) > 0":                 nil,
		"(index < 1) < 2":               nil,
		"task == \"x\\\"":               nil,
	} {
		r, err := edit.Run(t.Context(), &edit.Request{
			Sources: []string{from},
			Verbs:   []edit.Verb{add, {Verb: "keep", Choice: edit.Choice{Where: where}}},
			DryRun:  true,
		})
		if want == nil {
			if !errors.Is(err, robocache.ErrMisuse) {
				t.Errorf("%.40s: %v", where, err)
			}
			continue
		}
		var got []int
		if err == nil {
			for _, p := range r.Plan.Episodes {
				got = append(got, p.Episode)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.40s: %v, want %v: %v", where, got, want, err)
		}
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte(
		`{"robocache_plan":1,"sources":[{"uri":"a","num_episodes":2}],"episodes":[{"episode":1,"to":3}],"keys":[{"key":"a","from":["a"]}]}`,
	))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = edit.ParsePlan(b) })
}
