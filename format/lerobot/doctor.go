package lerobot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// doctor collects what a dataset gets wrong. A kind of fault in one place becomes one finding with
// a count and the first place, so that a thousand bad rows are one line.
type doctor struct {
	d      *Dataset
	opt    robocache.DiagnoseOptions
	chosen map[int]bool // episodes asked for; nil = all
	bad    map[int]bool // episodes whose rows cannot be read: later parts leave them out
	out    []robocache.Finding
	at     map[string]int // code and place → position in out
	failed error          // ends the diagnosis
	done   int64
	total  int64
}

// Diagnose proves that the dataset is what it claims: its rows, its video files, its statistics.
// What opening noticed is among the findings. An error means that it could not be done, not that
// something was found.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("lerobot doctor", &err)
	doc := &doctor{d: d, opt: opt, bad: map[int]bool{}, at: map[string]int{}}
	if opt.Episodes != nil {
		doc.chosen = map[int]bool{}
		for _, e := range opt.Episodes {
			if err := d.checkEpisode(e); err != nil {
				return out, err
			}
			doc.chosen[e] = true
		}
	}
	doc.out = append(doc.out, d.About.Findings...)
	for _, part := range []func(context.Context){doc.layout, doc.tables, doc.pages, doc.videos, doc.statistics} {
		part(ctx)
		if err := cmp.Or(doc.failed, ctx.Err()); err != nil {
			return nil, err
		}
	}
	for _, f := range d.Noticed() {
		if !slices.ContainsFunc(doc.out, func(o robocache.Finding) bool {
			return o.Code == f.Code && o.Where.String() == f.Where.String()
		}) {
			doc.out = append(doc.out, f)
		}
	}
	return doc.out, nil
}

func (doc *doctor) wants(episode int) bool { return doc.chosen == nil || doc.chosen[episode] }

// wantsAny says whether one of some episodes was asked for, and nothing ended the diagnosis.
func (doc *doctor) wantsAny(ctx context.Context, eps []int32) bool {
	doc.failed = cmp.Or(doc.failed, ctx.Err())
	return doc.failed == nil &&
		(doc.chosen == nil || slices.ContainsFunc(eps, func(e int32) bool { return doc.chosen[int(e)] }))
}

// progress counts n units of work as done.
func (doc *doctor) progress(n int64) {
	doc.done += n
	if doc.opt.Progress != nil {
		doc.opt.Progress(min(doc.done, doc.total), doc.total)
	}
}

// maxPlaces is how many findings of one code are listed; further places are counted in the last
// one. Errors of an episode are all listed: "doctor --fix --drop-bad" leaves out the episodes that
// they name.
const maxPlaces = 20

// add lists a finding, or counts it where the same was found before: key says what "the same" is.
func (doc *doctor) add(key string, f robocache.Finding) {
	if i, ok := doc.at[key]; ok {
		doc.out[i].Count += max(1, f.Count)
		return
	}
	isBadEpisode := f.Severity == robocache.SeverityError && f.Where["episode"] != nil
	n, last := 0, 0
	for i := 0; i < len(doc.out) && !isBadEpisode; i++ {
		if doc.out[i].Code == f.Code {
			n, last = n+1, i
		}
	}
	if n >= maxPlaces {
		if more := " (and in more places, counted together)"; !strings.HasSuffix(
			doc.out[last].Message,
			more,
		) {
			doc.out[last].Message += more
		}
		doc.out[last].Count += max(1, f.Count)
		doc.at[key] = last
		return
	}
	doc.at[key] = len(doc.out)
	doc.out = append(doc.out, f)
}

// found records a fault; the same code in the same file and stream is counted, and keeps the words
// of the first.
func (doc *doctor) found(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	hint, format string,
	a ...any,
) {
	key := fmt.Sprint(code, "\x00", where["file"], "\x00", where["stream"], "\x00", where["column"])
	doc.add(
		key,
		robocache.Finding{
			Severity: sev,
			Code:     code,
			Where:    where,
			Message:  fmt.Sprintf(format, a...),
			Hint:     hint,
			Count:    1,
		},
	)
}

// unreadable turns a reader's error into a finding; nil is none. Errors that say nothing about the
// data end the diagnosis (doc.failed).
func (doc *doctor) unreadable(ctx context.Context, err error, where robocache.Where) {
	if doc.failed = cmp.Or(doc.failed, ctx.Err()); err == nil || doc.failed != nil {
		return
	}
	f := robocache.Finding{
		Severity: robocache.SeverityError,
		Code:     "unreadable-file",
		Where:    robocache.Where{},
		Message:  err.Error(),
		Hint:     "fetch or write the file again",
		Count:    1,
	}
	switch {
	case errors.Is(err, robocache.ErrNotFound):
		f.Code = "missing-file"
	case errors.Is(err, robocache.ErrTemporary),
		errors.Is(err, robocache.ErrInternal),
		robocache.IsMachineLimit(err):
		doc.failed = err
		return
	}
	var e *robocache.Error
	if errors.As(err, &e) {
		maps.Copy(f.Where, e.Where)
		f.Hint = cmp.Or(e.Hint, f.Hint)
	}
	// The same rows fail for every stream: one finding, with the first.
	place := maps.Clone(f.Where)
	delete(place, "stream")
	maps.Copy(f.Where, where)
	doc.add(f.Code+"\x00"+place.String(), f)
}

// try does a part of the work; the error that it ends with is a finding.
func (doc *doctor) try(ctx context.Context, where robocache.Where, part func() error) {
	doc.unreadable(ctx, part(), where)
}

// layout looks at what the folder holds besides what the metadata names.
func (doc *doctor) layout(context.Context) {
	d := doc.d
	doc.total = d.About.Frames * int64(2+len(d.cams))
	if d.About.Episodes == 0 {
		doc.found(
			robocache.SeverityInfo,
			"no-episodes",
			robocache.Where{"file": infoPath},
			"record some: robocache.Writer continues the dataset with its features",
			"the dataset was created and has no episodes yet",
		)
	}
	if d.raw.major == 3 {
		if n := d.eps.id(0); d.eps.n() > 0 && n != 0 {
			doc.found(
				robocache.SeverityWarning,
				"episodes-not-from-0",
				robocache.Where{"file": "meta/episodes", "episode": n},
				"renumber them: "+robocache.Command("convert")+" does",
				"the first episode_index is %d, not 0: readers that look up by row show other episodes",
				n,
			)
		} else if d.eps.index != nil {
			doc.found(
				robocache.SeverityWarning,
				"episodes-not-dense",
				robocache.Where{"file": "meta/episodes"},
				"renumber them: "+robocache.Command("convert")+" does",
				"episode_index has holes: readers that look up by row show other episodes",
			)
		}
		for _, f := range d.eps.files {
			if f.file > 999 {
				doc.found(
					robocache.SeverityWarning,
					"file-number",
					robocache.Where{"file": fmt.Sprintf("file-%d", f.file)},
					"use more chunks: "+robocache.Command("convert")+" does",
					"file numbers above 999 sort before smaller ones in readers that sort names: rows move silently",
				)
			}
		}
	}
	for key := range d.eps.cams {
		if d.cams[key] == nil {
			doc.found(
				robocache.SeverityError,
				"missing-file",
				robocache.Where{"file": "videos", "stream": key},
				"fetch the files",
				"the episodes table names video files of this camera, and none is there",
			)
		}
	}
	for e := range d.eps.n() {
		if d.eps.length[e] == 0 {
			doc.found(
				robocache.SeverityWarning,
				"empty-episode",
				robocache.Where{"file": d.episodesFile(), "episode": d.eps.id(e)},
				"remove the episode: "+robocache.Command(
					"doctor --fix --in-place",
				)+" leaves it out",
				"the episode has no rows",
			)
		}
	}
}
