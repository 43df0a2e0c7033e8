package verbs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/quality/report"
	"github.com/goatnote-inc/robocache/store"
)

// QualityRequest holds the options of MeasureQuality.
type QualityRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// Out is the table to write: a file that ends with .parquet, .csv or .json. "-" writes none.
	// Empty: the table of the dataset (quality.SidecarOf), if the dataset is local and all its
	// episodes are measured.
	Out string `json:"out"`
	// HTML is the page to write (package quality/report); empty: none.
	HTML string `json:"html"`
	// Frames is the choice of images: all, sample or none; empty: all.
	Frames string `json:"frames"`
	// Episodes lists the indices of the episodes to measure, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	// Budget bounds the numbers of one episode in memory, such as 256MiB.
	Budget string `json:"budget"`
	// Threads is the number of episodes that are measured at once; 0: the number of CPUs.
	Threads int `json:"threads"`
	// Verbose makes the text of the command line list every finding. The result always has all.
	Verbose bool `json:"verbose"`
}

// MetricSummary describes a metric over the episodes of a table.
type MetricSummary struct {
	quality.Metric
	Count    int      `json:"count"` // episodes with a value
	Min      *float64 `json:"min,omitempty"`
	Median   *float64 `json:"median,omitempty"`
	Max      *float64 `json:"max,omitempty"`
	Findings int      `json:"findings"` // episodes with a finding
}

// Quality is the result of MeasureQuality.
type Quality struct {
	URI      string              `json:"uri"`
	Format   string              `json:"format"`
	Episodes int                 `json:"num_episodes"`
	Out      string              `json:"out,omitempty"` // the written table
	Metrics  []MetricSummary     `json:"metrics"`
	Findings []robocache.Finding `json:"findings"`
	// Table is the table of metrics.
	Table *quality.Table `json:"-"`
}

// HasFindings reports whether an episode deviates or could not be measured.
func (q *Quality) HasFindings() bool { return AnyWrong(q.Findings) }

// MeasureQuality measures the episodes of a dataset, and writes the table. An interrupted run is
// continued: its rows are in the folder OUT.parts.
func MeasureQuality(ctx context.Context, r *QualityRequest, o Observer) (*Quality, error) {
	open, err := r.Options()
	if err != nil {
		return nil, err
	}
	opt, err := r.measureOptions(o)
	if err != nil {
		return nil, err
	}
	ds, err := mapping.Open(ctx, r.URI, open)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if opt.Episodes, err = ds.Info().ParseEpisodes(r.Episodes); err != nil {
		return nil, err
	}
	out := r.tableName(ds.Info().URI)
	if out != "" {
		if err := quality.CheckName(out); err != nil {
			return nil, err
		}
		if err := checkWritable(out); err != nil {
			return nil, err
		}
		opt.Parts = out + ".parts"
	}
	table, err := quality.Measure(ctx, ds, opt)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(r.URI)})
	}
	if out != "" {
		if err := table.Write(ctx, out); err != nil {
			return nil, err
		}
		o.note("wrote " + robocache.Redact(out))
	}
	if r.HTML != "" {
		if err := writeQualityPage(ctx, r.HTML, ds, table); err != nil {
			return nil, err
		}
		o.note("wrote " + r.HTML)
	}
	info := ds.Info()
	q := NewQuality(table)
	for _, f := range info.Findings {
		if f.Severity == robocache.SeverityError { // such as a camera without files
			q.Findings = append(q.Findings, f)
		}
	}
	q.URI, q.Format, q.Out = info.URI, info.Format, robocache.Redact(out)
	return q, nil
}

// checkWritable returns an error if a local file cannot be created: a long measurement must not fail
// at its end. Folders that do not exist yet are not made.
func checkWritable(name string) error {
	file, isLocal := store.LocalPath(name)
	if !isLocal {
		return nil
	}
	folder := filepath.Dir(file)
	for {
		if _, err := os.Stat(folder); err == nil || folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	probe, err := os.CreateTemp(folder, ".quality-*.incomplete")
	if err != nil {
		return robocache.Misuse("quality", robocache.Where{"file": name},
			"the table cannot be written").WithCause(err).
			WithHint("Name a file in another folder: %s. Or write none: %s.",
				robocache.Option("out", "FILE.parquet"), robocache.Option("out", "-"))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writeQualityPage writes the report of a table as an HTML page.
func writeQualityPage(
	ctx context.Context, path string, ds robocache.Dataset, t *quality.Table,
) error {
	var page bytes.Buffer
	if err := report.Write(&page, ctx, ds, t); err != nil {
		return err
	}
	return store.WriteFile(ctx, filepath.Dir(path), filepath.Base(path), page.Bytes())
}

// measureOptions returns the options of quality.Measure, without episodes.
func (r *QualityRequest) measureOptions(o Observer) (opt quality.Options, err error) {
	opt = quality.Options{
		Frames: quality.Frames(r.Frames), Progress: o.Progress,
		Threads: cmp.Or(r.Threads, runtime.NumCPU()),
	}
	if r.Budget != "" {
		opt.Budget, err = ParseBytes(r.Budget)
	}
	return opt, err
}

// tableName returns the table to write; "" is none. uri is that of the open dataset: the folder of
// a version of RLDS if the request names the one above.
func (r *QualityRequest) tableName(uri string) string {
	switch path, isLocal := store.LocalPath(uri); {
	case r.Out == "-":
		return ""
	case r.Out != "":
		return r.Out
	case isLocal && r.Episodes == "" && r.Split == "":
		i, err := os.Stat(path)
		return quality.SidecarOf(uri, err == nil && !i.IsDir())
	}
	return ""
}

// NewQuality returns the summary of a table.
func NewQuality(table *quality.Table) *Quality {
	q := &Quality{Episodes: table.Len(), Table: table, Findings: table.Findings()}
	counts := map[any]int{}
	for _, f := range q.Findings {
		counts[f.Where["metric"]]++
	}
	for _, m := range quality.Metrics() {
		s := MetricSummary{Metric: m, Findings: counts[m.Name]}
		var values []float64
		for _, v := range table.Column(m.Name) {
			if v == v {
				values = append(values, v)
			}
		}
		if s.Count = len(values); s.Count > 0 {
			slices.Sort(values)
			median := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
			s.Min, s.Median, s.Max = &values[0], &median, &values[len(values)-1]
		}
		q.Metrics = append(q.Metrics, s)
	}
	return q
}
