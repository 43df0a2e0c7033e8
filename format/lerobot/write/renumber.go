package write

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// renumber returns a function that rewrites a file of a shard with lower numbers of episodes and
// rows, or nil if the file has no numbers.
//
// Renumbering is rare: an episode was left out, or a shard is missing. The tables are small
// compared with the mp4s, which hold no numbers. It therefore uses the row interface of the Parquet
// library, although it is slow.
func renumber(
	name string,
	episodes int,
	rows int64,
) func(context.Context, robocache.Ranged, io.Writer) error {
	var less map[string]int64 // subtracted per column
	switch {
	case strings.HasPrefix(name, "data/"):
		less = map[string]int64{"episode_index": int64(episodes), "index": rows}
	case strings.HasPrefix(name, "meta/episodes/"):
		less = map[string]int64{
			"episode_index":      int64(episodes),
			"dataset_from_index": rows,
			"dataset_to_index":   rows,
		}
		for _, s := range []string{"min", "max", "mean", "q01", "q10", "q50", "q90", "q99"} {
			less["stats/episode_index/"+s] = int64(episodes)
			less["stats/index/"+s] = rows
		}
	default:
		return nil
	}
	return func(ctx context.Context, in robocache.Ranged, out io.Writer) (err error) {
		defer crash.Recover("commit", &err)
		return subtractColumns(ctx, in, out, less)
	}
}

// shiftRow subtracts shift[column] from the numbers of a row. Nulls and other columns stay.
func shiftRow(row parquet.Row, shift map[int]int64) {
	for k, v := range row {
		by, ok := shift[v.Column()]
		switch {
		case !ok || v.IsNull():
		case v.Kind() == parquet.Int64:
			row[k] = parquet.Int64Value(v.Int64()-by).
				Level(v.RepetitionLevel(), v.DefinitionLevel(), v.Column())
		case v.Kind() == parquet.Double:
			row[k] = parquet.DoubleValue(v.Double()-float64(by)).
				Level(v.RepetitionLevel(), v.DefinitionLevel(), v.Column())
		}
	}
}

// subtractColumns copies a Parquet file row group by row group. less holds, for some columns by
// name, the number to subtract from each value.
func subtractColumns(
	ctx context.Context,
	in robocache.Ranged,
	out io.Writer,
	less map[string]int64,
) error {
	f, err := parquet.OpenFile(store.ReaderAt{Ctx: ctx, File: in}, in.Size())
	if err != nil {
		return err
	}
	shift := map[int]int64{}
	for i, column := range f.Schema().Columns() {
		if n, ok := less[column[0]]; ok {
			shift[i] = n
		}
	}
	options := []parquet.WriterOption{
		f.Schema(),
		parquet.Compression(&parquet.Snappy),
		parquet.CreatedBy(writerIdentity, writerFormatVersion, ""),
	}
	for _, kv := range f.Metadata().KeyValueMetadata {
		options = append(options, parquet.KeyValueMetadata(kv.Key, kv.Value))
	}
	w := parquet.NewWriter(out, options...)
	for _, group := range f.RowGroups() {
		rows := group.Rows()
		buf := make([]parquet.Row, 64)
		for done := false; !done; {
			n, err := rows.ReadRows(buf)
			done = errors.Is(err, io.EOF)
			if err != nil && !done {
				return err
			}
			for _, row := range buf[:n] {
				shiftRow(row, shift)
			}
			if _, err := w.WriteRows(buf[:n]); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := rows.Close(); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return w.Close()
}
