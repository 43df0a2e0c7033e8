package verbs

import (
	"cmp"
	"context"
	"os"

	"github.com/goatnote-inc/robocache/hub"
)

// PullRequest holds the options of Pull.
type PullRequest struct {
	// URI is the dataset, such as hf://datasets/owner/name@revision.
	URI string `json:"-" arg:"hf://datasets/owner/name"`
	// Destination is the folder to fill.
	Destination string `json:"-" arg:"DIR"`
	// Episodes lists the indices of the episodes whose files are copied; empty: all.
	Episodes string `json:"episodes"`
	// Env holds variables that are set in the environment of the process first.
	Env map[string]string `json:"env" hidden:"true"`
}

// Pull copies a dataset of the Hub into a folder.
func Pull(ctx context.Context, r *PullRequest, o Observer) (*hub.Pulled, error) {
	if err := setEnvironment(r.Env); err != nil {
		return nil, err
	}
	return hub.Pull(ctx, r.URI, r.Destination, r.Episodes, o.countIn("bytes"))
}

// PushRequest holds the options of Push.
type PushRequest struct {
	// Folder is the dataset.
	Folder string `json:"-" arg:"DIR"`
	// Repo is the dataset's name on the Hub.
	Repo string `json:"-" arg:"owner/name"`
	Opening
	// Private makes the dataset private.
	Private bool `json:"private"`
	// Branch is the branch of the commit; empty: main. Another than main gets no tag.
	Branch string `json:"branch"`
	// License is a license as the Hub names it, such as apache-2.0.
	License string `json:"license"`
	// Message is the message of the commit.
	Message string `json:"message"`
	// DryRun reports what would be done, and writes nothing.
	DryRun bool `json:"dry_run"`
	// SkipDoctor pushes without an examination of the dataset.
	SkipDoctor bool `json:"skip_doctor"`
	// Python is the Python that has huggingface_hub.
	Python string `json:"python"`
	// Env holds variables that are set in the environment of the process first.
	Env map[string]string `json:"env" hidden:"true"`
}

// Push makes a dataset of the Hub equal to a folder.
func Push(ctx context.Context, r *PushRequest, o Observer) (*hub.Pushed, error) {
	if err := setEnvironment(r.Env); err != nil {
		return nil, err
	}
	open, err := r.Options()
	if err != nil {
		return nil, err
	}
	return hub.Push(ctx, r.Folder, r.Repo, hub.PushOptions{
		Private: r.Private, Branch: cmp.Or(r.Branch, "main"), License: r.License,
		Message: r.Message, DryRun: r.DryRun, SkipDoctor: r.SkipDoctor, Python: r.Python,
		Open: open, Terminal: o.Terminal,
	})
}

// setEnvironment sets variables of the process: those that Python set after it loaded the library.
func setEnvironment(env map[string]string) error {
	for k, v := range env {
		if err := os.Setenv(k, v); err != nil {
			return err
		}
	}
	return nil
}
