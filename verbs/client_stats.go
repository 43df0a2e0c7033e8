package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// ClientStats holds the options of statistics in the form of a training client.
type ClientStats struct {
	// For is the client: lerobot, openpi or gr00t; empty: lerobot.
	For string `json:"for"`
	// Horizon is the number of rows of an action window; 0: 50 for openpi, 16 for gr00t.
	Horizon int `json:"horizon"`
	// Relative lists what is relative to the state: columns of the action such as 0-13 for openpi,
	// groups of meta/modality.json such as left_arm for gr00t.
	Relative []string `json:"relative"`
	// Exact gives openpi exact quantiles over all windows, in place of its running histograms over
	// whole batches of 32.
	Exact bool `json:"exact"`
	// State and Action are the keys of the streams; empty: observation.state and action.
	State  string `json:"state"`
	Action string `json:"action"`
}

// Sizes of openpi's running statistics.
const (
	openpiBins    = 5000
	openpiBatch   = 32
	openpiHorizon = 50
	gr00tHorizon  = 16
)

// clientFiles is the statistics of a client: the files that it reads, by name.
type clientFiles map[string]any

// check rejects options that the client does not use.
func (c *ClientStats) check() error {
	given := c.Horizon != 0 || c.Relative != nil || c.Exact || c.State != "" || c.Action != ""
	switch name := optionName; {
	case !slices.Contains([]string{"", "lerobot", "openpi", "gr00t"}, c.For):
		return misuse("%s: expected lerobot, openpi or gr00t, found %q", name("for"), c.For)
	case !c.ofWindows() && given:
		return misuse("%s, %s, %s, %s and %s are for %s", name("horizon"), name("relative"),
			name("exact"), name("state"), name("action"), robocache.Option("for", "openpi"))
	case c.For == "gr00t" && c.Exact:
		return misuse("%s is for %s: the quantiles of gr00t are exact", name("exact"),
			robocache.Option("for", "openpi"))
	case c.Horizon < 0:
		return misuse("%s: expected a number of rows, found %d", name("horizon"), c.Horizon)
	}
	return nil
}

// ofWindows reports whether the client's statistics count windows.
func (c *ClientStats) ofWindows() bool { return c.For == "openpi" || c.For == "gr00t" }

// compute returns the files of the client and the statistics in them.
func (c *ClientStats) compute(
	ctx context.Context, ds robocache.Dataset, opt stats.WindowOptions,
) (clientFiles, robocache.Stats, error) {
	state, action := cmp.Or(c.State, "observation.state"), cmp.Or(c.Action, "action")
	if c.For == "gr00t" {
		return c.gr00t(ctx, ds, state, action, opt)
	}
	f := ds.Info().Feature(action)
	vectors := map[string]*stats.WindowVector{
		"state": {Parts: []stats.WindowPart{{Key: state, Round: true}}},
		"actions": {
			Parts: []stats.WindowPart{{Key: action, Round: true}},
			Rows:  rowsTo(cmp.Or(c.Horizon, openpiHorizon)),
		},
	}
	if f != nil && c.Relative != nil {
		columns, err := relativeColumns(c.Relative, f.Elements())
		if err != nil {
			return nil, nil, err
		}
		part := &vectors["actions"].Parts[0]
		part.Reference, part.ReferenceColumns = state, columns
	}
	if !c.Exact {
		opt.Histogram, opt.Batch, opt.DropLast = openpiBins, openpiBatch, true
	}
	counted, err := stats.Windows(ctx, ds, vectors, opt)
	if err != nil {
		return nil, nil, err
	}
	out := map[string]any{}
	for key, fs := range counted {
		out[key] = namedVectors(fs, "mean", "std", "q01", "q99")
	}
	return clientFiles{"norm_stats.json": map[string]any{"norm_stats": out}}, counted, nil
}

// gr00t returns the statistics of all float columns, and those of relative groups per row of a
// window that lies in its episode.
func (c *ClientStats) gr00t(
	ctx context.Context, ds robocache.Dataset, state, action string, opt stats.WindowOptions,
) (clientFiles, robocache.Stats, error) {
	vectors := map[string]*stats.WindowVector{}
	whole, relative := map[string]any{}, map[string]any{}
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if f.RowBytes() > 0 && f.DType.Float() && f.Clock == "" {
			vectors[f.Key] = &stats.WindowVector{
				Parts: []stats.WindowPart{{Key: f.Key, Round: true}}, SingleSums: true,
			}
			whole[f.Key] = nil
		}
	}
	for _, name := range c.Relative {
		from, to := ds.Info().Group("state", name), ds.Info().Group("action", name)
		if from == nil || to == nil || from.End-from.Start != to.End-to.Start {
			return nil, nil, misuse("%s %s: expected a group of equal width in state and action",
				optionName("relative"), name)
		}
		part := stats.WindowPart{
			Key:       cmp.Or(to.Key, action),
			Columns:   columnRange(to.Start, to.End),
			Reference: cmp.Or(from.Key, state), ReferenceColumns: columnRange(from.Start, from.End),
		}
		vectors["relative "+name] = &stats.WindowVector{
			Parts: []stats.WindowPart{part}, Rows: rowsTo(cmp.Or(c.Horizon, gr00tHorizon)),
			Beyond: stats.BeyondDrop, PerStep: true, SingleSums: true,
		}
		relative[name] = nil
	}
	counted, err := stats.Windows(ctx, ds, vectors, opt)
	if err != nil {
		return nil, nil, err
	}
	names := []string{"mean", "std", "min", "max", "q01", "q99"}
	for key := range whole {
		whole[key] = namedVectors(counted[key], names...)
	}
	for name := range relative {
		relative[name] = namedVectors(counted["relative "+name], names...)
	}
	files := clientFiles{"stats.json": whole}
	if len(relative) > 0 {
		files["relative_stats.json"] = relative
	}
	return files, counted, nil
}

// namedVectors returns some statistics with their axes, by name.
func namedVectors(fs *robocache.FeatureStats, names ...string) map[string]any {
	out := map[string]any{}
	for _, n := range names {
		v := stats.Vector(fs, n)
		if out[n] = v; len(fs.Shape) == 2 {
			out[n] = slices.Collect(slices.Chunk(v, fs.Shape[1]))
		}
	}
	return out
}

// rowsTo returns 0 to n−1.
func rowsTo(n int) []int { return columnRange(0, n) }

func columnRange(from, to int) (out []int) {
	for k := from; k < to; k++ {
		out = append(out, k)
	}
	return out
}

// relativeColumns returns for each of n columns the column of the state, or −1. ranges are such as
// 0-5 and 7.
func relativeColumns(ranges []string, n int) ([]int, error) {
	out := slices.Repeat([]int{-1}, n)
	for _, text := range ranges {
		first, last, isRange := strings.Cut(text, "-")
		a, err := strconv.Atoi(first)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b >= n {
			return nil, misuse("%s: expected columns from 0 to %d such as 0-5,7, found %s",
				optionName("relative"), n-1, text)
		}
		for k := a; k <= b; k++ {
			out[k] = k
		}
	}
	return out, nil
}

// write writes the files into a folder.
func (f clientFiles) write(ctx context.Context, folder string, o Observer) error {
	for name, content := range f {
		text, err := json.MarshalIndent(content, "", "    ")
		if err != nil {
			return robocache.Malformed("write statistics", robocache.Where{"file": name}, "").
				WithCause(err)
		}
		if err := store.WriteFile(ctx, folder, name, append(text, '\n')); err != nil {
			return err
		}
		o.note("wrote " + filepath.Join(folder, name))
	}
	return nil
}
