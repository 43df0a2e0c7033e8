package cli

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diff"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// flagValues returns what the shell offers after a flag. An entry for "verb --flag" overrides one
// for "--flag".
var flagValues = map[string]func(cmd *cobra.Command, args []string) []string{
	"--log-level": oneOf("debug", "info", "warn", "error"),
	"--format":    completionsOf(robocache.Formats),
	"--split": ofSource(
		func(info *robocache.Info) []string { return slices.Sorted(maps.Keys(info.Splits)) },
	),
	"--keys": ofSource((*robocache.Info).Keys),
	"--option": optionsOf(
		"format",
		func(f robocache.Format) map[string]string { return f.Options },
	),
	"--frames": oneOf(
		string(stats.SampledFrames),
		string(stats.AllFrames),
		string(stats.NoFrames),
	),
	"diff --frames": oneOf(diff.FramesPackets, diff.FramesPixels, diff.FramesNone),
	"--codec":       oneOf(string(video.AV1), string(video.H264), string(video.HEVC)),
	"--video-codec": oneOf("copy", string(video.AV1), string(video.H264), string(video.HEVC)),
	"--images":      oneOf("video", "images"),
	"--balance":     oneOf(shard.Balances...),

	"convert --to": completionsOf(convert.Formats),
	"convert --write-option": optionsOf(
		"to",
		func(f robocache.Format) map[string]string { return f.WriteOptions },
	),
	"plan --to": completionsOf(convert.Formats),
	"plan --write-option": optionsOf(
		"to",
		func(f robocache.Format) map[string]string { return f.WriteOptions },
	),
	"synth --format": completionsOf(convert.Formats),
	"synth --write-option": optionsOf(
		"format",
		func(f robocache.Format) map[string]string { return f.WriteOptions },
	),
	"synth --codec": oneOf(
		string(video.AV1),
		string(video.H264),
		string(video.HEVC),
		"png",
		"jpeg",
		"raw",
	),
	"synth --preset": completionsOf(synth.Presets),

	"--as":    completionsOf(convert.Formats),
	"--cut":   oneOf(edit.CutHidden, edit.CutExact, edit.CutSnap),
	"--stats": oneOf("frames", "rows"),
	"quality --frames": oneOf(
		string(quality.AllFrames),
		string(quality.SampledFrames),
		string(quality.NoFrames),
	),
	"edit split --by":   oneOf("task"),
	"--stratify":        oneOf("task"),
	"edit merge --keys": oneOf("strict", "intersection", "union"),
}

// completeValues registers flagValues for the flags of all verbs.
func completeValues(c *cobra.Command) {
	_, verb, _ := strings.Cut(c.CommandPath(), " ")
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		of := flagValues[verb+" --"+f.Name]
		if of == nil {
			of = flagValues["--"+f.Name]
		}
		if of == nil {
			return // the shell completes files
		}
		_, several := f.Value.(pflag.SliceValue)
		several = several && f.Value.Type() == "stringSlice"
		_ = c.RegisterFlagCompletionFunc(
			f.Name,
			func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				before, how := "", cobra.ShellCompDirectiveNoFileComp
				if several { // the values before the last comma are kept
					before = begun[:strings.LastIndex(begun, ",")+1]
					how |= cobra.ShellCompDirectiveNoSpace
				}
				var out []string
				for _, v := range of(cmd, args) {
					if strings.HasPrefix(before+v, begun) {
						out = append(out, before+v)
					}
					if strings.Contains(v, "=\t") {
						how |= cobra.ShellCompDirectiveNoSpace
					}
				}
				return out, how
			},
		)
	})
	if c.Name() == "plan" {
		c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) (
			[]string,
			cobra.ShellCompDirective,
		) {
			if len(args) == 0 {
				return shard.Jobs(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		}
	}
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

func oneOf(list ...string) func(*cobra.Command, []string) []string {
	return func(*cobra.Command, []string) []string { return list }
}

func completionsOf(list func() []string) func(*cobra.Command, []string) []string {
	return func(*cobra.Command, []string) []string { return list() }
}

// ofSource returns the completions that list finds in the dataset of the command line. The dataset
// must be local and open within two seconds, because the shell waits.
func ofSource(list func(*robocache.Info) []string) func(*cobra.Command, []string) []string {
	return func(cmd *cobra.Command, args []string) []string {
		if cmd.Name() == "plan" && len(args) > 0 {
			args = args[1:] // skips the name of the job
		}
		if len(args) == 0 || strings.Contains(args[0], "://") {
			return nil
		}
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
		defer stop()
		format, _ := cmd.Flags().GetString("format")
		ds, err := mapping.Open(ctx, filepath.Clean(args[0]), robocache.OpenOptions{Format: format})
		if err != nil {
			return nil
		}
		defer ds.Close()
		return list(ds.Info())
	}
}

// optionsOf returns the options of the format that a flag names, each with a description. Without
// the flag, it returns the options of the default format.
func optionsOf(
	flag string,
	of func(robocache.Format) map[string]string,
) func(*cobra.Command, []string) []string {
	return func(cmd *cobra.Command, _ []string) (out []string) {
		name, _ := cmd.Flags().GetString(flag)
		f, err := robocache.FormatNamed(name)
		if err != nil {
			return nil
		}
		for _, key := range slices.Sorted(maps.Keys(of(f))) {
			out = append(out, key+"=\t"+of(f)[key])
		}
		return out
	}
}
