package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/verbs"
)

func newPlot() *cobra.Command {
	var r verbs.PlotRequest
	c := &cobra.Command{
		Use:   "plot URI",
		Short: "draw streams of an episode: PNG, SVG or HTML",
		Long: `plot draws streams of an episode one below the other, each at its own timestamps, on one axis with
the time of the whole episode. Without --keys it draws all streams except cameras. For a camera in
--keys it draws eight frames. The figure lists at its end what is not drawn.`,
		Example: `  robocache plot ./my_dataset --episode 3 -o episode.png
  robocache plot ./my_dataset --keys action,observation.state -o figure.svg
  robocache plot ./recording.mcap -o recording.html`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	addGrid(c, &r.HZ)
	optionalInt(
		c,
		&r.Episode,
		"episode",
		0,
		"the index of the episode (default: the first episode)",
	)
	c.Flags().
		StringSliceVar(
			&r.Keys,
			"keys",
			nil,
			"these streams, in this order; default: all but cameras",
		)
	c.Flags().
		StringVarP(
			&r.Out,
			"out",
			"o",
			"",
			"the file to write: its suffix selects the format (.png, .svg, .html)",
		)
	mustConfigure(c.MarkFlagRequired("out"))
	return addRun(c, &r, verbs.Plot, func(w io.Writer, r *inspect.Plotted) {
		fmt.Fprintf(w, "wrote %s: %d streams of episode %d\n", r.File, len(r.Streams), r.Episode)
		for _, n := range r.Notes {
			fmt.Fprintln(w, " ", n)
		}
	})
}
