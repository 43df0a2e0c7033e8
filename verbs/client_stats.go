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
	// For is the client: lerobot, openpi, gr00t or all; empty: exact statistics of all rows.
	For string `json:"for"`
	// Horizon is the number of rows of an action window; 0: 50 for openpi, 16 for gr00t.
	Horizon int `json:"horizon"`
	// Partials is a folder that keeps what was read and counted, so that the next call reads only
	// new and changed episodes; empty: nothing is kept.
	Partials string `json:"partials"`
	// Relative lists what is relative to the state: columns of the action such as 0-13 for openpi,
	// groups of meta/modality.json such as left_arm for gr00t. For all, it has both.
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
	case !slices.Contains([]string{"", "lerobot", "openpi", "gr00t", "all"}, c.For):
		return misuse("%s: expected lerobot, openpi, gr00t or all, found %q", name("for"), c.For)
	case !c.ofWindows() && given:
		return misuse("%s, %s, %s, %s and %s are for %s", name("horizon"), name("relative"),
			name("exact"), name("state"), name("action"), robocache.Option("for", "openpi"))
	case c.For == "" && c.Partials != "":
		return misuse("%s is for %s, openpi, gr00t and all", name("partials"),
			robocache.Option("for", "lerobot"))
	case c.For == "gr00t" && c.Exact:
		return misuse("%s is for %s: the quantiles of gr00t are exact", name("exact"),
			robocache.Option("for", "openpi"))
	case c.Horizon < 0:
		return misuse("%s: expected a number of rows, found %d", name("horizon"), c.Horizon)
	}
	return nil
}

// ofWindows reports whether the client's statistics count windows.
func (c *ClientStats) ofWindows() bool { return c.For != "" && c.For != "lerobot" }

// isFor reports whether the statistics of a client are wanted.
func (c *ClientStats) isFor(client string) bool { return c.For == client || c.For == "all" }

// streams returns the keys of the action and the state.
func (c *ClientStats) streams() (action, state string) {
	return cmp.Or(c.Action, "action"), cmp.Or(c.State, "observation.state")
}

// heldKeys returns the streams that the clients count, which are read once.
func (c *ClientStats) heldKeys(info *robocache.Info, keys []string) (held []string) {
	action, state := c.streams()
	for i := range info.Features {
		f := &info.Features[i]
		if c.isFor("lerobot") && (keys == nil || slices.Contains(keys, f.Key)) ||
			c.isFor("gr00t") && f.DType.Float() || f.Key == action || f.Key == state {
			held = append(held, f.Key)
		}
	}
	return held
}

// compute returns the files of the clients and the statistics in them. Names of several clients
// begin with the client.
func (c *ClientStats) compute(
	ctx context.Context, ds robocache.Dataset, opt *stats.Options,
) (clientFiles, robocache.Stats, error) {
	windows := stats.WindowOptions{Episodes: opt.Episodes, OnFinding: opt.OnFinding}
	files, counted := clientFiles{}, robocache.Stats{}
	for _, client := range []string{"lerobot", "openpi", "gr00t"} {
		if !c.isFor(client) {
			continue
		}
		var one clientFiles
		var values robocache.Stats
		var err error
		switch client {
		case "lerobot":
			one, values, err = c.lerobot(ctx, ds, opt)
		case "openpi":
			one, values, err = c.openpi(ctx, ds, windows)
		default:
			one, values, err = c.gr00t(ctx, ds, windows)
		}
		if err != nil {
			return nil, nil, err
		}
		prefix := ""
		if c.For == "all" {
			prefix = client + "/"
		}
		for name, content := range one {
			files[prefix+name] = content
		}
		for key, fs := range values {
			counted[prefix+key] = fs
		}
	}
	return files, counted, nil
}

// lerobot returns the statistics of all streams as lerobot computes them.
func (c *ClientStats) lerobot(
	ctx context.Context, ds robocache.Dataset, opt *stats.Options,
) (clientFiles, robocache.Stats, error) {
	counted, err := stats.AsLeRobot(ctx, ds, *opt)
	if err != nil {
		return nil, nil, err
	}
	text, err := stats.Marshal(counted)
	if err != nil {
		return nil, nil, err
	}
	return clientFiles{"stats.json": json.RawMessage(text)}, counted, nil
}

// openpi returns the statistics of the state and of windows of actions.
func (c *ClientStats) openpi(
	ctx context.Context, ds robocache.Dataset, opt stats.WindowOptions,
) (clientFiles, robocache.Stats, error) {
	action, state := c.streams()
	f := ds.Info().Feature(action)
	vectors := map[string]*stats.WindowVector{
		"state": {Parts: []stats.WindowPart{{Key: state, Round: true}}},
		"actions": {
			Parts: []stats.WindowPart{{Key: action, Round: true}},
			Rows:  rowsTo(cmp.Or(c.Horizon, openpiHorizon)),
		},
	}
	if relative := c.relativeOf("openpi"); f != nil && relative != nil {
		columns, err := relativeColumns(relative, f.Elements())
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

// relativeOf returns what is relative for a client. Of several clients, columns are for openpi, and
// names of groups for gr00t.
func (c *ClientStats) relativeOf(client string) (out []string) {
	if c.For != "all" {
		return c.Relative
	}
	for _, text := range c.Relative {
		isColumns := text != "" && strings.Trim(text, "0123456789-") == ""
		if isColumns == (client == "openpi") {
			out = append(out, text)
		}
	}
	return out
}

// gr00t returns the statistics of all float columns, and those of relative groups per row of a
// window that lies in its episode.
func (c *ClientStats) gr00t(
	ctx context.Context, ds robocache.Dataset, opt stats.WindowOptions,
) (clientFiles, robocache.Stats, error) {
	action, state := c.streams()
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
	for _, name := range c.relativeOf("gr00t") {
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
