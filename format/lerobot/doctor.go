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

// doctor collects the faults of a dataset. Faults of one kind in one place become one finding with
// a count and the first location.
type doctor struct {
	dataset    *Dataset
	options    robocache.DiagnoseOptions
	requested  map[int]bool // episodes to diagnose; nil means all
	unreadable map[int]bool // episodes whose rows cannot be read; later parts skip them
	findings   []robocache.Finding
	positions  map[string]int // code and location → position in findings
	failed     error          // ends the diagnosis
	done       int64
	total      int64
}

// Diagnose compares the rows, video files and statistics of the dataset with its metadata. The
// result includes the findings of Open. An error means that the diagnosis failed, not that
// something was found.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer crash.Recover("lerobot doctor", &err)
	doc := &doctor{
		dataset:    d,
		options:    opt,
		unreadable: map[int]bool{},
		positions:  map[string]int{},
	}
	if opt.Episodes != nil {
		doc.requested = map[int]bool{}
		for _, e := range opt.Episodes {
			if err := d.checkEpisode(e); err != nil {
				return out, err
			}
			doc.requested[e] = true
		}
	}
	doc.findings = append(doc.findings, d.About.Findings...)
	for _, part := range []func(context.Context){
		doc.checkLayout,
		doc.checkTables,
		doc.checkPages,
		doc.checkVideos,
		doc.checkStatistics,
	} {
		part(ctx)
		if err := cmp.Or(doc.failed, ctx.Err()); err != nil {
			return nil, err
		}
	}
	for _, f := range d.Noticed() {
		isSame := func(o robocache.Finding) bool {
			return o.Code == f.Code && o.Where.String() == f.Where.String()
		}
		if !slices.ContainsFunc(doc.findings, isSame) {
			doc.findings = append(doc.findings, f)
		}
	}
	return doc.findings, nil
}

// isRequested reports whether an episode was requested.
func (doc *doctor) isRequested(episode int) bool {
	return doc.requested == nil || doc.requested[episode]
}

// shouldCheckAny reports whether one of the episodes was requested, and nothing ended the
// diagnosis.
func (doc *doctor) shouldCheckAny(ctx context.Context, eps []int32) bool {
	doc.failed = cmp.Or(doc.failed, ctx.Err())
	isListed := func(e int32) bool { return doc.requested[int(e)] }
	wantsAll := doc.requested == nil
	return doc.failed == nil && (wantsAll || slices.ContainsFunc(eps, isListed))
}

// addProgress counts n units of work as done.
func (doc *doctor) addProgress(n int64) {
	doc.done += n
	if doc.options.Progress != nil {
		doc.options.Progress(min(doc.done, doc.total), doc.total)
	}
}

// maxPlaces bounds the listed findings of one code. Further ones are counted in the last one.
// Errors of an episode are all listed, because "doctor --fix --drop-bad" removes the episodes that
// they name.
const maxPlaces = 20

// addFinding lists a finding, or counts it if a finding with the same key was added before.
func (doc *doctor) addFinding(key string, f robocache.Finding) {
	if i, ok := doc.positions[key]; ok {
		doc.findings[i].Count += max(1, f.Count)
		return
	}
	isBadEpisode := f.Severity == robocache.SeverityError && f.Where["episode"] != nil
	if listed, last := doc.countListed(f.Code); listed >= maxPlaces && !isBadEpisode {
		const more = " (and in more places, counted together)"
		if !strings.HasSuffix(doc.findings[last].Message, more) {
			doc.findings[last].Message += more
		}
		doc.findings[last].Count += max(1, f.Count)
		doc.positions[key] = last
		return
	}
	doc.positions[key] = len(doc.findings)
	doc.findings = append(doc.findings, f)
}

// countListed returns the number of listed findings with a code, and the position of the last one.
func (doc *doctor) countListed(code string) (listed, last int) {
	for i := range doc.findings {
		if doc.findings[i].Code == code {
			listed++
			last = i
		}
	}
	return listed, last
}

// recordFault records a fault. Faults with the same code, file, stream and column are counted, and
// the message of the first is kept.
func (doc *doctor) recordFault(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	hint, format string,
	a ...any,
) {
	key := fmt.Sprint(code, "\x00", where["file"], "\x00", where["stream"], "\x00", where["column"])
	doc.addFinding(key, robocache.Finding{
		Severity: sev,
		Code:     code,
		Where:    where,
		Message:  fmt.Sprintf(format, a...),
		Hint:     hint,
		Count:    1,
	})
}

// reportError turns an error of the reader into a finding; a nil error has no effect. Errors that
// are not about the data end the diagnosis (doc.failed).
func (doc *doctor) reportError(ctx context.Context, err error, where robocache.Where) {
	doc.failed = cmp.Or(doc.failed, ctx.Err())
	if err == nil || doc.failed != nil {
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
	// The same rows fail for every stream, so the location without the stream identifies the
	// finding.
	place := maps.Clone(f.Where)
	delete(place, "stream")
	maps.Copy(f.Where, where)
	doc.addFinding(f.Code+"\x00"+place.String(), f)
}

// runPart runs a part of the diagnosis and reports its error as a finding.
func (doc *doctor) runPart(ctx context.Context, where robocache.Where, part func() error) {
	doc.reportError(ctx, part(), where)
}

// checkNumbering checks the numbers of episodes and files of v3.
func (doc *doctor) checkNumbering() {
	d := doc.dataset
	first := d.episodes.indexAt(0)
	if d.episodes.count() > 0 && first != 0 {
		doc.recordFault(
			robocache.SeverityWarning,
			"episodes-not-from-0",
			robocache.Where{"file": "meta/episodes", "episode": first},
			"renumber them: "+robocache.Command("convert")+" does",
			"the first episode_index is %d, not 0: readers that look up by row show other "+
				"episodes",
			first,
		)
	} else if d.episodes.index != nil {
		doc.recordFault(
			robocache.SeverityWarning,
			"episodes-not-dense",
			robocache.Where{"file": "meta/episodes"},
			"renumber them: "+robocache.Command("convert")+" does",
			"episode_index has holes: readers that look up by row show other episodes",
		)
	}
	for _, f := range d.episodes.files {
		if f.file > 999 {
			doc.recordFault(
				robocache.SeverityWarning,
				"file-number",
				robocache.Where{"file": fmt.Sprintf("file-%d", f.file)},
				"use more chunks: run "+robocache.Command("convert"),
				"readers that sort file names read numbers above 999 before smaller ones, "+
					"and deliver other rows",
			)
		}
	}
}

// checkLayout checks the numbers of episodes and files, missing video files, and empty episodes.
func (doc *doctor) checkLayout(context.Context) {
	d := doc.dataset
	doc.total = d.About.Frames * int64(2+len(d.cameras))
	if d.About.Episodes == 0 {
		doc.recordFault(
			robocache.SeverityInfo,
			"no-episodes",
			robocache.Where{"file": infoPath},
			"record episodes: robocache.Writer continues the dataset with its features",
			"the dataset was created and has no episodes yet",
		)
	}
	if d.raw.major == 3 {
		doc.checkNumbering()
	}
	for key := range d.episodes.cameras {
		if d.cameras[key] == nil {
			doc.recordFault(
				robocache.SeverityError,
				"missing-file",
				robocache.Where{"file": "videos", "stream": key},
				"fetch the files",
				"the episodes table names video files of this camera, but none exists",
			)
		}
	}
	for e := range d.episodes.count() {
		if d.episodes.length[e] == 0 {
			doc.recordFault(
				robocache.SeverityWarning,
				"empty-episode",
				robocache.Where{"file": d.episodesFile(), "episode": d.episodes.indexAt(e)},
				"leave out the episode: run "+robocache.Command("doctor --fix --in-place"),
				"the episode has no rows",
			)
		}
	}
}
