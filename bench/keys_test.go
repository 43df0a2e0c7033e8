package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/loader"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// keysInOrder returns the keys of a JSON object in order.
func keysInOrder(t *testing.T, b []byte) []string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k.(string))
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

// The keys of the original benchmark come first, in its order. Scripts of other people depend on
// it.
func TestKeyOrder(t *testing.T) {
	for _, loader := range []string{"map_style", "streaming"} {
		p := &measuredPoint{
			scenario: Scenario{Name: "x", Loader: loader},
			workload: Workload{BatchSize: 2},
		}
		k, err := (&Suite{reference: &reference{}}).resultRow(
			p,
			0,
			&Outcome{
				Samples:  1,
				Seconds:  1,
				SetFacts: SetFacts{LoadedEpisodes: 3},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if loader == "streaming" {
			n, root := 2, "r"
			k.NumShards, k.DataFilesRoot = &n, &root
		}
		b, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(keysInOrder(t, b), "\n") + "\n"
		path := "testdata/keys_" + loader + ".txt"
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != got {
			t.Errorf("%s: %v\n%s", path, err, got)
		}
		sheet, err := keysTable([]*Keys{k}).CSV()
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(sheet)).ReadAll()
		if err != nil || len(rows) != 2 || strings.Join(rows[0], "\n")+"\n" != got {
			t.Errorf(
				"the columns of the CSV are others than the keys of the JSON: %v %v",
				err,
				rows,
			)
		}
	}
}

// A table with rows of both kinds has all columns in their positions.
func TestTableOfBothKinds(t *testing.T) {
	n, root, e := 2, "root", 7
	b, err := keysTable(
		[]*Keys{
			{Scenario: "a", LoadedEpisodes: &e},
			{Scenario: "b", NumShards: &n, DataFilesRoot: &root, ImageShape: []int{3, 4, 5}},
		},
	).CSV()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatal(err, rows)
	}
	cell := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	if cell(1, "loaded_episodes") != "7" || cell(1, "num_shards") != "" ||
		cell(2, "num_shards") != "2" ||
		cell(2, "data_files_root") != "root" ||
		cell(2, "image_shape") != "[3,4,5]" ||
		cell(2, "h2d_wait_pct") != "" {
		t.Errorf("%q", rows)
	}
}

// An outcome with known numbers gives the expected figures of a row.
func TestFigures(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	p := &measuredPoint{
		scenario:   Scenario{Name: "mmap_local", Loader: "map_style"},
		runnerName: "engine",
		workload:   Workload{BatchSize: 4, Workers: 2, PoolEpisodes: 9},
	}
	o := Outcome{
		Samples:    8,
		Seconds:    2,
		CPUSeconds: 0.4,
		SetFacts:   SetFacts{Cameras: 3},
		WindowFigures: WindowFigures{
			ArrivalsUS:  []int64{5e5, 2e6},
			ArrivalRows: []int{4, 4},
			StatsOpen: &loader.Stats{
				Frames:        10,
				FramesDecoded: 10,
				Plan:          1,
				Gather:        1,
				Decode:        1,
				Convert:       1,
			},
			StatsClose: &loader.Stats{
				Frames:        34,
				FramesDecoded: 58,
				Plan:          2,
				Gather:        2,
				Decode:        6,
				Convert:       2,
			},
		},
		MemoryFigures: MemoryFigures{
			RSSPeakMB: 1000,
			PSSPeakMB: 500,
		},
		ByteFigures: ByteFigures{BytesRead: 800},
		OrderFigures: OrderFigures{
			DistinctFrac:   0.4,
			IdealFrac:      0.5,
			EpochsFinished: 1,
			SamplesLost:    0,
		},
		ConsumerFigures: ConsumerFigures{SingleProc: f(7)},
	}
	s := &Suite{reference: &reference{}}
	k, err := s.resultRow(p, 0, &o)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"samples_per_s":          {k.SamplesPerS, 4},
		"decoded_frames_per_s":   {k.DecodedFramesPerS, 12},
		"frames_delivered_per_s": {*k.FramesDeliveredPerS, 12},
		"frames_decoded_per_s":   {*k.FramesDecodedPerS, 24},
		"cpu_s_per_sample":       {k.CPUPerSample, 0.05},
		"fetch_pct":              {*k.FetchPct, 25},
		"decode_pct":             {*k.DecodePct, 75},
		"randomness_vs_ideal":    {*k.RandomnessVsIdeal, 0.8},
		"p50":                    {k.P50SampleLatencyMS, 375},
		"p99":                    {k.P99SampleLatencyMS, 375},
		"bytes":                  {*k.BytesReadPerSample, 100},
		"peak_rss_gb":            {k.PeakRSSGB, 1.048576}, "pss_peak_gb": {k.PSSPeakGB, 0.524288},
		"pool": {float64(k.EpisodePoolSize), 9}, "single": {*k.SingleProcSamplesPerS, 7},
	} {
		if math.Abs(v[0]-v[1]) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, v[0], v[1])
		}
	}
	// With a server, its sent bytes count.
	o.ServerBytes = 1600
	if k, err = s.resultRow(p, 0, &o); err != nil || *k.BytesReadPerSample != 200 {
		t.Error(*k.BytesReadPerSample)
	}
	// drop_last drops samples by design; only further samples are lost.
	p.workload.DropLast, o.EpochsFinished, o.SamplesLost = true, 2, 7
	s.reference.samples = 11
	if k, err = s.resultRow(p, 0, &o); err != nil || k.SamplesLost != 1 {
		t.Errorf("%d lost", k.SamplesLost)
	}
}

func TestWrong(t *testing.T) {
	n := func(v int) *int { return &v }
	yes, no := true, false
	for _, c := range []struct {
		k    Keys
		want string
	}{
		{Keys{FramesChecked: n(9), WrongFrames: n(0), ResumeExact: &yes}, ""},
		{Keys{}, ""},
		{Keys{FramesChecked: n(9), WrongFrames: n(1)}, "wrong"},
		{Keys{SamplesLost: 1}, "lost"},
		{Keys{SamplesDoubled: 2}, "doubled"},
		{Keys{ResumeExact: &no}, "resumed"},
	} {
		if got := c.k.failureText(); (got == "") != (c.want == "") ||
			!strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The reported run is the one with the median rate.
func TestMedianRun(t *testing.T) {
	p := &measuredPoint{}
	for _, n := range []int64{30, 10, 20, 40} {
		p.Runs = append(p.Runs, Outcome{Samples: n, Seconds: 1})
	}
	if m := p.medianRun(); m.Samples != 20 {
		t.Errorf("run %+v", m)
	}
}
