package bench

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Scenario is one row of the benchmark that LeRobot's users know (examples/scaling/benchmark_dataloading.py). Ours run on one set, all five.
type Scenario struct {
	Name    string
	Loader  string // map_style | streaming
	Store   string // "" (the local copy), "hub", "bucket"
	Nodes   int
	Workers int // 0: as many as there are cores
	Shuffle string

	// What Slurm is asked for.
	Memory string
	Hours  int
	CPUs   int
}

// Scenarios are the five, in their order.
var Scenarios = []Scenario{
	{Name: "mmap_local", Loader: "map_style", Nodes: 1, Workers: 8, Shuffle: "global", Memory: "64G", Hours: 1, CPUs: 12},
	{Name: "mmap_local_maxworkers", Loader: "map_style", Nodes: 1, Workers: 0, Shuffle: "global", Memory: "128G", Hours: 1, CPUs: 92},
	{Name: "stream_hub", Loader: "streaming", Store: "hub", Nodes: 1, Workers: 8, Shuffle: "pool", Memory: "250G", Hours: 3, CPUs: 12},
	{Name: "stream_bucket", Loader: "streaming", Store: "bucket", Nodes: 1, Workers: 8, Shuffle: "pool", Memory: "250G", Hours: 3, CPUs: 12},
	{Name: "stream_bucket_2node", Loader: "streaming", Store: "bucket", Nodes: 2, Workers: 8, Shuffle: "pool", Memory: "250G", Hours: 3, CPUs: 12},
}

// ScenariosByName finds scenarios; "all" are all five.
func ScenariosByName(names []string) ([]Scenario, error) {
	if slices.Contains(names, "all") {
		return Scenarios, nil
	}
	return report.Pick("scenario", Scenarios, func(s Scenario) string { return s.Name }, names)
}

// workload is what a rank of the scenario does, from what the user asked for.
func (s Scenario) workload(w Workload, batch int) Workload {
	w.BatchSize, w.Epochs, w.Shuffle = batch, 1, cmp.Or(w.Shuffle, s.Shuffle)
	if cores := runtime.GOMAXPROCS(0); w.Workers <= 0 {
		w.Workers = min(cmp.Or(s.Workers, cores), cores) // the decoders are its threads, and more than cores of them only wait
	}
	if s.Nodes > 1 {
		w.World = s.Nodes
	}
	return w
}

// stem is the name of a rank's files.
func stem(scenario string, batch, workers int, rank string, world int) string {
	if rank == "merged" {
		return fmt.Sprintf("%s_bs%d_w%d_merged%d", scenario, batch, workers, world)
	}
	return fmt.Sprintf("%s_bs%d_w%d_r%sof%d", scenario, batch, workers, rank, world)
}

// Link is a network as the loopback servers play it: a delay before each answer, and a rate that all answers of a node share.
type Link struct {
	Latency time.Duration `json:"latency"`
	MBps    float64       `json:"megabytes_per_s"` // 0: as fast as it goes
}

func (l Link) String() string {
	rate := "no limit of bandwidth"
	if l.MBps > 0 {
		rate = strconv.FormatFloat(l.MBps, 'g', -1, 64) + " MB/s"
	}
	return l.Latency.String() + " a request, " + rate
}

// serve starts a server of a folder for one node: its bandwidth is its own.
func (l Link) serve(dir string) (*loopback.Server, error) {
	return loopback.Serve(dir, loopback.Options{Latency: l.Latency, BytesPerSecond: int64(l.MBps * 1e6)})
}

// DefaultLinks: the hub as a far public host, the bucket as an object store of the same region.
func DefaultLinks() map[string]Link {
	return map[string]Link{"hub": {40 * time.Millisecond, 100}, "bucket": {5 * time.Millisecond, 500}}
}
