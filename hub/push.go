package hub

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/hf"
)

//go:embed push.py
var pushScript string

// PushOptions configures Push.
type PushOptions struct {
	Branch     string // "" means main
	Message    string // of the commit
	License    string // "" keeps the license of the README, if any
	Python     string // an interpreter with huggingface_hub; "" searches the environment
	Private    bool
	DryRun     bool // only report what would be done; write nothing, locally or on the Hub
	SkipDoctor bool
	Open       robocache.OpenOptions
	Terminal   io.Writer // receives the progress output of huggingface_hub; nil discards it
}

// Pushed is the result of Push, or its plan with PushOptions.DryRun.
type Pushed struct {
	Repo   string `json:"repo"`
	Branch string `json:"branch"`
	// commit of the branch; empty if the dataset does not exist yet
	Commit string `json:"commit,omitempty"`
	// tag that is set to the commit; empty if the format has none
	Tag     string   `json:"tag,omitempty"`
	Added   []string `json:"added"`   // uploaded files
	Deleted []string `json:"deleted"` // deleted files
	Bytes   int64    `json:"bytes"`   // uploaded bytes
	Card    string   `json:"card"`    // content of README.md
	DryRun  bool     `json:"dry_run"`
	Notes   []string `json:"notes,omitempty"`
}

type localFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

const (
	cardName    = "README.md"
	previewName = "assets/preview.png"
)

var repoForm = regexp.MustCompile(`^[\w-][\w.-]*/[\w-][\w.-]*$`)

// Push makes a dataset on the Hub equal to the folder dir. It first writes the card and a preview
// into dir.
func Push(ctx context.Context, dir, repo string, opt PushOptions) (_ *Pushed, err error) {
	repo = strings.TrimPrefix(strings.TrimPrefix(repo, "hf://"), "datasets/")
	if !repoForm.MatchString(repo) || opt.Branch != "" && strings.HasPrefix(opt.Branch, "-") {
		return nil, robocache.Misuse("push", nil, "").Expected("owner/name", strconv.Quote(repo))
	}
	defer robocache.LocateIn(&err, "dataset", "hf://datasets/"+repo)
	if !opt.DryRun {
		if _, err := FindPython(opt.Python); err != nil {
			return nil, err
		}
	}
	st, err := store.OpenLocal(strings.TrimPrefix(dir, "file://"))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	ds, err := robocache.Open(ctx, dir, opt.Open)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if !opt.SkipDoctor {
		if err := rejectUnsound(ctx, ds); err != nil {
			return nil, err
		}
	}
	out := &Pushed{DryRun: opt.DryRun}
	report, err := inspect.Dataset(ctx, ds)
	if err != nil {
		return nil, err
	}
	preview := previewName
	if !opt.DryRun && report.Episodes > 0 {
		if err := os.MkdirAll(filepath.Join(dir, path.Dir(previewName)), 0o777); err != nil {
			return nil, err
		}
		{
			err := inspect.ContactSheet(ctx, ds, 0, filepath.Join(dir, previewName))
			if robocache.IsFatal(err) {
				return nil, err
			}
			if err != nil {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				preview = ""
				out.Notes = append(out.Notes, "no preview: "+err.Error())
			}
		}
	}
	old, err := store.ReadFile(ctx, st, cardName, 16<<20)
	if !errors.Is(err, robocache.ErrNotFound) {
		if err != nil {
			return nil, err
		}
	}
	card, err := Card(report, path.Base(repo), opt.License, preview, old)
	if err != nil {
		return nil, err
	}
	if !opt.DryRun && !bytes.Equal(card, old) {
		if err := store.Put(ctx, st, cardName, card); err != nil {
			return nil, err
		}
	}
	absolute, err := filepath.Abs(st.URI())
	if err != nil {
		return nil, err
	}
	filesValue, err := listPushFiles(ctx, st)
	if err != nil {
		return nil, err
	}
	job := map[string]any{
		"folder":  absolute,
		"repo":    repo,
		"private": opt.Private,
		"branch":  cmp.Or(opt.Branch, "main"),
		"dry_run": opt.DryRun,
		"backoff": 0.5,
		"message": cmp.Or(opt.Message, "robocache push"),
		"tag":     "",
		"files":   filesValue,
	}
	if report.Format == "lerobot" && job["branch"] == "main" {
		job["tag"] = "v" + strings.TrimPrefix(report.Version, "v") // the tag that loaders use
	}
	var answer struct {
		Result *Pushed
		Error  *struct {
			Class, Msg, Hint string
			Where            robocache.Where
		}
	}
	python, err := FindPython(opt.Python)
	if err != nil && opt.DryRun {
		return offlinePlan(job, out, card, err), nil
	}
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	said := runScript(ctx, python, encoded, opt.Terminal)
	if json.Unmarshal(said, &answer) != nil || answer.Result == nil && answer.Error == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, robocache.Temporary("push", nil, "%s ended without an answer", python).
			WithHint("run it in a terminal to see its messages")
	}
	if e := answer.Error; e != nil {
		class := map[string]error{
			"unsupported": robocache.ErrUnsupported,
			"misuse":      robocache.ErrMisuse,
			"not_found":   robocache.ErrNotFound,
		}[e.Class]
		if class == nil {
			class = robocache.ErrTemporary
		}
		failed := robocache.NewError(class, "push", e.Where, "%s", e.Msg).WithHint("%s", e.Hint)
		if opt.DryRun && class != robocache.ErrMisuse {
			return offlinePlan(job, out, card, failed), nil
		}
		return nil, failed
	}
	hf.Forget()
	answer.Result.Card, answer.Result.DryRun, answer.Result.Notes = string(card), opt.DryRun,
		out.Notes
	return answer.Result, nil
}

// offlinePlan returns the plan of a dry run that could not read the Hub. It assumes an empty
// repository.
func offlinePlan(job map[string]any, out *Pushed, card []byte, why error) *Pushed {
	out.Repo, out.Branch, out.Card = job["repo"].(string), job["branch"].(string), string(card)
	for _, f := range job["files"].([]localFile) {
		out.Added, out.Bytes = append(out.Added, f.Path), out.Bytes+f.Size
	}
	out.Tag = job["tag"].(string)
	out.Notes = append(
		out.Notes,
		"the Hub was not asked what it holds, so all files are listed: "+why.Error(),
	)
	return out
}

// rejectUnsound returns an error if the doctor finds errors.
func rejectUnsound(ctx context.Context, ds robocache.Dataset) error {
	n, worst := 0, robocache.Finding{}
	runValue, err := diagnose.Run(ctx, ds, robocache.DiagnoseOptions{})
	if err != nil {
		return err
	}
	for _, f := range runValue {
		if f.Severity == robocache.SeverityError {
			if n++; n == 1 {
				worst = f
			}
		}
	}
	if n > 0 {
		return robocache.Malformed(
			"push",
			worst.Where,
			"doctor finds %d errors, first %s: %s",
			n,
			worst.Code,
			worst.Message,
		).
			WithHint(
				"%s lists them; %s pushes it as it is",
				robocache.Command("doctor DIR"),
				robocache.Option("skip_doctor", true),
			)
	}
	return nil
}

// listPushFiles lists the files that Push uploads. It omits hidden files and files that are being
// written.
func listPushFiles(ctx context.Context, st store.Store) ([]localFile, error) {
	out := []localFile{}
	list, err := st.List(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if !strings.HasPrefix(e.Name, ".") && !strings.Contains(e.Name, "/.") &&
			!strings.HasSuffix(e.Name, ".incomplete") &&
			!strings.HasSuffix(e.Name, "search.index") && // made again where it is needed
			!strings.HasPrefix(e.Name, "_staging/") {
			if err := e.Err; err != nil {
				return nil, err
			}
			out = append(out, localFile{e.Name, e.Size})
		}
	}
	return out, nil
}

// FindPython returns the path of a Python interpreter: the named one, else that of
// ROBOCACHE_PYTHON, else that of the environment.
func FindPython(named string) (string, error) {
	tried := []string{named}
	if named == "" {
		tried = []string{os.Getenv("ROBOCACHE_PYTHON"), "python3", "python"}
		if env := os.Getenv("VIRTUAL_ENV"); env != "" {
			tried = []string{tried[0], filepath.Join(env, "bin", "python"), "python3", "python"}
		}
	}
	for _, name := range tried {
		if p, err := exec.LookPath(name); name != "" && err == nil {
			return p, nil
		}
	}
	return "", robocache.Unsupported("", nil, "there is no Python interpreter").
		WithHint("Install Python and the packages that the command needs, or name one: %s",
			robocache.Option("python"))
}

// runScript runs the script and returns its output.
func runScript(ctx context.Context, python string, job []byte, terminal io.Writer) []byte {
	cmd := exec.CommandContext(ctx, python, "-c", pushScript)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job), &out, terminal
	if terminal == nil {
		cmd.Env = append(os.Environ(), "HF_HUB_DISABLE_PROGRESS_BARS=1")
	}
	_ = cmd.Run() // the error is ignored because a failed run has no valid answer
	return out.Bytes()
}
