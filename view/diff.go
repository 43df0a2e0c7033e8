package view

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache/diff"
)

// setComparison holds the differences of the two datasets.
type setComparison struct {
	job
	report *diff.Report
}

// compareSets compares the two datasets. Cameras are compared by their coded bytes.
func (s *Server) compareSets(ctx context.Context) error {
	c := &s.comparison
	c.runOnce(func(progress func(done, total int64)) (func(), error) {
		report, err := diff.Compare(ctx, s.sets[0].ds, s.sets[1].ds, diff.Options{
			Progress: progress,
		})
		return func() { c.report = report }, err
	})
	return c.internalError()
}

// serveDiff answers the match of an episode in the other dataset, and how the two differ. With run=1
// it starts to compare the datasets.
func (s *Server) serveDiff(q *request) error {
	if len(s.sets) != 2 {
		return notFound("there is no second dataset")
	}
	index, err := q.queryNumber("episode", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	if _, err := q.base.info.EpisodePosition(index); err != nil {
		return notFound("no such episode")
	}
	if q.URL.Query().Get("run") == "1" {
		s.runInBackground(s.compareSets)
	}
	var out struct {
		jobStatus
		Counts *diff.Counts `json:"counts,omitempty"`
		Match  *diff.Match  `json:"match,omitempty"`
		Lines  []string     `json:"lines"`
	}
	var report *diff.Report
	out.jobStatus = s.comparison.progress(func() { report = s.comparison.report })
	if err := s.comparison.internalError(); err != nil {
		return err
	}
	out.Lines = []string{}
	if report != nil {
		out.Counts = &report.Counts
		out.Match = report.MatchOf(index, q.base.number == 1)
		if out.Match != nil && out.Match.Change != nil {
			out.Lines = out.Match.Change.Lines()
		}
	}
	return q.writeJSON(out)
}
