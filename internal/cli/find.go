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
  robocache find ./my_dataset --index
  robocache find ./my_dataset --like 3:120 --limit 10`,
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
	fl.StringVar(&r.Like, "like", "", "EPISODE:ROW: the frames most similar to this one (embed)")
	fl.StringVar(&r.Text, "text", "", "the frames most similar to a text; needs --text-model")
	fl.StringVar(&r.TextModel, "text-model", "", "module:function of Python that embeds texts")
	fl.StringVar(&r.Python, "python", "", "the Python that has the model of texts")
	fl.IntVar(&r.Threads, "threads", 0, "episodes that are read at once (0: the number of CPUs)")
	rejectEmpty(c, "label", "index-budget", "csv", "flags", "like", "text")
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
	if r.Expression == "" && len(r.Ranges) == 0 {
		return
	}
	rows := [][]string{{"episode", "rows", "seconds"}}
	isScored := len(r.Ranges) > 0 && r.Expression == ""
	if isScored {
		rows[0] = append(rows[0], "similarity")
	}
	for _, x := range r.Ranges {
		rows = append(rows, []string{
			strconv.FormatInt(x.Episode, 10), fmt.Sprintf("%d-%d", x.From, x.To-1),
			fmt.Sprintf("%.3f-%.3f", x.FromS, x.ToS),
		})
		if isScored {
			rows[len(rows)-1] = append(rows[len(rows)-1], fmt.Sprintf("%.4f", x.Score))
		}
	}
	if len(r.Ranges) > 0 {
		printTable(w, rows)
	}
	fmt.Fprintf(w, "%d ranges with %d rows in %d episodes\n", len(r.Ranges), r.Rows,
		len(r.Episodes))
}

func newEmbed() *cobra.Command {
	var r verbs.EmbedRequest
	c := &cobra.Command{
		Use:   "embed URI --model module:function",
		Short: "vectors of frames by a model in Python, for find --like and --text",
		Long: `embed decodes the frames of a camera and calls a function of Python with batches of them (docs/find.md).
It stores the vectors in meta/embeddings.parquet. The function takes uint8 images (N, 3, H, W), as a
torch tensor if torch is installed and else as a NumPy array, and returns N vectors. embed runs a
Python that has robocache and the model (--python, else $ROBOCACHE_PYTHON, else the one on the path).`,
		Example: `  robocache embed ./my_dataset --model siglip:images --key observation.images.top
  robocache find ./my_dataset --like 3:120
  robocache find ./my_dataset --text "a hand holds the cup" --text-model siglip:texts`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	fl := c.Flags()
	fl.StringVar(&r.Model, "model", "", "module:function of Python from images to vectors")
	fl.StringVar(&r.Key, "key", "", "the camera (default: the only one)")
	fl.IntVar(&r.Every, "every", 1, "embed one of so many rows")
	fl.IntVar(&r.BatchSize, "batch-size", 64, "images in a call of the model")
	fl.StringVar(&r.Device, "device", "cpu", "where images are: cpu or cuda")
	fl.StringVar(&r.Python, "python", "", "the Python that has robocache and the model")
	mustConfigure(c.MarkFlagRequired("model"))
	return addRun(c, &r, verbs.Embed, func(w io.Writer, e *verbs.Embedded) {
		fmt.Fprintf(
			w,
			"wrote %s: %d vectors of %d numbers, of %s by %s\n",
			e.File,
			e.Count,
			e.Width,
			e.Key,
			e.Model,
		)
	})
}
