package verbs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/mapping"
)

// DefaultMemoryBudget is the memory budget of a verb that is given none.
const DefaultMemoryBudget = "1GiB"

// Opening holds the options of every verb that opens a dataset.
type Opening struct {
	// Format is the dataset's format; empty: it is detected.
	Format string `json:"format"`
	// MemoryBudget is the number of bytes for tables and open files, such as 512MiB.
	MemoryBudget string `json:"memory_budget"`
	// RowsHZ is the rate of the rows, for formats that keep no clock, such as 30 or 30000/1001.
	RowsHZ string `json:"rows_hz"`
	// Split is the split whose episodes are read; empty: all episodes are.
	Split string `json:"split"`
	// Map is a mapping of streams, clocks and units: a file, or its JSON.
	Map string `json:"map"`
	// Option lists choices of the format as key=value.
	Option []string `json:"option"`
	// FollowLinks lets links lead out of the dataset's folder.
	FollowLinks bool `json:"follow_links"`
	// RecordingIndex is the index of recordings to use, or "off"; empty: the one in the dataset.
	RecordingIndex string `json:"recording_index"`
}

// Options returns the options for opening the dataset.
func (o *Opening) Options() (robocache.OpenOptions, error) {
	budget, err := ParseBytes(cmp.Or(o.MemoryBudget, DefaultMemoryBudget))
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	rate, err := ParseRate("rows_hz", o.RowsHZ)
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	choices, err := ParsePairs(optionName("options"), o.Option)
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	opt := robocache.OpenOptions{
		Format: o.Format, Split: o.Split, FollowLinks: o.FollowLinks, MemoryBudget: budget,
		HZ: rate, Options: choices, RecordingIndex: o.RecordingIndex,
	}
	if strings.HasPrefix(o.Map, "{") { // as robocache.open(map={…}) has it
		opt.Map, err = mapping.Parse([]byte(o.Map))
	} else if o.Map != "" {
		opt.Map, err = mapping.Read(o.Map)
	}
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	return opt, nil
}

// Open opens the dataset at uri. If hz is not empty, all its streams are resampled to that rate.
// The caller must close the dataset.
func (o *Opening) Open(ctx context.Context, uri, hz string) (robocache.Dataset, error) {
	opt, err := o.Options()
	if err != nil {
		return nil, err
	}
	return openResampled(ctx, uri, hz, opt)
}

// openResampled opens the dataset at uri, and resamples it if hz is not empty.
func openResampled(
	ctx context.Context, uri, hz string, opt robocache.OpenOptions,
) (robocache.Dataset, error) {
	rate, err := ParseRate("hz", hz)
	if err != nil {
		return nil, err
	}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	if rate.Zero() {
		return ds, nil
	}
	view, err := resampled(ctx, ds, rate)
	if err != nil {
		_ = ds.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return view, nil
}

// resampled returns a view of ds on a grid, which owns ds. On error, ds stays open.
func resampled(
	ctx context.Context, ds robocache.Dataset, rate robocache.Rate,
) (robocache.Dataset, error) {
	if err := robocache.CheckGrid(ctx, ds, rate); err != nil {
		return nil, err
	}
	cfg := align.Config{HZ: rate}
	notes := cfg.RelativeNotes(ds.Info(), nil)
	ahead, err := cfg.LookAhead(ctx, ds, nil)
	if err != nil {
		return nil, err
	}
	if ahead != nil {
		notes = append(notes, *ahead)
	}
	view, err := align.View(ctx, ds, cfg, align.ViewOptions{Own: true})
	if err != nil {
		return nil, err
	}
	view.Info().Findings = append(slices.Clip(view.Info().Findings), notes...)
	return view, nil
}

// lookAheadFindings returns the finding look-ahead of a dataset with several clocks: how far hz=
// and anchor= would read past the tick. It returns nothing for other datasets.
func lookAheadFindings(ctx context.Context, ds robocache.Dataset) ([]robocache.Finding, error) {
	var unaligned align.Config
	if ds.Info().Clock == "" {
		return nil, nil
	}
	f, err := unaligned.LookAhead(ctx, ds, nil)
	if err != nil || f == nil {
		return nil, err
	}
	return []robocache.Finding{*f}, nil
}

// optionName returns the name of an option in the words of the caller: --hz, hz or HZ.
func optionName(name string) string {
	return strings.TrimSuffix(robocache.Option(name), "=")
}

// valueOr returns the value of an option, or its default if it was not given.
func valueOr[T any](option *T, byDefault T) T {
	if option == nil {
		return byDefault
	}
	return *option
}

func misuse(format string, args ...any) error { return robocache.Misuse("", nil, format, args...) }

// ParseRate reads the value of an option that is a rate. It returns the zero Rate for an empty
// text.
func ParseRate(option, text string) (robocache.Rate, error) {
	if text == "" {
		return robocache.Rate{}, nil
	}
	r, err := robocache.RateOf(text)
	if err != nil {
		return robocache.Rate{}, misuse("%s: %s", optionName(option), err)
	}
	return r, nil
}

// ParsePairs reads key=value texts. what names them in errors.
func ParsePairs(what string, list []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, text := range list {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, misuse("%s: expected key=value, found %s", what, text)
		}
		pairs[k] = v
	}
	return pairs, nil
}

// ParseBytes reads a size such as 4GiB or 512MB, or a plain number of bytes.
func ParseBytes(s string) (int64, error) {
	units := []struct {
		suffix string
		factor float64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"kB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"B", 1},
		{"", 1},
	}
	for _, u := range units {
		if num, ok := strings.CutSuffix(s, u.suffix); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
			if err != nil || f < 0 || f*u.factor > 1<<60 {
				break
			}
			return int64(f * u.factor), nil
		}
	}
	return 0, misuse("not a size in bytes: %q; expected such as 512MiB or 4GB", s)
}
