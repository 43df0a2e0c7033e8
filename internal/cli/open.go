package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
)

// openFlags are the flags of every verb that opens a dataset.
type openFlags struct {
	format  string
	memory  string
	hz      string
	mapping string
	options []string
	json    bool
}

func (f *openFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.format, "format", "", "the dataset's format; detected when not given")
	c.Flags().StringVar(&f.memory, "memory-budget", "1GiB", "bytes for tables, sample tables and open files")
	c.Flags().StringVar(&f.hz, "hz", "", "the rate of the rows, for formats that keep no clock (30, 12.5, 30000/1001)")
	c.Flags().StringVar(&f.mapping, "map", "", "a file that names streams, clocks and units where the format leaves them open")
	c.Flags().StringArrayVar(&f.options, "option", nil, "a choice of the format as key=value; may be given several times")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// settled reads the flags.
func (f *openFlags) settled() (robocache.OpenOptions, error) {
	opt := robocache.OpenOptions{Format: f.format}
	var err error
	if opt.MemoryBudget, err = parseBytes(f.memory); err != nil {
		return opt, err
	}
	if f.hz != "" {
		if opt.HZ, err = robocache.RateOf(f.hz); err != nil {
			return opt, misuse("--hz: " + err.Error())
		}
	}
	if opt.Options, err = pairs("--option", f.options); err != nil {
		return opt, err
	}
	if f.mapping != "" {
		opt.Map, err = mapping.Read(f.mapping)
	}
	return opt, err
}

func (f *openFlags) open(ctx context.Context, uri string) (robocache.Dataset, error) {
	opt, err := f.settled()
	if err != nil {
		return nil, err
	}
	return mapping.Open(ctx, uri, opt)
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
