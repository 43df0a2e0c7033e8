package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/mapping"
)

// openFlags are the flags of every verb that opens a dataset.
type openFlags struct {
	format  string
	memory  string
	rows    string
	split   string
	hz      string
	mapping string
	options []string
	follow  bool
	repair  bool // no flag: doctor opens what other verbs refuse
}

func (f *openFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.format, "format", "", "the dataset's format; detected when not given")
	c.Flags().StringVar(&f.memory, "memory-budget", "1GiB", "bytes for tables, sample tables and open files")
	c.Flags().StringVar(&f.rows, "rows-hz", "", "the rate of the rows, for formats that keep no clock, refused for others (30, 12.5, 30000/1001)")
	c.Flags().StringVar(&f.split, "split", "", "only the episodes of this split (train, val; inspect lists them)")
	c.Flags().StringVar(&f.mapping, "map", "", "a file, or JSON, that names streams, clocks and units where the format leaves them open")
	c.Flags().StringArrayVar(&f.options, "option", nil, "a choice of the format as key=value; may be given several times")
	c.Flags().BoolVar(&f.follow, "follow-links", false, "let links lead out of the dataset's folder (git-annex, DVC), if you trust it; Hugging Face's cache needs it not")
}

// addEpisodes adds --episodes, which ParseEpisodes of an open dataset's Info reads.
func addEpisodes(c *cobra.Command, episodes *string) {
	c.Flags().StringVar(episodes, "episodes", "", "only the episodes with these indices (0,3,5-9)")
}

// addGrid adds --hz, of the verbs that resample.
func (f *openFlags) addGrid(c *cobra.Command) {
	c.Flags().StringVar(&f.hz, "hz", "", "resample: bring all streams onto a grid of this rate (30, 12.5, 30000/1001)")
}

// settled reads the flags.
func (f *openFlags) settled() (robocache.OpenOptions, error) {
	bytes, err := parseBytes(f.memory)
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	rateOfValue, err := rateOf("--rows-hz", f.rows)
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	pairsValue, err := pairs("--option", f.options)
	if err != nil {
		return robocache.OpenOptions{}, err
	}
	opt := robocache.OpenOptions{Format: f.format, Split: f.split, FollowLinks: f.follow, MemoryBudget: bytes, HZ: rateOfValue, Options: pairsValue, Repair: f.repair}
	if strings.HasPrefix(f.mapping, "{") { // as robocache.open(map={…}) has it
		if opt.Map, err = mapping.Parse([]byte(f.mapping)); err != nil {
			return robocache.OpenOptions{}, err
		}
	} else if f.mapping != "" {
		if opt.Map, err = mapping.Read(f.mapping); err != nil {
			return robocache.OpenOptions{}, err
		}
	}
	return opt, nil
}

func (f *openFlags) open(ctx context.Context, uri string) (robocache.Dataset, error) {
	opt, err := f.settled()
	if err != nil {
		return nil, err
	}
	hz, err := rateOf("--hz", f.hz)
	if err != nil {
		return nil, err
	}
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	if hz.Zero() {
		return ds, nil
	}
	var view robocache.Dataset
	err = robocache.CheckGrid(ctx, ds, hz)
	if err == nil {
		cfg := align.Config{HZ: hz}
		notes := cfg.RelativeNotes(ds.Info(), nil)
		if ahead, err := cfg.LookAhead(ctx, ds, nil); err != nil {
			_ = ds.Close()
			return nil, err
		} else if ahead != nil {
			notes = append(notes, *ahead)
		}
		view, err = align.View(ctx, ds, cfg, align.ViewOptions{Own: true})
		if err == nil {
			view.Info().Findings = append(slices.Clip(view.Info().Findings), notes...)
		}
	}
	if err != nil {
		_ = ds.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return view, nil
}

// wouldLookAhead returns the finding look-ahead of a dataset with several clocks: how far
// hz= and anchor= would read past the tick. It returns nothing for other datasets.
func wouldLookAhead(ctx context.Context, ds robocache.Dataset) ([]robocache.Finding, error) {
	var unaligned align.Config
	if ds.Info().Clock == "" {
		return nil, nil
	}
	if f, err := unaligned.LookAhead(ctx, ds, nil); err != nil {
		return nil, err
	} else if f != nil {
		return []robocache.Finding{*f}, nil
	}
	return nil, nil
}

// rateOf reads the rate that a flag says; zero where it is not given.
func rateOf(flag, text string) (robocache.Rate, error) {
	if text == "" {
		return robocache.Rate{}, nil
	}
	r, err := robocache.RateOf(text)
	if err != nil {
		return robocache.Rate{}, misuse(flag + ": " + err.Error())
	}
	return r, nil
}

// pairs reads key=value texts.
func pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, misuse(flag + ": expected key=value, found " + text)
		}
		out[k] = v
	}
	return out, nil
}
