package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache/hub"
)

func newPull() *cobra.Command {
	var episodes string
	c := &cobra.Command{
		Use:   "pull hf://datasets/owner/name DIR",
		Short: "copy a dataset of the Hugging Face Hub into a folder",
		Long: `pull copies a dataset of the Hub at one commit, and holds every file against the Hub's checksum. What is in DIR already is not read again; after a kill
the same command goes on. --episodes: metadata and the files that hold these, of a LeRobot dataset. HF_TOKEN (or "hf auth login") opens private ones.`,
		Example: `  robocache pull hf://datasets/lerobot/pusht@v3.0 ./pusht
  robocache pull hf://datasets/lerobot/aloha_static_cups_open ./part --episodes 0,3,5-9`,
		Args: cobra.ExactArgs(2),
	}
	c.Flags().StringVar(&episodes, "episodes", "", "only the files that hold the episodes with these indices (0,3,5-9)")
	env := environment(c)
	return answers(c, func(cmd *cobra.Command, args []string) (*hub.Pulled, error, error) {
		if err := env(); err != nil {
			return nil, nil, err
		}
		p, err := hub.Pull(cmd.Context(), args[0], args[1], episodes, inUnit(newProgress(cmd, "pull"), "bytes"))
		if err != nil {
			return nil, nil, err
		}
		return p, nil, nil
	}, func(w io.Writer, p *hub.Pulled) {
		fmt.Fprintf(w, "%s at %.12s: %d files in %s, %s read, %d were there", p.URI, p.Commit, p.Files, p.Destination, bytesText(p.Bytes), p.Unchanged)
		if p.LeftOut > 0 {
			fmt.Fprintf(w, ", %d of other episodes left out", p.LeftOut)
		}
		fmt.Fprintln(w)
	})
}

// environment lets a caller in the process hand over variables that were set since the library was loaded.
func environment(c *cobra.Command) (set func() error) {
	var env map[string]string
	c.Flags().StringToStringVar(&env, "env", nil, "")
	_ = c.Flags().MarkHidden("env")
	return func() error {
		for k, v := range env {
			if err := os.Setenv(k, v); err != nil {
				return err
			}
		}
		return nil
	}
}

func newPush() *cobra.Command {
	var open openFlags
	var opt hub.PushOptions
	c := &cobra.Command{
		Use:   "push DIR owner/name",
		Short: "bring a dataset to the Hugging Face Hub, through huggingface_hub",
		Long: `push makes a dataset of the Hub what DIR is: files that differ go up, files that are gone go, in one commit; sizes and checksums are compared; last, the
tag of the format's version, by which loaders find it, is moved there. Before that, doctor looks at DIR (errors stop), and a dataset card is made from inspect: README.md
and assets/preview.png, in DIR too. Text and keys of a README that is there stay; a licence is written only if --license names it.
It runs a Python that has huggingface_hub (--python, $ROBOCACHE_PYTHON, else the one on the path), with the token of HF_TOKEN or "hf auth login".`,
		Example: `  robocache push ./my_dataset owner/my_dataset --private
  robocache push ./my_dataset owner/my_dataset --license cc-by-4.0 --dry-run`,
		Args: cobra.ExactArgs(2),
	}
	open.add(c)
	c.Flags().BoolVar(&opt.Private, "private", false, "make the dataset private; an error where it is there and public")
	c.Flags().StringVar(&opt.Branch, "branch", "main", "of the dataset; another than main gets no tag")
	c.Flags().StringVar(&opt.License, "license", "", "as the Hub names it (apache-2.0, cc-by-4.0 …)")
	c.Flags().StringVar(&opt.Message, "message", "", "of the commit")
	c.Flags().BoolVar(&opt.DryRun, "dry-run", false, "say what would be done, and write nothing, here or there")
	c.Flags().BoolVar(&opt.SkipDoctor, "skip-doctor", false, "do not look at the dataset first")
	c.Flags().StringVar(&opt.Python, "python", "", "the Python that has huggingface_hub")
	env := environment(c)
	return answers(c, func(cmd *cobra.Command, args []string) (*hub.Pushed, error, error) {
		if err := env(); err != nil {
			return nil, nil, err
		}
		var err error
		if opt.Open, err = open.settled(); err != nil {
			return nil, nil, err
		}
		if w := cmd.ErrOrStderr(); isTerminal(w) {
			opt.Terminal = w
		}
		push, err := hub.Push(cmd.Context(), args[0], args[1], opt)
		if err != nil {
			return nil, nil, err
		}
		return push, nil, nil
	}, func(w io.Writer, p *hub.Pushed) {
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

// pushSummary describes a push, or what it would do, in one line.
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
