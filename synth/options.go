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
	// Rates in Hz: "camera" (30; the rows), "joints" and "force", which are left out where not asked for, and may be faster than the rows.
	Rates   map[string]float64 `json:"rates"`
	Cameras int                `json:"cameras"` // 2; -1 = none
	Width   int                `json:"width"`   // 128
	Height  int                `json:"height"`  // 96
	// Jitter is the largest deviation of a recorded stamp from its grid.
	Jitter time.Duration `json:"jitter"`
	// Gaps is the share of samples that the recorder lost, in bursts of about a quarter of a second.
	Gaps float64 `json:"gaps"`
	Seed uint64  `json:"seed"`
	// Codec of the cameras: "av1", "h264", "hevc", or "png" for still pictures in the table. "" = av1, or h264 where the
	// encoder for it is missing (Report.Findings says so).
	Codec string `json:"codec"`
	GOP   int    `json:"gop"` // 0 = the codec's default in LeRobot: 2
	// Tasks are the texts; task i is about the disc of colour i modulo the number of colours. Empty: "reach the red disc" …
	Tasks []string `json:"tasks"`
	Robot string   `json:"robot_type"` // "planar_arm"
	// Progress is called after each episode.
	Progress func(done, of int) `json:"-"`
}

// Report says what was written.
type Report struct {
	URI      string   `json:"uri"`
	Episodes int      `json:"num_episodes"`
	Frames   int64    `json:"num_frames"`
	FPS      float64  `json:"fps"`
	Keys     []string `json:"keys"`
	Tasks    []string `json:"tasks"`
	Seed     uint64   `json:"seed"`
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

// ParseRates reads "camera=30,joints=100,force=333".
func ParseRates(text string) (map[string]float64, error) {
	out := map[string]float64{}
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
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "synth", Msg: what, Want: want, Got: got}
}

// settled fills in the defaults and refuses what cannot be made.
func (o Options) settled() (Options, robocache.Rate, error) {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.Episodes, 4)
	def(&o.Cameras, 2)
	def(&o.Width, 128)
	def(&o.Height, 96)
	if o.Seconds == 0 {
		o.Seconds = 2
	}
	if o.Robot == "" {
		o.Robot = "planar_arm"
	}
	rates := map[string]float64{"camera": 30}
	for k, v := range o.Rates {
		if k != "camera" && k != "joints" && k != "force" {
			return o, robocache.Rate{}, misuse("rates", "camera, joints or force", strconv.Quote(k))
		}
		if !(v > 0 && v <= maxRate) {
			return o, robocache.Rate{}, misuse("rates: "+k, fmt.Sprintf("above 0, at most %d Hz", maxRate), fmt.Sprint(v))
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
		err = misuse("seconds", fmt.Sprintf("above 0, at most %d rows an episode", maxRows), fmt.Sprint(o.Seconds))
	case o.Cameras < -1 || o.Cameras > 16:
		err = misuse("cameras", "1 to 16, or -1 for none", strconv.Itoa(o.Cameras))
	case o.Jitter < 0 || o.Jitter > time.Second:
		err = misuse("jitter", "0 to 1s", o.Jitter.String())
	case !(o.Gaps >= 0 && o.Gaps <= 0.9):
		err = misuse("gaps", "a share from 0 to 0.9", fmt.Sprint(o.Gaps))
	case o.Codec != "" && o.Codec != "av1" && o.Codec != "h264" && o.Codec != "hevc" && o.Codec != "png":
		err = misuse("codec", "av1, h264, hevc or png", strconv.Quote(o.Codec))
	case o.Width%2 != 0 || o.Height%2 != 0 || o.Width > 8192 || o.Height > 8192 || o.Width < 64 || o.Height < 64:
		err = misuse("size of the pictures", "even numbers from 64 to 8192", fmt.Sprintf("%d x %d", o.Width, o.Height))
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
