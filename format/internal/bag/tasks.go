package bag

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
	"github.com/goatnote-inc/robocache/internal/lru"
)

// taskSource describes where the tasks are stored.
type taskSource struct {
	topic, field int // topic -1 means the notes of the recordings
	tracks       *lru.Cache[int, *taskTrack]
}

// taskTrack contains the tasks of an episode: each text with the time at which it begins.
type taskTrack struct {
	beginTimes []int64 // log times
	texts      []string
}

// taskTopics are the usual names of topics with the task. The first one that exists is used.
var taskTopics = []string{
	"/task",
	"/language_instruction",
	"/instruction",
	"/prompt",
	"/task_description",
}

// taskField returns the text field of a topic that may contain tasks, or -1.
func (t *topic) taskField() int {
	return slices.IndexFunc(
		t.fields,
		func(f ros2.Field) bool { return f.Feature.Kind == robocache.KindText },
	)
}

// isTask reports whether the topic is the task topic by its name. The option task names that topic or
// a stream of it. Without the option it is the first one of taskTopics.
func (t *topic) isTask(d *Dataset) bool {
	if want := d.opt.Task; want != "" {
		return t.name == want || t.ownsKey(want)
	}
	return t.name == d.defaultTaskTopic()
}

// defaultTaskTopic returns the first of taskTopics that is a topic of texts, or "".
func (d *Dataset) defaultTaskTopic() string {
	for _, n := range taskTopics {
		for _, t := range d.topics {
			if t.name == n && t.taskField() >= 0 {
				return n
			}
		}
	}
	return ""
}

// manyEpisodes is the number of episodes above which tasks are read only on request, and Info does
// not list them.
const manyEpisodes = 512

// findTasks determines where tasks are stored, and lists them.
func (d *Dataset) findTasks(ctx context.Context) {
	d.task = taskSource{topic: -1, tracks: lru.New[int, *taskTrack](maxTaskBytes)}
	isTask := func(t *topic) bool { return t.isTask(d) }
	if d.opt.Task != "" && !slices.ContainsFunc(d.topics, isTask) {
		d.opt.Task = d.opt.Map.SourceKey(d.opt.Task)
	}
	for i, t := range d.topics {
		if t.isTask(d) && t.taskField() >= 0 && d.task.topic < 0 {
			d.task.topic = i
			d.task.field = t.taskField()
		}
	}
	if d.task.topic < 0 && d.opt.Task != "" {
		guard.Fail(robocache.Misuse("open", nil, "task").
			Expected("a text stream of the recordings", d.opt.Task))
	}
	for _, n := range d.notes {
		for k, v := range n {
			if _, name, _ := strings.Cut(k, "."); name == "robot_type" && d.About.Robot == "" {
				d.About.Robot = v
			}
		}
	}
	seen := map[string]bool{}
	next := int64(0)
	if d.layout != nil { // keep the original numbers
		for _, t := range d.layout.Tasks {
			d.About.Tasks = append(d.About.Tasks, t)
			next = max(next, t.Index+1)
			seen[t.Text] = true
		}
	}
	if len(d.episodes) > manyEpisodes && d.task.topic >= 0 {
		return
	}
	for i := range d.episodes {
		if d.episodes[i].err != nil {
			continue
		}
		tasks, err := guard.Value(func() []string { return d.episodeTasks(ctx, i) })
		if err != nil {
			d.failIfFatal(err)
			d.recordFinding(i, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "unreadable-task",
				Message:  err.Error(),
			})
			continue
		}
		for _, text := range tasks {
			if !seen[text] {
				seen[text] = true
				d.About.Tasks = append(d.About.Tasks, robocache.Task{Index: next, Text: text})
				next++
			}
		}
	}
}

// noteTask returns the task in the notes of a recording, or "". The keys of notes are
// "<record>.<key>", and the record may have any name.
func (d *Dataset) noteTask(rec int) string {
	for _, want := range []string{"task", "language_instruction", "instruction"} {
		for _, k := range slices.Sorted(maps.Keys(d.notes[rec])) {
			if _, name, _ := strings.Cut(k, "."); name == want {
				return d.notes[rec][k]
			}
		}
	}
	return ""
}

// maxTaskBytes limits the size of the texts of an episode's tasks, in bytes. The cache of tasks has
// the same size, so that it can hold any taskTrack. taskTrackOverhead is the memory of a taskTrack
// without texts.
const (
	maxTaskBytes      = 16 << 20
	taskTrackOverhead = 100
)

// episodeTaskTrack returns the tasks of an episode, from the task topic or from the recording's
// notes.
func (d *Dataset) episodeTaskTrack(ctx context.Context, ep int) *taskTrack {
	return leafcache.Load(ctx, d.task.tracks, ep, func() (*taskTrack, int64) {
		e := d.openEpisode(ep)
		tr := &taskTrack{}
		textBytes := 0
		if d.task.topic >= 0 && d.topics[d.task.topic].storageIndex[e.rec] >= 0 {
			tr, textBytes = d.readTasks(ctx, e, d.topics[d.task.topic])
		} else if text := d.noteTask(e.rec); text != "" {
			tr = &taskTrack{beginTimes: []int64{0}, texts: []string{text}}
		}
		const textOverhead = 24 // a time and a string without its text
		return tr, int64(taskTrackOverhead + textBytes + textOverhead*len(tr.beginTimes))
	})
}

// readTasks reads the tasks of an episode from topic t. Repeated texts become one task. textBytes
// is the size of all texts that were read.
func (d *Dataset) readTasks(
	ctx context.Context,
	e *episode,
	t *topic,
) (tr *taskTrack, textBytes int) {
	tr = &taskTrack{}
	// The task at the beginning of the episode may be in an earlier message. Therefore the span is
	// that of a latched topic, which begins with the recording.
	span := func(log []int64) (int, int) {
		return d.episodeSpan(e, &topic{latched: true}, log)
	}
	d.forEachMessage(ctx, e.rec, t, span, func(_ int, m *Message) error {
		text, err := t.dec.Text(m.Data, d.task.field, 0)
		if err != nil {
			return err
		}
		if n := len(tr.texts); n > 0 && tr.texts[n-1] == text {
			return nil
		}
		textBytes += len(text)
		if taskTrackOverhead+textBytes > maxTaskBytes {
			return robocache.ResourceLimit("tasks", robocache.Where{"stream": t.key}, "").
				Expected("at most 16 MiB of texts in an episode", "more")
		}
		tr.beginTimes = append(tr.beginTimes, m.Log)
		tr.texts = append(tr.texts, text)
		return nil
	})
	if !e.whole { // of the texts before the beginning of the episode, only the last applies
		lastBefore := firstAtOrAfter(tr.beginTimes, e.from+1) - 1
		if lastBefore > 0 {
			tr.beginTimes = tr.beginTimes[lastBefore:]
			tr.texts = tr.texts[lastBefore:]
		}
	}
	return tr, textBytes
}

// episodeTasks returns the tasks of an episode in the order in which they begin.
func (d *Dataset) episodeTasks(ctx context.Context, ep int) []string {
	out := []string{}
	for _, text := range d.episodeTaskTrack(ctx, ep).texts {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// taskRows returns the task of each row: the last one that began before the row's log time. Rows
// before the first task get the first task.
func (d *Dataset) taskRows(ctx context.Context, want []robocache.Row) []string {
	out := make([]string, len(want))
	forEachRun(want, func(ep, from, to int) {
		tr := d.episodeTaskTrack(ctx, ep)
		n := d.Len(ep)
		var log []int64
		if len(tr.texts) > 1 {
			log = d.streamTimes(ctx, ep, "", Log)
		}
		for i := from; i < to; i++ {
			k := want[i].Index
			if k < 0 || k >= n {
				guard.Fail(
					robocache.Misuse(
						"text",
						robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": "task"},
						"",
					).
						Expected(
							"a row of the episode",
							"row "+strconv.Itoa(k)+" of "+strconv.Itoa(n),
						),
				)
			}
			switch {
			case len(tr.texts) == 1:
				out[i] = tr.texts[0]
			case len(tr.texts) > 1:
				lastBegun := firstAtOrAfter(tr.beginTimes, log[k]+1) - 1
				out[i] = tr.texts[max(0, lastBegun)]
			}
		}
	})
	return out
}
