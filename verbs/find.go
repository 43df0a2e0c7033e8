package verbs

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"os"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// DefaultIndexBudget is the largest size of an index.
const DefaultIndexBudget = "16GiB"

// FindRequest holds the options of Find.
type FindRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// HZ is a rate to which all streams are resampled first.
	HZ string `json:"hz"`
	Search
}

// Search holds the options of a search in an open dataset.
type Search struct {
	// Expression is an expression of package query. It may be empty if an index is built.
	Expression string `json:"-" arg:"[EXPR]"`
	// Episodes lists the indices of the episodes to search, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	// Limit is the largest number of ranges; 0: all.
	Limit int `json:"limit"`
	// CSV is a file to write.
	CSV string `json:"csv"`
	// Flags is a file of flagged episodes, as edit and view read it. The ranges replace its flags
	// with Label.
	Flags string `json:"flags"`
	// Label is the label of the flags; empty: "found".
	Label string `json:"label"`
	// Index builds the index of columns if there is no current one.
	Index bool `json:"index"`
	// IndexBudget is the largest size of the index, such as 4GiB.
	IndexBudget string `json:"index_budget"`
	// Like is EPISODE:ROW: the frames that are most similar to that frame are found.
	Like string `json:"like"`
	// Text finds the frames that are most similar to a text.
	Text string `json:"text"`
	// TextModel is module:function, the function of Python that embeds Text.
	TextModel string `json:"text_model"`
	// Vector lists the numbers of an embedding, separated by commas, in place of Like or Text.
	Vector string `json:"vector" hidden:"true"`
	// Python is the Python that has TextModel.
	Python string `json:"python"`
	// Threads is the number of episodes that are read at once; 0: the number of CPUs.
	Threads int `json:"threads"`
}

// Found is the result of Find.
type Found struct {
	URI        string `json:"uri"`
	Expression string `json:"expression,omitempty"`
	// Whole reports whether the expression is about whole episodes.
	Whole  bool          `json:"whole_episodes"`
	Ranges []query.Range `json:"ranges"`
	// Episodes are the indices of the episodes in Ranges.
	Episodes []int64     `json:"episodes"`
	Rows     int64       `json:"num_rows"` // in all ranges
	Index    *FoundIndex `json:"index,omitempty"`
}

// FoundIndex describes the index that was used or built.
type FoundIndex struct {
	File    string   `json:"file"`
	Bytes   int64    `json:"bytes"`
	Keys    []string `json:"keys"`
	Built   bool     `json:"built"`
	LeftOut []string `json:"left_out,omitempty"` // streams that are read from the dataset
}

// Find returns the episodes and rows for which an expression is true.
func Find(ctx context.Context, r *FindRequest, o Observer) (*Found, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	ds, err := r.Opening.Open(ctx, r.URI, r.HZ)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	return r.Run(ctx, ds, o)
}

// check rejects options that contradict each other.
func (r *Search) check() error {
	asked := 0
	for _, text := range []string{r.Expression, r.Like, r.Text, r.Vector} {
		if text != "" {
			asked++
		}
	}
	switch {
	case asked == 0 && !r.Index:
		return misuse("find needs an expression, such as %q, or %s", "length < 30",
			robocache.Option("like"))
	case asked > 1:
		return misuse("find takes one of an expression, %s and %s", optionName("like"),
			optionName("text"))
	}
	if r.Limit < 0 {
		return robocache.Misuse("", nil, "%s", optionName("limit")).
			Expected("0 or more", strconv.Itoa(r.Limit))
	}
	return nil
}

// Run returns the episodes and rows of an open dataset for which the expression is true.
func (r *Search) Run(ctx context.Context, ds robocache.Dataset, o Observer) (*Found, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	positions, err := ds.Info().ParseEpisodes(r.Episodes)
	if err != nil {
		return nil, err
	}
	out := &Found{
		URI: ds.Info().URI, Expression: r.Expression, Ranges: []query.Range{},
		Episodes: []int64{},
	}
	index, err := r.openIndex(ctx, ds, out, o)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	if r.Like+r.Text+r.Vector != "" {
		ranges, err := r.findSimilar(ctx, ds, positions, o)
		if err != nil {
			return nil, err
		}
		return out, r.finish(ctx, ds, out, ranges)
	}
	if r.Expression == "" {
		return out, nil
	}
	e, err := query.Parse(r.Expression)
	if err != nil {
		return nil, err
	}
	b, err := e.Bind(ctx, ds, query.Options{Index: index, Threads: r.Threads})
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": out.URI})
	}
	ranges, err := b.Find(ctx, positions, r.Limit)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": out.URI})
	}
	out.Whole = b.IsWhole()
	return out, r.finish(ctx, ds, out, ranges)
}

// finish adds the ranges to the result and writes the files that the request names.
func (r *Search) finish(
	ctx context.Context, ds robocache.Dataset, out *Found, ranges []query.Range,
) error {
	out.add(ranges)
	if r.CSV != "" {
		if err := writeRanges(r.CSV, out.Ranges); err != nil {
			return err
		}
	}
	if r.Flags != "" {
		return query.WriteFlags(ctx, r.Flags, r.Label, ds, out.Ranges, out.Whole)
	}
	return nil
}

// add adds ranges to the result.
func (f *Found) add(ranges []query.Range) {
	f.Ranges = append(f.Ranges, ranges...)
	for _, x := range ranges {
		f.Rows += int64(x.To - x.From)
		if n := len(f.Episodes); n == 0 || f.Episodes[n-1] != x.Episode {
			f.Episodes = append(f.Episodes, x.Episode)
		}
	}
	slices.Sort(f.Episodes)
	f.Episodes = slices.Compact(f.Episodes)
}

// openIndex opens the index of the dataset. It builds the index first if the request asks for it
// and there is no current one. Without an index it returns nil.
func (r *Search) openIndex(
	ctx context.Context, ds robocache.Dataset, out *Found, o Observer,
) (*query.Index, error) {
	path, err := query.IndexPath(ds)
	if err != nil && r.Index {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	index, err := query.OpenIndex(ctx, path, ds)
	isStale := errors.Is(err, robocache.ErrMalformed)
	described := &FoundIndex{File: path}
	switch {
	case err == nil:
	case (isStale || errors.Is(err, robocache.ErrNotFound)) && r.Index:
		size, err := ParseBytes(cmp.Or(r.IndexBudget, DefaultIndexBudget))
		if err != nil {
			return nil, err
		}
		described.Built = true
		described.LeftOut, err = query.BuildIndex(ctx, path, ds, query.IndexOptions{
			Budget: size, Threads: r.Threads, Progress: o.countIn("episodes"),
		})
		if err != nil {
			return nil, err
		}
		if index, err = query.OpenIndex(ctx, path, ds); err != nil {
			return nil, err
		}
	case isStale:
		o.note("The index is not used: " + err.Error())
		return nil, nil
	case errors.Is(err, robocache.ErrNotFound):
		return nil, nil
	default:
		return nil, err
	}
	described.Bytes, described.Keys = index.Size(), index.Keys()
	out.Index = described
	return index, nil
}

// writeRanges writes ranges as CSV.
func writeRanges(path string, ranges []query.Range) (err error) {
	defer robocache.LocateIn(&err, "file", path)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := csv.NewWriter(file)
	_ = w.Write([]string{"episode", "from", "to", "from_s", "to_s"})
	seconds := func(s float64) string { return strconv.FormatFloat(s, 'g', -1, 64) }
	for _, x := range ranges {
		_ = w.Write([]string{
			strconv.FormatInt(x.Episode, 10), strconv.Itoa(x.From), strconv.Itoa(x.To),
			seconds(x.FromS), seconds(x.ToS),
		})
	}
	w.Flush()
	return w.Error() // the first error of any write
}
