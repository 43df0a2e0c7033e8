package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/mapping"
)

// conversionFlags are convert's beside those of opening the source.
type conversionFlags struct {
	opt                     convert.Options
	to, fps, align, episode string
	split, forLeRobot       bool
	writing                 []string
	opened                  robocache.OpenOptions // of the source, settled
}

// writeFlags are choices of writers that have a flag beside --write-option.
var writeFlags = []struct{ flag, option, value, usage string }{
	{"video-codec", "video_codec", "copy", "copy, av1, h264 or hevc"},
	{"gop", "gop", "0", "frames between key frames, when encoding (0: 2, LeRobot's)"},
	{"crf", "crf", "0", "quality, when encoding (0: 30, LeRobot's)"},
	{"preset", "preset", "", "lerobot: name the streams as lerobot trains on them (action, observation.state, observation.images.*), drop the others, and drop invalid rows; else the encoder's preset"},
	{"copy-only", "copy_only", "false", "refuse video that cannot be copied, instead of encoding it"},
	{"images", "images", "", "what still images become: video, or images in the table (default: images of LeRobot, else video)"},
	{"frames", "frames", "sampled", "images looked at for statistics: sampled, all, none"},
	{"scale-actions", "scale_actions", "false", "to robomimic: scale each dimension of the actions onto [-1, 1], and keep what takes that back (actions_scale, actions_offset)"},
}

// presetLeRobot is the value of --preset that maps streams; others are the encoder's.
const presetLeRobot = "lerobot"

func newConvert() *cobra.Command {
	var open openFlags
	var f conversionFlags
	c := &cobra.Command{
		Use:   "convert SRC DST",
		Short: "convert a dataset: to LeRobot v3.0, or another format that is written",
		Long: `convert writes any readable dataset as LeRobot v3.0, or in another format (--to). Rows keep their bits; video is copied without
re-encoding where it can be, joined on one grid without drift; still images become video (--images images keeps them);
statistics are recounted; what was dropped, renamed or re-encoded is said, and kept in meta/conversion.json. Streams on clocks of
their own are brought onto one grid: --hz says its rate (else the rate of a steady anchor), --align JSON or a file of it with modes, edges, gaps,
offsets and drifts for each stream. --hz resamples any source; of rows that keep no clock --rows-hz says the rate they were recorded at.
--fps gives the rows another rate as they are.
A step of more than three periods of a stream is a gap: its rows are masked in <key>.valid (max_gap in --align says another length).
--drop-invalid leaves such rows out, and splits the episode there.
The report lists what was found in the source and what the conversion lost. The exit code is 3 if one of the findings is a warning or an error.
DST must be empty. A conversion to LeRobot goes on with --resume after a kill; one begun with --resume also keeps what it has encoded.
To another format a killed conversion begins again, in an empty DST.`,
		Example: `  robocache convert ./old_v2 ./new_v3
  robocache convert ./recording.mcap ./set --hz 50
  robocache convert ./recording.mcap ./set --preset lerobot
  robocache convert ./set ./part --episodes 0,3,5-9 --video-codec h264 --gop 8
  robocache convert ./set ./set.mcap --to mcap
  robocache convert ./set ./out --dry-run --json`,
		Args: cobra.ExactArgs(2),
	}
	open.add(c)
	open.addGrid(c)
	f.add(c)
	return answers(c, func(cmd *cobra.Command, args []string) (*written, error, error) {
		ctx := cmd.Context()
		if err := f.settle(cmd.Flags()); err != nil {
			return nil, nil, err
		}
		ds, err := f.source(ctx, &open, args[0], func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) })
		if err != nil {
			return nil, nil, err
		}
		defer ds.Close()
		f.opt.Progress = newProgress(cmd, "convert")
		f.opt.Findings = mapping.RoleFindings(ds.Info(), f.to, f.opt.Keys)
		r, err := convert.Write(ctx, ds, f.to, args[1], f.opt)
		if err != nil {
			return nil, nil, err
		}
		found := verdict(r.Findings)
		if r.LeftOut > 0 {
			found = errFindings
		}
		return &written{r, args[1], f.to}, found, nil
	}, printWritten)
}

func (f *conversionFlags) add(c *cobra.Command) {
	opt := &f.opt
	c.Flags().StringVar(&f.to, "to", robocache.DefaultFormat(), "the format to write: "+strings.Join(convert.Formats(), ", ")+" ("+convert.Layouts()+")")
	c.Flags().StringVar(&f.align, "align", "", "how streams come onto one grid (hz, modes, edge, max_gap, offset, clock …): a JSON file, or the JSON itself, as doctor prints it")
	c.Flags().BoolVar(&opt.DropInvalid, "drop-invalid", false, "leave out rows at which some stream has no value, in place of writing <key>.valid")
	c.Flags().BoolVar(&f.split, "split-at-gaps", true, "with --drop-invalid: split an episode where rows in its middle are left out; false keeps and masks those rows")
	c.Flags().StringVar(&f.episode, "episodes", "", "only the episodes with these indices, in this order (0,3,5-9)")
	c.Flags().StringSliceVar(&opt.Keys, "keys", nil, "only these features (the bookkeeping columns always)")
	c.Flags().StringArrayVar(&f.writing, "write-option", nil, "a choice of the format that is written as key=value; may be given several times")
	for _, w := range writeFlags {
		switch w.value {
		case "0":
			c.Flags().Int(w.flag, 0, w.usage)
		case "false":
			c.Flags().Bool(w.flag, false, w.usage)
		default:
			c.Flags().String(w.flag, w.value, w.usage)
		}
	}
	c.Flags().StringVar(&f.fps, "fps", "", "the rate that the rows are to have as they are (nothing is resampled; --hz resamples)")
	c.Flags().BoolVar(&opt.SkipBad, "skip-bad", false, "leave out episodes that cannot be read (exit code 3) instead of failing")
	c.Flags().BoolVar(&opt.Resume, "resume", false, "go on where a killed conversion with the same options stopped; keep what another can go on from (to LeRobot; other formats begin again)")
	c.Flags().BoolVar(&opt.DryRun, "dry-run", false, "say what would be done")
	c.Flags().IntVar(&opt.Threads, "threads", 0, "episodes that are read and encoded at once (0: the number of CPUs)")
}

// settle reads what the flags say in text.
func (f *conversionFlags) settle(flags *pflag.FlagSet) error {
	writer, err := convert.Writer(f.to)
	if err != nil {
		return err
	}
	if f.opt.Options, err = pairs("--write-option", f.writing); err != nil {
		return err
	}
	// A choice that the writer does not know would be taken for one that was followed.
	say := func(flag, option string) error {
		if !flags.Changed(flag) {
			return nil
		}
		if _, ok := writer.WriteOptions[option]; !ok {
			return misuse("--" + flag + " is no choice of a conversion to " + f.to + "; what it has is --write-option")
		}
		f.opt.Options[option] = flags.Lookup(flag).Value.String()
		return nil
	}
	f.forLeRobot = flags.Lookup("preset").Value.String() == presetLeRobot
	for _, w := range writeFlags {
		if w.flag != "preset" || !f.forLeRobot {
			if err := say(w.flag, w.option); err != nil {
				return err
			}
		}
	}
	if f.forLeRobot && !flags.Changed("drop-invalid") {
		f.opt.DropInvalid = true // lerobot knows no masks
	}
	if flags.Changed("split-at-gaps") && f.split {
		f.opt.DropInvalid = true // Splitting needs the invalid rows to be left out.
	} else if !f.split && !f.opt.DropInvalid {
		return misuse("--split-at-gaps=false goes with --drop-invalid")
	}
	f.opt.KeepGaps = !f.split
	if f.opt.FPS, err = rateOf("--fps", f.fps); err != nil {
		return err
	}
	if f.opt.Keys != nil && len(f.opt.Keys) == 0 {
		return misuse("--keys names no feature")
	}
	if err := robocache.CheckEpisodes(f.episode); err != nil {
		return err
	}
	if f.align != "" {
		cfg, err := alignment(f.align)
		if err != nil {
			return err
		}
		f.opt.Align = &cfg
	}
	return nil
}

// alignment reads what --align says: JSON, also as doctor prints it (align={…}), or a file of it.
func alignment(text string) (_ align.Config, err error) {
	inline := strings.TrimPrefix(strings.TrimSpace(text), "align=")
	if strings.HasPrefix(inline, "{") {
		defer robocache.LocateIn(&err, "option", "--align")
		return align.ParseConfig([]byte(inline))
	}
	defer robocache.LocateIn(&err, "file", text)
	b, err := os.ReadFile(text)
	if err != nil {
		return align.Config{}, err
	}
	return align.ParseConfig(b)
}

// written is the answer of convert.
type written struct {
	*robocache.WriteReport
	dst, format string
}

// MarshalJSON gives the format's own report, where it has one.
func (r *written) MarshalJSON() ([]byte, error) {
	if r.Own != nil {
		return json.Marshal(r.Own)
	}
	return json.Marshal(r.WriteReport)
}

func printWritten(w io.Writer, r *written) {
	if r.Own != nil {
		fmt.Fprint(w, r.Own.Summary(r.dst))
	} else {
		fmt.Fprintf(w, "wrote %s: %s, %d episodes, %d frames", r.dst, r.format, r.Episodes, r.Frames)
		if r.Bytes > 0 {
			fmt.Fprintf(w, ", %s", bytesText(r.Bytes))
		}
		fmt.Fprintln(w)
		if len(r.Dropped) > 0 {
			fmt.Fprintf(w, "  features dropped: %v\n", r.Dropped)
		}
	}
	printFindings(w, r.Findings)
}
