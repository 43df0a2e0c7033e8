package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/verbs"
)

// printJSON prints v as JSON. If v formats its own JSON, that layout is kept.
func printJSON(w io.Writer, v any) error {
	if own, ok := v.(interface{ JSON() ([]byte, error) }); ok {
		text, err := own.JSON()
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", text)
		}
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// addJSON adds --json to a command. The answer of run is printed as JSON or by text; nil is not
// printed. After that the command returns found or the error of run.
func addJSON[T any](
	c *cobra.Command,
	run func(cmd *cobra.Command, args []string) (answer *T, found, err error),
	text func(w io.Writer, answer *T),
) *cobra.Command {
	var asJSON bool
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		var answer *T
		var found, err error
		if failed := func() error {
			answer, found, err = run(cmd, args)
			return nil
		}(); failed != nil {
			return failed
		}
		switch {
		case err != nil:
			return err
		case answer == nil:
		case asJSON:
			err = printJSON(cmd.OutOrStdout(), answer)
		default:
			text(cmd.OutOrStdout(), answer)
		}
		return cmp.Or(err, found)
	}
	return c
}

// addRun makes a command run a function of package verbs. The flags and arguments of c fill
// request.
func addRun[R, A any](
	c *cobra.Command,
	request *R,
	verb func(ctx context.Context, request *R, o verbs.Observer) (*A, error),
	text func(w io.Writer, answer *A),
) *cobra.Command {
	return addJSON(c, func(cmd *cobra.Command, args []string) (*A, error, error) {
		if err := verbs.Decode(cmd.Name(), args, nil, request); err != nil {
			return nil, nil, err
		}
		answer, err := verb(cmd.Context(), request, observerOf(cmd))
		if answer == nil || err != nil {
			return answer, err, nil
		}
		if v, ok := any(answer).(verbs.Verdict); ok && v.HasFindings() {
			return answer, errFindings, nil
		}
		return answer, nil, nil
	}, text)
}

// printTable prints rows in aligned columns.
func printTable(w io.Writer, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, "  "+strings.Join(r, "\t"))
	}
	tw.Flush()
}

// bytesText formats 1234567 as "1.2 MB".
func bytesText(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, u
	}
	if unit == "B" {
		return strconv.FormatInt(n, 10) + " B"
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// maxSummarized is the number of findings with the same code that printSummary lists.
const maxSummarized = 3

// printSummary prints the first findings of each code and severity, and the number of the others.
func printSummary(w io.Writer, findings []robocache.Finding) {
	type group struct {
		severity robocache.Severity
		code     string
	}
	count, episodes := map[group]int{}, map[group]map[any]bool{}
	for _, f := range findings {
		g := group{f.Severity, f.Code}
		count[g]++
		if e, ok := f.Where["episode"]; ok {
			if episodes[g] == nil {
				episodes[g] = map[any]bool{}
			}
			episodes[g][e] = true
		}
	}
	var shown []robocache.Finding
	seen := map[group]int{}
	for _, f := range findings {
		g := group{f.Severity, f.Code}
		if seen[g]++; seen[g] > maxSummarized {
			continue
		}
		if more := count[g] - maxSummarized; seen[g] == maxSummarized && more > 0 {
			f.Message += fmt.Sprintf(" (and %d more, %d in all", more, count[g])
			if n := len(episodes[g]); n > 0 {
				f.Message += fmt.Sprintf(" in %d episodes", n)
			}
			f.Message += "; --verbose lists them)"
		}
		shown = append(shown, f)
	}
	printFindings(w, shown)
}

// printFindings prints findings as text, errors first.
func printFindings(w io.Writer, findings []robocache.Finding) {
	fmt.Fprint(w, verbs.FindingsText(findings))
}
