package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/selftest"
	"github.com/goatnote-inc/robocache/video"
)

// Versions is the output of `robocache version --json`.
type Versions struct {
	Version string `json:"version"`
	// Commit is the commit of the source, or "" if the build did not record it.
	Commit  string   `json:"commit,omitempty"`
	Go      string   `json:"go"`
	OS      string   `json:"os"`
	Formats []string `json:"formats"`
	Decoder string   `json:"decoder"` // or the reason why there is none
}

func newVersion() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "the version, and what this build can do",
		Example: "  robocache version --json",
		Args:    cobra.NoArgs,
	}
	return addJSON(c, func(*cobra.Command, []string) (*Versions, error, error) {
		v := &Versions{
			Version: robocache.Version,
			Commit:  sourceCommit(),
			Go:      runtime.Version(),
			OS:      runtime.GOOS + "/" + runtime.GOARCH,
			Formats: robocache.Formats(),
		}
		if b, err := video.ActiveBackend(); err != nil {
			v.Decoder = "none: " + err.Error()
		} else {
			v.Decoder = b.Name() + " " + b.Version()
		}
		return v, nil, nil
	}, func(w io.Writer, v *Versions) {
		fmt.Fprintf(
			w,
			"robocache %s (%s, %s)\nformats: %s\ndecoder: %s\n",
			fullVersion(),
			v.Go,
			v.OS,
			strings.Join(v.Formats, ", "),
			v.Decoder,
		)
	})
}

// sourceCommit returns the commit of the source, or "" if the build did not record it.
func sourceCommit() string {
	if version == "unknown" || version == robocache.Version {
		return ""
	}
	return version
}

// fullVersion returns the version, with the commit if it is known.
func fullVersion() string {
	if c := sourceCommit(); c != "" {
		return robocache.Version + " (commit " + c + ")"
	}
	return robocache.Version
}

func newSelfTest() *cobra.Command {
	c := &cobra.Command{
		Use: "self-test",
		Short: "run the conformance vectors on every back end, and say which are there and " +
			"why others are not",
		Example: "  robocache self-test --json",
		Args:    cobra.NoArgs,
	}
	return addJSON(c, func(cmd *cobra.Command, _ []string) (*[]selftest.Result, error, error) {
		results := selftest.Run(cmd.Context())
		found := cmd.Context().Err()
		if !selftest.OK(results) {
			found = errors.New("self-test: a back end that is present gives wrong answers")
		}
		return &results, found, nil
	}, func(w io.Writer, results *[]selftest.Result) {
		for _, r := range *results {
			verdict := "absent"
			if r.Present {
				verdict = "FAILED"
			}
			if r.OK {
				verdict = "ok"
			}
			fmt.Fprintf(w, "%-8s %-24s %s\n", verdict, r.Part, r.Detail)
		}
	})
}
