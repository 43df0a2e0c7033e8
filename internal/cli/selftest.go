package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/selftest"
)

func newSelfTest() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "self-test",
		Short:   "run the conformance vectors on every back end, and say which are there and why others are not",
		Example: "  robocache self-test --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results := selftest.Run(cmd.Context())
			w := cmd.OutOrStdout()
			if asJSON {
				if err := printJSON(w, results); err != nil {
					return err
				}
			} else {
				for _, r := range results {
					verdict := "absent"
					if r.Present {
						verdict = "FAILED"
					}
					if r.OK {
						verdict = "ok"
					}
					fmt.Fprintf(w, "%-8s %-24s %s\n", verdict, r.Part, r.Detail)
				}
			}
			if !selftest.OK(results) {
				return errors.New("self-test: a back end that is present gives wrong answers")
			}
			return cmd.Context().Err()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
