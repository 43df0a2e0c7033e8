package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/verbs"
)

// editFlags holds the values of the flags of all edit verbs.
type editFlags struct {
	open verbs.Opening
	req  edit.Request
	verb edit.Verb
	seed uint64
	idle []string
}

// editVerb is a verb of edit: its flags, and the meaning of its arguments in addition to SRC and
// DST.
type editVerb struct {
	use, short, example string
	choice, many        bool
	flags               func(f *editFlags, c *cobra.Command)
	args                func(f *editFlags, args []string) (rest []string, err error)
}

func newEdit() *cobra.Command {
	c := &cobra.Command{
		Use: "edit",
		Short: "edit a dataset: delete, trim, split, merge, rename, relabel … without encoding " +
			"video anew",
		Long: `edit makes a new dataset from an existing one. The result goes to a new folder. With --in-place it
replaces the dataset, and edit undo restores the old one. Video is copied. If a cut falls inside a
group of frames, --cut decides what happens. Statistics are computed again. --dry-run reports what
would be done. The result has the format of the source if it can be written, else LeRobot v3.0.
LeRobot v2.x becomes v3.0.`,
		Example: `  robocache edit delete ./set ./clean --episodes 3,7
  robocache edit trim ./set --in-place --idle action=0.01
  robocache edit merge ./a ./b ./both`,
		Args: func(*cobra.Command, []string) error {
			return misuse("edit: which verb? robocache edit --help lists them")
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, v := range editVerbs {
		c.AddCommand(v.command())
	}
	c.AddCommand(
		newEditApply(),
		newEditPlace(
			"undo DIR",
			"give a dataset back as it was before its last edit in place",
			verbs.UndoEdit,
		),
		newEditPlace("recover DIR", "end an edit in place that was interrupted", verbs.RecoverEdit),
	)
	return c
}

// takeWord passes the single argument between SRC and DST to take. In place there is no DST, and
// for a dry run it is optional.
func takeWord(f *editFlags, args []string, take func(word string) error) ([]string, error) {
	if n := len(args); n < 2 || n < 3 && !f.req.InPlace && !f.req.DryRun {
		return nil, misuse(
			"expected SRC, what to change, and DST (or --in-place): of several words one text " +
				"is made by quotes",
		)
	}
	if err := take(args[1]); err != nil {
		return nil, err
	}
	return slices.Concat(args[:1], args[2:]), nil
}

// takeWords passes the arguments between SRC and DST to take. In a dry run, the last argument is
// DST only if is rejects it.
func takeWords(
	f *editFlags,
	args []string,
	is func(arg string) bool,
	take func(words []string) error,
) ([]string, error) {
	n := len(args) - 1
	if f.req.InPlace || f.req.DryRun && is(args[n]) {
		n = len(args)
	}
	if n < 2 {
		return nil, misuse("expected SRC, what to change, and DST (or --in-place)")
	}
	if err := take(args[1:n]); err != nil {
		return nil, err
	}
	return slices.Concat(args[:1], args[n:]), nil
}

func isPair(arg string) bool { return strings.Contains(arg, "=") }

func isKey(arg string) bool {
	return !strings.HasPrefix(arg, ".") && !strings.Contains(arg, "/")
}

var editVerbs = []editVerb{
	{
		use:    "delete SRC [DST]",
		short:  "delete episodes",
		choice: true,
		example: `  robocache edit delete ./set ./clean --episodes 0,3,5-9
  robocache edit delete ./set ./clean --where 'length < 30 or max(action[gripper]) > 1.2'
  robocache edit delete ./set --in-place --flags flags.json`,
	},
	{
		use:     "keep SRC [DST]",
		short:   "keep some episodes, in the order in which they are named",
		choice:  true,
		example: `  robocache edit keep ./set ./pick --task 'pick*'`,
	},
	{
		use:    "trim SRC [DST]",
		short:  "cut rows off the ends of episodes",
		choice: true,
		example: `  robocache edit trim ./set ./cut --from 0.5 --to -1.0
  robocache edit trim ./set ./cut --idle action=0.01 --skip-short
  robocache edit trim ./set ./cut --from 12r --episodes 3 --cut exact`,
		flags: func(f *editFlags, c *cobra.Command) {
			c.Flags().
				StringVar(
					&f.verb.From,
					"from",
					"",
					"where to begin: seconds (0.5), or rows (12r); from the end with - before it",
				)
			c.Flags().
				StringVar(
					&f.verb.To,
					"to",
					"",
					"where to end: seconds or rows from the beginning, or before the end (-1.0)",
				)
			c.Flags().
				StringArrayVar(&f.idle, "idle", nil, "KEY=EPS: cut off the head and tail in "+
					"which no channel changes by more than EPS from row to row; of several "+
					"keys, all rest")
			c.Flags().
				BoolVar(
					&f.verb.SkipShort,
					"skip-short",
					false,
					"delete episodes without remaining rows instead of failing",
				)
		},
		args: func(f *editFlags, args []string) ([]string, error) {
			names, err := verbs.ParsePairs("--idle", f.idle)
			if err != nil {
				return nil, err
			}
			for k, text := range names {
				eps, err := strconv.ParseFloat(text, 64)
				if err != nil || !(eps >= 0) {
					return nil, misuse("--idle: expected KEY=EPS, found " + k + "=" + text)
				}
				if f.verb.Idle == nil {
					f.verb.Idle = map[string]float64{}
				}
				f.verb.Idle[k] = eps
			}
			return args, nil
		},
	},
	{
		use:   "split SRC [DST]",
		short: "split a dataset into folders below DST",
		example: `  robocache edit split ./set ./parts --into train=0.8,val=0.2 --seed 1
  robocache edit split ./set ./parts --into train=0-79,test=80-99
  robocache edit split ./set ./parts --by task
  robocache edit split ./set ./parts --flags flags.json`,
		flags: func(f *editFlags, c *cobra.Command) {
			c.Flags().
				StringArrayVar(
					&f.verb.Into,
					"into",
					nil,
					"name=0.8 (fractions), name=40 (episodes), name=0-79,90 (which); name=rest",
				)
			c.Flags().StringVar(&f.verb.By, "by", "", "task: a part for each")
			c.Flags().
				Uint64Var(
					&f.seed,
					"seed",
					0,
					"shuffle the episodes with this seed before dividing them (default: keep "+
						"their order)",
				)
			c.Flags().
				StringVar(&f.verb.Stratify, "stratify", "", "task: the same fractions of each task")
			c.Flags().
				StringVar(
					&f.verb.Group,
					"group",
					"",
					"episodes with one value of this column stay together",
				)
			c.Flags().StringVar(&f.verb.Flags, "flags", "",
				"a part for each label of a file of flags (episodes, or rows of them), and one "+
					"for the rest")
			c.Flags().
				StringVar(
					&f.verb.Label,
					"label",
					"",
					"of the file of flags, only those with this label",
				)
		},
	},
	{
		use:   "merge A B… DST",
		short: "join datasets",
		many:  true,
		example: `  robocache edit merge ./a ./b ./both
  robocache edit merge ./a ./b ./c ./all --keys union --hz 30`,
		flags: func(f *editFlags, c *cobra.Command) {
			c.Flags().
				StringVar(
					&f.verb.Keys,
					"keys",
					"strict",
					"where features differ: strict (an error), intersection, or union (zeros, "+
						"and KEY.valid is false there)",
				)
			c.Flags().
				BoolVar(
					&f.verb.Black,
					"black",
					false,
					"with union: cameras that a dataset lacks have black frames there",
				)
			c.Flags().StringVar(&f.verb.HZ, "hz", "", "bring all to this rate")
		},
	},
	{
		use:   "add SRC KEY [DST]",
		short: "add a feature",
		example: `  robocache edit add ./set reward ./more --from reward.npy
  robocache edit add ./set robot_id ./more --from 7`,
		flags: func(f *editFlags, c *cobra.Command) {
			c.Flags().
				StringVar(&f.verb.From, "from", "", "FILE.npy or FILE.parquet with a row for "+
					"each of the dataset's (joined on index, or episode_index and frame_index), "+
					"or a constant: 7, 0.5, true, [1, 2], a text")
		},
		args: func(f *editFlags, args []string) ([]string, error) {
			return takeWord(f, args, func(key string) error {
				f.verb.Features = []string{key}
				return nil
			})
		},
	},
	{
		use:     "rename SRC OLD=NEW… [DST]",
		short:   "rename features",
		example: `  robocache edit rename ./set observation.images.cam_high=observation.images.top ./renamed`,
		args: func(f *editFlags, args []string) ([]string, error) {
			return takeWords(f, args, isPair, func(words []string) error {
				var err error
				if f.verb.Names, err = verbs.ParsePairs("rename", words); err != nil {
					return err
				}
				return nil
			})
		},
	},
	{
		use:     "remove SRC KEY… [DST]",
		short:   "remove features",
		example: `  robocache edit remove ./set observation.images.wrist ./smaller`,
		args: func(f *editFlags, args []string) ([]string, error) {
			return takeWords(f, args, isKey, func(words []string) error {
				f.verb.Features = words
				return nil
			})
		},
	},
	{
		use:     "set-task SRC TEXT [DST]",
		short:   "give episodes one task",
		choice:  true,
		example: `  robocache edit set-task ./set "pick up the cube" ./named --episodes 0-9`,
		args: func(f *editFlags, args []string) ([]string, error) {
			return takeWord(f, args, func(text string) error {
				f.verb.Text = text
				return nil
			})
		},
	},
	{
		use:   "annotate SRC [DST]",
		short: "add texts of rows, such as subtasks, in LeRobot's language columns",
		example: `  robocache edit annotate ./set ./annotated --from subtasks.csv
  robocache find ./set 'falling(action[0])' --json > found.json
  robocache edit annotate ./set --in-place --from found.json --label "close the gripper"`,
		flags: func(f *editFlags, c *cobra.Command) {
			fl := c.Flags()
			fl.StringVar(
				&f.verb.From,
				"from",
				"",
				"FILE.csv or FILE.json with episode, from and to "+
					"(rows), or from_s and to_s (seconds), text, style, role, camera; or the answer of "+
					"find --json",
			)
			fl.StringVar(&f.verb.Key, "key", "subtask", "the style of the texts: subtask, plan, "+
				"memory, motion, task_aug, interjection, vqa or trace")
			fl.StringVar(&f.verb.Text, "label", "", "the text of ranges that have none")
			fl.BoolVar(&f.verb.Append, "append", false, "keep texts of this style outside the "+
				"ranges (default: they are replaced in the episodes that are named)")
			mustConfigure(c.MarkFlagRequired("from"))
		},
	},
	{
		use:    "relabel SRC OLD=NEW… [DST]",
		short:  "change the text of tasks, or of rows",
		choice: true,
		example: `  robocache edit relabel ./set "pick cube=pick up the cube" ./named
  robocache edit relabel ./set ./named --rows 3:40-80="close the gripper"`,
		flags: func(f *editFlags, c *cobra.Command) {
			c.Flags().
				StringVar(
					&f.verb.Rows,
					"rows",
					"",
					"EPISODE:FROM-TO=TEXT: these rows (TO not included) have this task",
				)
		},
		args: func(f *editFlags, args []string) ([]string, error) {
			if rows, text, ok := strings.Cut(f.verb.Rows, "="); ok {
				f.verb.Rows, f.verb.Text = rows, text
				return args, nil
			}
			return takeWords(f, args, isPair, func(words []string) error {
				var err error
				if f.verb.Names, err = verbs.ParsePairs("relabel", words); err != nil {
					return err
				}
				return nil
			})
		},
	},
	{
		use:   "reencode SRC [DST]",
		short: "encode all video again, and report the PSNR",
		example: `  robocache edit reencode ./set ./h264 --codec h264 --gop 8
  robocache edit reencode ./set ./small --crf 35`,
		flags: (*editFlags).addCoding,
	},
	{
		use:     "resize SRC WxH [DST]",
		short:   "encode all video again in another size",
		example: `  robocache edit resize ./set 224x224 ./small`,
		flags:   (*editFlags).addCoding,
		args: func(f *editFlags, args []string) ([]string, error) {
			return takeWord(f, args, f.setSize)
		},
	},
	{
		use:     "recompute-stats SRC [DST]",
		short:   "compute all statistics again",
		example: `  robocache edit recompute-stats ./set --in-place`,
	},
}

func (f *editFlags) setSize(text string) error {
	if n, err := fmt.Sscanf(text, "%dx%d", &f.verb.Video.Width, &f.verb.Video.Height); n != 2 ||
		err != nil || text != fmt.Sprintf("%dx%d", f.verb.Video.Width, f.verb.Video.Height) {
		return misuse("expected a size such as 224x224, found " + text)
	}
	return nil
}

func (f *editFlags) addCoding(c *cobra.Command) {
	f.verb.Video = &edit.Video{}
	c.Flags().StringVar(&f.verb.Video.Codec, "codec", "", "av1, h264 or hevc")
	c.Flags().IntVar(&f.verb.Video.GOP, "gop", 0, "frames between key frames (0: 2, LeRobot's)")
	c.Flags().IntVar(&f.verb.Video.CRF, "crf", 0, "quality (0: 30, LeRobot's)")
	c.Flags().StringVar(&f.verb.Video.Preset, "preset", "", "the encoder's preset")
}

// addCommon adds the flags of every verb.
func (f *editFlags) addCommon(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(
		&f.req.InPlace,
		"in-place",
		false,
		"put the result in the place of the dataset, and keep that for 'edit undo'",
	)
	fl.BoolVar(
		&f.req.DryRun,
		"dry-run",
		false,
		"say what would be copied, hidden and encoded, and write nothing; with --json, the plan "+
			"too",
	)
	fl.StringVar(
		&f.req.To,
		"as",
		"",
		"the format to write (default: the source's, where it is written; else lerobot)",
	)
	fl.StringVar(
		&f.req.Cut,
		"cut",
		"",
		"a cut inside a group of frames: hidden (default: up to 16 frames that no row shows are "+
			"copied too), exact (encode the frames up to the next key frame, or where that "+
			"cannot be, the episode), snap (move the cut)",
	)
	fl.StringVar(
		&f.req.Stats,
		"stats",
		"",
		"rows: count no frames, and cameras have no statistics (default: frames where episodes "+
			"changed)",
	)
	fl.IntVar(
		&f.req.Threads,
		"threads",
		0,
		"episodes that are read and encoded at once (0: the number of CPUs)",
	)
}

// addChoice adds the flags that choose episodes.
func (f *editFlags) addChoice(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.verb.Episodes, "episodes", "", "by episode index: 0,3,5-9")
	fl.StringVar(&f.verb.Task, "task", "", "by task: a pattern such as 'pick*'")
	fl.StringVar(
		&f.verb.Flags,
		"flags",
		"",
		"those of a file of flags (robocache view --flags), or of a list of episode indices "+
			"such as [3, 7]",
	)
	fl.StringVar(
		&f.verb.Label,
		"label",
		"",
		"of the file of flags, those with this label: needed if it has several",
	)
	fl.StringVar(
		&f.verb.Where,
		"where",
		"",
		"by an expression: length, index, duration, task, source; min, max, mean, std, first, "+
			"last, count of a column",
	)
	fl.BoolVar(&f.verb.Invert, "invert", false, "those that are not chosen")
}

func (v editVerb) command() *cobra.Command {
	f := &editFlags{}
	name, _, _ := strings.Cut(v.use, " ")
	c := &cobra.Command{Use: v.use, Short: v.short, Example: v.example, Args: cobra.MinimumNArgs(1)}
	addOpening(c, &f.open)
	f.addCommon(c)
	if v.choice {
		f.addChoice(c)
	}
	if v.flags != nil {
		v.flags(f, c)
	}
	return addJSON(c, func(cmd *cobra.Command, args []string) (*edit.Report, error, error) {
		f.verb.Verb = name
		for _, name := range []string{"episodes", "task", "flags", "label", "where"} {
			// An empty value usually comes from a shell variable that is not set.
			if fl := cmd.Flags().Lookup(name); fl != nil && fl.Changed && fl.Value.String() == "" {
				return nil, nil, misuse(
					"--" + name + " is empty: without it, all episodes are meant",
				)
			}
		}
		if v.args != nil {
			var err error
			if args, err = v.args(f, args); err != nil {
				return nil, nil, err
			}
		}
		if cmd.Flags().Changed("seed") {
			f.verb.Seed = &f.seed
		}
		n := 1 // number of sources
		if v.many {
			n = max(2, len(args)-1)
		}
		if len(args) > n+1 || len(args) < n || len(args) == n+1 && f.req.InPlace {
			return nil, nil, misuse(
				name + ": expected " + v.use + ", found " + strings.Join(args, " "),
			)
		}
		f.req.Sources = args[:n]
		if len(args) > n {
			f.req.DST = args[n]
		}
		f.req.Verbs = []edit.Verb{f.verb}
		return f.runEdit(cmd)
	}, printEdit)
}

func (f *editFlags) runEdit(cmd *cobra.Command) (*edit.Report, error, error) {
	var err error
	if f.req.Open, err = f.open.Options(); err != nil {
		return nil, nil, err
	}
	f.req.Progress = newProgress(cmd, "edit")
	r, err := edit.Run(cmd.Context(), &f.req)
	if err != nil {
		return nil, nil, err
	}
	var found error
	if slices.ContainsFunc(
		r.Findings,
		func(x robocache.Finding) bool { return x.Severity == robocache.SeverityError },
	) {
		found = errFindings
	}
	return r, found, nil
}

func printEdit(w io.Writer, r *edit.Report) {
	fmt.Fprint(w, r.Text())
	printFindings(w, r.Findings)
}

func newEditApply() *cobra.Command {
	f := &editFlags{}
	c := &cobra.Command{
		Use:   "apply PLAN… DST",
		Short: "do what plans say: several edits of one dataset in one pass",
		Long: `apply executes plans in one pass. Any verb of edit prints a plan with --dry-run --json. Plans of
the same dataset are combined: an episode or row is kept if all plans keep it.`,
		Example: `  robocache edit delete ./set --episodes 3 --dry-run --json > a.json
  robocache edit rename ./set action=actions --dry-run --json > b.json
  robocache edit apply a.json b.json ./out`,
		Args: cobra.MinimumNArgs(1),
	}
	addOpening(c, &f.open)
	f.addCommon(c)
	return addJSON(c, func(cmd *cobra.Command, args []string) (*edit.Report, error, error) {
		if !f.req.InPlace &&
			(!f.req.DryRun || len(args) > 1 && !strings.HasSuffix(args[len(args)-1], ".json")) {
			f.req.DST, args = args[len(args)-1], args[:len(args)-1]
		}
		if len(args) == 0 {
			return nil, nil, misuse("apply: expected PLAN… and DST (or --in-place)")
		}
		for _, name := range args {
			b, err := os.ReadFile(name)
			if err := robocache.At(err, robocache.Where{"file": name}); err != nil {
				return nil, nil, err
			}
			p, err := edit.ParsePlan(b)
			if err := robocache.At(err, robocache.Where{"file": name}); err != nil {
				return nil, nil, err
			}
			f.req.Plans = append(f.req.Plans, p)
		}
		return f.runEdit(cmd)
	}, printEdit)
}

// newEditPlace returns a verb for a dataset that was edited in place.
func newEditPlace(
	use, short string,
	do func(context.Context, *verbs.EditedRequest, verbs.Observer) (*verbs.Restored, error),
) *cobra.Command {
	name, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  robocache edit " + name + " ./set",
		Args:    cobra.ExactArgs(1),
	}
	return addRun(
		c,
		&verbs.EditedRequest{},
		do,
		func(w io.Writer, r *verbs.Restored) { fmt.Fprintln(w, r.Done) },
	)
}
