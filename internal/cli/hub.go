package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/hub"
	"github.com/goatnote-inc/robocache/verbs"
)

func newPull() *cobra.Command {
	var r verbs.PullRequest
	c := &cobra.Command{
		Use:   "pull hf://datasets/owner/name DIR",
		Short: "copy a dataset of the Hugging Face Hub into a folder",
		Long: `pull copies one commit of a dataset from the Hub, and checks every file against the Hub's
checksum. Files that DIR already has are not downloaded again, so the same command continues after
a kill. --episodes fetches the metadata and the files with these episodes of a LeRobot dataset.
Private datasets need HF_TOKEN or "hf auth login".`,
		Example: `  robocache pull hf://datasets/lerobot/pusht@v3.0 ./pusht
  robocache pull hf://datasets/lerobot/aloha_static_cups_open ./part --episodes 0,3,5-9`,
		Args: cobra.ExactArgs(2),
	}
	c.Flags().
		StringVar(
			&r.Episodes,
			"episodes",
			"",
			"only the files that hold the episodes with these indices (0,3,5-9)",
		)
	return addRun(c, &r, verbs.Pull, func(w io.Writer, p *hub.Pulled) {
		fmt.Fprintf(
			w,
			"%s at %.12s: %d files in %s, %s read, %d were there",
			p.URI,
			p.Commit,
			p.Files,
			p.Destination,
			bytesText(p.Bytes),
			p.Unchanged,
		)
		if p.LeftOut > 0 {
			fmt.Fprintf(w, ", %d of other episodes left out", p.LeftOut)
		}
		fmt.Fprintln(w)
	})
}

func newPush() *cobra.Command {
	var r verbs.PushRequest
	c := &cobra.Command{
		Use:   "push DIR owner/name",
		Short: "bring a dataset to the Hugging Face Hub, through huggingface_hub",
		Long: `push makes a dataset on the Hub equal to DIR. One commit uploads the files that differ and deletes
the files that DIR does not have. Sizes and checksums are compared. At the end it moves the tag of
the format's version, by which loaders find the dataset.

Before that, doctor examines DIR (errors stop push). Then a dataset card is made from inspect:
README.md and assets/preview.png, also in DIR. Text and keys of an existing README are kept. A
licence is written only if --license names it. push runs a Python that has huggingface_hub
(--python, else $ROBOCACHE_PYTHON, else the one on the path), with the token of HF_TOKEN or "hf
auth login".`,
		Example: `  robocache push ./my_dataset owner/my_dataset --private
  robocache push ./my_dataset owner/my_dataset --license cc-by-4.0 --dry-run`,
		Args: cobra.ExactArgs(2),
	}
	addOpening(c, &r.Opening)
	c.Flags().
		BoolVar(
			&r.Private,
			"private",
			false,
			"make the dataset private; an error where it is there and public",
		)
	c.Flags().
		StringVar(&r.Branch, "branch", "main", "of the dataset; another than main gets no tag")
	c.Flags().StringVar(&r.License, "license", "", "as the Hub names it (apache-2.0, cc-by-4.0 …)")
	c.Flags().StringVar(&r.Message, "message", "", "of the commit")
	c.Flags().
		BoolVar(
			&r.DryRun,
			"dry-run",
			false,
			"say what would be done, and write nothing, here or there",
		)
	c.Flags().BoolVar(&r.SkipDoctor, "skip-doctor", false, "do not look at the dataset first")
	c.Flags().StringVar(&r.Python, "python", "", "the Python that has huggingface_hub")
	return addRun(c, &r, verbs.Push, func(w io.Writer, p *hub.Pushed) {
		if p.DryRun {
			for _, l := range []struct {
				sign  string
				names []string
			}{{"+", p.Added}, {"-", p.Deleted}} {
				for _, n := range l.names {
					fmt.Fprintln(w, l.sign, n)
				}
			}
			fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(p.Card))
		}
		for _, n := range p.Notes {
			fmt.Fprintln(w, n)
		}
		fmt.Fprintln(w, pushSummary(p))
	})
}

// pushSummary describes a push, or a dry run of one, in one line.
func pushSummary(p *hub.Pushed) string {
	verb, commit := "pushed", "commit"
	if p.DryRun {
		verb, commit = "would push", "on top of commit"
	}
	line := fmt.Sprintf("%s to %s (%s): %d files, %s, %d deleted",
		verb, p.Repo, p.Branch, len(p.Added), bytesText(p.Bytes), len(p.Deleted))
	separator := "; "
	if p.Commit != "" {
		line += separator + fmt.Sprintf("%s %.12s", commit, p.Commit)
		separator = ", "
	}
	if p.Tag != "" {
		line += separator + "tag " + p.Tag
	}
	return line
}
