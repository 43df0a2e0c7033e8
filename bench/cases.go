package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Case is one row of the table of bars: a workload, who runs it, and what is asked of ours.
type Case struct {
	Name    string // as in --workload
	Title   string
	Family  string // cases of one family share their runners in one interleaved run
	Runners []string
	Bars    []report.Bar
}

// family is what the runners of its cases have in common: the same samples in the same shape.
type family struct {
	name, set string
	window    int
	size      int  // of the square frame; 0 = as stored
	video     bool // false: state and action only
	count     int  // frames of the random decode floor: about three seconds of it
	slow      bool // the peers need minutes for an epoch: half the repeats
	format    bool // of `bench formats`
}

var peerFamilies = []family{
	{name: "av1", set: "av1", video: true, count: 1000},
	{name: "av1-windows8", set: "av1", window: 8, video: true},
	{name: "av1-224", set: "av1", size: 224, video: true},
	{name: "h264-g30", set: "h264-g30", video: true, count: 300},
	{name: "h264-g250", set: "h264-g250", video: true, count: 60, slow: true},
	{name: "novideo-w16", set: "table", window: 16},
}

// familyOf finds a family; a case of `bench formats` is one of its own.
func familyOf(name string) family {
	if i := slices.IndexFunc(peerFamilies, func(f family) bool { return f.name == name }); i >= 0 {
		return peerFamilies[i]
	}
	return family{name: name, set: name, format: true}
}

// familiesOf are the families of cases, each once.
func familiesOf(cases []Case) (out []family) {
	for _, c := range cases {
		if f := familyOf(c.Family); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// sound are the bars on every loader of ours: its memory, which is its budget and 300 MB, and that what it delivers is right.
func sound(runners ...string) (out []string) {
	for _, r := range runners {
		out = append(out, fmt.Sprintf("%s memory ≤ %d MB", r, ours[r].budget<<20/1_000_000+300), right(r))
	}
	return out
}

// right: no wrong frame, each sample once an epoch.
func right(runner string) string { return runner + " faults ≤ 0" }

// PeerCases gives every case of `bench peers`. A bar that names no metric is in CPU seconds; "above" is what nothing can go below.
func PeerCases() (cases []Case) {
	add := func(name, title, family, runners string, more []string, bars ...string) {
		cases = append(cases, Case{name, title, family, strings.Fields(runners), report.Bars("cpu", append(bars, more...)...)})
	}
	const both = "lerobot torchcodec pyav-pool robocache robocache-pool decode-floor decode-sequential"
	add("av1-global", "cold, global shuffle, single frame, AV1 g=2", "av1", "lerobot lerobot-streaming torchcodec robocache decode-floor", sound("robocache"),
		"robocache cpu ≤ 1.15× decode-floor", "≥ 1.8× lerobot", "robocache rate ≥ 1.8× lerobot", "robocache randomness ≥ 0.97")
	add("av1-pool", "cold, pool shuffle, AV1 g=2", "av1", "lerobot pyav-pool robocache-pool decode-sequential", sound("robocache-pool"),
		"robocache-pool decoded ≤ 1", "robocache-pool cpu ≤ 1.2× decode-sequential", "robocache-pool ≥ 2.1× pyav-pool above decode-sequential", "robocache-pool randomness ≥ 1× pyav-pool",
		"robocache-pool ≥ 3× lerobot above decode-sequential")
	add("av1-windows8", "8-frame windows, AV1, global / pool", "av1-windows8", "lerobot torchcodec robocache robocache-pool", nil,
		"robocache ≥ 2.2× lerobot", "robocache-pool ≥ 9× lerobot", "robocache memory ≤ 1000 MB", "robocache-pool memory ≤ 1000 MB", right("robocache"), right("robocache-pool"))
	add("h264-g30", "single frame, H.264 GOP 30, global / pool", "h264-g30", both, sound("robocache", "robocache-pool"),
		"robocache ≥ 1.2× lerobot", "robocache-pool ≥ 12× lerobot above decode-sequential")
	add("h264-g250", "single frame, H.264 GOP 250, global / pool", "h264-g250", both, sound("robocache", "robocache-pool"),
		"robocache ≥ 1.2× lerobot", "robocache-pool ≥ 50× lerobot above decode-sequential", "robocache-pool ≥ 2× pyav-pool above decode-sequential")
	add("ram-640", "second epoch from the RAM cache, 640×480", "av1", "pyav-ram robocache-ram memcpy", sound("robocache-ram"),
		"robocache-ram cpu ≤ 1.3× memcpy", "robocache-ram ≥ 2× pyav-ram above memcpy")
	add("ram-224", "second epoch from the RAM cache, 224×224", "av1-224", "lerobot robocache-ram", sound("robocache-ram"), "robocache-ram ≥ 100× lerobot")
	add("disk", "second epoch from the disk cache, page cache warm", "av1", "lerobot robocache-disk", sound("robocache-disk"), "robocache-disk ≥ 30× lerobot")
	add("novideo-w16", "no video, windows of 16", "novideo-w16", "lerobot robomimic robomimic-all robocache", nil, "≥ 250× lerobot", "≥ 6× robomimic", right("robocache"))
	add("http-5ms", "http store, 5 ms latency a request", "av1", "lerobot-streaming-one robocache robocache-http", sound("robocache-http"), "robocache-http rate ≥ 0.8× robocache")
	return cases
}

// FormatCases are the cases of `bench formats`. runners/formats.py has the peers, and makes a case's data before.
func FormatCases() (cases []Case) {
	add := func(name, title, runners string, bars ...string) {
		cases = append(cases, Case{name, title, name, strings.Fields("robocache " + runners), report.Bars("cpu", bars...)})
	}
	const decoders, support, bags = "mcap-ros2-support rosbags", "≥ 50× mcap-ros2-support", "≥ 10× rosbags"
	add("hdf5-raw", "robomimic HDF5, two cameras 84×84, windows of 16: raw", "robomimic", "≥ 5× robomimic", right("robocache"))
	add("hdf5-cached", "the same, all cached", "robomimic", "≥ 5× robomimic", right("robocache"))
	add("hdf5-gzip", "the same, gzip, a frame a chunk", "robomimic", "≥ 5× robomimic", right("robocache"))
	add("hdf5-low16", "no frames, peer all cached without workers (its best), batches of 16", "robomimic", "≥ 6× robomimic", right("robocache"))
	add("hdf5-low100", "the same, batches of 100", "robomimic", "≥ 6× robomimic", right("robocache"))
	add("calvin", "CALVIN, all arrays of a frame (599 kB), one at a time, and in batches of 32", "robocache-batch numpy bytes", "≥ 8× numpy")
	add("windows", "MCAP, 0.5 s of the joints at random, decoded", "mcap", "≥ 20× mcap")
	add("messages-joint", "messages in memory to columns: JointState", decoders, support, bags)
	add("messages-imu", "messages in memory to columns: Imu", decoders, support, bags)
	add("recordings", "whole recordings to columns, opening included", decoders+" decompression", support, bags)
	add("rlds", "RLDS whole steps, four JPEG cameras", "tfds", "≥ 1.3× tfds")
	add("multirate", "four streams of a recording to 50 Hz, windows of 1 s, batches of 64", "pandas", "≥ 50× pandas")
	for _, codec := range []string{"lz4", "zstd"} {
		for _, shuffle := range []string{"none", "byte", "bit"} {
			for _, key := range []string{"img", "state", "state32"} {
				add("zarr-"+codec+"-"+shuffle+"-"+key, "Zarr chunks, blosc "+codec+", shuffle "+shuffle+": "+key, "zarr-python numcodecs", "≥ 1× zarr-python", "≥ 0.8× numcodecs")
			}
		}
	}
	return cases
}

// CasesNamed picks cases by name; nil picks all.
func CasesNamed(all []Case, names []string) ([]Case, error) {
	if names == nil {
		return all, nil
	}
	return report.Pick("workload", all, func(c Case) string { return c.Name }, names)
}
