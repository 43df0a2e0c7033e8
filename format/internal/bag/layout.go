package bag

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/video"
)

// TaskTopic is where writers put the task.
const TaskTopic = "/task"

// The metadata record in which a writer keeps what messages do not say, and its keys.
const (
	LayoutRecord     = "robocache"
	LayoutDataset    = "dataset"
	LayoutEpisodeKey = "episode"
)

// Layout is a dataset as it was before it was written as messages.
type Layout struct {
	Format  string         `json:"format"`
	FPS     robocache.Rate `json:"fps,omitzero"`
	Robot   string         `json:"robot_type,omitempty"`
	Clock   string         `json:"clock,omitempty"`
	Streams []LayoutStream `json:"streams"`
	// Tasks are the dataset's, by number and with those that no episode has; none where they are
	// more than a record of each file should hold.
	Tasks []robocache.Task `json:"tasks,omitempty"`
}

// mostTasks bounds the texts of Layout.Tasks, in bytes.
const mostTasks = 16 << 10

// Number keeps the dataset's tasks.
func (l *Layout) Number(tasks []robocache.Task) {
	n := 0
	for _, t := range tasks {
		n += len(t.Text) + 32
	}
	if n <= mostTasks {
		l.Tasks = tasks
	}
}

// LayoutStream is a stream and the topic that holds it.
type LayoutStream struct {
	Topic   string            `json:"topic"`
	Feature robocache.Feature `json:"feature"`
	// of packets of video: what the file said beside them
	Colour *video.Colour `json:"colour,omitempty"`
}

// LayoutEpisode is an episode as it was.
type LayoutEpisode struct {
	Index  int64             `json:"index"`
	Length int               `json:"length"`
	Tasks  []string          `json:"tasks"`
	Source *robocache.Origin `json:"source,omitempty"` // the recording that it was made from
}

// Origin returns the recording that an episode was made from, as the note of its file says; nil if
// it does not, or if the file holds several episodes.
func (d *Dataset) Origin(_ context.Context, ep int) (*robocache.Origin, error) {
	if ep < 0 || ep >= len(d.eps) {
		return nil, nil
	}
	rec := d.eps[ep].rec
	episodes := 0
	for i := range d.eps {
		if d.eps[i].rec == rec {
			episodes++
		}
	}
	var note LayoutEpisode
	if episodes > 1 ||
		json.Unmarshal([]byte(d.notes[rec][LayoutRecord+"."+LayoutEpisodeKey]), &note) != nil {
		return nil, nil
	}
	if note.Source == nil || note.Source.Dataset == "" {
		return nil, nil
	}
	return note.Source, nil
}

// numbered says that a table of tasks, which may be of any file, has each number and each text
// once.
func numbered(tasks []robocache.Task) bool {
	at, of := map[int64]bool{}, map[string]bool{}
	for _, t := range tasks {
		if t.Index < 0 || t.Index > math.MaxInt32 || at[t.Index] || of[t.Text] {
			return false
		}
		at[t.Index], of[t.Text] = true, true
	}
	return true
}

// readLayout takes the layout of the recordings, where all have one and the same.
func (d *Dataset) readLayout(errs []error) {
	var l Layout
	var text string
	for i, n := range d.notes {
		if errs[i] != nil {
			continue
		}
		t := n[LayoutRecord+"."+LayoutDataset]
		if t != "" && t == text {
			continue
		}
		var k Layout
		if json.Unmarshal([]byte(t), &k) != nil {
			return
		}
		if !numbered(k.Tasks) {
			k.Tasks = nil
		}
		if text == "" {
			text, l = t, k
			continue
		}
		// Recordings of several conversions may differ in their tables of tasks alone: then none of
		// them numbers.
		if !slices.Equal(l.Tasks, k.Tasks) {
			l.Tasks = nil
		}
		if k.Tasks = l.Tasks; !reflect.DeepEqual(l, k) {
			return
		}
	}
	if text == "" {
		return
	}
	d.layout = &l
	d.About.FPS, d.About.Robot = l.FPS, l.Robot
}

// layoutOf is what the topic was written from; nil where nothing says it.
func (d *Dataset) layoutOf(t *topic) *LayoutStream {
	if d.layout == nil {
		return nil
	}
	i := slices.IndexFunc(d.layout.Streams, func(s LayoutStream) bool { return s.Topic == t.name })
	if i < 0 {
		return nil
	}
	return &d.layout.Streams[i]
}

// restore gives the field of a topic the feature that it was written from, where the message can
// hold it.
func (d *Dataset) restore(t *topic) {
	l := d.layoutOf(t)
	if l == nil || len(t.fields) == 0 {
		return
	}
	was, have := l.Feature, &t.fields[0].Feature
	ok := false
	switch was.Kind {
	case robocache.KindNumeric, robocache.KindPointCloud:
		ok = (have.Kind == robocache.KindNumeric || have.Kind == robocache.KindPointCloud) &&
			have.DType.Size() == was.DType.Size() &&
			plainShape(was.Shape)
	case robocache.KindImage:
		ok = have.Kind == robocache.KindImage
	case robocache.KindVideo:
		ok = have.Kind == robocache.KindVideo
		was.Codec, was.Shape, was.Height, was.Width, was.Channels = have.Codec, have.Shape, have.Height, have.Width, have.Channels
	case robocache.KindText, robocache.KindEvent:
		ok = have.Kind == robocache.KindText
	}
	if ok {
		t.fields, t.restored = []ros2.Field{{Feature: was}}, true
	}
}

// colour is what the file said that a topic's packets of video were copied from.
func (d *Dataset) colour(t *topic) *video.Colour {
	if l := d.layoutOf(t); l != nil {
		return l.Colour
	}
	return nil
}

// plainShape holds a shape from a file against what memory can hold.
func plainShape(shape []int) bool {
	n := 1
	for i, v := range shape {
		if v < 0 && (i > 0 || v < -1) || v > 1<<24 {
			return false
		}
		if v > 0 {
			n *= v
		}
		if n > 1<<26 {
			return false
		}
	}
	return true
}

// restoredAnchor is a stream on the dataset's own clock; false where no topic is.
func (d *Dataset) restoredAnchor() bool {
	if d.layout == nil {
		return false
	}
	for i, f := range d.About.Features {
		if s := &d.streams[i]; d.topics[s.topic].restored &&
			(f.Clock == "" || f.Clock == d.layout.Clock) {
			d.anchor.topic, d.anchor.clock = s.topic, 0
			d.About.Clock = d.layout.Clock
			return true
		}
	}
	return false
}
