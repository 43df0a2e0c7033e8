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

// Options choose a dataset. Zero values are the defaults, which make a small set with video.
type Options struct {
	Episodes int     `json:"episodes"` // 4
	Seconds  float64 `json:"seconds"`  // of each episode; 2
	// Rates in Hz: "camera" (30; the rows), "joints" and "force", which are left out where not
	// asked for, and may be faster than the rows. New also makes point clouds ("cloud") and a text
	// stream ("text").
	Rates   map[string]float64 `json:"rates"`
	Cameras int                `json:"cameras"` // 2; -1 = none
	Width   int                `json:"width"`   // 128
	Height  int                `json:"height"`  // 96
	// Jitter is the largest deviation of a recorded timestamp from its grid.
	Jitter time.Duration `json:"jitter"`
	// Gaps is the share of samples that the recorder lost, in bursts of about a quarter of a
	// second.
	Gaps float64 `json:"gaps"`
	Seed uint64  `json:"seed"`
	// Spread makes episodes of different lengths: Seconds × (1 ± Spread).
	Spread float64 `json:"spread"`

	// The rest up to Depth is for New alone: a dataset whose streams have clocks of their own.
	Late time.Duration `json:"late"` // each stream but the rows begins up to this late
	// the timestamps of each stream but the rows are off by up to this, the same in all episodes
	Offset time.Duration `json:"offset"`
	// the clock of each stream but the rows runs fast or slow by up to this many parts in a million
	Skew float64 `json:"skew"`
	// each stream but the rows is silent once an episode for this long
	Dropout time.Duration `json:"dropout"`
	// largest number of points of a cloud (rate "cloud"); 512
	Points int  `json:"points"`
	Depth  bool `json:"depth"` // a depth image beside each of camera 0, in mm

	// Preset names a dataset of numbers in place of the planar arm (Presets); Episodes, Seed and
	// Cap are its options alone.
	Preset string `json:"preset,omitempty"`
	// preset heterogeneous: most rows of a trajectory, which are then spread over its time
	Cap int `json:"cap,omitempty"`

	// Codec of the cameras, of Write where the format has video: "av1", "h264", "hevc", or "png"
	// for still images. "" = av1, or h264 where the encoder for it is missing (Report.Findings says
	// so). Of New, and of formats that keep images: "png" (default), "jpeg" or "raw".
	Codec string `json:"codec"`
	// Format that Write writes; "" = robocache.DefaultFormat.
	Format string `json:"format,omitempty"`
	GOP    int    `json:"gop"` // 0 = the codec's default in LeRobot: 2
	// Tasks are the texts; task i is about the disc of colour i modulo the number of colours.
	// Empty: "reach the red disc" …
	Tasks []string `json:"tasks"`
	Robot string   `json:"robot_type"` // "planar_arm"
	// Progress counts rows, as that of robocache.WriteOptions does.
	Progress func(robocache.Progress) `json:"-"`
}

// Report says what was written.
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
	// Findings are what the writer noticed, a codec that was replaced among them.
	Findings []robocache.Finding `json:"findings,omitempty"`
}

var colours = [...]struct {
	name string
	rgb  [3]float64
}{{"red", [3]float64{214, 48, 40}}, {"green", [3]float64{40, 168, 72}}, {"blue", [3]float64{52, 88, 220}}}

const (
	maxEpisodes = 1 << codeEpisodeBits
	maxRows     = 1 << codeRowBits
	maxRate     = 100_000
)

// ParseRates reads "camera=30,joints=100,force=333", or "30..333": the rows at the first rate, the
// force sensor at the last, joints between (their geometric mean, in whole Hz).
func ParseRates(text string) (map[string]float64, error) {
	out := map[string]float64{}
	if lo, hi, ok := strings.Cut(text, ".."); ok {
		a, err1 := strconv.ParseFloat(strings.TrimSpace(lo), 64)
		b, err2 := strconv.ParseFloat(strings.TrimSpace(hi), 64)
		if err1 != nil || err2 != nil || !(a > 0 && a <= b && b <= maxRate) {
			return nil, misuse(
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
			return nil, misuse("rates", "name=Hz, separated by commas", strconv.Quote(part))
		}
		out[strings.TrimSpace(k)] = hz
	}
	return out, nil
}

func misuse(what, want, got string) error {
	return robocache.Misuse("synth", nil, "%s", what).Expected(want, got)
}

// fitsRows refuses what the rows of one clock cannot hold.
func (o Options) fitsRows() error {
	for _, k := range []string{"cloud", "text"} {
		if _, ok := o.Rates[k]; ok {
			return misuse("rates: "+k, "camera, joints or force for rows of one clock", k)
		}
	}
	if o.Preset != "" {
		return misuse(
			"preset "+o.Preset,
			"a format that keeps clocks, or one grid",
			"rows of one clock",
		)
	}
	if o.Late != 0 || o.Offset != 0 || o.Skew != 0 || o.Dropout != 0 || o.Depth {
		return misuse(
			"late, offset, skew, dropout and depth",
			"a dataset with clocks of its own (New)",
			"rows of one clock",
		)
	}
	return nil
}

// completed fills in the defaults and refuses what cannot be made at all.
func (o Options) completed() (Options, robocache.Rate, error) {
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
			return o, robocache.Rate{}, misuse(
				"rates",
				"camera, joints, force, cloud or text",
				strconv.Quote(k),
			)
		}
		if !(v > 0 && v <= maxRate) {
			return o, robocache.Rate{}, misuse(
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
		err = misuse("episodes", fmt.Sprintf("1 to %d", maxEpisodes), strconv.Itoa(o.Episodes))
	case !(o.Seconds > 0) || math.IsInf(o.Seconds, 0) || o.Seconds*rates["camera"] > maxRows:
		err = misuse(
			"seconds",
			fmt.Sprintf("above 0, at most %d rows an episode", maxRows),
			fmt.Sprint(o.Seconds),
		)
	case o.Cameras < -1 || o.Cameras > 16:
		err = misuse("cameras", "1 to 16, or -1 for none", strconv.Itoa(o.Cameras))
	case o.Jitter < 0 || o.Jitter > time.Second:
		err = misuse("jitter", "0 to 1s", o.Jitter.String())
	case !(o.Gaps >= 0 && o.Gaps <= 0.9):
		err = misuse("gaps", "a share from 0 to 0.9", fmt.Sprint(o.Gaps))
	case !(o.Spread >= 0 && o.Spread <= 0.9) || o.Seconds*(1+o.Spread)*rates["camera"] > maxRows:
		err = misuse("spread", "a share from 0 to 0.9", fmt.Sprint(o.Spread))
	case o.Late < 0 || o.Offset < 0 || o.Dropout < 0 || o.Late > time.Hour || o.Offset > time.Hour || o.Dropout > time.Hour:
		err = misuse(
			"late, offset and dropout",
			"0 to 1h",
			fmt.Sprint(o.Late, " ", o.Offset, " ", o.Dropout),
		)
	case !(o.Skew >= 0 && o.Skew <= 1e4):
		err = misuse("skew", "0 to 10000 parts in a million", fmt.Sprint(o.Skew))
	case o.Points < 0 || o.Points > 1<<20:
		err = misuse("points", "1 to 1048576", strconv.Itoa(o.Points))
	case o.Width%2 != 0 || o.Height%2 != 0 || o.Width > 8192 || o.Height > 8192 || o.Width < 64 || o.Height < 64:
		err = misuse(
			"size of the images",
			"even numbers from 64 to 8192",
			fmt.Sprintf("%d x %d", o.Width, o.Height),
		)
	case o.GOP < 0:
		err = misuse("gop", "1 or more, 0 for the default", strconv.Itoa(o.GOP))
	}
	if o.Cameras == -1 {
		o.Cameras = 0
	}
	return o, fps, err
}

// rateOf is the rational of a rate in Hz: as its shortest decimal form reads.
func rateOf(hz float64) (robocache.Rate, error) {
	return robocache.RateOf(strconv.FormatFloat(hz, 'f', -1, 64))
}

// others lists the streams beside the rows, in a fixed order.
func (o *Options) others() []string {
	var out []string
	for k := range o.Rates {
		if k != "camera" {
			out = append(out, k)
		}
	}
	sort.Strings(out)
	return out
}
