package view

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// listing is the episodes as columns, which fill while the server runs: of some formats a task
// costs reading a file.
type listing struct {
	mu sync.Mutex
	columns
	number map[string]int
	err    error // why the columns end before the last episode
}

type columns struct {
	Done   int      `json:"done"` // episodes whose columns are there
	Length []int    `json:"length"`
	Task   []int    `json:"task"` // into Tasks; -1 = none
	Tasks  []string `json:"tasks"`
}

// list fills the columns. It ends early if an episode meets an internal error.
func (x *set) list(ctx context.Context) (err error) {
	defer func() { x.listed.end(err) }()
	defer crash.Recover("view", &err)
	for e := range x.info.Episodes {
		ep, err := x.ds.Episode(ctx, e)
		if err := ctx.Err(); err != nil {
			return err
		}
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil {
			ep = robocache.Episode{} // the error is reported when the episode is opened
		}
		ep.Length = x.ds.Len(e)
		x.listed.add(ep)
	}
	return nil
}

func (l *listing) add(ep robocache.Episode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number == nil {
		l.number = map[string]int{}
	}
	task := -1
	if len(ep.Tasks) > 0 {
		n, ok := l.number[ep.Tasks[0]]
		if !ok {
			n = len(l.Tasks)
			l.number[ep.Tasks[0]] = n
			l.Tasks = append(l.Tasks, ep.Tasks[0])
		}
		task = n
	}
	l.Length[l.Done] = ep.Length
	l.Task = append(l.Task, task)
	l.Done++
}

// end records the error that ended the listing, or nil.
func (l *listing) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// isOver reports whether no further columns come.
func (l *listing) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Done == len(l.Length) || l.err != nil
}

// episodes answers the columns that are ready. It waits up to 0.3 s for all of them.
// It returns the internal error that ended the listing, if one did.
func (s *Server) episodes(q *request) error {
	l := &q.base.listed
	for range 60 {
		if l.isOver() || q.Context().Err() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	l.mu.Lock()
	out := columns{
		Done:   l.Done,
		Length: l.Length[:l.Done:l.Done],
		Task:   append([]int{}, l.Task...),
		Tasks:  append([]string{}, l.Tasks...),
	}
	err := l.err
	l.mu.Unlock()
	if errors.Is(err, robocache.ErrInternal) {
		return err
	}
	return q.json(&out)
}

// job is work on all of a dataset that is done once.
type job struct {
	mu          sync.Mutex
	state       string // no, running, done, failed
	done, total int64
	err         error
}

// status is what the page knows of a job.
type status struct {
	State   string `json:"state"`
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Problem string `json:"problem,omitempty"`
}

// run does the work unless it is running or done. It calls keep with j.mu locked.
// A panic of the work is the error of the job.
func (j *job) run(work func(progress func(done, total int64)) (keep func(), err error)) {
	j.mu.Lock()
	begin := j.state != "running" && j.state != "done"
	if begin {
		j.state = "running"
	}
	j.mu.Unlock()
	if !begin {
		return
	}
	keep, err := func() (keep func(), err error) {
		defer crash.Recover("view", &err)
		return work(func(done, total int64) {
			j.mu.Lock()
			j.done, j.total = done, total
			j.mu.Unlock()
		})
	}()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state, j.err = "done", err; err != nil {
		j.state = "failed"
		return
	}
	keep()
}

// status says how far the work is; look is called under the lock.
func (j *job) status(look func()) status {
	j.mu.Lock()
	defer j.mu.Unlock()
	look()
	out := status{State: j.state, Done: j.done, Total: j.total}
	if j.err != nil {
		out.Problem = j.err.Error()
	}
	return out
}

// internal returns the error of the job if it is an internal error.
func (j *job) internal() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, robocache.ErrInternal) {
		return j.err
	}
	return nil
}

// diagnosis is what the doctor says of the dataset.
type diagnosis struct {
	job
	findings []robocache.Finding
	episodes map[int][]robocache.Finding // of those that were looked at alone
}

// small says that all of the dataset may be looked at unasked.
func (x *set) small() bool {
	return !x.remote() && x.info.Frames <= doctorRows && x.info.Episodes <= 1000
}

// diagnose runs the doctor on the whole dataset.
func (x *set) diagnose(ctx context.Context) error {
	d := &x.found
	d.run(func(progress func(done, total int64)) (func(), error) {
		found, err := diagnose.Run(ctx, x.ds, robocache.DiagnoseOptions{Progress: progress})
		return func() { d.findings = found }, err
	})
	return d.internal()
}

// mark is a finding with the episode and the time that it names.
type mark struct {
	robocache.Finding
	Episode int64  `json:"episode"` // its index; -1 = the whole dataset
	Time    *int64 `json:"t_ns,omitempty"`
}

// MarshalJSON adds the place to the finding. Without it the method of the embedded Finding would
// leave the place out.
func (m mark) MarshalJSON() ([]byte, error) {
	finding, err := json.Marshal(m.Finding)
	if err != nil {
		return nil, err
	}
	place, err := json.Marshal(struct {
		Episode any    `json:"episode"`
		Time    *int64 `json:"t_ns,omitempty"`
	}{m.Episode, m.Time})
	if err != nil {
		return nil, err
	}
	return append(append(finding[:len(finding)-1], ','), place[1:]...), nil
}

// marks places findings. Times are looked up where e is the position of an episode.
func (x *set) marks(ctx context.Context, found []robocache.Finding, e int) ([]mark, error) {
	out := []mark{}
	for _, f := range found {
		m := mark{Finding: f, Episode: -1}
		position, _ := x.info.PositionIn(f.Where)
		if position >= 0 {
			m.Episode = x.info.EpisodeIndex(position)
		}
		if e >= 0 && position >= 0 && position != e {
			continue
		}
		if e >= 0 && position == e {
			var err error
			if m.Time, err = x.when(ctx, e, f.Code, f.Where); err != nil {
				return nil, err
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// when returns the time that a finding names by a row, or by its code and stream; nil if it names
// none.
func (x *set) when(ctx context.Context, e int, code string, w robocache.Where) (*int64, error) {
	all, err := x.timelines(ctx, e)
	if robocache.IsFatal(err) {
		return nil, err
	}
	if err != nil || len(all.Streams) == 0 {
		return nil, nil
	}
	line := all.Streams[0]
	for i := range x.info.Features {
		if x.info.Features[i].Key == w["stream"] {
			line = all.Streams[i]
		}
	}
	for _, name := range []string{"row", "index", "frame"} {
		row := -1
		switch v := w[name].(type) {
		case int:
			row = v
		case int64:
			row = int(v)
		}
		if row >= 0 && row < len(line.Times) {
			t := line.Times[row] - all.Start
			return &t, nil
		}
	}
	return momentOf(code, line, all.Start), nil
}

// momentOf returns the time of a finding that names a stream without a row; nil if the code has no
// moment.
func momentOf(code string, line *inspect.Timeline, start int64) *int64 {
	if len(line.Times) == 0 {
		return nil
	}
	at := 0
	switch code {
	case "gap":
		for k := 1; k+1 < len(line.Times); k++ {
			if line.Times[k+1]-line.Times[k] > line.Times[at+1]-line.Times[at] {
				at = k
			}
		}
	case "late-start":
	case "early-end":
		at = len(line.Times) - 1
	default:
		return nil
	}
	t := line.Times[at] - start
	return &t
}

// findings answers what the doctor found; run=1 sends him.
func (s *Server) findings(q *request) error {
	x := q.base
	if q.URL.Query().Get("run") == "1" {
		s.background(x.diagnose)
	}
	var out struct {
		status
		Findings []mark `json:"findings"`
	}
	var found []robocache.Finding
	out.status = x.found.status(func() { found = x.found.findings })
	if err := x.found.internal(); err != nil {
		return err
	}
	var err error
	if out.Findings, err = x.marks(q.Context(), found, -1); err != nil {
		return err
	}
	return q.json(out)
}

// episodeFindings answers what the doctor says of one episode.
func (s *Server) episodeFindings(q *request) error {
	x, d, ctx := q.base, &q.base.found, q.Context()
	var found []robocache.Finding
	known := false
	for {
		now := d.status(func() {
			if found, known = d.episodes[q.e]; d.state == "done" {
				found, known = d.findings, true
			}
		})
		if now.State != "running" { // twice at once would take twice as long
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if !known {
		var err error
		if found, err = diagnose.Run(
			ctx,
			x.ds,
			robocache.DiagnoseOptions{Episodes: []int{q.e}},
		); err != nil {
			return err
		}
		d.mu.Lock()
		if d.episodes == nil || len(d.episodes) > 1000 {
			d.episodes = map[int][]robocache.Finding{}
		}
		d.episodes[q.e] = found
		d.mu.Unlock()
	}
	marks, err := x.marks(ctx, found, q.e)
	if err != nil {
		return err
	}
	return q.json(marks)
}
