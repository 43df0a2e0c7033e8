package cli

import (
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/verbs"
	"github.com/goatnote-inc/robocache/video"
)

func newInspect() *cobra.Command {
	r := verbs.InspectRequest{DecodeSpan: costSpan}
	c := &cobra.Command{
		Use:   "inspect URI",
		Short: "what is in a dataset: streams, rates, codecs, tasks, sizes",
		Example: `  robocache inspect ./my_dataset
  robocache inspect ./my_dataset --episode 3
  robocache inspect ./my_dataset --contact-sheet sheet.png --episode 3
  robocache inspect https://host/my_dataset --json
  robocache inspect ./my_dataset --decode-cost
  robocache inspect ./recording.mcap --suggest-map > map.yaml`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	addGrid(c, &r.HZ)
	optionalInt(
		c,
		&r.Episode,
		"episode",
		0,
		"show the streams of the episode with this index: timestamps, gaps, jitter",
	)
	c.Flags().
		StringVar(
			&r.ContactSheet,
			"contact-sheet",
			"",
			"draw an episode into this file (.png, .svg, .html): frames of its cameras, and all "+
				"other streams over its whole time",
		)
	c.Flags().
		BoolVar(
			&r.SuggestMap,
			"suggest-map",
			false,
			"write a mapping of the dataset as it is, to begin with (--map)",
		)
	c.Flags().
		BoolVar(&r.DecodeCost, "decode-cost", false, "decode frames in random order on the CPU, "+
			"and the GPU where there is one; then a piece of an episode encoded by --codec and "+
			"--gop")
	c.Flags().
		StringVar(
			&r.Codec,
			"codec",
			"",
			"with --decode-cost: av1, h264 or hevc (default: the cameras', where a GPU's "+
				"engines take it, else hevc)",
		)
	optionalInt(c, &r.GOP, "gop", video.AdvisedGOP, "with --decode-cost: frames between key frames")
	return addJSON(c, func(cmd *cobra.Command, args []string) (answer *any, _, err error) {
		if err := verbs.Decode(cmd.Name(), args, nil, &r); err != nil {
			return nil, nil, err
		}
		ctx, o := cmd.Context(), observerOf(cmd)
		var report any
		switch {
		case r.SuggestMap:
			text, err := verbs.SuggestMapping(ctx, &r, o)
			fmt.Fprint(cmd.OutOrStdout(), text)
			return nil, nil, err
		case r.Episode != nil:
			report, err = verbs.InspectEpisode(ctx, &r, o)
		case r.ContactSheet != "" && !cmd.Flags().Changed("json"):
			return nil, nil, verbs.ContactSheet(ctx, &r, o)
		default:
			report, err = verbs.Inspect(ctx, &r, o)
		}
		if err != nil {
			return nil, nil, err
		}
		return &report, nil, nil
	}, func(w io.Writer, r *any) {
		switch r := (*r).(type) {
		case *inspect.EpisodeReport:
			printEpisode(w, r)
		case *inspect.Report:
			printReport(w, r)
		}
	})
}

func printReport(w io.Writer, r *inspect.Report) {
	fmt.Fprintf(w, "%s\n", r.URI)
	fmt.Fprintf(
		w,
		"  %s, %d episodes, %d frames",
		strings.TrimSpace(r.Format+" "+r.Version),
		r.Episodes,
		r.Frames,
	)
	switch {
	case !r.FPS.Zero():
		fmt.Fprintf(w, " at %s fps (%.1f s)", r.FPS, r.DurationS)
	case r.DurationS > 0:
		fmt.Fprintf(w, " (about %.1f s)", r.DurationS)
	}
	if r.Clock != "" {
		fmt.Fprintf(w, " of %s", r.Clock)
	}
	if r.Robot != "" {
		fmt.Fprintf(w, ", robot %s", r.Robot)
	}
	fmt.Fprintf(
		w,
		"\n  episode length %d to %d, mean %.1f\n",
		r.Length.Min,
		r.Length.Max,
		r.Length.Mean,
	)
	if r.Split != "" {
		fmt.Fprintf(w, "  only the split %s\n", r.Split)
	} else if len(r.SplitEpisodes) > 0 {
		var parts []string
		for _, n := range r.SplitNames() {
			parts = append(parts, fmt.Sprintf("%s %d", n, r.SplitEpisodes[n]))
		}
		fmt.Fprintf(w, "  splits, by episodes: %s\n", strings.Join(parts, ", "))
	}
	if r.Bytes != nil {
		fmt.Fprintf(w, "  %s in %d files\n", bytesText(r.Bytes.Total), r.Bytes.Files)
	}
	fmt.Fprintln(w, "\nstreams")
	rows := [][]string{
		{"key", "kind", "dtype", "shape", "rate", "codec", "GOP", "decoded/sample", "NVDEC"},
	}
	var problems [][2]string
	for _, s := range r.Streams {
		row := []string{
			s.Key,
			string(s.Kind),
			s.DType.String(),
			strings.ReplaceAll(fmt.Sprint(s.Shape), " ", ","),
			rateText(&s),
			s.Codec,
		}
		if s.GOP > 0 {
			row = append(
				row,
				strconv.FormatFloat(s.GOP, 'f', 1, 64),
				strconv.FormatFloat(s.Decoded, 'f', 1, 64),
				"yes",
			)
		}
		if s.NotNVDEC != "" {
			row[len(row)-1] = "no"
			problems = append(problems, [2]string{"decoded on the CPU: " + s.NotNVDEC, s.Key})
		}
		if s.Problem != "" {
			problems = append(problems, [2]string{s.Problem, s.Key})
		}
		rows = append(rows, row)
	}
	printTable(w, rows)
	printProblems(w, problems)
	if r.Decoding != nil {
		printDecoding(w, r.Decoding)
	}
	fmt.Fprintf(w, "\ntasks (%d)\n", len(r.Tasks))
	for i, t := range r.Tasks {
		if i == 10 {
			fmt.Fprintf(w, "  … and %d more\n", len(r.Tasks)-i)
			break
		}
		fmt.Fprintf(w, "  %d  %s\n", t.Index, t.Text)
	}
	if len(r.Stats) == 0 {
		fmt.Fprintln(w, "\nno statistics stored ('robocache stats' computes them)")
	} else {
		fmt.Fprintf(w, "\nstatistics stored for %d features\n", len(r.Stats))
	}
	if len(r.Findings) > 0 {
		fmt.Fprintln(w, "\nnoticed while opening")
		printFindings(w, r.Findings)
	}
}

// rateText formats a rate. A measured rate has a tilde, and an unknown rate is a dash.
func rateText(s *inspect.Stream) string {
	switch {
	case s.RateHz == 0:
		return "–"
	case s.Measured:
		return "~" + strconv.FormatFloat(s.RateHz, 'g', 4, 64) + " Hz"
	}
	return strconv.FormatFloat(s.RateHz, 'g', 6, 64) + " Hz"
}

func printEpisode(w io.Writer, r *inspect.EpisodeReport) {
	line := fmt.Sprintf("episode %d: %d rows", r.Index, r.Length)
	if len(r.Tasks) > 0 {
		line += "; " + strings.Join(r.Tasks, " | ")
	}
	fmt.Fprintln(w, line)
	if o := r.Origin; o != nil && o.File+o.Checksum != "" {
		file := o.File
		if o.LastFile != "" {
			file += " to " + path.Base(o.LastFile)
		}
		fmt.Fprintf(w, "  from episode %d of %s %s %s\n", o.Episode, o.Dataset, file, o.Checksum)
	}
	rows := [][]string{
		{
			"key",
			"kind",
			"rows",
			"first s",
			"last s",
			"rate",
			"jitter ms",
			"max gap ms",
			"gaps",
			"repeated",
		},
	}
	for _, s := range r.Streams {
		// The row is for a stream without known times.
		row := []string{
			s.Key,
			string(s.Kind),
			strconv.Itoa(s.Rows),
			"–",
			"–",
			"–",
			"–",
			"–",
			"–",
			"–",
		}
		if s.FirstNS != nil && s.LastNS != nil {
			row[3], row[4] = fmt.Sprintf("%.6f", float64(*s.FirstNS)/1e9),
				fmt.Sprintf("%.6f", float64(*s.LastNS)/1e9)
		}
		if s.JitterMS != nil && s.MaxGapMS != nil {
			copy(
				row[5:],
				[]string{
					fmt.Sprintf("%.3f Hz", s.RateHz),
					fmt.Sprintf("%.3f", *s.JitterMS),
					fmt.Sprintf("%.1f", *s.MaxGapMS),
					strconv.Itoa(s.Gaps),
					strconv.Itoa(s.Repeated),
				},
			)
		}
		rows = append(rows, row)
	}
	printTable(w, rows)
	var problems [][2]string
	for _, s := range r.Streams {
		if s.Problem != "" {
			problems = append(problems, [2]string{s.Problem, s.Key})
		}
	}
	printProblems(w, problems)
}
