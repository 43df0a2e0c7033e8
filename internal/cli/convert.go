package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/stats"
)

// conversionFlags are convert's beside those of opening the source.
type conversionFlags struct {
	opt                             convert.Options
	to, fps, frames, align, episode string
	writing                         []string
	scaleActions                    bool
}

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
What was found in the source stands in the report; exit code 3 where it is an error or a warning.
DST must be empty. A conversion to LeRobot goes on with --resume after a kill; one begun with --resume also keeps what it has encoded.
To another format a killed conversion begins again, in an empty DST.`,
		Example: `  robocache convert ./old_v2 ./new_v3
  robocache convert ./recording.mcap ./set --hz 50
  robocache convert ./set ./part --episodes 0,3,5-9 --video-codec h264 --gop 8
  robocache convert ./set ./set.mcap --to mcap
  robocache convert ./set ./out --dry-run --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := f.settle(cmd.Flags().Changed); err != nil {
				return err
			}
			ds, err := f.source(ctx, &open, args[0], func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) })
			if err != nil {
				return err
			}
			defer ds.Close()
			bar := progress(cmd, "convert")
			if f.to != "lerobot" {
				f.opt.Progress = func(p convert.Progress) { bar(int64(p.Episodes), int64(p.TotalEpisodes)) }
				options, err := pairs("--write-option", f.writing)
				if err != nil {
					return err
				}
				r, err := convert.Write(ctx, ds, f.to, args[1], f.opt, options)
				if err != nil {
					return err
				}
				if err := printWritten(cmd.OutOrStdout(), args[1], f.to, open.json, r); err != nil {
					return err
				}
				return converted(ds, r.Findings)
			}
			f.opt.Progress = func(p convert.Progress) { bar(p.Frames, p.TotalFrames) }
			r, err := convert.ToLeRobot(ctx, ds, args[1], f.opt)
			if err != nil {
				return err
			}
			if open.json {
				if err := printJSON(cmd.OutOrStdout(), r); err != nil {
					return err
				}
			} else {
				printConversion(cmd.OutOrStdout(), args[1], r)
			}
			for _, e := range r.Episodes {
				if e.New < 0 {
					return errFindings
				}
			}
			return converted(ds, r.Findings)
		},
	}
	open.add(c)
	open.addGrid(c)
	f.add(c)
	return c
}

// converted is errFindings where doctor would have it for what the source's reader found, or the conversion met an error (an episode that was left out).
// What the written format has no place for is a warning of the report alone.
func converted(src robocache.Dataset, report []robocache.Finding) error {
	if slices.ContainsFunc(report, func(f robocache.Finding) bool { return f.Severity == robocache.SeverityError }) {
		return errFindings
	}
	return verdict(robocache.Findings(src))
}

func (f *conversionFlags) add(c *cobra.Command) {
	opt := &f.opt
	c.Flags().StringVar(&f.to, "to", "lerobot", "the format to write: "+strings.Join(convert.Formats(), ", ")+" (hdf5 is robomimic's layout)")
	c.Flags().StringVar(&f.align, "align", "", "how streams come onto one grid (hz, modes, edge, max_gap, offset, clock …): a JSON file, or the JSON itself, as doctor prints it")
	c.Flags().BoolVar(&opt.DropInvalid, "drop-invalid", false, "leave out rows at which an aligned stream has no value, in place of writing <key>.valid")
	c.Flags().StringVar(&f.episode, "episodes", "", "only these episodes, in this order (0,3,5-9)")
	c.Flags().StringSliceVar(&opt.Keys, "keys", nil, "only these features (the bookkeeping columns always)")
	c.Flags().BoolVar(&f.scaleActions, "scale-actions", false, "to robomimic: scale each dimension of the actions onto [-1, 1], and keep what takes that back (actions_scale, actions_offset)")
	c.Flags().StringArrayVar(&f.writing, "write-option", nil, "a choice of the format that is written as key=value; may be given several times")
	c.Flags().StringVar(&opt.Images, "images", "", "what still images become: video, or images in the table (default: images of LeRobot, else video)")
	c.Flags().StringVar(&opt.Images, "pictures", "", "")
	_ = c.Flags().MarkDeprecated("pictures", "it is --images now")
	c.Flags().StringVar(&opt.VideoCodec, "video-codec", "copy", "copy, av1, h264 or hevc")
	c.Flags().IntVar(&opt.Encode.GOP, "gop", 0, "images between key images, when encoding (0: 2, LeRobot's)")
	c.Flags().IntVar(&opt.Encode.CRF, "crf", 0, "quality, when encoding (0: 30, LeRobot's)")
	c.Flags().StringVar(&opt.Encode.Preset, "preset", "", "the encoder's preset, when encoding")
	c.Flags().BoolVar(&opt.CopyOnly, "copy-only", false, "refuse video that cannot be copied, instead of encoding it")
	c.Flags().StringVar(&f.fps, "fps", "", "the rate that the rows are to have as they are (nothing is resampled; --hz resamples)")
	c.Flags().StringVar(&f.frames, "frames", "sampled", "images looked at for statistics: sampled, all, none")
	c.Flags().BoolVar(&opt.SkipBad, "skip-bad", false, "leave out episodes that cannot be read (exit code 3) instead of failing")
	c.Flags().BoolVar(&opt.Resume, "resume", false, "go on where a killed conversion with the same options stopped; keep what another can go on from (to LeRobot; other formats begin again)")
	c.Flags().BoolVar(&opt.DryRun, "dry-run", false, "say what would be done")
	c.Flags().IntVar(&opt.Threads, "threads", 0, "episodes that are read and encoded at once (0: the number of CPUs)")
}

// settle reads what the flags say in text. changed says whether a flag was given.
func (f *conversionFlags) settle(changed func(flag string) bool) (err error) {
	if err := convert.Writes(f.to); err != nil {
		return err
	}
	// A choice that the writer does not know would be taken for one that was followed.
	for _, name := range []string{"video-codec", "gop", "crf", "preset", "copy-only", "images", "frames"} {
		if f.to != "lerobot" && changed(name) {
			return misuse("--" + name + " is of a conversion to LeRobot; what " + f.to + " has is --write-option")
		}
	}
	if f.scaleActions {
		if f.to != "robomimic" && f.to != "hdf5" {
			return misuse("--scale-actions is of a conversion to robomimic; --to says " + f.to)
		}
		f.writing = append(f.writing, "scale_actions=true")
	}
	if f.to == "lerobot" && len(f.writing) > 0 {
		return misuse("--write-option " + f.writing[0] + ": a conversion to LeRobot has none; its choices are flags")
	}
	if f.fps != "" {
		if f.opt.FPS, err = robocache.RateOf(f.fps); err != nil {
			return misuse("--fps: " + err.Error())
		}
	}
	if f.opt.Keys != nil && len(f.opt.Keys) == 0 {
		return misuse("--keys names no feature")
	}
	f.opt.Frames = stats.FramePolicy(f.frames)
	if f.opt.Encode.Codec == "" && f.opt.VideoCodec != "copy" {
		f.opt.Encode.Codec = f.opt.VideoCodec
	}
	if f.opt.Episodes, err = episodeList(f.episode); err != nil {
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
func alignment(text string) (align.Config, error) {
	inline := strings.TrimPrefix(strings.TrimSpace(text), "align=")
	if strings.HasPrefix(inline, "{") {
		cfg, err := align.ParseConfig([]byte(inline))
		return cfg, robocache.At(err, robocache.Where{"option": "--align"})
	}
	b, err := os.ReadFile(text)
	if err != nil {
		return align.Config{}, robocache.At(err, robocache.Where{"file": text})
	}
	cfg, err := align.ParseConfig(b)
	return cfg, robocache.At(err, robocache.Where{"file": text})
}

// episodeList reads 0,3,5-9.
func episodeList(text string) (out []int, err error) {
	if text == "" {
		return nil, nil
	}
	for _, part := range strings.Split(text, ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), "-")
		a, err1 := strconv.Atoi(from)
		b := a
		var err2 error
		if span {
			b, err2 = strconv.Atoi(to)
		}
		if err1 != nil || err2 != nil || a < 0 || b < a || b-a > 1<<24 {
			return nil, misuse("--episodes: expected such as 0,3,5-9, found " + strconv.Quote(part))
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}

// printWritten tells of a format's own writer.
func printWritten(w io.Writer, dst, format string, asJSON bool, r *robocache.WriteReport) error {
	if asJSON {
		return printJSON(w, r)
	}
	fmt.Fprintf(w, "wrote %s: %s, %d episodes, %d frames", dst, format, r.Episodes, r.Frames)
	if r.Bytes > 0 {
		fmt.Fprintf(w, ", %s", bytesText(r.Bytes))
	}
	fmt.Fprintln(w)
	if len(r.Dropped) > 0 {
		fmt.Fprintf(w, "  features dropped: %v\n", r.Dropped)
	}
	printFindings(w, r.Findings)
	return nil
}

func printConversion(w io.Writer, dst string, r *convert.Report) {
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	fmt.Fprintf(w, "%s %s: LeRobot v3.0, %d episodes, %d frames at %s fps, from %s\n", verb, dst, r.NumEpisodes, r.NumFrames, r.FPS, strings.TrimSpace(r.SourceFormat+" "+r.SourceVersion))
	fmt.Fprintf(w, "  video segments: %d copied, %d encoded\n", r.Copied, r.Encoded)
	for what, list := range map[string][]string{"added": r.Added, "dropped": r.Dropped} {
		if len(list) > 0 {
			fmt.Fprintf(w, "  features %s: %v\n", what, list)
		}
	}
	for from, to := range r.Renamed {
		fmt.Fprintf(w, "  feature renamed: %s → %s\n", from, to)
	}
	printFindings(w, r.Findings)
}
