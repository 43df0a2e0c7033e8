package verbs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/synth"
)

// Defaults of SynthRequest.
const (
	DefaultRates = "camera=30"
	DefaultSize  = "128x96"
)

// SynthRequest holds the options of Synth.
type SynthRequest struct {
	// Destination is the folder or file to write.
	Destination string `json:"-" arg:"DST"`
	// Format is the format to write; empty: robocache.DefaultFormat.
	Format string `json:"format"`
	// Episodes is the number of episodes. The default is 4, or that of the preset.
	Episodes *int `json:"episodes"`
	// Seconds is the length of each episode; 0 stands for 2.
	Seconds float64 `json:"seconds"`
	// Rates are the rates of the streams, such as camera=30,joints=100, or LO..HI; empty:
	// DefaultRates.
	Rates string `json:"rates"`
	// Cameras is the number of cameras. The default is 2.
	Cameras *int `json:"cameras"`
	// Size is the size of the images, as WIDTHxHEIGHT; empty: DefaultSize.
	Size string `json:"size"`
	// Jitter is the largest deviation of a recorded timestamp, such as 2ms.
	Jitter time.Duration `json:"jitter"`
	// Gaps is the share of samples that are lost.
	Gaps float64 `json:"gaps"`
	// Seed determines the bytes that are written.
	Seed uint64 `json:"seed"`
	// Spread is the share by which episodes are longer or shorter.
	Spread float64 `json:"spread"`
	// Late is the time by which streams begin late.
	Late time.Duration `json:"late"`
	// Offset is the largest error of all timestamps of a stream.
	Offset time.Duration `json:"offset"`
	// Skew is the largest error of the rate of a clock, in parts in a million.
	Skew float64 `json:"skew"`
	// Dropout is how long each stream is silent once an episode.
	Dropout time.Duration `json:"dropout"`
	// Points is the largest number of points of a cloud; 0 stands for 512.
	Points int `json:"points"`
	// Depth adds a depth image to each of camera 0.
	Depth bool `json:"depth"`
	// HZ is the rate of the grid, for formats that keep one clock.
	HZ string `json:"hz"`
	// WriteOption lists choices of the format that is written as key=value.
	WriteOption []string `json:"write_option"`
	// Codec is the codec of the images.
	Codec string `json:"codec"`
	// GOP is the number of images between key images.
	GOP int `json:"gop"`
	// Task lists the texts of the tasks.
	Task []string `json:"task"`
	// Preset is a set of numbers in place of the arm, one of synth.Presets.
	Preset string `json:"preset"`
	// Cap is the largest number of rows of a trajectory of the preset heterogeneous.
	Cap int `json:"cap"`
}

// options returns the options of package synth.
func (r *SynthRequest) options() (synth.Options, error) {
	opt := synth.Options{
		Episodes: valueOr(r.Episodes, 0), Cameras: valueOr(r.Cameras, 0), Seconds: r.Seconds,
		Jitter: r.Jitter, Gaps: r.Gaps, Seed: r.Seed,
		Spread: r.Spread, Late: r.Late, Offset: r.Offset, Skew: r.Skew, Dropout: r.Dropout,
		Points: r.Points, Depth: r.Depth, Codec: r.Codec, GOP: r.GOP, Tasks: r.Task,
		Preset: r.Preset, Cap: r.Cap,
	}
	var err error
	if opt.Rates, err = synth.ParseRates(cmp.Or(r.Rates, DefaultRates)); err != nil {
		return opt, err
	}
	width, height, ok := strings.Cut(cmp.Or(r.Size, DefaultSize), "x")
	var widthErr, heightErr error
	opt.Width, widthErr = strconv.Atoi(width)
	opt.Height, heightErr = strconv.Atoi(height)
	if !ok || widthErr != nil || heightErr != nil {
		return opt, misuse("%s: expected WIDTHxHEIGHT such as 640x480, found %q",
			optionName("size"), r.Size)
	}
	if opt.Cameras == 0 && r.Cameras != nil {
		opt.Cameras = -1 // none
	}
	return opt, nil
}

// Synth writes a synthetic dataset.
func Synth(ctx context.Context, r *SynthRequest, o Observer) (*synth.Report, error) {
	opt, err := r.options()
	if err != nil {
		return nil, err
	}
	format, hz := cmp.Or(r.Format, robocache.DefaultFormat()), r.HZ
	f, err := convert.Writer(format)
	if err != nil {
		return nil, err
	}
	ds, choices, err := synth.For(opt, f, hz != "")
	if err != nil {
		return nil, err
	}
	given, err := ParsePairs(optionName("write_option"), r.WriteOption)
	if err != nil {
		return nil, err
	}
	maps.Copy(choices, given)
	if r.Preset != "" && !f.KeepsClocks(choices) && hz == "" {
		hz = synth.GridHZ
	}
	var out convert.Options
	if hz != "" {
		rate, err := ParseRate("hz", hz)
		if err != nil {
			return nil, err
		}
		out.Align = &align.Config{HZ: rate}
	}
	out.Options, out.Progress = choices, o.progress
	written, err := convert.Write(ctx, ds, format, r.Destination, out)
	if err != nil {
		return nil, err
	}
	report := ds.Report(r.Destination, written)
	if out.Align != nil {
		report.FPS = out.Align.HZ.Float()
	}
	if (ds.Info().Clock != "" || r.Preset != "") && (hz != "" || !f.KeepsClocks(choices)) {
		report.Findings = append(report.Findings, robocache.Finding{
			Severity: robocache.SeverityInfo, Code: "resampled",
			Message: "the streams are on a grid: its values are made of the samples that were " +
				"recorded, and are not they",
			Hint: "a format that keeps clocks: " + formatsWithClocks(),
		})
	}
	return report, nil
}

// formatsWithClocks returns the option that chooses a format whose streams may have clocks of their
// own.
func formatsWithClocks() string {
	hasNone := func(name string) bool { return !keepsClocks(name) }
	names := slices.DeleteFunc(convert.Formats(), hasNone)
	return robocache.Option("format", strings.Join(names, ", "))
}
