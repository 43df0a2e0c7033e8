package synth

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Options describe a dataset. Zero values are the defaults, which give a small set with video.
type Options struct {
	Episodes int     `json:"episodes"` // default 4
	Seconds  float64 `json:"seconds"`  // of each episode; default 2
	// Rates in Hz. "camera" is the rate of the rows (default 30). "joints" and "force" exist only
	// if they are given, and may be faster than the rows. New also supports point clouds ("cloud")
	// and a text stream ("text").
	Rates   map[string]float64 `json:"rates"`
	Cameras int                `json:"cameras"` // default 2; -1 = none
	Width   int                `json:"width"`   // default 128
	Height  int                `json:"height"`  // default 96
	// Jitter is the largest deviation of a recorded timestamp from its grid.
	Jitter time.Duration `json:"jitter"`
	// Gaps is the share of samples that the recorder loses, in bursts of about a quarter of a
	// second.
	Gaps float64 `json:"gaps"`
	Seed uint64  `json:"seed"`
	// Spread varies the length of episodes: Seconds × (1 ± Spread).
	Spread float64 `json:"spread"`

	// The options from here to Depth are for New only: a dataset whose streams have their own
	// clocks.
	Late time.Duration `json:"late"` // maximal delay of the start of each stream except the rows
	// maximal offset of the timestamps of each stream except the rows; the same in all episodes
	Offset time.Duration `json:"offset"`
	// maximal rate error of the clock of each stream except the rows, in parts per million
	Skew float64 `json:"skew"`
	// length of a silent interval in each stream except the rows, once per episode
	Dropout time.Duration `json:"dropout"`
	// maximal number of points in a cloud (rate "cloud"); default 512
	Points int  `json:"points"`
	Depth  bool `json:"depth"` // adds a depth image to each image of camera 0, in mm

	// Preset names a dataset of numbers that replaces the planar arm (Presets). Only Episodes, Seed
	// and Cap apply to it.
	Preset string `json:"preset,omitempty"`
	// preset heterogeneous: maximal rows of a trajectory, which are then spread over its time
	Cap int `json:"cap,omitempty"`

	// Codec of the cameras. For Write and formats with video: "av1", "h264", "hevc", or "png" for
	// still images. "" = av1, or h264 if its encoder is missing (Report.Findings then has a
	// finding). For New and formats with images: "png" (default), "jpeg" or "raw".
	Codec string `json:"codec"`
	// Format is the format that Write writes; "" = robocache.DefaultFormat.
	Format string `json:"format,omitempty"`
	GOP    int    `json:"gop"` // 0 = the codec's default in LeRobot: 2
	// Tasks are the texts. Task i is about the disc of color i modulo the number of colors. Empty:
	// "reach the red disc" …
	Tasks []string `json:"tasks"`
	Robot string   `json:"robot_type"` // default "planar_arm"
	// Progress counts rows, like Progress of robocache.WriteOptions.
	Progress func(robocache.Progress) `json:"-"`
}

// Report is a summary of the written dataset.
type Report struct {
	URI      string   `json:"uri"`
	Episodes int      `json:"num_episodes"`
	Frames   int64    `json:"num_frames"`
	Bytes    int64    `json:"bytes,omitempty"`
	FPS      float64  `json:"fps"`
	Keys     []string `json:"keys"`
	Tasks    []string `json:"tasks"`
	Seed     uint64   `json:"seed"`
	Dropped  []string `json:"dropped_features"`
	// Findings are those of the writer, for example a replaced codec.
	Findings []robocache.Finding `json:"findings,omitempty"`
}

var colours = [...]struct {
	name string
	rgb  [3]float64
}{
	{"red", [3]float64{214, 48, 40}},
	{"green", [3]float64{40, 168, 72}},
	{"blue", [3]float64{52, 88, 220}},
}

const (
	maxEpisodes = 1 << codeEpisodeBits
	maxRows     = 1 << codeRowBits
	maxRate     = 100_000
)

// ParseRates reads "camera=30,joints=100,force=333", or "30..333". A range sets the rows to the
// first rate, the force sensor to the last, and the joints to their geometric mean in whole Hz.
func ParseRates(text string) (map[string]float64, error) {
	out := map[string]float64{}
	if lo, hi, ok := strings.Cut(text, ".."); ok {
		a, err1 := strconv.ParseFloat(strings.TrimSpace(lo), 64)
		b, err2 := strconv.ParseFloat(strings.TrimSpace(hi), 64)
		if err1 != nil || err2 != nil || !(a > 0 && a <= b && b <= maxRate) {
			return nil, misuseError(
				"rates",
				fmt.Sprintf("a range such as 30..333, at most %d Hz", maxRate),
				strconv.Quote(text),
			)
		}
		return map[string]float64{
			"camera": a,
			"joints": max(a, min(b, math.Round(math.Sqrt(a*b)))),
			"force":  b,
		}, nil
	}
	for _, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		hz, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if !ok || err != nil {
			return nil, misuseError("rates", "name=Hz, separated by commas", strconv.Quote(part))
		}
		out[strings.TrimSpace(k)] = hz
	}
	return out, nil
}

func misuseError(what, want, got string) error {
	return robocache.Misuse("synth", nil, "%s", what).Expected(want, got)
}

// checkFitsRows rejects options that rows with one clock cannot hold.
func (o Options) checkFitsRows() error {
	for _, k := range []string{"cloud", "text"} {
		if _, ok := o.Rates[k]; ok {
			return misuseError("rates: "+k, "camera, joints or force for rows of one clock", k)
		}
	}
	if o.Preset != "" {
		return misuseError(
			"preset "+o.Preset,
			"a format that keeps clocks, or one grid",
			"rows of one clock",
		)
	}
	if o.Late != 0 || o.Offset != 0 || o.Skew != 0 || o.Dropout != 0 || o.Depth {
		return misuseError(
			"late, offset, skew, dropout and depth",
			"a dataset with clocks of its own (New)",
			"rows of one clock",
		)
	}
	return nil
}

// withDefaults fills in the defaults and rejects options that are impossible.
func (o Options) withDefaults() (Options, robocache.Rate, error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.Episodes, 4)
	def(&o.Cameras, 2)
	def(&o.Width, 128)
	def(&o.Height, 96)
	def(&o.Points, 512)
	if o.Seconds == 0 {
		o.Seconds = 2
	}
	if o.Robot == "" {
		o.Robot = "planar_arm"
	}
	rates := map[string]float64{"camera": 30}
	for k, v := range o.Rates {
		if k != "camera" && streams[k] == 0 {
			return o, robocache.Rate{}, misuseError(
				"rates",
				"camera, joints, force, cloud or text",
				strconv.Quote(k),
			)
		}
		if !(v > 0 && v <= maxRate) {
			return o, robocache.Rate{}, misuseError(
				"rates: "+k,
				fmt.Sprintf("above 0, at most %d Hz", maxRate),
				fmt.Sprint(v),
			)
		}
		rates[k] = v
	}
	o.Rates = rates
	fps, err := rateOf(rates["camera"])
	if err != nil {
		return o, fps, err
	}
	if len(o.Tasks) == 0 {
		for _, c := range colours {
			o.Tasks = append(o.Tasks, "reach the "+c.name+" disc")
		}
	}
	switch {
	case o.Episodes < 1 || o.Episodes > maxEpisodes:
		err = misuseError("episodes", fmt.Sprintf("1 to %d", maxEpisodes), strconv.Itoa(o.Episodes))
	case !(o.Seconds > 0) || math.IsInf(o.Seconds, 0) || o.Seconds*rates["camera"] > maxRows:
		err = misuseError(
			"seconds",
			fmt.Sprintf("above 0, at most %d rows an episode", maxRows),
			fmt.Sprint(o.Seconds),
		)
	case o.Cameras < -1 || o.Cameras > 16:
		err = misuseError("cameras", "1 to 16, or -1 for none", strconv.Itoa(o.Cameras))
	case o.Jitter < 0 || o.Jitter > time.Second:
		err = misuseError("jitter", "0 to 1s", o.Jitter.String())
	case !(o.Gaps >= 0 && o.Gaps <= 0.9):
		err = misuseError("gaps", "a share from 0 to 0.9", fmt.Sprint(o.Gaps))
	case !(o.Spread >= 0 && o.Spread <= 0.9) || o.Seconds*(1+o.Spread)*rates["camera"] > maxRows:
		err = misuseError("spread", "a share from 0 to 0.9", fmt.Sprint(o.Spread))
	case o.Late < 0 || o.Offset < 0 || o.Dropout < 0 || o.Late > time.Hour ||
		o.Offset > time.Hour ||
		o.Dropout > time.Hour:
		err = misuseError(
			"late, offset and dropout",
			"0 to 1h",
			fmt.Sprint(o.Late, " ", o.Offset, " ", o.Dropout),
		)
	case !(o.Skew >= 0 && o.Skew <= 1e4):
		err = misuseError("skew", "0 to 10000 parts in a million", fmt.Sprint(o.Skew))
	case o.Points < 0 || o.Points > 1<<20:
		err = misuseError("points", "1 to 1048576", strconv.Itoa(o.Points))
	case o.Width%2 != 0 || o.Height%2 != 0 || o.Width > 8192 || o.Height > 8192 || o.Width < 64 ||
		o.Height < 64:
		err = misuseError(
			"size of the images",
			"even numbers from 64 to 8192",
			fmt.Sprintf("%d x %d", o.Width, o.Height),
		)
	case o.GOP < 0:
		err = misuseError("gop", "1 or more, 0 for the default", strconv.Itoa(o.GOP))
	}
	if o.Cameras == -1 {
		o.Cameras = 0
	}
	return o, fps, err
}

// rateOf returns a rate in Hz as a fraction, from its shortest decimal form.
func rateOf(hz float64) (robocache.Rate, error) {
	return robocache.RateOf(strconv.FormatFloat(hz, 'f', -1, 64))
}

// otherStreams returns the streams other than the rows, in a fixed order.
func (o *Options) otherStreams() []string {
	var out []string
	for k := range o.Rates {
		if k != "camera" {
			out = append(out, k)
		}
	}
	sort.Strings(out)
	return out
}
