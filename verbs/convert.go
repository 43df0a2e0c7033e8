package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/mapping"
)

// PresetLeRobot is the value of Conversion.Preset that maps streams; others are the encoder's.
const PresetLeRobot = "lerobot"

// Conversion holds the options of every verb that converts a dataset. The pointers are choices of
// the format that is written, which a format that lacks them rejects.
type Conversion struct {
	Opening
	// HZ is the rate of the grid onto which all streams are resampled.
	HZ string `json:"hz"`
	// To is the format to write; empty: robocache.DefaultFormat.
	To string `json:"to"`
	// Align is the alignment of streams onto one grid: "causal", a file of JSON or YAML, or the JSON
	// itself.
	Align string `json:"align"`
	// Causal writes rows whose observations use only samples that had arrived (align.A21).
	Causal bool `json:"causal"`
	// DropInvalid leaves out rows at which some stream has no value.
	DropInvalid *bool `json:"drop_invalid"`
	// SplitAtGaps splits an episode where rows in its middle are left out. The default is true.
	SplitAtGaps *bool `json:"split_at_gaps"`
	// Episodes lists the indices of the episodes to convert, in this order, such as 0,3,5-9; empty:
	// all.
	Episodes string `json:"episodes"`
	// Keys lists the features to convert; nil: all.
	Keys []string `json:"keys"`
	// WriteOption lists choices of the format that is written as key=value.
	WriteOption []string `json:"write_option"`
	// VideoCodec is copy, av1, h264 or hevc.
	VideoCodec *string `json:"video_codec"`
	// GOP is the number of frames between key frames when video is encoded.
	GOP *int `json:"gop"`
	// CRF is the quality of video that is encoded.
	CRF *int `json:"crf"`
	// Preset is PresetLeRobot, or the encoder's preset.
	Preset *string `json:"preset"`
	// CopyOnly rejects video that cannot be copied, instead of encoding it.
	CopyOnly *bool `json:"copy_only"`
	// Images is the form that still images get: video or images.
	Images *string `json:"images"`
	// Frames is the choice of images that are counted for statistics: sampled, all or none.
	Frames *string `json:"frames"`
	// Version is the version of LeRobot that is written: v3.0 or v2.1.
	Version *string `json:"version"`
	// ScaleActions scales each dimension of the actions onto [-1, 1].
	ScaleActions *bool `json:"scale_actions"`
	// FPS is the rate that the rows are to have as they are. Nothing is resampled.
	FPS string `json:"fps"`
	// SkipBad leaves out episodes that cannot be read.
	SkipBad bool `json:"skip_bad"`
	// Resume continues a conversion with the same options that was killed.
	Resume bool `json:"resume"`
	// DryRun reports what would be done.
	DryRun bool `json:"dry_run"`
	// Threads is the number of episodes that are read and encoded at once; 0: the number of CPUs.
	Threads int `json:"threads"`
}

// conversion is a Conversion whose options were checked, and then its source.
type conversion struct {
	*Conversion
	to         string
	forLeRobot bool
	opt        convert.Options
	opened     robocache.OpenOptions // the options with which the source is open
	note       func(text string)
}

// writerChoice is a choice of the format that is written.
type writerChoice struct{ option, value string }

// writerChoices returns the choices that were given, as text.
func (c *Conversion) writerChoices() (given []writerChoice) {
	given = appendGiven(given, "video_codec", c.VideoCodec)
	given = appendGiven(given, "gop", c.GOP)
	given = appendGiven(given, "crf", c.CRF)
	if valueOr(c.Preset, "") != PresetLeRobot {
		given = appendGiven(given, "preset", c.Preset)
	}
	given = appendGiven(given, "copy_only", c.CopyOnly)
	given = appendGiven(given, "images", c.Images)
	given = appendGiven(given, "frames", c.Frames)
	given = appendGiven(given, "version", c.Version)
	return appendGiven(given, "scale_actions", c.ScaleActions)
}

// appendGiven appends a choice to given if it was made.
func appendGiven[T any](given []writerChoice, option string, value *T) []writerChoice {
	if value == nil {
		return given
	}
	return append(given, writerChoice{option, fmt.Sprint(*value)})
}

// settle checks the options that need no source.
func (c *Conversion) settle(o Observer) (_ *conversion, err error) {
	s := &conversion{
		Conversion: c, to: cmp.Or(c.To, robocache.DefaultFormat()), note: o.note,
		forLeRobot: valueOr(c.Preset, "") == PresetLeRobot,
	}
	s.opt.WriteOptions = robocache.WriteOptions{
		Keys: c.Keys, SkipBad: c.SkipBad, Resume: c.Resume, DryRun: c.DryRun, Threads: c.Threads,
	}
	writer, err := convert.Writer(s.to)
	if err != nil {
		return nil, err
	}
	s.opt.Options, err = ParsePairs(optionName("write_option"), c.WriteOption)
	if err != nil {
		return nil, err
	}
	for _, choice := range c.writerChoices() {
		// The writer would ignore a choice that it does not know.
		if _, ok := writer.WriteOptions[choice.option]; !ok {
			return nil, misuse("%s is no choice of a conversion to %s; what it has is %s",
				optionName(choice.option), s.to, optionName("write_option"))
		}
		s.opt.Options[choice.option] = choice.value
	}
	if err := s.settleRows(); err != nil {
		return nil, err
	}
	if s.opt.FPS, err = ParseRate("fps", c.FPS); err != nil {
		return nil, err
	}
	if c.Keys != nil && len(c.Keys) == 0 {
		return nil, misuse("%s names no feature", optionName("keys"))
	}
	if err := robocache.CheckEpisodes(c.Episodes); err != nil {
		return nil, err
	}
	if c.Align != "" {
		cfg, err := ParseAlignment(c.Align)
		if err != nil {
			return nil, err
		}
		s.opt.Align = &cfg
	}
	if c.Causal && s.opt.Align == nil {
		s.opt.Align = &align.Config{}
	}
	if c.Causal {
		s.opt.Align.Causal = true
	}
	return s, nil
}

// settleRows decides what becomes of rows at which a stream has no value.
func (s *conversion) settleRows() error {
	split := valueOr(s.SplitAtGaps, true)
	s.opt.DropInvalid = valueOr(s.DropInvalid, s.forLeRobot) // lerobot knows no masks
	if s.SplitAtGaps != nil && split {
		s.opt.DropInvalid = true // Splitting needs the invalid rows to be left out.
	} else if !split && !s.opt.DropInvalid {
		return misuse("%s goes with %s",
			robocache.Option("split_at_gaps", false), optionName("drop_invalid"))
	}
	s.opt.KeepGaps = !split
	return nil
}

// ParseAlignment reads an alignment: align.PresetCausal, JSON, also as doctor prints it (align={…}),
// or a file of JSON or YAML.
func ParseAlignment(text string) (_ align.Config, err error) {
	inline := strings.TrimPrefix(strings.TrimSpace(text), "align=")
	if inline == align.PresetCausal {
		inline = strconv.Quote(inline)
	}
	if strings.HasPrefix(inline, "{") || strings.HasPrefix(inline, `"`) {
		defer robocache.LocateIn(&err, "option", optionName("align"))
		return align.ParseConfig([]byte(inline))
	}
	defer robocache.LocateIn(&err, "file", text)
	b, err := os.ReadFile(text)
	if err != nil {
		return align.Config{}, err
	}
	if ext := filepath.Ext(text); ext == ".yaml" || ext == ".yml" {
		var tree any
		if err := yaml.Unmarshal(b, &tree); err != nil {
			return align.Config{}, misuse("not valid YAML: %s", err)
		}
		if b, err = json.Marshal(tree); err != nil {
			return align.Config{}, misuse("a key is not a text, or a number is not finite")
		}
	}
	return align.ParseConfig(b)
}

// ConvertRequest holds the options of Convert.
type ConvertRequest struct {
	// Source is the dataset to read.
	Source string `json:"-" arg:"SRC"`
	// Destination is the empty or absent folder to write.
	Destination string `json:"-" arg:"DST"`
	Conversion
}

// Converted is the result of Convert.
type Converted struct {
	*robocache.WriteReport
	Format string `json:"-"` // that was written
}

// MarshalJSON returns the format's own report, if it has one.
func (c *Converted) MarshalJSON() ([]byte, error) {
	if c.Own != nil {
		return json.Marshal(c.Own)
	}
	return json.Marshal(c.WriteReport)
}

// HasFindings reports whether the conversion found something wrong, or left out episodes.
func (c *Converted) HasFindings() bool { return c.LeftOut > 0 || AnyWrong(c.Findings) }

// Convert writes a dataset in another format, or with other rows.
func Convert(ctx context.Context, r *ConvertRequest, o Observer) (*Converted, error) {
	c, err := r.settle(o)
	if err != nil {
		return nil, err
	}
	ds, err := c.open(ctx, r.Source)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	c.opt.Progress = o.progress
	c.opt.Findings = mapping.RoleFindings(ds.Info(), c.to, c.opt.Keys)
	report, err := convert.Write(ctx, ds, c.to, r.Destination, c.opt)
	if err != nil {
		return nil, err
	}
	return &Converted{WriteReport: report, Format: c.to}, nil
}
