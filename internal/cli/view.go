package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/verbs"
	"github.com/goatnote-inc/robocache/view"
)

// Viewing is the output of `robocache view --json`, printed when the page can be opened.
type Viewing struct {
	URL    string `json:"url"` // contains the token
	Listen string `json:"listen"`
	Token  string `json:"token,omitempty"`
}

func newView() *cobra.Command {
	var open verbs.Opening
	var opt view.Options
	var listen, alignFlag, hz string
	var browse, noToken, asJSON bool
	c := &cobra.Command{
		Use: "view URI [URI2]",
		Short: "look at a dataset in a browser: episodes, frames, plots on one time axis, " +
			"findings, point clouds; two side by side",
		Long: `view serves a page on this machine and prints its address. The address contains a token: everyone
who has it can see the data. The page shows every format that opens, from every store. Each stream
keeps its own clock. The frame shown for a row is the frame of that row, decoded by RoboCache.
view changes nothing except the files of --flags and --annotations. Ctrl-C ends it.

To view from another machine: ssh -L 8080:127.0.0.1:8080 HOST, and run view --listen
127.0.0.1:8080 there. docs/view.md lists the keys and the parts of the address.`,
		Example: `  robocache view ./my_dataset --open
  robocache view ./my_dataset --flags bad.json
  robocache view recording.mcap --hz 50
  robocache view ./before ./after --listen 127.0.0.1:8080`,
		Args: cobra.RangeArgs(1, 2),
	}
	addOpening(c, &open)
	addGrid(c, &hz)
	c.Flags().Lookup("hz").Usage = "begin with the rows that convert --hz would make beside the " +
		"streams' own"
	mustConfigure(c.Flags().Set("memory-budget", "192MiB"))
	c.Flags().Lookup("memory-budget").DefValue = "192MiB"
	c.Flags().
		StringVar(&listen, "listen", "127.0.0.1:0", "address and port; port 0 takes a free one")
	c.Flags().BoolVar(&browse, "open", false, "open the page in this machine's browser")
	c.Flags().
		StringVar(
			&opt.Flags,
			"flags",
			"",
			"the file of flagged episodes, which the page writes and edit --flags reads",
		)
	c.Flags().
		StringVar(
			&opt.Annotations,
			"annotations",
			"",
			"the CSV file of annotations, which the page writes and edit annotate reads",
		)
	c.Flags().
		StringVar(
			&alignFlag,
			"align",
			"",
			"the choices of the alignment, as convert --align takes them: a JSON file, or the "+
				"JSON itself",
		)
	c.Flags().
		StringSliceVar(
			&opt.AllowHosts,
			"allow-host",
			nil,
			"a host name, other than localhost, by which the page can be reached",
		)
	c.Flags().BoolVar(&noToken, "no-token", false, "ask for no token (on a loopback address only)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return func() error {
			ctx := cmd.Context()
			if noToken && !view.Loopback(listen) {
				return misuse("--no-token is for loopback addresses only: --listen is " + listen)
			}
			if rate, err := verbs.ParseRate("hz", hz); err != nil {
				return err
			} else if alignFlag != "" || !rate.Zero() {
				opt.Align = &align.Config{}
				if alignFlag != "" {
					cfg, err := verbs.ParseAlignment(alignFlag)
					if err != nil {
						return err
					}
					opt.Align = &cfg
				}
				if !rate.Zero() {
					opt.Align.HZ = rate
				}
			}
			var sets []robocache.Dataset
			for _, uri := range args {
				// The server aligns episodes on request, so the dataset is opened without a grid.
				ds, err := open.Open(ctx, uri, "")
				if err != nil {
					return err
				}
				defer ds.Close()
				sets = append(sets, ds)
			}
			if !noToken {
				opt.Token = view.NewToken()
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			defer l.Close()
			// This is a target of the garbage collector, not a limit. The page often runs next to a
			// training job.
			debug.SetMemoryLimit(400 << 20)
			s, err := view.New(ctx, sets, opt)
			if err != nil {
				return err
			}
			defer s.Close()
			out := Viewing{
				Listen: l.Addr().String(),
				Token:  opt.Token,
				URL:    "http://" + l.Addr().String() + "/",
			}
			if opt.Token != "" {
				out.URL += "#token=" + opt.Token
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(out); err != nil {
					return err
				}
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), out.URL)
			}
			if browse {
				name := map[string]string{"darwin": "open", "windows": "explorer"}[runtime.GOOS]
				if name == "" {
					name = "xdg-open"
				}
				if err := exec.Command(name, out.URL).Start(); err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), "robocache: no browser was opened:", err)
				}
			}
			return s.Serve(ctx, l)
		}()
	}
	return c
}
