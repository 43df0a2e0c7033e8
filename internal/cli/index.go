package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/verbs"
)

func newIndex() *cobra.Command {
	var r verbs.IndexRequest
	c := &cobra.Command{
		Use:   "index URI",
		Short: "write an index of recordings, so that a dataset of many files opens at once",
		Long: `index opens every recording of a folder once, and stores what opening needs in one small file:
.robocache-index in the dataset, or --out. Every later opening uses it and reads only recordings
that are new or changed. Run index again to add them.

It serves folders of MCAP, rosbag2 and HDF5 recordings and LeRobot v2, on disk and in buckets.
docs/index-of-recordings.md describes it. An index is always safe to delete.`,
		Example: `  robocache index ./recordings
  robocache index s3://lab/recordings
  robocache index /mnt/readonly/recordings --out recordings.index
  robocache inspect /mnt/readonly/recordings --recording-index recordings.index`,
		Args: cobra.ExactArgs(1),
	}
	addOpening(c, &r.Opening)
	c.Flags().StringVar(&r.Out, "out", "", "the index to write (default: .robocache-index in the "+
		"dataset)")
	return addRun(c, &r, verbs.IndexRecordings, func(w io.Writer, x *verbs.RecordingIndex) {
		fmt.Fprintf(
			w,
			"%s: %d records of %d episodes, %d added, %d changed, %d removed, %d bytes\n",
			x.Path,
			x.Recordings,
			x.Episodes,
			x.Added,
			x.Changed,
			x.Removed,
			x.Bytes,
		)
	})
}
