package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// altered runs testdata/alter.py on the small set and returns the changed files of each case.
func altered(t testing.TB) map[string]tree {
	t.Helper()
	if alteredOnce != nil {
		return alteredOnce
	}
	src := realdata.Path(t, small)
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if exec.Command(python, "-c", "import pyarrow").Run() != nil {
		t.Skip("no .venv with pyarrow to rewrite tables with")
	}
	dst := t.TempDir()
	if out, err := exec.Command(python, filepath.Join("testdata", "alter.py"), src, dst).
		CombinedOutput(); err != nil {
		t.Fatalf("alter.py: %v\n%s", err, out)
	}
	cases := map[string]tree{}
	entries, err := os.ReadDir(dst)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		files := tree{}
		for _, name := range []string{table, eptab, "meta/tasks.parquet"} {
			if b, err := os.ReadFile(filepath.Join(dst, e.Name(), name)); err == nil {
				files[name] = b
			}
		}
		cases[e.Name()] = files
	}
	alteredOnce = cases
	return cases
}

// alteredOnce holds the result of alter.py. The tests that use it do not run in parallel.
var alteredOnce map[string]tree

// outcome is the expected result for a damaged table: a class of error with words of its message,
// or data with findings.
type outcome struct {
	class error  // of the first error when everything is read; nil if all is readable
	words string // separated by "|"
	codes string // required findings
}

// e2e.C3: contents of parquet tables. The timestamps of a LeRobot row are not needed to find its
// frame; only Times reads them.
func TestBadTables(t *testing.T) {
	cases := altered(t)
	base := load(t, small)
	mal := robocache.ErrMalformed
	outcomes := map[string]outcome{
		"timestamp-nan":  {mal, table + "|timestamp|index 3|episode 1", ""},
		"timestamp-inf":  {mal, table + "|timestamp|index 3|episode 1", ""},
		"timestamp-huge": {mal, table + "|timestamp|index 3|episode 1", ""},
		"timestamp-null": {mal, table + "|timestamp|row", ""},
		"list-null":      {mal, table + "|action|row", ""},
		"element-null":   {mal, table + "|action|row", ""},
		"list-short":     {mal, table + "|action|row", ""},
		"list-long":      {mal, table + "|action|row", ""},
		// all rows have the same width, which differs from info.json
		"scalar-for-list":     {mal, info + "|action|26", ""},
		"nested":              {mal, table + "|action", ""},
		"text-for-number":     {mal, table + "|frame_index", ""},
		"list-for-scalar":     {nil, "", ""},
		"task-out-of-range":   {mal, "task|7|row 3|episode 1", ""},
		"episode-index-wrong": {mal, table + "|episode", ""},
		"index-wrong":         {nil, "", ""},
		"rows-none":           {mal, table, ""},
		"rows-fewer":          {mal, table + "|episode", ""},
		"rows-more": {
			robocache.ErrMisuse,
			table + "|episode_index 65 occurs twice|doctor --fix",
			"",
		},
		"rows-reversed":       {mal, table, ""},
		"column-missing":      {nil, "", "feature-dropped"},
		"length-2e60":         {nil, "", "episode-length"},
		"length-negative":     {nil, "", "episode-length"},
		"length-null":         {nil, "", "episode-length"},
		"length-lies":         {nil, "", "episode-length"},
		"to-index-2e62":       {nil, "", "table-value"},
		"from-index-negative": {nil, "", "rows-moved"},
		"file-2e60":           {nil, "", "stale-pointer"},
		"file-odd":            {mal, eptab + "|data/file_index|9007199254740993", ""},
		"file-negative":       {nil, "", "table-value"},
		"chunk-2e60":          {nil, "", "stale-pointer"},
		"video-file-2e60":     {robocache.ErrNotFound, "file-1152921504606846976|episode 3", ""},
		"video-file-null":     {mal, eptab + "|file_index", ""},
		"video-from-nan":      {nil, "", ""},
		"video-from-1e300":    {nil, "", ""},
		"episode-twice":       {robocache.ErrMisuse, eptab + "|episode|doctor --fix", ""},
		"episode-negative":    {mal, eptab + "|episode_index", ""},
		"episode-2e60":        {mal, table + "|1152921504606846976", ""},
		"episodes-none":       {mal, "meta/episodes|66 episodes", ""},
		// its video drifts
		"episodes-half":      {mal, mp4 + "|episode 25|within half a frame", ""},
		"episodes-reversed":  {nil, "", ""},
		"timestamp-unsorted": {mal, table + "|timestamp|index 3|episode 1", ""},
		"timestamps-zero":    {nil, "", ""},
		"value-nan":          {nil, "", ""},
		"task-number-null":   {mal, "meta/tasks.parquet|null", ""},
		"task-1mb":           {nil, "", ""},
		"task-nul":           {nil, "", ""},
		"tasks-none":         {mal, "task|episode 0|row 0", ""},
		"length-0":           {nil, "", ""},
		"length-1":           {nil, "", ""},
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			tr := base
			for k, v := range files {
				tr = tr.with(k, v)
			}
			uri := tr.mem(t)
			var err error
			bounded(t, 256<<20, func() { err = read(t.Context(), uri) })
			sound(t, err)
			o, known := outcomes[name]
			switch {
			case !known:
				t.Logf("no outcome is promised: %v", err)
			case o.class == nil && err != nil:
				t.Errorf("readable, but: %v", err)
			case o.class != nil && err == nil:
				t.Errorf("no error; wanted %v", o.class)
			case o.class != nil:
				want(t, err, o.class, strings.Split(o.words, "|")...)
			}
			if o.codes != "" && err == nil {
				ds := open(t, uri)
				if codes(ds)[o.codes] == 0 {
					t.Errorf("no finding %s, but %v", o.codes, codes(ds))
				}
			}
		})
	}
	for name := range outcomes {
		if cases[name] == nil {
			t.Errorf("alter.py makes no %s", name)
		}
	}
}

// e2e.C3: bad timestamps fail the operations that need timestamps, and no others.
func TestBadTimestamps(t *testing.T) {
	cases := altered(t)
	base := load(t, small)
	hz := robocache.Rate{Num: 10, Den: 1}
	for _, c := range []struct {
		name string
		ok   bool
	}{
		{"timestamp-nan", false},
		{"timestamp-inf", false},
		{"timestamp-unsorted", false},
		{"timestamps-zero", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ds := open(t, base.with(table, cases[c.name][table]).mem(t))
			keys := []string{"action"}
			if _, n, err := digest(t.Context(), ds,
				loader.Config{Windows: loader.Windows{Keys: keys}}); err != nil || n != 1254 {
				t.Errorf("rows need no timestamps: %d, %v", n, err)
			}
			_, n, err := digest(
				t.Context(),
				ds,
				loader.Config{Windows: loader.Windows{Keys: keys, Hz: &hz}},
			)
			sound(t, err)
			if c.ok != (err == nil) {
				t.Errorf("on a timeline: %d samples, %v", n, err)
			}
			if err != nil {
				for _, w := range []string{"episode 1", "3"} {
					if !strings.Contains(err.Error(), w) {
						t.Errorf("the message does not say %q: %v", w, err)
					}
				}
				// with skip, one bad episode does not end the run
				_, n, err = digest(
					t.Context(),
					ds,
					loader.Config{
						Windows: loader.Windows{Keys: keys, Hz: &hz},
						Order:   loader.Order{OnBadEpisode: "skip"},
					},
				)
				if err != nil || n == 0 {
					t.Errorf("skip: %d samples, %v", n, err)
				}
			}
		})
	}
}

// e2e.C3: episodes without rows or with one row are valid. The rows of the others keep their
// positions, and windows are clamped.
func TestShortestEpisodes(t *testing.T) {
	decoders(t)
	cases := altered(t)
	base := load(t, small)
	// the bookkeeping columns differ by construction
	back := loader.Delta{Key: camera, Offsets: []float64{-1.0 / 30, 0, 1.0 / 30}}
	// train is 0:66, and one episode is added
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 50, Split: robocache.SplitAll},
		Windows: loader.Windows{Keys: []string{"observation.state", "action", camera, "index"}},
	}
	wantSum, _, err := digest(t.Context(), open(t, base.mem(t)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"length-0", "length-1"} {
		t.Run(name, func(t *testing.T) {
			ds := open(
				t,
				base.with(table, cases[name][table]).with(eptab, cases[name][eptab]).mem(t),
			)
			if n := ds.Info().Episodes; n != 67 {
				t.Fatalf("%d episodes", n)
			}
			sum, n, err := digest(t.Context(), ds, cfg)
			if err != nil || n != 1254 || sum != wantSum {
				t.Errorf("%d samples, %v, the same data: %v", n, err, sum == wantSum)
			}
			if name == "length-0" {
				if n := ds.Len(2); n != 0 {
					t.Error("length", n)
				}
				if times, err := ds.Times(t.Context(), 2, ""); err != nil || len(times) != 0 {
					t.Error(times, err)
				}
				_, n, err := digest(
					t.Context(),
					ds,
					loader.Config{
						Order:   loader.Order{Episodes: []int{2}},
						Windows: loader.Windows{Keys: []string{"action"}},
					},
				)
				if n != 0 {
					t.Error(n, err)
				}
				sound(t, err)
				return
			}
			m, err := loader.NewMap(
				t.Context(),
				ds,
				loader.Config{
					Windows: loader.Windows{Keys: []string{camera}, Deltas: loader.Deltas{back}},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			b, err := m.Items(t.Context(), []int64{0})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			x := b.Tensor(camera).Data
			n = len(x) / 3
			if pads := b.Tensor(camera + "_is_pad").Data; fmt.Sprint(pads) != "[1 0 1]" ||
				string(x[:n]) != string(x[n:2*n]) || string(x[:n]) != string(x[2*n:]) {
				t.Error("the window of a one-frame episode is not its one frame three times:", pads)
			}
		})
	}
}
