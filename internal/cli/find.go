package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/verbs"
)

func newFind() *cobra.Command {
	var r verbs.FindRequest
	c := &cobra.Command{
		Use:   "find URI [EXPR]",
		Short: "episodes and rows for which an expression over signals is true",
		Long: `find evaluates an expression for each episode and prints ranges of rows (docs/find.md).

An expression about an episode (length, duration, task, index; min, max, mean, std, first, last,
count of a signal) finds whole episodes. A comparison of a signal, rising, falling, FOR, WHILE and
THEN find rows. A signal is KEY, KEY[channel] or the name of a channel that one stream has.

--index builds an index of all numeric columns once. It is used by later searches as long as the
dataset does not change.`,
		Example: `  robocache find ./my_dataset 'length < 30 or max(action[gripper]) > 1.2'
  robocache find ./my_dataset 'falling(gripper) while z > 0.2 for 0.5s' --csv ranges.csv
  robocache find ./my_dataset 'rising(contact) then falling(contact) within 2s' --limit 20
  robocache find ./my_dataset 'speed(state) < 0.01 for 2s' --flags flags.json --label idle
  robocache find ./my_dataset --index`,
		Args: cobra.RangeArgs(1, 2),
	}
	addOpening(c, &r.Opening)
	addGrid(c, &r.HZ)
	addEpisodes(c, &r.Episodes)
	fl := c.Flags()
	fl.IntVar(&r.Limit, "limit", 0, "print at most so many ranges (0: all)")
	fl.StringVar(&r.CSV, "csv", "", "write the ranges to this file: episode,from,to,from_s,to_s")
	fl.StringVar(&r.Flags, "flags", "",
		"write the ranges to this file of flags, which view and edit read")
	fl.StringVar(&r.Label, "label", "found", "the label of these flags, which replace its others")
	fl.BoolVar(&r.Index, "index", false, "build the index of columns if there is no current one")
	fl.StringVar(&r.IndexBudget, "index-budget", verbs.DefaultIndexBudget,
		"the largest size of the index")
	fl.IntVar(&r.Threads, "threads", 0, "episodes that are read at once (0: the number of CPUs)")
	rejectEmpty(c, "label", "index-budget", "csv", "flags")
	return addRun(c, &r, verbs.Find, printFound)
}

// printFound prints the ranges as a table.
func printFound(w io.Writer, r *verbs.Found) {
	if x := r.Index; x != nil && x.Built {
		fmt.Fprintf(w, "wrote %s: %d columns, %s\n", x.File, len(x.Keys), bytesText(x.Bytes))
		if len(x.LeftOut) > 0 {
			fmt.Fprintln(w, "not in the index:", strings.Join(x.LeftOut, ", "))
		}
	}
	if r.Expression == "" {
		return
	}
	rows := [][]string{{"episode", "rows", "seconds"}}
	for _, x := range r.Ranges {
		rows = append(rows, []string{
			strconv.FormatInt(x.Episode, 10), fmt.Sprintf("%d-%d", x.From, x.To-1),
			fmt.Sprintf("%.3f-%.3f", x.FromS, x.ToS),
		})
	}
	if len(r.Ranges) > 0 {
		printTable(w, rows)
	}
	fmt.Fprintf(w, "%d ranges with %d rows in %d episodes\n", len(r.Ranges), r.Rows,
		len(r.Episodes))
}
