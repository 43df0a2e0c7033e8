package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/submit"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/internal/realdata"
)

// Every case names a family and existing runners, and its bars use runners of the same run.
func TestPeerCasesAreWhole(t *testing.T) {
	known := slices.Collect(maps.Keys(caseTables().Peers))
	names := map[string]bool{}
	all, err := CasesNamed("peers", nil)
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, r := range all {
		if names[r.Name] {
			t.Errorf("two rows are named %s", r.Name)
		}
		names[r.Name] = true
		f := familyOf(r.Family)
		if f == nil || f.format != nil {
			t.Fatalf("%s: no family %s", r.Name, r.Family)
		}
		if _, ok := caseTables().Sets[f.Set]; !ok {
			t.Errorf("%s: no set %s", f.Name, f.Set)
		}
		for _, a := range r.Runners {
			if !slices.Contains(known, a) {
				t.Errorf("%s: no runner %s", r.Name, a)
			}
		}
		if slices.Contains(r.Runners, "decode-floor") && f.Count == 0 {
			t.Errorf("%s: the decode floor has no count", f.Name)
		}
		for _, b := range r.Bars {
			for _, a := range []string{b.Ours, b.Than, b.Floor} {
				if a != "" && !slices.Contains(r.Runners, a) {
					t.Errorf("%s: %q wants %s, which does not run", r.Name, b.Text, a)
				}
			}
			if !strings.HasPrefix(b.Ours, "robocache") {
				t.Errorf("%s: %q is a bar on %s", r.Name, b.Text, b.Ours)
			}
		}
	}
	if _, err := CasesNamed("peers", []string{"av1-golbal"}); err == nil ||
		!strings.Contains(err.Error(), "av1-global") {
		t.Errorf("an unknown workload: %v", err)
	}
	if rows, err := CasesNamed("peers", []string{"disk", "ram-640"}); err != nil ||
		len(rows) != 2 || rows[0].Name != "disk" {
		t.Errorf("%v %v", rows, err)
	}
}

// A client that is not installed is skipped with a reason that names its variables. A client whose
// checkout is named runs in the named interpreter.
func TestClientsAreSkippedWithTheReason(t *testing.T) {
	w := CaseWork{Tools: runners.Tools{Python: "false", Dir: "/tools"}, Sets: &Sets{URI: "/data"}}
	t.Setenv("PYTHONPATH", "")
	for _, c := range caseTables().Clients {
		variable := "ROBOCACHE_CLIENT_" + strings.ToUpper(c.Name)
		t.Setenv(variable, "")
		why := w.reasonToSkip(t.Context(), familyOf(c.Name))
		if !strings.Contains(why, variable+" to") || !strings.Contains(why, "_PYTHON") {
			t.Errorf("%s: %q", c.Name, why)
		}
		t.Setenv(variable, "/checkout")
		t.Setenv(variable+"_PYTHON", "/venv/bin/python")
		if why := w.reasonToSkip(t.Context(), familyOf(c.Name)); why != "" {
			t.Errorf("%s: %q", c.Name, why)
		}
		for _, name := range c.Runners {
			r, err := w.clientRunner(c, name)
			if err != nil || r.Setting == "" || r.Argv[0] != "/venv/bin/python" ||
				r.Job.URI != "/data/"+c.Data || r.Job.More["case"] != c.Name ||
				!slices.Contains(r.Env, "PYTHONPATH=/tools:/checkout") {
				t.Errorf("%s: %+v %v", name, r, err)
			}
		}
	}
}

// Every option of every runner is a field of Workload, and the runners of formats belong to their
// kinds.
func TestOptionsAreWhole(t *testing.T) {
	for _, table := range append(slices.Collect(maps.Values(caseTables().Kinds)),
		caseTables().Peers, caseTables().Loaders, caseTables().Decoders,
		caseTables().Trajectories) {
		for name, p := range table {
			if _, err := p.newRunner(name, Workload{}, &runners.Tools{}); err != nil ||
				p.Run == "" || p.Setting == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, c := range caseTables().Formats {
		if _, ok := caseTables().Kinds[c.Kind]; !ok && c.Kind != "" {
			t.Errorf("%s: no kind %s", c.Name, c.Kind)
		}
		for _, o := range append(slices.Collect(maps.Values(c.Jobs)), c.Job) {
			if err := o.applyTo(&Workload{}); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
}

// The cases of one family run together, and each runner runs once.
func TestRunnersOfAFamily(t *testing.T) {
	all, _ := CasesNamed("peers", nil)
	got := runnersOf(all, "av1")
	seen := map[string]int{}
	for _, a := range got {
		seen[a]++
	}
	if seen["lerobot"] != 1 || seen["robocache"] != 1 || seen["memcpy"] != 1 ||
		seen["robomimic"] != 0 {
		t.Errorf("%v", got)
	}
}

func run(cpu, rate float64) Outcome {
	return Outcome{
		Samples:       1000,
		Seconds:       1000 / rate,
		CPUSeconds:    cpu,
		MemoryFigures: MemoryFigures{PSSPeakMB: 500},
		OrderFigures: OrderFigures{
			DistinctFrac: 0.3,
			IdealFrac:    0.4,
			CoverageMin:  1,
			CoverageMax:  1,
		},
		FrameFigures: FrameFigures{
			Decoded:       1500,
			Delivered:     1000,
			FramesChecked: 16,
		},
	}
}

func runnerResult(name string, runs ...Outcome) Result {
	r := Result{Runner: Runner{Name: name}, Runs: runs}
	r.summarizeRuns()
	return r
}

func TestBars(t *testing.T) {
	wrong, lost := run(1, 100), run(1, 100)
	wrong.WrongFrames = 2
	lost.CoverageMin = 0
	results := []Result{
		runnerResult("ours", run(2, 300), run(2.2, 300), run(1.8, 150)),
		runnerResult("peer", run(4, 100), run(4.4, 100), run(4.5, 100)),
		runnerResult("limit", run(1, 1), run(1, 1), run(1, 1)),
		runnerResult("wrong", wrong),
		runnerResult("lost", lost),
		runnerResult("short", run(0, 100)),
		{
			Runner: Runner{Name: "blind", Checked: true},
			Runs:   []Outcome{{Samples: 1, Seconds: 1, CPUSeconds: 1}},
		},
		{Runner: Runner{Name: "broken"}, Failed: "IndexError: 3"},
	}
	for _, c := range []struct {
		name  string
		bar   string
		pass  bool
		ratio float64 // median
		note  string
	}{
		{"cheaper", "ours ≥ 2× peer", true, 2, ""},
		{"not that much cheaper", "ours ≥ 2.1× peer", false, 2, ""},
		{"one repeat passes, the median does not", "ours ≥ 2.5× peer", false, 2, ""},
		{"faster, not in every repeat", "ours rate ≥ 2× peer", true, 3, "within the spread"},
		{"at most a multiple", "ours cpu ≤ 2.5× limit", true, 2, ""},
		{"more than a multiple", "ours cpu ≤ 1.9× limit", false, 2, ""},
		{"beyond what the limit leaves", "ours ≥ 5× peer above limit", false, 2, "at most 4.4×"},
		{"a number", "ours decoded ≤ 1.5", true, math.NaN(), ""},
		{"a number missed", "ours decoded ≤ 1", false, math.NaN(), ""},
		{"memory over the bound", "ours memory ≤ 450 MB", false, math.NaN(), ""},
		{"memory within", "ours memory ≤ 500 MB", true, math.NaN(), ""},
		{"randomness", "ours randomness ≥ 0.74", true, math.NaN(), ""},
		{"right", "ours faults ≤ 0", true, math.NaN(), ""},
		{"wrong frames", "wrong faults ≤ 0", false, math.NaN(), "2 of 16 frames"},
		{
			"a fast runner that is wrong passes nothing",
			"wrong ≥ 1× peer",
			false,
			math.NaN(),
			"2 of 16 frames",
		},
		{"lost samples", "lost faults ≤ 0", false, math.NaN(), "0 to 1 times"},
		{"a peer that is wrong is named", "ours cpu ≤ 9× lost", true, 2, "0 to 1 times"},
		{
			"a peer that failed",
			"ours ≥ 1× broken",
			false,
			math.NaN(),
			"broken failed: IndexError: 3",
		},
		{"no CPU tick in the window", "short ≥ 1× peer", false, math.NaN(), "too short"},
		{
			"frames that nobody looked at",
			"blind faults ≤ 0",
			false,
			math.NaN(),
			"no frame was checked",
		},
		{"a runner that did not run", "none faults ≤ 0", false, math.NaN(), "not run"},
	} {
		who, text, _ := strings.Cut(c.bar, " ")
		bar := report.Bars("cpu", "robocache "+text)[0]
		bar.Ours = who
		v := checkBar(bar, results)
		if v.Pass != c.pass || !strings.Contains(v.Note, c.note) || c.note == "" && v.Note != "" {
			t.Errorf("%s: pass %v, note %q", c.name, v.Pass, v.Note)
		}
		if got := v.Ratio.Median; !math.IsNaN(c.ratio) && math.Abs(got-c.ratio) > 1e-9 ||
			math.IsNaN(c.ratio) && len(v.Ratio.Raw) > 0 {
			t.Errorf("%s: ratio %v", c.name, v.Ratio)
		}
	}
}

// The output of the Python runners arrives in the outcome.
func TestOutcomeOfAPeer(t *testing.T) {
	var o Outcome
	err := json.Unmarshal(
		[]byte(
			`{"samples":5,"coverage_min":0,"coverage_max":2,"frames_checked":7,"wrong_frames":3,"epochs":4,"neighbour_share":0.5,"versions":{"torch":"2"}}`,
		),
		&o,
	)
	if err != nil || o.CoverageMin != 0 || o.CoverageMax != 2 || o.FramesChecked != 7 ||
		o.WrongFrames != 3 ||
		o.Epochs != 4 ||
		o.NeighbourShare != 0.5 ||
		o.Versions["torch"] != "2" {
		t.Errorf("%v %+v", err, o)
	}
}

func TestChooseEpisodes(t *testing.T) {
	if got := chooseOrRepeat(5, 12, 0); len(got) != 12 || got[4] != 4 || got[5] != 0 {
		t.Errorf("%v", got)
	}
	a, b, c := chooseOrRepeat(100, 12, 1), chooseOrRepeat(100, 12, 1), chooseOrRepeat(100, 12, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) || len(slices.Compact(slices.Clone(a))) != 12 ||
		!slices.IsSorted(a) {
		t.Errorf("%v %v %v", a, b, c)
	}
	if chooseOrRepeat(5, 0, 0) != nil {
		t.Error("0 is not all")
	}
}

func TestCopyRun(t *testing.T) {
	o, err := CopyRun(
		t.Context(),
		Workload{Bytes: 1000, BatchSize: 8, Workers: 2, Seconds: 0.05},
		io.Discard,
	)
	if err != nil || o.Samples <= 0 || o.Samples%8 != 0 || o.Seconds < 0.04 {
		t.Errorf("%+v", o)
	}
}

func TestPeerMarkdownAndFiles(t *testing.T) {
	results := []Result{
		runnerResult("robocache", run(2, 300), run(2.2, 310)),
		runnerResult("lerobot", run(4, 100), run(4.4, 110)),
		{Runner: Runner{Name: "lerobot-streaming", Setting: "a|b"}, Failed: "IndexError: <3>"},
	}
	row := Case{
		Name:   "r",
		Title:  "cold",
		Family: "av1",
		Bars:   report.Bars("cpu", "≥ 1.8× lerobot", "≥ 9× lerobot-streaming"),
	}
	p := &CaseReport{
		Name:     "peers",
		Command:  "robocache-bench peers",
		Repeats:  2,
		Cases:    []Case{row},
		Versions: map[string]string{"lerobot": "0.6.1"},
		Machine:  report.ThisMachine("r"),
		Families: map[string]*Report{
			"av1": {
				Results:  results,
				Unit:     "samples",
				Workload: map[string]any{"batch_size": 32, "workers": 2, "repeats": 2},
			},
		},
	}
	p.checkBars()
	var b bytes.Buffer
	p.Document().Markdown(&b)
	for _, want := range []string{
		"lerobot 0.6.1",
		"| cold | ≥ 1.8× lerobot | 2.1 (2–2.2) CPU s | 4.2 (4–4.4) CPU s | 2× | pass |",
		"| cold | ≥ 9× lerobot-streaming | 2.1 (2–2.2) CPU s | – | – | no figure: " +
			"lerobot-streaming failed: IndexError: &lt;3> |",
		"| lerobot-streaming | a\\|b | failed: IndexError: &lt;3> |", "0 of 32",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	dir := t.TempDir()
	if err := p.Document().Write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(checkBar(report.Bars("cpu", "robocache cpu ≤ 1× lerobot")[0],
		[]Result{runnerResult("robocache", run(0, 1)), runnerResult("lerobot", run(0, 1))})); err !=
		nil {
		t.Error(err) // 0 ÷ 0
	}
	for _, name := range []string{
		"peers.json",
		"peers.csv",
		"peers.md",
		"peers.html",
		"peers-av1.json",
		"peers-av1.csv",
		"peers-av1.html",
	} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(b) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	js, _ := os.ReadFile(filepath.Join(dir, "peers.json"))
	var back CaseReport
	if err := json.Unmarshal(js, &back); err != nil || len(back.Results) != 1 ||
		!back.Results[0].Checks[0].Pass {
		t.Errorf("%v", err)
	}
}

// Sets have several mp4 files, one camera and the same rows as the dataset. The table has no video.
// Existing sets are reused.
func TestSets(t *testing.T) {
	logs := 0
	s := &Sets{
		URI:      realdata.Path(t, "g1_v30_exact"),
		Work:     t.TempDir(),
		Episodes: 6,
		Log:      func(string, ...any) { logs++ },
	}
	av1, err := s.Path(t.Context(), "av1")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(av1, "videos", "*", "*", "*.mp4"))
	if len(files) < 2 || len(files) > 4 {
		t.Errorf("%d mp4s", len(files))
	}
	table, err := s.Path(t.Context(), "table")
	if err != nil {
		t.Fatal(err)
	}
	for path, video := range map[string]bool{av1: true, table: false} {
		ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		has := slices.ContainsFunc(
			ds.Info().Features,
			func(f robocache.Feature) bool { return f.Kind == robocache.KindVideo },
		)
		if ds.Info().Episodes != 6 || ds.Info().Frames != 221+277+267+280+260+221 || has != video {
			t.Errorf("%s: %+v", path, ds.Info())
		}
		ds.Close()
	}
	again := &Sets{URI: s.URI, Work: s.Work, Episodes: 6, Log: s.Log}
	if p, err := again.Path(t.Context(), "av1"); err != nil || p != av1 || logs != 2 {
		t.Errorf("%s %v, %d made", p, err, logs)
	}
	if _, err := s.Path(t.Context(), "av2"); err == nil {
		t.Error("an unknown set passed")
	}
}

// The shared functions of the Python runners are correct on cases that can be counted by hand.
// Frame positions match those of the dataset.
func TestPeerFacts(t *testing.T) {
	py := realdata.Python(t, "numpy", "pyarrow")
	for _, set := range []string{"g1_v30_exact", "g1_v30_drift"} {
		cmd := exec.Command(py, filepath.Join("testdata", "peer_facts.py"), realdata.Path(t, set))
		cmd.Env = append(os.Environ(), "PYTHONPATH=runners", "PYTHONDONTWRITEBYTECODE=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "ok ") ||
			strings.HasPrefix(string(out), "ok 0") {
			t.Errorf("%s: %v\n%s", set, err, out)
		}
	}
}

// The limit of a warm cache and our runner run together, are checked, and are saved after the
// family.
func TestRunCases(t *testing.T) {
	py := realdata.Python(t, "av", "torch", "pyarrow")
	if _, err := os.Stat(filepath.Join(realdata.Root(t), "python", "robocache", "_lib",
		"librobocache.so")); err != nil {
		t.Skipf("make lib: %v", err)
	}
	tools := runners.Tools{
		Python:     py,
		PythonPath: filepath.Join(realdata.Root(t), "python"),
		Self:       []string{"/bin/false"},
	}
	done, err := tools.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	w := CaseWork{
		Command:   "c",
		Revision:  "r",
		BatchSize: 16,
		Workers:   1,
		Tools:     tools,
		Sets: &Sets{
			URI:      realdata.Path(t, "g1_v30_exact"),
			Work:     t.TempDir(),
			Episodes: 1,
			Tools:    tools,
			Log:      t.Logf,
		},
	}
	row := Case{
		Name:    "r",
		Title:   "t",
		Family:  "av1",
		Runners: []string{"robocache", "robocache-http", "memcpy"},
		Bars: report.Bars(
			"cpu",
			"robocache faults ≤ 0",
			"robocache-http faults ≤ 0",
			"robocache cpu ≤ 1× memcpy",
		),
	}
	kept := 0
	p, err := RunCases(
		t.Context(),
		[]Case{row},
		w,
		1,
		15*time.Minute,
		func(p *CaseReport) error { kept = len(p.Results); return nil },
		t.Logf,
	)
	if err != nil {
		t.Fatal(err)
	}
	v := p.Results[0].Checks
	if kept != 1 || !v[0].Pass || !v[1].Pass || v[2].Pass ||
		!strings.Contains(v[2].Note, "memcpy failed") ||
		p.Versions["robocache"] == "" ||
		p.Machine.Revision != "r" {
		t.Fatalf("%d kept; %+v", kept, v)
	}
	a, b := p.Families["av1"].Results[0].Runs[0], p.Families["av1"].Results[1].Runs[0]
	if a.OrderSHA256 != b.OrderSHA256 || a.FramesChecked == 0 {
		t.Errorf("from disk %+v, over http %+v", a, b)
	}
}

// The runner of every peer runs, delivers each sample once per epoch, and delivers the right
// frames. The hashes of our runners match their order.
func TestPeerRunnersRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer: a minute")
	}
	py := realdata.Python(t, "lerobot", "torchcodec", "av", "h5py", "robomimic", "cv2")
	ffmpeg(t)
	tools := runners.Tools{Python: py}
	done, err := tools.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	w := CaseWork{
		BatchSize: 16,
		Workers:   2,
		Tools:     tools,
		Sets: &Sets{
			URI:      realdata.Path(t, "g1_h264_v30_bigdrift"),
			Work:     t.TempDir(),
			Episodes: 4,
			Tools:    tools,
			Log:      t.Logf,
		},
	}
	for family, names := range map[string][]string{
		"h264-g30":    {"lerobot", "torchcodec", "pyav-pool", "pyav-ram"},
		"novideo-w16": {"robomimic", "robomimic-all"},
	} {
		runners, err := w.Runners(t.Context(), family, names)
		if err != nil {
			t.Fatal(err)
		}
		results, err := Run(t.Context(), runners, 1, 15*time.Minute, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Failed != "" || r.deliveryFault() != "" {
				t.Errorf("%s/%s: %s%s", family, r.Runner.Name, r.Failed, r.deliveryFault())
				continue
			}
			o := r.Runs[0]
			if o.OrderSHA256 == "" || o.Versions["torch"] == "" ||
				r.Runner.Name != "lerobot" && o.FramesChecked == 0 ||
				o.FirstBatchS <= 0 ||
				o.PSSPeakMB < 50 {
				t.Errorf("%s/%s: %+v", family, r.Runner.Name, o)
			}
			if d := o.DistinctFrac / o.IdealFrac; r.Runner.Name != "pyav-pool" &&
				math.Abs(d-1) > 0.15 {
				t.Errorf("%s/%s: %.2f of the ideal shuffle", family, r.Runner.Name, d)
			}
		}
	}
}

func ffmpeg(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("no ffmpeg, which encodes the set")
	}
}

// docs/PERFORMANCE.md is up to date with docs/perf.
func TestPerformancePage(t *testing.T) {
	want, err := os.ReadFile("../docs/PERFORMANCE.md")
	if err != nil {
		t.Skip(err)
	}
	var got bytes.Buffer
	if err := Performance("../docs/perf", &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%v: docs/PERFORMANCE.md is not what docs/perf gives: make performance", err)
	}
	for text, say := range map[string]string{
		`{{bars "none.json"}}`:    "none.json",
		`{{csv "a.csv" "speed"}}`: `no column of a.csv named "speed"`,
		`{{bars`:                  `no table of page.tmpl named "bars"`,
		`{{bar "a.json"}}`:        `named "bar"`,
	} {
		dir := t.TempDir()
		for name, b := range map[string]string{"page.tmpl": text, "a.csv": "arm,rate\nx,1\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := Performance(dir, io.Discard); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Positions are written and parsed as ranges, and a choice of positions depends on the seed.
func TestEpisodes(t *testing.T) {
	info := &robocache.Info{Episodes: 8}
	for text, want := range map[string][]int{
		"0-3,7": {0, 1, 2, 3, 7},
		"5":     {5},
		"4,1-2": {1, 2, 4},
		"2,2":   {2},
	} {
		got, err := ParseEpisodes(info, text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if back, err := ParseEpisodes(info, submit.Ranges(got)); err != nil ||
			!slices.Equal(back, want) {
			t.Errorf("%v is written as %s", want, submit.Ranges(got))
		}
	}
	for _, bad := range []string{"a", "3-1", "-1", "1,", "0-999999999999"} {
		if _, err := ParseEpisodes(info, bad); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	all := make([]int, 1000)
	for i := range all {
		all[i] = i
	}
	a, b, c := ChooseEpisodes(all, 100, 1), ChooseEpisodes(all, 100, 1), ChooseEpisodes(all, 100, 2)
	if len(a) != 100 || !slices.IsSorted(a) || !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the choice is not seeded, or not sorted")
	}
	if a[99] < 800 || len(slices.Compact(slices.Clone(a))) != 100 { // not the first hundred
		t.Errorf("%v", a)
	}
	if len(ChooseEpisodes(all, 0, 1)) != 1000 || len(ChooseEpisodes(all, 2000, 1)) != 1000 {
		t.Error("no cap")
	}
}
