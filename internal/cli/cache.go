package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/verbs"
)

func newCache() *cobra.Command {
	c := &cobra.Command{
		Use:   "cache",
		Short: "what a cache on disk holds: list, prune, verify",
		Long: `A directory that a loader gets as cache= holds decoded images or ranges of remote files, in shards
that several processes share. Removing the cache costs time, but never data, because everything in
it can be made again. RoboCache removes only files that it created.`,
		Example: `  robocache cache ls /scratch/robocache
  robocache cache prune /scratch/robocache --budget 10GiB
  robocache cache verify /scratch/robocache --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misuse("cache " + strconv.Quote(args[0]) + ": expected ls, prune or verify")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return misuse("cache: expected ls, prune or verify")
		},
	}
	c.AddCommand(newCacheList(), newCachePrune(), newCacheVerify())
	return c
}

func newCacheList() *cobra.Command {
	c := &cobra.Command{
		Use:     "ls DIR",
		Short:   "shards, entries and bytes; the most recently used first",
		Example: "  robocache cache ls /scratch/robocache",
		Args:    cobra.ExactArgs(1),
	}
	return addRun(
		c,
		&verbs.CacheListRequest{},
		verbs.CacheList,
		func(w io.Writer, l *cache.Listing) {
			fmt.Fprintf(
				w,
				"%s\n  %s on disk in %d files, %d entries of %s",
				l.Dir,
				bytesText(l.Bytes),
				len(l.Shards),
				l.Entries,
				bytesText(l.DataBytes),
			)
			if l.Derived > 0 {
				fmt.Fprintf(w, "; %d derived streams", l.Derived)
			}
			if l.Foreign > 0 {
				fmt.Fprintf(w, "; %d other files, which are not ours", l.Foreign)
			}
			fmt.Fprintln(w)
			rows := [][]string{{"shard", "state", "on disk", "entries", "data", "last used"}}
			for _, s := range l.Shards {
				rows = append(
					rows,
					[]string{
						s.File,
						s.State,
						bytesText(s.Bytes),
						strconv.Itoa(s.Entries),
						bytesText(s.DataBytes),
						s.LastUsed.Format(time.DateTime),
					},
				)
			}
			if len(rows) > 1 {
				printTable(w, rows)
			}
		},
	)
}

func newCachePrune() *cobra.Command {
	var r verbs.CachePruneRequest
	c := &cobra.Command{
		Use:   "prune DIR --budget BYTES",
		Short: "remove shards and derived streams, the least recently used first, down to a budget",
		Long: `prune removes whole shards and derived streams, the least recently used first, until the cache
takes at most --budget bytes; 0 empties it. Shards that a running process is writing are kept. A
process that reads a removed shard keeps its mapping until it closes the shard.`,
		Example: `  robocache cache prune /scratch/robocache --budget 10GiB
  robocache cache prune /scratch/robocache --budget 0`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&r.Budget, "budget", "", "bytes that may stay, such as 10GiB")
	_ = c.MarkFlagRequired("budget")
	return addRun(c, &r, verbs.CachePrune, func(w io.Writer, p *cache.Pruned) {
		fmt.Fprintf(
			w,
			"%s\n  removed %d shards and %d derived streams (%s), %s left\n",
			p.Dir,
			p.Removed,
			p.RemovedDerived,
			bytesText(p.RemovedBytes),
			bytesText(p.Bytes),
		)
		if p.Recovered+p.Leftovers > 0 {
			fmt.Fprintf(
				w,
				"  of writers that died: %d shards sealed, %d empty ones removed\n",
				p.Recovered,
				p.Leftovers,
			)
		}
	})
}

func newCacheVerify() *cobra.Command {
	var r verbs.CacheVerifyRequest
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "read every entry and hold it against its checksum",
		Long: `verify reads every entry of every sealed shard. Damaged entries never reach a batch, because
entries are checked when they are first read, but they show a problem of the disk. The exit code
is 3 if there are any. --drop removes the shards with damaged entries.`,
		Example: `  robocache cache verify /scratch/robocache
  robocache cache verify /scratch/robocache --drop`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().BoolVar(&r.Drop, "drop", false, "remove shards that are damaged")
	return addRun(c, &r, verbs.CacheVerify, func(w io.Writer, v *verbs.Verification) {
		fmt.Fprintf(
			w,
			"%s\n  %d shards, %d entries, %s read: %d damaged\n",
			v.Dir,
			v.Shards,
			v.Entries,
			bytesText(v.Bytes),
			len(v.Damaged),
		)
		for _, d := range v.Damaged {
			fmt.Fprintf(
				w,
				"  %s: offset %d, %d bytes, key %s: %s\n",
				d.File,
				d.Offset,
				d.Bytes,
				d.Key,
				d.What,
			)
		}
		if v.Dropped > 0 {
			fmt.Fprintf(w, "  removed %d shards\n", v.Dropped)
		}
	})
}
