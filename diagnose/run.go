package diagnose

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Run examines a dataset and returns the findings.
func Run(
	ctx context.Context,
	ds robocache.Dataset,
	opt robocache.DiagnoseOptions,
) (_ []robocache.Finding, err error) {
	info := ds.Info()
	x := &examination{ctx: ctx, ds: ds, opt: opt}
	lacking, err := noDecoder(info, opt.Decode)
	if err != nil {
		return nil, err
	}
	own := ds.Capabilities().Diagnose
	if own != nil {
		found, err := own(ctx, opt)
		if err != nil {
			return nil, err
		}
		x.findings = found
	}
	found := x.findings
	// Findings from opening remain valid, whether the format repeats them or not.
	opening := otherFindings(info.Findings, found)
	x.reported = newReportedFaults(slices.Concat(opening, found))
	x.findings = append(opening, lacking...)
	if err := x.findLongGOPs(); err != nil {
		return nil, err
	}
	x.findings = append(x.findings, found...)
	if f, err := robocache.FormatNamed(info.Format); err == nil && f.WholeDoctor {
		return x.findings, nil
	}
	if own != nil {
		x.opt.Progress = nil // the format has reported its own
	}
	if err := x.checkEpisodes(); err != nil {
		return nil, err
	}
	x.addSummaries()
	return x.findings, nil
}

// otherFindings returns the findings that known does not have.
func otherFindings(findings, known []robocache.Finding) (out []robocache.Finding) {
	id := func(f *robocache.Finding) string { return f.Code + "\x00" + f.Where.String() }
	isKnown := map[string]bool{}
	for i := range known {
		isKnown[id(&known[i])] = true
	}
	for i := range findings {
		if !isKnown[id(&findings[i])] {
			out = append(out, findings[i])
		}
	}
	return out
}

// checkEpisodes checks the requested episodes, or all.
func (x *examination) checkEpisodes() error {
	episodes := x.opt.Episodes
	if episodes == nil {
		for e := range x.ds.Info().Episodes {
			episodes = append(episodes, e)
		}
	}
	for at, e := range episodes {
		if e < 0 || e >= x.ds.Info().Episodes {
			return robocache.Misuse(
				"doctor",
				robocache.Where{"position": e},
				"no such episode",
			)
		}
		if err := x.checkEpisode(e); err != nil {
			return err
		}
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if x.opt.Progress != nil {
			x.opt.Progress(int64(at+1), int64(len(episodes)))
		}
	}
	return nil
}

// maxFindings limits the number of findings. One more finding counts the rest.
const maxFindings = 2000

type examination struct {
	ctx              context.Context
	ds               robocache.Dataset
	opt              robocache.DiagnoseOptions
	findings         []robocache.Finding
	reported         reportedFaults
	dropped          int64
	hasNoRateFinding bool // whether the finding no-rate was added

	notFinite map[string]*notFinite // by stream
}

func (x *examination) addFinding(
	sev robocache.Severity,
	code string,
	where robocache.Where,
	count int64,
	hint, format string,
	args ...any,
) {
	if len(x.findings) >= maxFindings {
		x.dropped++
		return
	}
	x.findings = append(x.findings, robocache.Finding{
		Severity: sev,
		Code:     code,
		Where:    where,
		Message:  fmt.Sprintf(format, args...),
		Hint:     hint,
		Count:    count,
	})
}

// addNoRate adds the finding for rows without timestamps and without a rate.
func (x *examination) addNoRate() {
	if x.hasNoRateFinding {
		return
	}
	x.hasNoRateFinding = true
	why := "the data has no timestamps"
	if clocks := x.ds.Info().DescribeUnusedClocks(); clocks != "" {
		why = "the clock of the rows is not used (" + clocks + "), and nothing says their rate"
	}
	x.addFinding(
		robocache.SeverityInfo,
		"no-rate",
		nil,
		0,
		robocache.Option("rows_hz")+" says the rate of the rows",
		"%s: timestamps, gaps and clocks are not checked",
		why,
	)
}

// streamTimes is one stream of an episode with its timestamps.
type streamTimes struct {
	feature *robocache.Feature
	times   []int64
}

func (x *examination) checkEpisode(e int) error {
	info := x.ds.Info()
	var lines, timeless []streamTimes
	byClock := map[string]bool{}
	for i := range info.Features {
		f := &info.Features[i]
		// the format has a finding for a lacking stream
		if f.Default || robocache.Lacks(x.ds, e, f.Key) {
			continue
		}
		times, err := x.ds.Times(x.ctx, e, f.Key)
		if x.ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, robocache.ErrMisuse) && info.FPS.Zero() {
			var rows int
			rows, err = robocache.RowsIn(x.ctx, x.ds, e, f)
			if err == nil {
				// Rows without a clock are valid. Their values are checked later.
				x.addNoRate()
				timeless = append(timeless, streamTimes{f, make([]int64, rows)})
				continue
			}
		}
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil {
			x.addReadFault(
				robocache.SeverityError,
				"unreadable-timestamps",
				robocache.Where{"episode": x.ds.Info().EpisodeIndex(e), "stream": f.Key},
				err.Error(),
			)
			continue
		}
		lines = append(lines, streamTimes{f, times})
		if !byClock[f.Clock] {
			byClock[f.Clock] = true
			x.checkTimestamps(e, f, times)
			if err := x.checkClocks(e, f); err != nil {
				return err
			}
		}
	}
	x.checkEnds(e, lines)
	for i := range lines {
		if err := x.checkValues(e, &lines[i]); err != nil {
			return err
		}
	}
	for i := range timeless {
		if err := x.checkValues(e, &timeless[i]); err != nil {
			return err
		}
	}
	if len(byClock) > 1 {
		x.compareMotions(e, lines)
	}
	return nil
}

// addSummaries adds the findings about all episodes together.
func (x *examination) addSummaries() {
	x.addNotFinite()
	if x.dropped > 0 {
		x.findings = append(x.findings, robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "more-findings",
			Message:  fmt.Sprintf("%d more findings are not listed", x.dropped),
			Count:    x.dropped,
		})
	}
}

// noDecoder returns a finding if this build cannot decode the video of a dataset. If decode is set,
// it returns an error instead.
func noDecoder(info *robocache.Info, decode bool) ([]robocache.Finding, error) {
	isVideo := func(f robocache.Feature) bool { return f.Kind == robocache.KindVideo }
	if !slices.ContainsFunc(info.Features, isVideo) {
		return nil, nil
	}
	_, err := video.ActiveBackend()
	if err == nil || decode {
		if err := robocache.At(err, robocache.Where{"dataset": info.URI}); err != nil {
			return nil, err
		}
		return nil, nil
	}
	f := robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "no-video-decoder",
		Message: "this build cannot decode video: the frames of the dataset were not looked " +
			"at, and cannot be loaded",
	}
	var e *robocache.Error
	if errors.As(err, &e) {
		f.Hint = e.Hint
	}
	return []robocache.Finding{f}, nil
}
