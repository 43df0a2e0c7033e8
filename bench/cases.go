package bench

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache/bench/report"
)

// Case is one row of the table of bars: a workload, who runs it, and what is asked of ours.
type Case struct {
	Name    string   `json:"name"` // as in --workload
	Title   string   `json:"title"`
	Family  string   `json:"family"` // cases of one family share their runners in one interleaved run
	Runners []string `json:"arms"`
	Bars    []Bar    `json:"bars"`
}

// family is what the runners of its cases have in common: the same samples in the same shape.
type family struct {
	name, set string
	window    int
	size      int  // of the square frame; 0 = as stored
	video     bool // false: state and action only
	count     int  // frames of the random decode floor: about three seconds of it
	slow      bool // the peers need minutes for an epoch: half the repeats
}

var peerFamilies = []family{
	{name: "av1", set: "av1", video: true, count: 1000},
	{name: "av1-windows8", set: "av1", window: 8, video: true},
	{name: "av1-224", set: "av1", size: 224, video: true},
	{name: "h264-g30", set: "h264-g30", video: true, count: 300},
	{name: "h264-g250", set: "h264-g250", video: true, count: 60, slow: true},
	{name: "novideo-w16", set: "table", window: 16},
}

// familiesOf are the families of cases, each once: those of `bench peers` in their order, and a family a case of `bench formats`.
func familiesOf(cases []Case) (out []family) {
	for _, f := range peerFamilies {
		if slices.ContainsFunc(cases, func(c Case) bool { return c.Family == f.name }) {
			out = append(out, f)
		}
	}
	for _, c := range cases {
		if familyOf(c.Family) == nil {
			out = append(out, family{name: c.Family, set: c.Family})
		}
	}
	return out
}

func familyOf(name string) *family {
	if i := slices.IndexFunc(peerFamilies, func(f family) bool { return f.name == name }); i >= 0 {
		return &peerFamilies[i]
	}
	return nil
}

// atLeast is a bar on ours in CPU seconds against a peer of the same case.
func atLeast(times float64, ours, than string) Bar {
	return Bar{Text: fmt.Sprintf("≥ %g× %s", times, than), Ours: ours, Than: than, Metric: CPU, AtLeast: times}
}

// above names what nothing can go below.
func (b Bar) above(floor string) Bar { b.Floor = floor; return b }

// says gives a bar other words.
func (b Bar) says(text string) Bar { b.Text = text; return b }

func memoryBar(runner string) Bar {
	return Bar{Text: runner + ": peak memory ≤ budget + 300 MB", Ours: runner, Metric: Memory, OverBudget: 300}
}

func rightBar(runner string) Bar {
	return Bar{Text: runner + ": no wrong frame, each sample once an epoch", Ours: runner, Metric: Faults}
}

// sound are the bars on every loader of ours: its memory, and that what it delivers is right.
func sound(runners ...string) (out []Bar) {
	for _, r := range runners {
		out = append(out, memoryBar(r), rightBar(r))
	}
	return out
}

// PeerCases gives every case of `bench peers`.
func PeerCases() []Case {
	const r, pool, ram, sequential = "robocache", "robocache-pool", "robocache-ram", "decode-sequential"
	global := []string{"lerobot", "torchcodec", "torchcodec-batched", "pyav-pool", r, pool, "decode-floor", sequential}
	return []Case{
		{"av1-global", "cold, global shuffle, single frame, AV1 g=2", "av1", []string{"lerobot", "lerobot-streaming", "torchcodec", "torchcodec-batched", r, "decode-floor"}, append([]Bar{
			{Text: "≤ 1.15× the decode floor (random access, open decoders)", Ours: r, Than: "decode-floor", Metric: CPU, AtMost: 1.15},
			atLeast(1.8, r, "lerobot").says("≥ 1.8× lerobot, CPU s"),
			{Text: "≥ 1.8× lerobot, samples/s", Ours: r, Than: "lerobot", Metric: Rate, AtLeast: 1.8},
			{Text: "randomness: the ideal", Ours: r, Metric: Randomness, AtLeast: 0.97},
		}, sound(r)...)},
		{"av1-pool", "cold, pool shuffle, AV1 g=2", "av1", []string{"lerobot", "pyav-pool", pool, sequential}, append([]Bar{
			{Text: "each frame decoded once (frames decoded ÷ delivered)", Ours: pool, Metric: Decoded, AtMost: 1},
			{Text: "≤ 1.2× sequential decode", Ours: pool, Than: sequential, Metric: CPU, AtMost: 1.2},
			atLeast(2.1, pool, "pyav-pool").says("≥ 2.1× the plain pool").above(sequential),
			{Text: "better randomness than the plain pool", Ours: pool, Than: "pyav-pool", Metric: Randomness, AtLeast: 1},
			atLeast(3, pool, "lerobot").above(sequential),
		}, sound(pool)...)},
		{"av1-windows8", "8-frame windows, AV1, global / pool", "av1-windows8", []string{"lerobot", "torchcodec", r, pool}, []Bar{
			atLeast(2.2, r, "lerobot").says("global ≥ 2.2× lerobot"),
			atLeast(9, pool, "lerobot").says("pool ≥ 9× lerobot"),
			{Text: "global: ≤ 1 GB", Ours: r, Metric: Memory, AtMost: 1000},
			{Text: "pool: ≤ 1 GB", Ours: pool, Metric: Memory, AtMost: 1000},
			rightBar(r), rightBar(pool),
		}},
		{"h264-g30", "single frame, H.264 GOP 30, global / pool", "h264-g30", global, append([]Bar{
			atLeast(1.2, r, "lerobot").says("global ≥ 1.2× lerobot"),
			atLeast(12, pool, "lerobot").says("pool ≥ 12× lerobot").above(sequential),
		}, sound(r, pool)...)},
		{"h264-g250", "single frame, H.264 GOP 250, global / pool", "h264-g250", global, append([]Bar{
			atLeast(1.2, r, "lerobot").says("global ≥ 1.2× lerobot"),
			atLeast(50, pool, "lerobot").says("pool ≥ 50× lerobot").above(sequential),
			atLeast(2, pool, "pyav-pool").says("pool ≥ 2× the plain pool").above(sequential),
		}, sound(r, pool)...)},
		{"ram-640", "second epoch from the RAM cache, 640×480", "av1", []string{"pyav-ram", ram, "memcpy"}, append([]Bar{
			{Text: "≤ 1.3× the memcpy of the batch", Ours: ram, Than: "memcpy", Metric: CPU, AtMost: 1.3},
			atLeast(2, ram, "pyav-ram").says("≥ 2× the plain pool, all frames in RAM").above("memcpy"),
		}, sound(ram)...)},
		{"ram-224", "second epoch from the RAM cache, 224×224", "av1-224", []string{"lerobot", ram}, append([]Bar{
			atLeast(100, ram, "lerobot").says("≥ 100× lerobot with its resize transform"),
		}, sound(ram)...)},
		{"disk", "second epoch from the disk cache, page cache warm", "av1", []string{"lerobot", "robocache-disk"}, append([]Bar{atLeast(30, "robocache-disk", "lerobot")}, sound("robocache-disk")...)},
		{"novideo-w16", "no video, windows of 16", "novideo-w16", []string{"lerobot", "robomimic", "robomimic-all", r}, []Bar{
			atLeast(250, r, "lerobot"), atLeast(6, r, "robomimic").says("≥ 6× robomimic's low_dim cache"), rightBar(r),
		}},
		{"http-5ms", "http store, 5 ms latency a request", "av1", []string{"lerobot-streaming-one", r, "robocache-http"}, append([]Bar{
			{Text: "≥ 0.8 of our local cold rate", Ours: "robocache-http", Than: r, Metric: Rate, AtLeast: 0.8},
		}, sound("robocache-http")...)},
	}
}

// FormatCases are the cases of `bench formats`. runners/formats.py has the peers, and makes a case's data before.
func FormatCases() []Case {
	var cases []Case
	add := func(name, title string, runners []string, bars ...Bar) {
		cases = append(cases, Case{name, title, name, append([]string{"robocache"}, runners...), bars})
	}
	bar := func(times float64, than string) Bar { return atLeast(times, "robocache", than) }
	right := rightBar("robocache")
	robomimic, decoders := []string{"robomimic"}, []string{"mcap-ros2-support", "rosbags"}
	add("hdf5-raw", "robomimic HDF5, two cameras 84×84, windows of 16: raw", robomimic, bar(5, "robomimic"), right)
	add("hdf5-cached", "the same, all cached", robomimic, bar(5, "robomimic"), right)
	add("hdf5-gzip", "the same, gzip, a frame a chunk", robomimic, bar(5, "robomimic"), right)
	add("hdf5-low16", "no frames, peer all cached without workers (its best), batches of 16", robomimic, bar(6, "robomimic"), right)
	add("hdf5-low100", "the same, batches of 100", robomimic, bar(6, "robomimic"), right)
	add("calvin", "CALVIN, all arrays of a frame (599 kB), one at a time, and in batches of 32", []string{"robocache-batch", "numpy", "bytes"}, bar(8, "numpy"))
	add("windows", "MCAP, 0.5 s of the joints at random, decoded", []string{"mcap"}, bar(20, "mcap"))
	add("messages-joint", "messages in memory to columns: JointState", decoders, bar(50, "mcap-ros2-support"), bar(10, "rosbags"))
	add("messages-imu", "messages in memory to columns: Imu", decoders, bar(50, "mcap-ros2-support"), bar(10, "rosbags"))
	add("recordings", "whole recordings to columns, opening included", append(decoders, "decompression"), bar(50, "mcap-ros2-support"), bar(10, "rosbags"))
	add("rlds", "RLDS whole steps, four JPEG cameras", []string{"tfds"}, bar(1.3, "tfds"))
	add("multirate", "four streams of a recording to 50 Hz, windows of 1 s, batches of 64", []string{"pandas"}, bar(50, "pandas"))
	add("stats", "statistics of a million rows at opening; opening alone beside it", []string{"robocache-open", "numpy", "numpy-quantiles"})
	for _, what := range [][2]string{{"crop", "crop and flip"}, {"jitter", "crop, flip and colour jitter"}, {"noise", "crop and noise"}} {
		title := "images 256×256 to 224×224: " + what[1] + "; robocache-plain is the same without augment="
		add("augment-"+what[0], title, []string{"robocache-plain", "torchvision"})
	}
	for _, codec := range []string{"lz4", "zstd"} {
		for _, shuffle := range []string{"none", "byte", "bit"} {
			for _, key := range []string{"img", "state", "state32"} {
				add("zarr-"+codec+"-"+shuffle+"-"+key, "Zarr chunks, blosc "+codec+", shuffle "+shuffle+": "+key, []string{"zarr-python", "numcodecs"}, bar(1, "zarr-python"), bar(0.8, "numcodecs"))
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
