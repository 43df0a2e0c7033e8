package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/verbs"
)

func newDoctor() *cobra.Command {
	var r verbs.DoctorRequest
	c := &cobra.Command{
		Use:   "doctor URI [DST]",
		Short: "prove that a dataset is what it claims, and say what is wrong with it",
		Long: `doctor reads every row and every video sample table of a dataset and reports faults: rows without
an image, drifting or lost frames, gaps, NaN, wrong counts, wrong codecs, missing files, wrong
statistics. For recordings with several clocks it also reports late starts, and offsets and drifts
between clocks and between streams that share motion. It changes nothing. The exit code is 3 if
there is an error or a warning.

--fix lists the findings that an edit removes, and those that no edit removes. With DST (or
--in-place) it makes that edit and examines the result. The exit code is 1 if a finding remains.
--decode and --deep apply to both examinations. --drop-bad leaves out the episodes that stay
damaged.`,
		Example: `  robocache doctor ./my_dataset
  robocache doctor ./my_dataset --decode --json
  robocache doctor ./my_dataset --fix
  robocache doctor ./my_dataset ./fixed --fix
  robocache doctor ./my_dataset ./fixed --fix --decode --drop-bad`,
		Args: cobra.RangeArgs(1, 2),
	}
	addOpening(c, &r.Opening)
	c.Flags().BoolVar(&r.Decode, "decode", false, "also decode every image (slow)")
	c.Flags().
		BoolVar(
			&r.Deep,
			"deep",
			false,
			"also read every column of every data file to its last page (LeRobot; other formats "+
				"are read to their end without it)",
		)
	addEpisodes(c, &r.Episodes)
	c.Flags().
		BoolVarP(
			&r.Verbose,
			"verbose",
			"v",
			false,
			"list every finding, instead of the first places of each code",
		)
	c.Flags().
		BoolVar(
			&r.Fix,
			"fix",
			false,
			"plan the edit that removes findings; with DST or --in-place, make it",
		)
	c.Flags().
		BoolVar(
			&r.DropBad,
			"drop-bad",
			false,
			"with --fix: leave out episodes with findings that no edit removes",
		)
	c.Flags().
		BoolVar(
			&r.InPlace,
			"in-place",
			false,
			"with --fix: put the result in the place of the dataset ('edit undo' gives it back)",
		)
	return addRun(c, &r, verbs.Doctor, func(w io.Writer, d *verbs.Diagnosis) {
		if d.Fix != nil {
			printFixed(w, d.Fix)
			return
		}
		if r.Verbose {
			printFindings(w, d.Findings)
		} else {
			printSummary(w, d.Findings)
		}
		fmt.Fprintf(
			w,
			"%s, %d episodes, %d frames: %d errors, %d warnings\n",
			strings.TrimSpace(d.Format+" "+d.Version),
			d.Episodes,
			d.Frames,
			d.Errors,
			d.Warnings,
		)
	})
}

func printFixed(w io.Writer, x *edit.Fixed) {
	list := func(what string, findings []robocache.Finding) {
		if len(findings) > 0 {
			fmt.Fprintln(w, what)
			printFindings(w, findings)
		}
	}
	done := x.Report != nil && !x.Report.DryRun
	list(
		map[bool]string{
			true:  "fixed by rewriting the dataset:",
			false: "an edit can fix, by rewriting the dataset:",
		}[done],
		x.Fixable,
	)
	list("no edit can fix:", x.Beyond)
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
