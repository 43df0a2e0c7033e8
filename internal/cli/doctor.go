package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/edit"
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
	Fix      *edit.Fixed         `json:"fix,omitempty"` // of --fix

	verbose bool // the text lists every finding
}

func newDoctor() *cobra.Command {
	var open openFlags
	var opt robocache.DiagnoseOptions
	var fix, dropBad, inPlace, verbose bool
	var episodes string
	c := &cobra.Command{
		Use:   "doctor URI [DST]",
		Short: "prove that a dataset is what it claims, and say what is wrong with it",
		Long: `doctor reads every row and every video sample table of a dataset and reports what does not fit:
rows without an image, drifting or lost frames, gaps, NaN, wrong counts, lying codecs, missing files, false statistics;
of recordings with several clocks also late starts, offsets and drifts between the clocks and between streams that share motion.
It changes nothing. Exit code 3 where an error or a warning was found.
--fix lists the findings that an edit removes, and those that none can. With DST (or --in-place) it makes that edit and examines the
result: exit code 1 if a finding stayed. --decode and --deep apply to both examinations; --drop-bad leaves out the episodes that stay damaged.`,
		Example: `  robocache doctor ./my_dataset
  robocache doctor ./my_dataset --decode --json
  robocache doctor ./my_dataset --fix
  robocache doctor ./my_dataset ./fixed --fix
  robocache doctor ./my_dataset ./fixed --fix --decode --drop-bad`,
		Args: cobra.RangeArgs(1, 2),
	}
	open.add(c)
	open.repair = true
	c.Flags().BoolVar(&opt.Decode, "decode", false, "also decode every image (slow)")
	c.Flags().BoolVar(&opt.Deep, "deep", false, "also read every column of every data file to its last page (LeRobot; other formats are read to their end without it)")
	addEpisodes(c, &episodes)
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every finding, instead of the first places of each code")
	c.Flags().BoolVar(&fix, "fix", false, "plan the edit that removes findings; with DST or --in-place, make it")
	c.Flags().BoolVar(&dropBad, "drop-bad", false, "with --fix: leave out episodes with findings that no edit removes")
	c.Flags().BoolVar(&inPlace, "in-place", false, "with --fix: put the result in the place of the dataset ('edit undo' gives it back)")
	return answers(c, func(cmd *cobra.Command, args []string) (*Diagnosis, error, error) {
		ctx := cmd.Context()
		if fix {
			if episodes != "" {
				return nil, nil, misuse("doctor: --episodes does not go with --fix, which writes a whole dataset")
			}
			settled, err := open.settled()
			if err != nil {
				return nil, nil, err
			}
			return fixed(cmd, &edit.Request{Sources: args[:1], DST: strings.Join(args[1:], ""), InPlace: inPlace, DryRun: len(args) < 2 && !inPlace, Open: settled}, opt, dropBad)
		}
		if dropBad || inPlace || len(args) > 1 {
			return nil, nil, misuse("doctor: a destination, --in-place and --drop-bad go with --fix")
		}
		ds, err := open.open(ctx, args[0])
		if err != nil {
			return nil, nil, err
		}
		defer ds.Close()
		if opt.Episodes, err = ds.Info().ParseEpisodes(episodes); err != nil {
			return nil, nil, err
		}
		opt.Progress = inUnit(newProgress(cmd, "doctor"), "parts")
		runValue, err := diagnose.Run(ctx, ds, opt)
		if err != nil {
			return nil, nil, err
		}
		wouldLookAheadValue, err := wouldLookAhead(ctx, ds)
		if err != nil {
			return nil, nil, err
		}
		findings := append(runValue, wouldLookAheadValue...)
		info := ds.Info()
		d := &Diagnosis{URI: info.URI, Format: info.Format, Version: info.Version, Episodes: info.Episodes, Frames: info.Frames, Findings: append([]robocache.Finding{}, findings...), verbose: verbose}
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
		if d.Fix != nil {
			printFixed(w, d.Fix)
			return
		}
		if d.verbose {
			printFindings(w, d.Findings)
		} else {
			printSummary(w, d.Findings)
		}
		fmt.Fprintf(w, "%s, %d episodes, %d frames: %d errors, %d warnings\n", strings.TrimSpace(d.Format+" "+d.Version), d.Episodes, d.Frames, d.Errors, d.Warnings)
	})
}

// fixed is the answer of doctor --fix.
func fixed(
	cmd *cobra.Command, req *edit.Request, look robocache.DiagnoseOptions, dropBad bool,
) (*Diagnosis, error, error) {
	x, err := edit.Fix(cmd.Context(), req, look, dropBad)
	if err != nil {
		return nil, nil, err
	}
	d := &Diagnosis{URI: req.Sources[0], Findings: append(append([]robocache.Finding{}, x.Fixable...), x.Beyond...), Fix: x}
	if r := x.Report; r != nil {
		d.Format, d.Episodes, d.Frames = r.Format, r.Episodes, r.Frames
	}
	for _, f := range d.Findings {
		if f.Severity == robocache.SeverityError {
			d.Errors++
		} else {
			d.Warnings++
		}
	}
	switch {
	case len(x.Stayed) > 0:
		return d, fmt.Errorf("doctor --fix: %d findings stayed", len(x.Stayed)), nil
	case req.DryRun || x.Report == nil: // nothing was done: what was found is still there
		return d, verdict(d.Findings), nil
	}
	return d, nil, nil
}

func printFixed(w io.Writer, x *edit.Fixed) {
	list := func(what string, findings []robocache.Finding) {
		if len(findings) > 0 {
			fmt.Fprintln(w, what)
			printFindings(w, findings)
		}
	}
	done := x.Report != nil && !x.Report.DryRun
	list(map[bool]string{true: "fixed by writing the dataset anew:", false: "an edit fixes, by writing the dataset anew:"}[done], x.Fixable)
	list("no edit gives back:", x.Beyond)
	if len(x.Dropped) > 0 {
		fmt.Fprintln(w, "left out: the episodes", x.Dropped)
	} else if len(x.Beyond) > 0 {
		fmt.Fprintln(w, "--drop-bad leaves out the episodes that these name")
	}
	if x.Report != nil {
		fmt.Fprint(w, x.Report.Text())
	}
	if x.Error != "" {
		fmt.Fprintln(w, "no edit can be made:", x.Error)
	} else if !done && len(x.Fixable)+len(x.Dropped) > 0 {
		fmt.Fprintln(w, "pass a destination, or --in-place, to make this edit")
	}
	switch {
	case len(x.Stayed) > 0:
		list("the doctor still finds:", x.Stayed)
	case done:
		fmt.Fprintln(w, "the doctor finds nothing any more")
	case len(x.Fixable)+len(x.Beyond) == 0:
		fmt.Fprintln(w, "nothing to fix")
	}
}
