package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/diff"
	"github.com/goatnote-inc/robocache/verbs"
)

func newDiff() *cobra.Command {
	var r verbs.DiffRequest
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "how a dataset differs from another one of any format",
		Long: `diff matches the episodes of two datasets by content, not by number, and lists those that were added,
removed, moved (another number) and changed. For a changed episode it lists rows that were cut off or
inserted, tasks, timestamps, values and frames. It also compares features, metadata and the stored
statistics. Numbers are compared by value, whatever type stores them.

--frames packets compares the coded bytes of cameras. --frames pixels also decodes the frames whose
bytes differ, and reports their PSNR. The exit code is 3 if the datasets differ, and 0 if they do not.`,
		Example: `  robocache diff ./before ./after
  robocache diff ./recording.mcap ./converted --frames pixels --json
  robocache diff ./set hf://datasets/owner/name --frames none`,
		Args: cobra.ExactArgs(2),
	}
	addOpening(c, &r.Opening)
	c.Flags().StringVar(&r.Frames, "frames", diff.FramesPackets, "how cameras are compared: "+
		"packets (coded bytes), pixels (decodes what differs) or none")
	c.Flags().IntVar(&r.Threads, "threads", 0, "episodes that are read at once (default: one per "+
		"processor)")
	rejectEmpty(c, "frames")
	return addRun(c, &r, verbs.Diff, func(w io.Writer, d *verbs.Differences) {
		printDiff(w, d.Report)
	})
}

// maxListed is the number of entries of a list that the text shows.
const maxListed = 20

func printDiff(w io.Writer, r *diff.Report) {
	for i, side := range []diff.Side{r.A, r.B} {
		fmt.Fprintf(w, "%s: %s: %s %s, %d episodes, %d frames\n", "AB"[i:i+1], side.URI,
			side.Format, side.Version, side.Episodes, side.Frames)
	}
	n := r.Counts
	fmt.Fprintf(w, "episodes: %d equal, %d changed, %d moved, %d added, %d removed\n",
		n.Equal, n.Changed, n.Moved, n.Added, n.Removed)
	for _, p := range r.Metadata {
		fmt.Fprintf(w, "%s\n", p)
	}
	for _, f := range r.Features {
		to := ""
		if f.To != "" {
			to = " to " + f.To
		}
		fmt.Fprintf(w, "feature %s %s%s\n", f.Key, f.Change, to)
		for _, p := range f.Properties {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}
	listSome(w, r.Removed, func(e diff.Episode) string {
		return fmt.Sprintf("removed: episode %d of A, %d rows, %s", e.Index, e.Length, tasksText(e))
	})
	listSome(w, r.Added, func(e diff.Episode) string {
		return fmt.Sprintf("added: episode %d of B, %d rows, %s", e.Index, e.Length, tasksText(e))
	})
	listSome(w, r.Moved, func(m diff.Move) string {
		if m.Count == 1 {
			return fmt.Sprintf("moved: episode %d is %d in B", m.A, m.B)
		}
		last := int64(m.Count) - 1
		return fmt.Sprintf("moved: episodes %d-%d are %d-%d in B", m.A, m.A+last, m.B, m.B+last)
	})
	listSome(w, r.Changed, changeText)
	listSome(w, r.Statistics, func(s diff.Statistic) string {
		return fmt.Sprintf(
			"statistics of %s: %s differs%s",
			s.Key,
			s.Name,
			diff.ByText(s.MaxDifference),
		)
	})
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	if !r.Different {
		fmt.Fprintln(w, "the datasets are equal")
	}
}

// listSome prints the first entries of a list, and the number of the others.
func listSome[T any](w io.Writer, list []T, text func(x T) string) {
	for _, x := range list[:min(maxListed, len(list))] {
		fmt.Fprintln(w, text(x))
	}
	if more := len(list) - maxListed; more > 0 {
		fmt.Fprintf(w, "  and %d more: --json lists all\n", more)
	}
}

func tasksText(e diff.Episode) string { return fmt.Sprintf("%q", e.Tasks) }

// changeText describes a changed episode on several lines.
func changeText(c diff.Change) string {
	text := fmt.Sprintf("changed: episode %d", c.A)
	if c.A != c.B {
		text += fmt.Sprintf(" (%d in B)", c.B)
	}
	return strings.Join(append([]string{text}, c.Lines()...), "\n  ")
}
