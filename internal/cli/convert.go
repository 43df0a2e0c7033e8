package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/verbs"
)

func newConvert() *cobra.Command {
	var r verbs.ConvertRequest
	c := &cobra.Command{
		Use:   "convert SRC DST",
		Short: "convert a dataset: to LeRobot v3.0 or v2.1, or another format that is written",
		Long: `convert writes any readable dataset as LeRobot v3.0, as v2.1 (--version v2.1), or in another
format (--to). Rows keep their exact bits. Video is copied without encoding if possible, and joined
on one grid without drift. Still images become video (--images images keeps them). Statistics are
computed again. The report lists what was dropped, renamed or encoded, and meta/conversion.json
keeps it.

If streams have their own clocks, they are resampled to one grid. --hz sets its rate (default: the
rate of a steady anchor). --align takes JSON, or a JSON file, with modes, edges, gaps, offsets and
drifts for each stream. --hz resamples any source. --rows-hz states the recorded rate of rows
without a clock. --fps declares another rate for the rows without resampling.

A step of more than three periods of a stream is a gap. Rows in it are masked in <key>.valid.
max_gap in --align sets another length. --drop-invalid leaves such rows out, and splits the
episode there.

The report lists findings in the source and losses of the conversion. The exit code is 3 if one of
them is a warning or an error. DST must be empty. --resume continues a killed conversion to
LeRobot; a conversion that was started with --resume also keeps the episodes that it has encoded.
A killed conversion to another format starts again, in an empty DST.`,
		Example: `  robocache convert ./old_v2 ./new_v3
  robocache convert ./recording.mcap ./set --hz 50
  robocache convert ./recording.mcap ./set --hz 50 --causal
  robocache convert ./recording.mcap ./set --preset lerobot
  robocache convert ./set ./part --episodes 0,3,5-9 --video-codec h264 --gop 8
  robocache convert ./set ./set_v21 --version v2.1
  robocache convert ./set ./set.mcap --to mcap
  robocache convert ./set ./out --dry-run --json`,
		Args: cobra.ExactArgs(2),
	}
	addConversion(c, &r.Conversion)
	return addRun(c, &r, verbs.Convert, func(w io.Writer, written *verbs.Converted) {
		printConverted(w, written, r.Destination)
	})
}

// addConversion adds the flags of every verb that converts.
func addConversion(c *cobra.Command, r *verbs.Conversion) {
	addOpening(c, &r.Opening)
	addGrid(c, &r.HZ)
	c.Flags().
		StringVar(
			&r.To,
			"to",
			robocache.DefaultFormat(),
			"the format to write: "+strings.Join(convert.Formats(), ", ")+
				" ("+convert.Layouts()+
				")",
		)
	rejectEmpty(c, "to")
	c.Flags().
		StringVar(
			&r.Align,
			"align",
			"",
			"how streams come onto one grid (hz, modes, edge, max_gap, offset, clock …): causal, "+
				"a JSON or YAML file, or the JSON itself, as doctor prints it",
		)
	c.Flags().BoolVar(&r.Causal, "causal", false, "observations use only samples that had "+
		"arrived at the row's time: by the recorder's clock, else by their timestamps")
	optionalBool(
		c,
		&r.DropInvalid,
		"drop-invalid",
		false,
		"leave out rows at which some stream has no value, in place of writing <key>.valid",
	)
	optionalBool(
		c,
		&r.SplitAtGaps,
		"split-at-gaps",
		true,
		"with --drop-invalid: split an episode where rows in its middle are left out; false "+
			"keeps and masks those rows",
	)
	c.Flags().
		StringVar(
			&r.Episodes,
			"episodes",
			"",
			"only the episodes with these indices, in this order (0,3,5-9)",
		)
	c.Flags().
		StringSliceVar(&r.Keys, "keys", nil, "only these features (the bookkeeping columns always)")
	c.Flags().
		StringArrayVar(
			&r.WriteOption,
			"write-option",
			nil,
			"a choice of the format that is written as key=value; may be given several times",
		)
	optionalText(c, &r.VideoCodec, "video-codec", "copy", "copy, av1, h264 or hevc")
	optionalInt(c, &r.GOP, "gop", 0, "frames between key frames, when encoding (0: 2, LeRobot's)")
	optionalInt(c, &r.CRF, "crf", 0, "quality, when encoding (0: 30, LeRobot's)")
	optionalText(
		c,
		&r.Preset,
		"preset",
		"",
		"lerobot: name the streams as lerobot trains on them (action, observation.state, "+
			"observation.images.*), drop the others, and drop invalid rows; else the encoder's "+
			"preset",
	)
	optionalBool(
		c,
		&r.CopyOnly,
		"copy-only",
		false,
		"refuse video that cannot be copied, instead of encoding it",
	)
	optionalText(
		c,
		&r.Images,
		"images",
		"",
		"what still images become: video, or images in the table (default: images of LeRobot, "+
			"else video)",
	)
	optionalText(
		c,
		&r.Frames,
		"frames",
		"sampled",
		"images looked at for statistics: sampled, all, none",
	)
	optionalText(
		c,
		&r.Version,
		"version",
		"v3.0",
		"the version of LeRobot: v3.0, or v2.1 (a table and an mp4 of each camera per episode), "+
			"which GR00T and openpi read",
	)
	optionalBool(
		c,
		&r.ScaleActions,
		"scale-actions",
		false,
		"to robomimic: scale each dimension of the actions onto [-1, 1], and keep what takes "+
			"that back (actions_scale, actions_offset)",
	)
	c.Flags().
		StringVar(
			&r.FPS,
			"fps",
			"",
			"the rate that the rows are to have as they are (nothing is resampled; --hz resamples)",
		)
	c.Flags().
		BoolVar(
			&r.SkipBad,
			"skip-bad",
			false,
			"leave out episodes that cannot be read (exit code 3) instead of failing",
		)
	c.Flags().
		BoolVar(&r.Resume, "resume", false, "go on where a killed conversion with the same "+
			"options stopped; keep what another can go on from (to LeRobot; other formats begin "+
			"again)")
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "say what would be done")
	c.Flags().
		IntVar(
			&r.Threads,
			"threads",
			0,
			"episodes that are read and encoded at once (0: the number of CPUs)",
		)
}

func printConverted(w io.Writer, r *verbs.Converted, dst string) {
	if r.Own != nil {
		fmt.Fprint(w, r.Own.Summary(dst))
	} else {
		fmt.Fprintf(w, "wrote %s: %s, %d episodes, %d frames", dst, r.Format, r.Episodes, r.Frames)
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
