package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Diagnosis is what `robocache doctor --json` prints.
type Diagnosis struct {
	URI      string              `json:"uri"`
	Format   string              `json:"format"`
	Version  string              `json:"version"`
	Episodes int                 `json:"num_episodes"`
	Frames   int64               `json:"num_frames"`
	Findings []robocache.Finding `json:"findings"`
	Errors   int                 `json:"errors"`
	Warnings int                 `json:"warnings"`
}

func newDoctor() *cobra.Command {
	var open openFlags
	var opt robocache.DiagnoseOptions
	c := &cobra.Command{
		Use:   "doctor URI",
		Short: "prove that a dataset is what it claims, and say what is wrong with it",
		Long: `doctor reads every row and every video sample table of a dataset and reports what does not fit:
rows without an image, drifting or lost frames, gaps, NaN, wrong counts, lying codecs, missing files, false statistics;
of recordings with several clocks also late starts, offsets and drifts between the clocks and between streams that share motion.
It changes nothing. Exit code 3 where an error or a warning was found.`,
		Example: `  robocache doctor ./my_dataset
  robocache doctor ./my_dataset --decode --json`,
		Args: cobra.ExactArgs(1),
	}
	open.add(c)
	c.Flags().BoolVar(&opt.Decode, "decode", false, "also decode every image (slow)")
	c.Flags().BoolVar(&opt.Deep, "deep", false, "also read every column of every data file to its last page (LeRobot; other formats are read to their end without it)")
	c.Flags().IntSliceVar(&opt.Episodes, "episodes", nil, "only these episodes")
	return answers(c, func(cmd *cobra.Command, args []string) (*Diagnosis, error, error) {
		ctx := cmd.Context()
		ds := open.open(ctx, args[0])
		defer ds.Close()
		opt.Progress = progress(cmd, "doctor")
		findings := guard.Must(diagnose.Run(ctx, ds, opt))
		info := ds.Info()
		d := &Diagnosis{URI: info.URI, Format: info.Format, Version: info.Version, Episodes: info.Episodes, Frames: info.Frames, Findings: append([]robocache.Finding{}, findings...)}
		for _, f := range findings {
			switch f.Severity {
			case robocache.SeverityError:
				d.Errors++
			case robocache.SeverityWarning:
				d.Warnings++
			}
		}
		return d, verdict(findings), nil
	}, func(w io.Writer, d *Diagnosis) {
		printFindings(w, d.Findings)
		fmt.Fprintf(w, "%s, %d episodes, %d frames: %d errors, %d warnings\n", strings.TrimSpace(d.Format+" "+d.Version), d.Episodes, d.Frames, d.Errors, d.Warnings)
	})
}
