package lerobot

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/stats"
)

// tableCheck is what the rows must say next.
type tableCheck struct {
	global int64   // rows seen, over all files
	rows   []int32 // of each episode
	last   []float64
}

// tables reads the bookkeeping columns of every data file as they are stored.
func (doc *doctor) tables(ctx context.Context) {
	d := doc.d
	c := &tableCheck{rows: make([]int32, d.eps.n()), last: make([]float64, d.eps.n())}
	for file := range d.tab.files() {
		eps := d.tab.episodesOf(int32(file))
		after := c.global + doc.rows(eps)
		if !doc.wantsAny(ctx, eps) {
			c.global = after
		} else if err := doc.file(ctx, int32(file), c); err == nil {
			// The numbers in the files behind count the rows that this one lost.
			for _, e := range eps {
				c.global += max(0, int64(d.Len(int(e)))-int64(c.rows[e]))
			}
		} else {
			// The index of the files that follow is not this one's fault.
			c.global = after
			for _, e := range eps {
				doc.bad[int(e)] = true
			}
			doc.unreadable(ctx, err, robocache.Where{"episodes": doc.span(eps)})
		}
	}
	for e, n := range c.rows {
		if doc.wants(e) && !doc.bad[e] && int(n) != d.Len(e) {
			doc.bad[e] = true
			if d.tab.badEpisode(e) == nil { // else Open reported it
				file, _ := d.tab.fileOf(e)
				doc.length(ctx, file, e, n)
			}
		}
	}
}

// length reports an episode of which the data has another number of rows than the table says.
func (doc *doctor) length(ctx context.Context, file int32, e int, rows int32) {
	d := doc.d
	where := robocache.Where{"file": d.episodesFile(), "episode": d.eps.id(e)}
	code, hint := "episode-length", fixTableHint()
	if int(rows) < d.Len(e) {
		code, hint = "rows-missing", rowsLostHint()
		if f, err := d.tab.footer(ctx, file); err == nil {
			where["file"] = f.name
		}
	}
	doc.found(robocache.SeverityError, code, where, hint,
		"the episodes table says %d rows, the data has %d", d.Len(e), rows)
}

// rows is how many rows the metadata gives to some episodes.
func (doc *doctor) rows(eps []int32) (n int64) {
	for _, e := range eps {
		n += int64(doc.d.Len(int(e)))
	}
	return n
}

// span names the episodes of a file: "12–14".
func (doc *doctor) span(eps []int32) string {
	if len(eps) == 0 {
		return "none"
	}
	lo, hi := doc.d.eps.id(int(eps[0])), doc.d.eps.id(int(eps[len(eps)-1]))
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d–%d", lo, hi)
}

func (doc *doctor) file(ctx context.Context, file int32, c *tableCheck) error {
	f, err := doc.d.tab.footer(ctx, file)
	if err != nil {
		return err
	}
	if f.pq.Rows == 0 {
		doc.found(
			robocache.SeverityError,
			"empty-file",
			robocache.Where{"file": f.name},
			"remove the file",
			"the data file has no rows: LeRobot refuses such a set",
		)
	}
	doc.schema(f)
	for g := range f.pq.Groups {
		if err := doc.group(ctx, f, file, g, c); err != nil {
			return err
		}
		doc.progress(f.pq.Groups[g].Rows)
	}
	return nil
}

// schema compares a file's columns with the declaration.
func (doc *doctor) schema(f *tableFile) {
	for i := range doc.d.cols {
		c := &doc.d.cols[i]
		if c.src != fromColumn {
			continue
		}
		top := f.pq.Column(c.key)
		where := robocache.Where{"file": f.name, "column": c.key}
		switch {
		case top == nil:
			doc.found(
				robocache.SeverityError,
				"missing-column",
				where,
				"write the file again",
				"declared, but not in this file",
			)
		case c.kind == robocache.KindNumeric && top.Group() && elements(c.shape) == 1 && len(c.shape) < 2:
			doc.found(
				robocache.SeverityWarning,
				"scalar-as-list",
				where,
				"store shape [1] as a plain number",
				"shape [1] is stored as a list: LeRobot refuses it",
			)
		case c.kind == robocache.KindNumeric && !top.Group():
			t := pq.DType(top)
			if isBool := robocache.Bool; t.Float() != c.dtype.Float() ||
				(t == isBool) != (c.dtype == isBool) {
				doc.found(
					robocache.SeverityWarning,
					"stored-type",
					where,
					"declare the type that is stored",
					"declared %s, stored %s",
					c.dtype,
					t,
				)
			}
		}
	}
}

// group checks the rows of one row group.
func (doc *doctor) group(
	ctx context.Context,
	f *tableFile,
	file int32,
	g int,
	c *tableCheck,
) error {
	d := doc.d
	column := func(name string) ([]int64, error) { return d.tab.integers(ctx, f, file, g, name) }
	ids, err := column("episode_index")
	if err != nil {
		return err
	}
	index, err := column("index")
	if err != nil {
		return err
	}
	frame, err := column("frame_index")
	if err != nil {
		return err
	}
	task, err := column("task_index")
	if err != nil {
		return err
	}
	timestamps, err := scalar(ctx, d.tab, f, file, g, "timestamp", pq.Float64s)
	if err != nil {
		return err
	}
	where := func(column string, row int) robocache.Where {
		return robocache.Where{"file": f.name, "row_group": g, "column": column, "row": row}
	}
	renumber := robocache.Command("convert") + " renumbers"
	for r := range int(f.pq.Groups[g].Rows) {
		e := int(file) // v2: the file is the episode
		switch {
		case len(d.eps.stored) > 0:
			e = doc.episodeAtRow(file, f.pq.Groups[g].Start+int64(r), ids, r)
		case ids != nil && d.raw.major != 2:
			e = d.eps.position(ids[r])
		}
		if index != nil && index[r] != c.global {
			doc.found(
				robocache.SeverityError,
				"index-order",
				where("index", r),
				renumber,
				"index is %d where %d stands in order: readers that take a row's place as its index give other rows, and windows clamp wrongly",
				index[r],
				c.global,
			)
		}
		c.global++
		if e < 0 || e >= d.eps.n() {
			doc.found(
				robocache.SeverityError,
				"orphan-rows",
				where("episode_index", r),
				"remove the rows, or restore their episode",
				"rows of episode %d, which the metadata does not know",
				ids[r],
			)
			continue
		}
		k := int64(c.rows[e])
		c.rows[e]++
		if !doc.wants(e) {
			continue
		}
		if frame != nil && frame[r] != k {
			doc.found(
				robocache.SeverityError,
				"frame-index",
				where("frame_index", r),
				renumber,
				"frame_index is %d in row %d of episode %d",
				frame[r],
				k,
				d.eps.id(e),
			)
		}
		if task != nil {
			if _, ok := d.taskText[task[r]]; !ok {
				doc.found(
					robocache.SeverityError,
					"task-index",
					where("task_index", r),
					"add the task, or fix the number",
					"task_index %d has no text",
					task[r],
				)
			}
		}
		if timestamps != nil {
			doc.timestamp(timestamps[r], k, e, c, func() robocache.Where {
				w := where("timestamp", r)
				w["episode"] = d.eps.id(e)
				return w
			})
		}
	}
	return nil
}

// episodeAtRow returns the position of the episode that has a row of a data file; -1 if there is
// none. ids are the numbers of a row group, and i is the row in it.
func (doc *doctor) episodeAtRow(file int32, row int64, ids []int64, i int) int {
	d := doc.d
	for _, e := range d.tab.episodesOf(file) {
		_, start := d.tab.fileOf(int(e))
		if row >= start && row < start+int64(d.Len(int(e))) &&
			(ids == nil || d.raw.major == 2 || ids[i] == d.eps.dataID(int(e))) {
			return int(e)
		}
	}
	if ids == nil || d.raw.major == 2 {
		return -1
	}
	return d.eps.position(ids[i])
}

// timestamp checks one row's time: finite, increasing, on the grid of the frame rate from 0.
func (doc *doctor) timestamp(
	t float64,
	k int64,
	e int,
	c *tableCheck,
	where func() robocache.Where,
) {
	if math.IsNaN(t) || math.IsInf(t, 0) {
		doc.found(
			robocache.SeverityError,
			"timestamp-not-finite",
			where(),
			"fix the timestamp, or drop the row",
			"timestamp is %v",
			t,
		)
		return
	}
	fps := doc.d.About.FPS
	step := 1 / fps.Float()
	before := c.last[e]
	c.last[e] = t
	if k == 0 {
		if math.Abs(t) > tolerance(t) {
			doc.found(
				robocache.SeverityWarning,
				"timestamp-offset",
				where(),
				robocache.Command("convert")+" writes timestamps from 0",
				"timestamps start at %.6g s, not at 0: readers that look up frames by time are off by %.3g frames",
				t,
				t/step,
			)
		}
		return
	}
	switch d := t - before; {
	case d < 0:
		doc.found(
			robocache.SeverityError,
			"timestamp-order",
			where(),
			"sort the rows, or fix the timestamps",
			"time goes back from %.9g to %.9g s",
			before,
			t,
		)
	case d == 0:
		doc.found(
			robocache.SeverityWarning,
			"timestamp-repeated",
			where(),
			"drop the row, or fix the timestamp",
			"time stands still at %.9g s",
			t,
		)
	case d > 1.5*step:
		doc.found(
			robocache.SeverityWarning,
			"timestamp-gap",
			where(),
			"frames may be lost: compare with the recording",
			"a step of %.4g s, %.3g frames",
			d,
			d/step,
		)
	case math.Abs(d-step) > 2*tolerance(t):
		doc.found(
			robocache.SeverityWarning,
			"timestamp-grid",
			where(),
			robocache.Command(
				"convert",
			)+" writes timestamps on the grid, and keeps the recorded ones",
			"a step of %.6g s where 1/fps is %.6g",
			d,
			step,
		)
	}
}

// tolerance is LeRobot's 0.1 ms, and what float32 itself cannot hold.
func tolerance(t float64) float64 { return 1e-4 + math.Abs(t)/(1<<23) }

// statistics recounts every numeric feature, exactly, and compares with what the dataset says of
// itself.
func (doc *doctor) statistics(ctx context.Context) {
	d := doc.d
	said, err := d.Stats(ctx)
	doc.unreadable(ctx, err, robocache.Where{"part": "statistics"})
	lacksStats := said == nil && err == nil && d.eps.n() > 0
	var episodes []int // that can be read
	for e := range d.eps.n() {
		if doc.wants(e) && !doc.bad[e] {
			episodes = append(episodes, e)
		}
	}
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if d.cols[i].src != fromColumn || doc.failed != nil {
			continue
		}
		switch {
		case f.Kind == robocache.KindImage:
			doc.images(ctx, f)
		case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
			doc.texts(ctx, f)
		case f.DType == robocache.Bool:
			doc.numbers(ctx, f)
		}
		if f.Kind != robocache.KindNumeric || f.DType == robocache.Bool || doc.failed != nil {
			continue
		}
		have, left, err := stats.Rows(ctx, d, f, episodes, 256<<20)
		if err != nil {
			before := len(doc.out)
			doc.numbers(ctx, f) // where exactly
			if len(doc.out) == before {
				doc.unreadable(ctx, err, robocache.Where{"stream": f.Key})
			}
			continue
		}
		if left > 0 {
			doc.numbers(ctx, f)
		}
		if s := said[f.Key]; s != nil && have != nil && doc.chosen == nil && len(doc.bad) == 0 {
			doc.compare(f, s, have)
		}
		doc.progress(d.About.Frames / int64(len(d.About.Features)))
	}
	if lacksStats {
		hint := robocache.Command("stats --write") + " writes them"
		if slices.ContainsFunc(doc.out, isUnreadable) {
			hint = "correct the errors first: statistics need every row"
		}
		doc.found(
			robocache.SeverityInfo,
			"no-stats",
			robocache.Where{"file": statsJSON},
			hint,
			"the dataset brings no statistics",
		)
	}
}

// isUnreadable reports whether a finding is about rows that cannot be read.
func isUnreadable(f robocache.Finding) bool {
	switch f.Code {
	case "stored-value", "unreadable-file", "missing-file", "missing-column", "rows-missing",
		"unreadable-image", "codec-unsupported", "undecodable", "episode-twice", "image-size":
		return f.Severity == robocache.SeverityError
	}
	return false
}

// compare allows what float32 arithmetic and a histogram of 5,000 bins cost, and no more.
func (doc *doctor) compare(f *robocache.Feature, said, have *robocache.FeatureStats) {
	hint := robocache.Command("stats --write") + " writes exact ones"
	where := robocache.Where{"file": "meta/stats", "stream": f.Key}
	if said.Count > 0 && said.Count != have.Count {
		doc.found(
			robocache.SeverityWarning,
			"stats-count",
			where,
			hint,
			"statistics of %d rows, there are %d",
			said.Count,
			have.Count,
		)
	}
	for _, name := range []string{"min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"} {
		a, b := stats.Vector(said, name), stats.Vector(have, name)
		if a == nil || b == nil {
			continue
		}
		if len(a) != len(b) {
			doc.found(
				robocache.SeverityWarning,
				"stats-shape",
				where,
				hint,
				"%s has %d numbers, expected %d",
				name,
				len(a),
				len(b),
			)
			continue
		}
		for c := range a {
			scale := math.Max(math.Abs(have.Min[c]), math.Abs(have.Max[c]))
			width := have.Max[c] - have.Min[c]
			allowed := 1e-5 * scale
			switch name {
			case "std":
				allowed = 0.01*have.Std[c] + 1e-6*scale
			case "q01", "q10", "q50", "q90", "q99":
				allowed = 0.01*width + 1e-5*scale
			}
			if diff := math.Abs(a[c] - b[c]); diff > allowed || math.IsNaN(diff) {
				w := robocache.Where{"file": "meta/stats", "stream": f.Key, "index": c}
				doc.found(
					robocache.SeverityWarning,
					"stats-wrong",
					w,
					hint,
					"%s is said to be %.6g, a recount gives %.6g",
					name,
					a[c],
					b[c],
				)
			}
		}
	}
}
