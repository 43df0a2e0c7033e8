package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/guard"
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
}

func (f *openFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.format, "format", "", "the dataset's format; detected when not given")
	c.Flags().StringVar(&f.memory, "memory-budget", "1GiB", "bytes for tables, sample tables and open files")
	c.Flags().StringVar(&f.rows, "rows-hz", "", "the rate of the rows, for formats that keep no clock, refused for others (30, 12.5, 30000/1001)")
	c.Flags().StringVar(&f.split, "split", "", "only the episodes of this split, numbered from 0 (train, val; inspect lists them)")
	c.Flags().StringVar(&f.mapping, "map", "", "a file, or JSON, that names streams, clocks and units where the format leaves them open")
	c.Flags().StringArrayVar(&f.options, "option", nil, "a choice of the format as key=value; may be given several times")
	c.Flags().BoolVar(&f.follow, "follow-links", false, "let links lead out of the dataset's folder (git-annex, DVC), if you trust it; Hugging Face's cache needs it not")
}

// addGrid adds --hz, of the verbs that resample.
func (f *openFlags) addGrid(c *cobra.Command) {
	c.Flags().StringVar(&f.hz, "hz", "", "resample: bring all streams onto a grid of this rate (30, 12.5, 30000/1001)")
}

// settled reads the flags.
func (f *openFlags) settled() robocache.OpenOptions {
	opt := robocache.OpenOptions{Format: f.format, Split: f.split, FollowLinks: f.follow}
	var err error
	opt.MemoryBudget = parseBytes(f.memory)
	if f.rows != "" {
		if opt.HZ, err = robocache.RateOf(f.rows); err != nil {
			guard.Fail(misuse("--rows-hz: " + err.Error()))
		}
	}
	opt.Options = guard.Must(pairs("--option", f.options))
	if strings.HasPrefix(f.mapping, "{") { // as robocache.open(map={…}) has it
		opt.Map, err = mapping.Parse([]byte(f.mapping))
	} else if f.mapping != "" {
		opt.Map, err = mapping.Read(f.mapping)
	}
	guard.Check(err)
	return opt
}

func (f *openFlags) open(ctx context.Context, uri string) (_ robocache.Dataset, err error) {
	defer guard.Into(&err)
	opt := f.settled()
	hz := guard.Must(f.grid())
	ds, err := mapping.Open(ctx, uri, opt)
	if err != nil || hz.Zero() {
		return ds, err
	}
	if err = robocache.CheckGrid(ctx, ds, hz); err == nil {
		var v *align.Viewed
		if v, err = align.View(ctx, ds, align.Config{HZ: hz}, align.ViewOptions{}); err == nil {
			return owned{v}, nil
		}
	}
	_ = ds.Close()
	return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
}

// owned is a view that closes what it was put over.
type owned struct{ *align.Viewed }

func (o owned) Close() error { return o.Unwrap().Close() }

// grid reads --hz; zero where it is not given.
func (f *openFlags) grid() (hz robocache.Rate, err error) {
	if f.hz != "" {
		if hz, err = robocache.RateOf(f.hz); err != nil {
			err = misuse("--hz: " + err.Error())
		}
	}
	return hz, err
}

// pairs reads key=value texts.
func pairs(flag string, list []string) (map[string]string, error) {
	var out map[string]string
	for _, text := range list {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, misuse(flag + ": expected key=value, found " + text)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	}
	return out, nil
}
