package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache/verbs"
)

// addOpening adds the flags of every verb that opens a dataset.
func addOpening(c *cobra.Command, o *verbs.Opening) {
	c.Flags().StringVar(&o.Format, "format", "", "the dataset's format; detected when not given")
	c.Flags().
		StringVar(
			&o.MemoryBudget,
			"memory-budget",
			verbs.DefaultMemoryBudget,
			"bytes for tables, sample tables and open files",
		)
	c.Flags().
		StringVar(
			&o.RowsHZ,
			"rows-hz",
			"",
			"the rate of the rows, for formats that keep no clock, refused for others (30, "+
				"12.5, 30000/1001)",
		)
	c.Flags().
		StringVar(
			&o.Split,
			"split",
			"",
			"only the episodes of this split (train, val; inspect lists them)",
		)
	c.Flags().
		StringVar(
			&o.Map,
			"map",
			"",
			"a file, or JSON, that names streams, clocks and units where the format leaves them "+
				"open",
		)
	c.Flags().
		StringArrayVar(
			&o.Option,
			"option",
			nil,
			"a choice of the format as key=value; may be given several times",
		)
	c.Flags().
		BoolVar(
			&o.FollowLinks,
			"follow-links",
			false,
			"let links lead out of the dataset's folder (git-annex, DVC), if you trust it; "+
				"Hugging Face's cache needs it not",
		)
	c.Flags().
		StringVar(
			&o.RecordingIndex,
			"recording-index",
			"",
			"an index of recordings that 'robocache index --out' wrote, or off (default: the "+
				"index in the dataset)",
		)
	rejectEmpty(c, "memory-budget")
}

// addEpisodes adds --episodes.
func addEpisodes(c *cobra.Command, episodes *string) {
	c.Flags().StringVar(episodes, "episodes", "", "only the episodes with these indices (0,3,5-9)")
}

// addGrid adds --hz for verbs that resample.
func addGrid(c *cobra.Command, hz *string) {
	c.Flags().
		StringVar(
			hz,
			"hz",
			"",
			"resample: bring all streams onto a grid of this rate (30, 12.5, 30000/1001)",
		)
}

// hookedValue is a flag value that calls set when the flag is given.
type hookedValue struct {
	pflag.Value
	set func(text string) error
}

func (v *hookedValue) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		return err
	}
	return v.set(text)
}

// optional makes a flag fill a field of a request. The field stays nil if the flag is not given.
// The flag stores its value in value.
func optional[T any](c *cobra.Command, name string, field **T, value *T) {
	f := c.Flags().Lookup(name)
	f.Value = &hookedValue{f.Value, func(string) error { *field = value; return nil }}
}

// rejectEmpty makes flags with a default reject an empty value, which usually comes from a shell
// variable that is not set.
func rejectEmpty(c *cobra.Command, names ...string) {
	for _, name := range names {
		f := c.Flags().Lookup(name)
		f.Value = &hookedValue{f.Value, func(text string) error {
			if text == "" {
				return misuse("--" + name + " is empty")
			}
			return nil
		}}
	}
}

// optionalInt adds an integer flag for a field of a request. The field stays nil if the flag is not
// given.
func optionalInt(c *cobra.Command, field **int, name string, value int, usage string) {
	optional(c, name, field, c.Flags().Int(name, value, usage))
}

// optionalText is optionalInt for text.
func optionalText(c *cobra.Command, field **string, name, value, usage string) {
	optional(c, name, field, c.Flags().String(name, value, usage))
}

// optionalBool is optionalInt for a boolean.
func optionalBool(c *cobra.Command, field **bool, name string, value bool, usage string) {
	optional(c, name, field, c.Flags().Bool(name, value, usage))
}
