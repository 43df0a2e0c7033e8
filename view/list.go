package view

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// listing holds columns about all episodes. They fill in the background, because in some formats
// the task of an episode is in its file.
type listing struct {
	mu sync.Mutex
	columns
	taskNumbers map[string]int
	err         error // why the columns end before the last episode
}

type columns struct {
	Done   int      `json:"done"` // number of episodes listed so far
	Length []int    `json:"length"`
	Task   []int    `json:"task"` // indices into Tasks; -1 for none
	Tasks  []string `json:"tasks"`
}

// listEpisodes fills the columns. It ends early if an episode has an internal error.
func (x *viewedSet) listEpisodes(ctx context.Context) (err error) {
	defer func() { x.episodeList.setEnded(err) }()
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
		x.episodeList.addEpisode(ep)
	}
	return nil
}

func (l *listing) addEpisode(ep robocache.Episode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taskNumbers == nil {
		l.taskNumbers = map[string]int{}
	}
	task := -1
	if len(ep.Tasks) > 0 {
		n, ok := l.taskNumbers[ep.Tasks[0]]
		if !ok {
			n = len(l.Tasks)
			l.taskNumbers[ep.Tasks[0]] = n
			l.Tasks = append(l.Tasks, ep.Tasks[0])
		}
		task = n
	}
	l.Length[l.Done] = ep.Length
	l.Task = append(l.Task, task)
	l.Done++
}

// setEnded records the error that ended the listing, or nil.
func (l *listing) setEnded(err error) {
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

// serveEpisodes answers the columns that are ready. It waits up to 0.3 s for all of them. If an
// internal error ended the listing, it returns that error.
func (s *Server) serveEpisodes(q *request) error {
	l := &q.base.episodeList
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
	return q.writeJSON(&out)
}

// job is work on the whole dataset that is done once.
type job struct {
	mu          sync.Mutex
	state       string // "no", "running", "done" or "failed"
	done, total int64
	err         error
}

// jobStatus is the state of a job for the page.
type jobStatus struct {
	State   string `json:"state"`
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
	Problem string `json:"problem,omitempty"`
}

// begin marks the job as running. It reports false if the job is running, or is done and again is
// false.
func (j *job) begin(again bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == "running" || j.state == "done" && !again {
		return false
	}
	j.state, j.err, j.done, j.total = "running", nil, 0, 0
	return true
}

// runOnce does the work unless it is running or done.
func (j *job) runOnce(work func(progress func(done, total int64)) (keep func(), err error)) {
	if j.begin(false) {
		j.run(work)
	}
}

// run does the work of a job that begin marked. It calls keep with j.mu held. A panic of the work
// becomes the error of the job.
func (j *job) run(work func(progress func(done, total int64)) (keep func(), err error)) {
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
	j.state, j.err = "done", err
	if err != nil {
		j.state = "failed"
		return
	}
	keep()
}

// progress returns the state of the job. It calls look with j.mu held.
func (j *job) progress(look func()) jobStatus {
	j.mu.Lock()
	defer j.mu.Unlock()
	look()
	out := jobStatus{State: j.state, Done: j.done, Total: j.total}
	if j.err != nil {
		out.Problem = j.err.Error()
	}
	return out
}

// internalError returns the error of the job if it is an internal error.
func (j *job) internalError() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, robocache.ErrInternal) {
		return j.err
	}
	return nil
}

// diagnosis holds the findings of the doctor about the dataset.
type diagnosis struct {
	job
	findings []robocache.Finding
	episodes map[int][]robocache.Finding // findings of episodes that were examined one by one
}

// isSmall reports whether the whole dataset may be examined without a request.
func (x *viewedSet) isSmall() bool {
	return !x.isRemote() && x.info.Frames <= doctorRows && x.info.Episodes <= 1000
}

// runDoctor runs the doctor on the whole dataset.
func (x *viewedSet) runDoctor(ctx context.Context) error {
	d := &x.diagnosis
	d.runOnce(func(progress func(done, total int64)) (func(), error) {
		found, err := diagnose.Run(ctx, x.ds, robocache.DiagnoseOptions{Progress: progress})
		return func() { d.findings = found }, err
	})
	return d.internalError()
}

// placedFinding is a finding with its episode and its time.
type placedFinding struct {
	robocache.Finding
	Episode int64  `json:"episode"` // index of the episode; -1 for the whole dataset
	Time    *int64 `json:"t_ns,omitempty"`
	End     *int64 `json:"end_ns,omitempty"`
}

// MarshalJSON adds the episode and the times to the finding. Without this method, the embedded
// Finding's method would leave them out.
func (m placedFinding) MarshalJSON() ([]byte, error) {
	finding, err := json.Marshal(m.Finding)
	if err != nil {
		return nil, err
	}
	place, err := json.Marshal(struct {
		Episode any    `json:"episode"`
		Time    *int64 `json:"t_ns,omitempty"`
		End     *int64 `json:"end_ns,omitempty"`
	}{m.Episode, m.Time, m.End})
	if err != nil {
		return nil, err
	}
	return append(append(finding[:len(finding)-1], ','), place[1:]...), nil
}

// placeFindings returns the findings with their episodes. If e is the position of an episode, it
// drops findings of other episodes and looks up the times.
func (x *viewedSet) placeFindings(
	ctx context.Context,
	found []robocache.Finding,
	e int,
) ([]placedFinding, error) {
	out := []placedFinding{}
	for _, f := range found {
		m := placedFinding{Finding: f, Episode: -1}
		position, _ := x.info.PositionIn(f.Where)
		if position >= 0 {
			m.Episode = x.info.EpisodeIndex(position)
		}
		if e >= 0 && position >= 0 && position != e {
			continue
		}
		from, hasStart := f.Where["from_s"].(float64)
		to, hasEnd := f.Where["to_s"].(float64)
		switch {
		case e < 0 || position != e:
		case hasStart && hasEnd:
			m.Time, m.End = new(int64(from*1e9)), new(int64(to*1e9))
		default:
			var err error
			if m.Time, err = x.findingTime(ctx, e, f.Code, f.Where); err != nil {
				return nil, err
			}
		}
		out = append(out, m)
	}
	return out, nil
}

// findingTime returns the time of the row that a finding names. Otherwise it uses the code and the
// stream of the finding. It returns nil if there is no time.
func (x *viewedSet) findingTime(
	ctx context.Context,
	e int,
	code string,
	w robocache.Where,
) (*int64, error) {
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

// momentOf returns the time of a finding that names a stream without a row. It returns nil if the
// code has no moment.
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

// serveFindings answers the findings of the doctor. With run=1 it also starts the doctor.
func (s *Server) serveFindings(q *request) error {
	x := q.base
	if q.URL.Query().Get("run") == "1" {
		s.runInBackground(x.runDoctor)
	}
	var out struct {
		jobStatus
		Findings []placedFinding `json:"findings"`
	}
	var found []robocache.Finding
	out.jobStatus = x.diagnosis.progress(func() { found = x.diagnosis.findings })
	if err := x.diagnosis.internalError(); err != nil {
		return err
	}
	var err error
	if out.Findings, err = x.placeFindings(q.Context(), found, -1); err != nil {
		return err
	}
	return q.writeJSON(out)
}

// serveEpisodeFindings answers the findings of the doctor and of the metrics about one episode.
func (s *Server) serveEpisodeFindings(q *request) error {
	x := q.base
	d := &q.base.diagnosis
	ctx := q.Context()
	var found []robocache.Finding
	known := false
	for {
		now := d.progress(func() {
			found, known = d.episodes[q.episode]
			if d.state == "done" {
				found = d.findings
				known = true
			}
		})
		// while the whole dataset is examined, wait: two runs at once would take twice as long
		if now.State != "running" {
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
		if found, err = diagnose.Run(ctx, x.ds,
			robocache.DiagnoseOptions{Episodes: []int{q.episode}}); err != nil {
			return err
		}
		d.mu.Lock()
		if d.episodes == nil || len(d.episodes) > 1000 {
			d.episodes = map[int][]robocache.Finding{}
		}
		d.episodes[q.episode] = found
		d.mu.Unlock()
	}
	_, metrics := x.quality.current()
	marks, err := x.placeFindings(ctx, slices.Concat(found, metrics), q.episode)
	if err != nil {
		return err
	}
	return q.writeJSON(marks)
}
