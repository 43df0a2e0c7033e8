package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache/bench"
	"github.com/goatnote-inc/robocache/loader"
)

// flagValues lists the values that the shell completes for a flag. "verb --flag" takes precedence
// over "--flag".
var flagValues = map[string]func() []string{
	"--device":           fixedValues("cpu", "cuda"),
	"--clock":            fixedValues("wall", "cpu"),
	"--pattern":          fixedValues("sequential", "random"),
	"--parts":            bench.AllNames,
	"peers --workload":   func() []string { return caseNames("peers") },
	"formats --workload": func() []string { return caseNames("formats") },
	"clients --workload": func() []string { return caseNames("clients") },
	"load --video":       fixedValues("one", "all", "none"),
	"load --shuffle":     fixedValues(string(loader.Global), string(loader.Pool), "file"),
	"load --decode":      fixedValues(bench.TrainValues("decode")...),
	"load --cache-format": fixedValues(string(loader.CacheAuto), string(loader.CachePlanes),
		string(loader.CachePixels), string(loader.CacheEncoded)),
	"load --cache-state": fixedValues("warm", "cold"),
	"load --scenario":    scenarioNames,
	"load --scenarios":   func() []string { return append(scenarioNames(), "all") },
}

func init() {
	for _, name := range []string{
		"model",
		"mode",
		"precision",
		"loop",
		"device",
		"timing",
		"shuffle",
		"cache",
		"cache-state",
		"decode",
	} {
		flagValues["train --"+name] = func() []string { return bench.TrainValues(name) }
	}
}

// flagCompletion returns the values of a flag, or nil if the shell completes files.
func flagCompletion(c *cobra.Command, flag string) func() []string {
	if values := flagValues[c.Name()+" --"+flag]; values != nil {
		return values
	}
	return flagValues["--"+flag]
}

// completeFlags registers flagValues for the flags of a verb.
func completeFlags(c *cobra.Command) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		values := flagCompletion(c, f.Name)
		if values == nil {
			return
		}
		isList := f.Value.Type() == "stringSlice"
		_ = c.RegisterFlagCompletionFunc(
			f.Name,
			func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				before, how := "", cobra.ShellCompDirectiveNoFileComp
				if isList { // keep the words before the last comma
					before = begun[:strings.LastIndex(begun, ",")+1]
					how |= cobra.ShellCompDirectiveNoSpace
				}
				var out []string
				for _, v := range values() {
					if strings.HasPrefix(before+v, begun) {
						out = append(out, before+v)
					}
				}
				return out, how
			},
		)
	})
}

func fixedValues(list ...string) func() []string {
	return func() []string { return slices.Clone(list) }
}

func caseNames(table string) (out []string) {
	list, _ := bench.CasesNamed(table, nil)
	for _, c := range list {
		out = append(out, c.Name)
	}
	return out
}

func scenarioNames() (out []string) {
	list, _ := bench.ScenariosByName([]string{"all"})
	for _, s := range list {
		out = append(out, s.Name)
	}
	return out
}
