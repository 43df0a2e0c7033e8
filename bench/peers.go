package bench

import (
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
)

// PeerRow is one row of the table of bars: a workload, who runs it, and what is asked of ours.
type PeerRow struct {
	Name    string   `json:"name"` // as in --workload
	Title   string   `json:"title"`
	Family  string   `json:"family"` // rows of one family share their runners in one interleaved run
	Runners []string `json:"arms"`
	Bars    []Bar    `json:"bars"`
}

// peerFamily is what the runners of its rows have in common: the same samples in the same shape.
type peerFamily struct {
	name, set string
	window    int
	size      int  // of the square frame; 0 = as stored
	video     bool // false: state and action only
	count     int  // frames of the random decode floor: about three seconds of it
	formats   bool // a case of `bench formats`
	slow      bool // the peers need minutes for an epoch: half the repeats
}

var peerFamilies = []peerFamily{
	{name: "av1", set: "av1", video: true, count: 1000},
	{name: "av1-windows8", set: "av1", window: 8, video: true},
	{name: "av1-224", set: "av1", size: 224, video: true},
	{name: "h264-g30", set: "h264-g30", video: true, count: 300},
	{name: "h264-g250", set: "h264-g250", video: true, count: 60, slow: true},
	{name: "novideo-w16", set: "table", window: 16},
}

// familiesOf are the families of rows, in their order: those of `bench peers`, and a family a case of `bench formats`.
func familiesOf(rows []PeerRow) []peerFamily {
	var out []peerFamily
	for _, f := range peerFamilies {
		if slices.ContainsFunc(rows, func(r PeerRow) bool { return r.Family == f.name }) {
			out = append(out, f)
		}
	}
	for _, r := range rows {
		if familyOf(r.Family) == nil {
			out = append(out, peerFamily{name: r.Family, set: r.Family, formats: true})
		}
	}
	return out
}

func familyOf(name string) *peerFamily {
	for i := range peerFamilies {
		if peerFamilies[i].name == name {
			return &peerFamilies[i]
		}
	}
	return nil
}

// PeerRows gives every row, in the order of the table.
func PeerRows() []PeerRow {
	return []PeerRow{
		{
			Name: "av1-global", Title: "cold, global shuffle, single frame, AV1 g=2", Family: "av1",
			Runners: []string{"lerobot", "lerobot-streaming", "torchcodec", "torchcodec-batched", "robocache", "decode-floor"},
			Bars: []Bar{
				{Text: "≤ 1.15× the decode floor (random access, open decoders)", Ours: "robocache", Than: "decode-floor", Metric: CPU, AtMost: 1.15},
				{Text: "≥ 1.8× lerobot, CPU s", Ours: "robocache", Than: "lerobot", Metric: CPU, AtLeast: 1.8},
				{Text: "≥ 1.8× lerobot, samples/s", Ours: "robocache", Than: "lerobot", Metric: Rate, AtLeast: 1.8},
				{Text: "randomness: the ideal", Ours: "robocache", Metric: Randomness, AtLeast: 0.97},
				memoryBar("robocache"), rightBar("robocache"),
			},
		},
		{
			Name: "av1-pool", Title: "cold, pool shuffle, AV1 g=2", Family: "av1",
			Runners: []string{"lerobot", "pyav-pool", "robocache-pool", "decode-sequential"},
			Bars: []Bar{
				{Text: "each frame decoded once (frames decoded ÷ delivered)", Ours: "robocache-pool", Metric: Decoded, AtMost: 1},
				{Text: "≤ 1.2× sequential decode", Ours: "robocache-pool", Than: "decode-sequential", Metric: CPU, AtMost: 1.2},
				{Text: "≥ 2.1× the plain pool", Ours: "robocache-pool", Than: "pyav-pool", Floor: "decode-sequential", Metric: CPU, AtLeast: 2.1},
				{Text: "better randomness than the plain pool", Ours: "robocache-pool", Than: "pyav-pool", Metric: Randomness, AtLeast: 1},
				{Text: "≥ 3× lerobot", Ours: "robocache-pool", Than: "lerobot", Floor: "decode-sequential", Metric: CPU, AtLeast: 3},
				memoryBar("robocache-pool"), rightBar("robocache-pool"),
			},
		},
		{
			Name: "av1-windows8", Title: "8-frame windows, AV1, global / pool", Family: "av1-windows8",
			Runners: []string{"lerobot", "torchcodec", "robocache", "robocache-pool"},
			Bars: []Bar{
				{Text: "global ≥ 2.2× lerobot", Ours: "robocache", Than: "lerobot", Metric: CPU, AtLeast: 2.2},
				{Text: "pool ≥ 9× lerobot", Ours: "robocache-pool", Than: "lerobot", Metric: CPU, AtLeast: 9},
				{Text: "global: ≤ 1 GB", Ours: "robocache", Metric: Memory, AtMost: 1000},
				{Text: "pool: ≤ 1 GB", Ours: "robocache-pool", Metric: Memory, AtMost: 1000},
				rightBar("robocache"), rightBar("robocache-pool"),
			},
		},
		{
			Name: "h264-g30", Title: "single frame, H.264 GOP 30, global / pool", Family: "h264-g30",
			Runners: []string{"lerobot", "torchcodec", "torchcodec-batched", "pyav-pool", "robocache", "robocache-pool", "decode-floor", "decode-sequential"},
			Bars: []Bar{
				{Text: "global ≥ 1.2× lerobot", Ours: "robocache", Than: "lerobot", Metric: CPU, AtLeast: 1.2},
				{Text: "pool ≥ 12× lerobot", Ours: "robocache-pool", Than: "lerobot", Floor: "decode-sequential", Metric: CPU, AtLeast: 12},
				memoryBar("robocache"), memoryBar("robocache-pool"), rightBar("robocache"), rightBar("robocache-pool"),
			},
		},
		{
			Name: "h264-g250", Title: "single frame, H.264 GOP 250, global / pool", Family: "h264-g250",
			Runners: []string{"lerobot", "torchcodec", "torchcodec-batched", "pyav-pool", "robocache", "robocache-pool", "decode-floor", "decode-sequential"},
			Bars: []Bar{
				{Text: "global ≥ 1.2× lerobot", Ours: "robocache", Than: "lerobot", Metric: CPU, AtLeast: 1.2},
				{Text: "pool ≥ 50× lerobot", Ours: "robocache-pool", Than: "lerobot", Floor: "decode-sequential", Metric: CPU, AtLeast: 50},
				{Text: "pool ≥ 2× the plain pool", Ours: "robocache-pool", Than: "pyav-pool", Floor: "decode-sequential", Metric: CPU, AtLeast: 2},
				memoryBar("robocache"), memoryBar("robocache-pool"), rightBar("robocache"), rightBar("robocache-pool"),
			},
		},
		{
			Name: "ram-640", Title: "second epoch from the RAM cache, 640×480", Family: "av1",
			Runners: []string{"pyav-ram", "robocache-ram", "memcpy"},
			Bars: []Bar{
				{Text: "≤ 1.3× the memcpy of the batch", Ours: "robocache-ram", Than: "memcpy", Metric: CPU, AtMost: 1.3},
				{Text: "≥ 2× the plain pool, all frames in RAM", Ours: "robocache-ram", Than: "pyav-ram", Floor: "memcpy", Metric: CPU, AtLeast: 2},
				memoryBar("robocache-ram"), rightBar("robocache-ram"),
			},
		},
		{
			Name: "ram-224", Title: "second epoch from the RAM cache, 224×224", Family: "av1-224",
			Runners: []string{"lerobot", "robocache-ram"},
			Bars: []Bar{
				{Text: "≥ 100× lerobot with its resize transform", Ours: "robocache-ram", Than: "lerobot", Metric: CPU, AtLeast: 100},
				memoryBar("robocache-ram"), rightBar("robocache-ram"),
			},
		},
		{
			Name: "disk", Title: "second epoch from the disk cache, page cache warm", Family: "av1",
			Runners: []string{"lerobot", "robocache-disk"},
			Bars: []Bar{
				{Text: "≥ 30× lerobot", Ours: "robocache-disk", Than: "lerobot", Metric: CPU, AtLeast: 30},
				memoryBar("robocache-disk"), rightBar("robocache-disk"),
			},
		},
		{
			Name: "novideo-w16", Title: "no video, windows of 16", Family: "novideo-w16",
			Runners: []string{"lerobot", "robomimic", "robomimic-all", "robocache"},
			Bars: []Bar{
				{Text: "≥ 250× lerobot", Ours: "robocache", Than: "lerobot", Metric: CPU, AtLeast: 250},
				{Text: "≥ 6× robomimic's low_dim cache", Ours: "robocache", Than: "robomimic", Metric: CPU, AtLeast: 6},
				rightBar("robocache"),
			},
		},
		{
			Name: "http-5ms", Title: "http store, 5 ms latency a request", Family: "av1",
			Runners: []string{"lerobot-streaming-one", "robocache", "robocache-http"},
			Bars: []Bar{
				{Text: "≥ 0.8 of our local cold rate", Ours: "robocache-http", Than: "robocache", Metric: Rate, AtLeast: 0.8},
				memoryBar("robocache-http"), rightBar("robocache-http"),
			},
		},
	}
}

func memoryBar(runner string) Bar {
	return Bar{Text: runner + ": peak memory ≤ budget + 300 MB", Ours: runner, Metric: Memory, OverBudget: 300}
}

func rightBar(runner string) Bar {
	return Bar{Text: runner + ": no wrong frame, each sample once an epoch", Ours: runner, Metric: Faults}
}

// PeerRowsNamed picks rows by name; nil picks all.
func PeerRowsNamed(all []PeerRow, names []string) ([]PeerRow, error) {
	if names == nil {
		return all, nil
	}
	var out []PeerRow
	for _, n := range names {
		found := false
		for _, r := range all {
			if r.Name == n {
				out, found = append(out, r), true
			}
		}
		if !found {
			return nil, report.UnknownName("workload", n, rowNames(all))
		}
	}
	return out, nil
}

func rowNames(rows []PeerRow) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return out
}
