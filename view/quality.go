package view

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
)

// qualityTable holds the metrics of the episodes: those of the sidecar, or those that the server
// measured. The server writes no sidecar.
type qualityTable struct {
	job
	table    *quality.Table
	findings []robocache.Finding
	isStored bool // whether the table was read from the sidecar
}

// keepTable stores a table. Caller must hold m.mu.
func (m *qualityTable) keepTable(table *quality.Table, isStored bool) {
	m.table, m.findings, m.isStored = table, table.Findings(), isStored
}

// current returns the table and its findings; nil if there is none.
func (m *qualityTable) current() (*quality.Table, []robocache.Finding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table, m.findings
}

// loadQuality reads the sidecar. If there is none of this state of the dataset, it measures the
// numbers of a small dataset. The job must be marked as running.
func (x *viewedSet) loadQuality(ctx context.Context) error {
	m := &x.quality
	m.run(func(progress func(done, total int64)) (func(), error) {
		table, err := quality.LoadCurrent(ctx, x.ds)
		isStale := errors.Is(err, robocache.ErrMisuse)
		if !isStale && !errors.Is(err, robocache.ErrNotFound) || isStale && !x.isSmall() {
			return func() { m.keepTable(table, true) }, err
		}
		if !x.isSmall() {
			return func() { m.state = "no" }, nil
		}
		table, err = x.measureTable(ctx, quality.NoFrames, progress)
		return func() { m.keepTable(table, false) }, err
	})
	return m.internalError()
}

// measureQuality measures the episodes. The job must be marked as running.
func (x *viewedSet) measureQuality(ctx context.Context, frames quality.Frames) error {
	m := &x.quality
	m.run(func(progress func(done, total int64)) (func(), error) {
		table, err := x.measureTable(ctx, frames, progress)
		return func() { m.keepTable(table, false) }, err
	})
	return m.internalError()
}

func (x *viewedSet) measureTable(
	ctx context.Context,
	frames quality.Frames,
	progress func(done, total int64),
) (*quality.Table, error) {
	return quality.Measure(ctx, x.ds, quality.Options{
		Frames:   frames,
		Progress: func(p robocache.Progress) { progress(p.Done, p.Total) },
	})
}

// serveQuality answers the metrics that the table has, and the findings of the table. With run=1 it
// starts to measure the episodes, with a sample of their images.
func (s *Server) serveQuality(q *request) error {
	x := q.base
	if q.URL.Query().Get("run") == "1" && x.quality.begin(true) {
		s.runInBackground(func(ctx context.Context) error {
			return x.measureQuality(ctx, quality.SampledFrames)
		})
	}
	var table *quality.Table
	out := struct {
		jobStatus
		Metrics  []quality.Metric `json:"metrics"`
		Findings []placedFinding  `json:"findings"`
		Stored   bool             `json:"stored"`
		Frames   bool             `json:"frames"` // whether images were measured
		Command  string           `json:"command,omitempty"`
	}{Metrics: []quality.Metric{}}
	var found []robocache.Finding
	out.jobStatus = x.quality.progress(func() {
		table, found, out.Stored = x.quality.table, x.quality.findings, x.quality.isStored
	})
	if err := x.quality.internalError(); err != nil {
		return err
	}
	if x.info.URI != "" {
		out.Command = "robocache quality " + robocache.Redact(x.info.URI)
	}
	if table != nil {
		out.Metrics = measuredMetrics(table)
		out.Frames = table.Frames != quality.NoFrames || !x.hasCameras()
	}
	var err error
	if out.Findings, err = x.placeFindings(q.Context(), found, -1); err != nil {
		return err
	}
	return q.writeJSON(out)
}

// hasCameras reports whether the dataset has a stream of images.
func (x *viewedSet) hasCameras() bool {
	for i := range x.info.Features {
		if k := x.info.Features[i].Kind; k == robocache.KindVideo || k == robocache.KindImage {
			return true
		}
	}
	return false
}

// measuredMetrics returns the metrics that have a value in at least one episode.
func measuredMetrics(table *quality.Table) []quality.Metric {
	out := []quality.Metric{}
	for _, m := range quality.Metrics() {
		for _, v := range table.Columns[m.Name] {
			if !math.IsNaN(v) {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

// serveQualityColumns answers columns of the table by position. Episodes that the table lacks have
// NaN.
func (s *Server) serveQualityColumns(q *request) error {
	x := q.base
	table, _ := x.quality.current()
	if table == nil {
		return notFound("the episodes were not measured")
	}
	rows := x.tableRows(table)
	var out [][]float64
	for name := range strings.SplitSeq(q.URL.Query().Get("names"), ",") {
		values := table.Columns[name]
		if values == nil {
			return robocache.NotFound("view", nil, "the table has no column %q", name)
		}
		column := make([]float64, len(rows))
		for e, row := range rows {
			column[e] = math.NaN()
			if row >= 0 {
				column[e] = values[row]
			}
		}
		out = append(out, column)
	}
	return q.writeBinary(map[string]int{"points": len(rows)}, out...)
}

// tableRows returns the row of each episode in the table, or -1.
func (x *viewedSet) tableRows(table *quality.Table) []int {
	rows := make([]int, x.info.Episodes)
	for e := range rows {
		rows[e] = -1
	}
	for row, index := range table.Episodes {
		if e, err := x.info.EpisodePosition(index); err == nil {
			rows[e] = row
		}
	}
	return rows
}
