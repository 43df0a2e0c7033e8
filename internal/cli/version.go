package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Versions is what `robocache version --json` prints.
type Versions struct {
	Version string   `json:"version"`
	Go      string   `json:"go"`
	OS      string   `json:"os"`
	Formats []string `json:"formats"`
	Decoder string   `json:"decoder"` // or why there is none
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "the version, and what this build can do",
		Example: "  robocache version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := Versions{Version: version, Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Formats: robocache.Formats()}
			if b, err := video.ActiveBackend(); err != nil {
				v.Decoder = "none: " + err.Error()
			} else {
				v.Decoder = b.Name() + " " + b.Version()
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), v)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "robocache %s (%s, %s)\nformats: %s\ndecoder: %s\n", v.Version, v.Go, v.OS, strings.Join(v.Formats, ", "), v.Decoder)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
