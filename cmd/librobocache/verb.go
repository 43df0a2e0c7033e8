//go:build cgo

package main

import (
	"cmp"
	stdcontext "context"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/cli"
	"github.com/goatnote-inc/robocache/query"
	"github.com/goatnote-inc/robocache/verbs"
)

// verbArgs are the arguments of robocache_verb. Options are those of the verb's request, by name.
type verbArgs struct {
	Verb    string                     `json:"verb"`
	Args    []string                   `json:"args"`
	Options map[string]json.RawMessage `json:"options"`
	// progress and notes are printed to stderr
	Terminal bool `json:"terminal"`
}

// verbReply is the answer of robocache_verb.
type verbReply struct {
	Result   any      `json:"result"`
	Findings bool     `json:"findings"`        // whether the verb found something wrong
	Notes    []string `json:"notes,omitempty"` // lines for people
}

// verbCall decodes the request of a verb and runs the verb.
type verbCall func(ctx context, a *verbArgs, o verbs.Observer) (any, error)

// verbCalls holds the verbs that robocache_verb runs, by their names on the command line.
var verbCalls = map[string]verbCall{
	"inspect":      callVerb(inspectVerb),
	"doctor":       callVerb(verbs.Doctor),
	"causality":    callVerb(verbs.ReportCausality),
	"index":        callVerb(verbs.IndexRecordings),
	"quality":      callVerb(qualityVerb),
	"diff":         callVerb(verbs.Diff),
	"convert":      callVerb(verbs.Convert),
	"stats":        callVerb(verbs.Stats),
	"pull":         callVerb(verbs.Pull),
	"push":         callVerb(verbs.Push),
	"synth":        callVerb(verbs.Synth),
	"plan":         callVerb(verbs.Plan),
	"live check":   callVerb(verbs.CheckLive),
	"live replay":  callVerb(verbs.ReplayLive),
	"live verify":  callVerb(verbs.VerifyLive),
	"edit undo":    callVerb(verbs.UndoEdit),
	"edit recover": callVerb(verbs.RecoverEdit),
}

// findArgs are the arguments of robocache_find. Options are those of robocache find, by name.
type findArgs struct {
	Expression string                     `json:"expression"`
	Options    map[string]json.RawMessage `json:"options"`
}

// findRanges searches the dataset.
func (s *sharedDataset) findRanges(ctx context, a *findArgs) (any, error) {
	r := &verbs.Search{}
	if err := verbs.Decode("find", nil, a.Options, r); err != nil {
		return nil, err
	}
	r.Expression = a.Expression
	return r.Run(ctx, s.Dataset, verbs.Observer{})
}

// embeddedArgs are the arguments of robocache_embedded.
type embeddedArgs struct {
	Folder string            `json:"folder"` // with the files of query.WriteVectors
	Info   query.VectorsInfo `json:"info"`
}

// storeVectors stores vectors of frames with the dataset.
func (s *sharedDataset) storeVectors(ctx context, a *embeddedArgs) (any, error) {
	file, info, err := query.WriteVectors(ctx, s.Dataset, a.Folder, a.Info)
	return &verbs.Embedded{File: file, VectorsInfo: info}, err
}

// callVerb returns the call of a function of package verbs.
func callVerb[R, A any](run func(context, *R, verbs.Observer) (A, error)) verbCall {
	return func(ctx context, a *verbArgs, o verbs.Observer) (any, error) {
		r := new(R)
		if err := verbs.Decode(a.Verb, a.Args, a.Options, r); err != nil {
			return nil, err
		}
		return run(ctx, r, o)
	}
}

// inspectVerb inspects a dataset or an episode, or suggests a mapping, depending on the options.
func inspectVerb(ctx context, r *verbs.InspectRequest, o verbs.Observer) (any, error) {
	switch {
	case r.SuggestMap:
		return verbs.SuggestMapping(ctx, r, o)
	case r.Episode != nil:
		return verbs.InspectEpisode(ctx, r, o)
	}
	return verbs.Inspect(ctx, r, o)
}

// serveVerb runs one verb of the command line in this process.
func serveVerb(ctx context, a *verbArgs) (any, error) {
	call := verbCalls[a.Verb]
	if call == nil {
		return nil, robocache.Misuse("", nil, "unknown verb %s", a.Verb)
	}
	reply := &verbReply{}
	o := verbs.Observer{Note: func(text string) {
		reply.Notes = append(reply.Notes, strings.Split(strings.TrimSpace(text), "\n")...)
	}}
	if a.Terminal {
		o = cli.NewObserver(os.Stderr, a.Verb)
	}
	result, err := call(ctx, a, o)
	isCanceled := ctx.Err() != nil || errors.Is(err, stdcontext.Canceled)
	switch {
	case err != nil && isCanceled && !errors.Is(err, robocache.ErrInternal):
		return nil, cmp.Or(ctx.Err(), err)
	case err != nil:
		return nil, err
	}
	reply.Result = result
	if v, ok := result.(verbs.Verdict); ok {
		reply.Findings = v.HasFindings()
	}
	return reply, nil
}
