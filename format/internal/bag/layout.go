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

// TaskTopic is the topic to which writers write the task.
const TaskTopic = "/task"

// The metadata record in which a writer stores information that messages do not contain, and its
// keys.
const (
	LayoutRecord     = "robocache"
	LayoutDataset    = "dataset"
	LayoutEpisodeKey = "episode"
)

// Layout describes the dataset from which a recording was written.
type Layout struct {
	Format  string         `json:"format"`
	FPS     robocache.Rate `json:"fps,omitzero"`
	Robot   string         `json:"robot_type,omitempty"`
	Clock   string         `json:"clock,omitempty"`
	Streams []LayoutStream `json:"streams"`
	// Tasks lists all tasks of the dataset with their numbers. It is empty if the texts are too
	// long to be stored in each file.
	Tasks []robocache.Task `json:"tasks,omitempty"`
}

// maxLayoutTaskBytes limits the size of the texts in Layout.Tasks, in bytes.
const maxLayoutTaskBytes = 16 << 10

// SetTasks stores the tasks of the dataset, unless they are too long.
func (l *Layout) SetTasks(tasks []robocache.Task) {
	n := 0
	for _, t := range tasks {
		n += len(t.Text) + 32
	}
	if n <= maxLayoutTaskBytes {
		l.Tasks = tasks
	}
}

// LayoutStream is a stream and the topic that contains it.
type LayoutStream struct {
	Topic   string            `json:"topic"`
	Feature robocache.Feature `json:"feature"`
	// color properties that the source file stored outside the packets
	Colour *video.Colour `json:"colour,omitempty"`
}

// LayoutEpisode describes the episode from which a file was written.
type LayoutEpisode struct {
	Index  int64             `json:"index"`
	Length int               `json:"length"`
	Tasks  []string          `json:"tasks"`
	Source *robocache.Origin `json:"source,omitempty"` // recording from which the episode was made
}

// Origin returns the recording from which an episode was made, as the note in its file states. It
// returns nil without a note, or if the file contains several episodes.
func (d *Dataset) Origin(_ context.Context, ep int) (*robocache.Origin, error) {
	if ep < 0 || ep >= len(d.episodes) {
		return nil, nil
	}
	rec := d.episodes[ep].rec
	episodes := 0
	for i := range d.episodes {
		if d.episodes[i].rec == rec {
			episodes++
		}
	}
	if episodes > 1 {
		return nil, nil
	}
	var note LayoutEpisode
	text := d.notes[rec][LayoutRecord+"."+LayoutEpisodeKey]
	if json.Unmarshal([]byte(text), &note) != nil {
		return nil, nil
	}
	if note.Source == nil || note.Source.Dataset == "" {
		return nil, nil
	}
	return note.Source, nil
}

// hasUniqueTasks reports whether each number and each text occurs once in a table of tasks from a
// file.
func hasUniqueTasks(tasks []robocache.Task) bool {
	numbers, texts := map[int64]bool{}, map[string]bool{}
	for _, t := range tasks {
		if t.Index < 0 || t.Index > math.MaxInt32 || numbers[t.Index] || texts[t.Text] {
			return false
		}
		numbers[t.Index] = true
		texts[t.Text] = true
	}
	return true
}

// readLayout uses the layout of the recordings if all recordings have the same one.
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
		if !hasUniqueTasks(k.Tasks) {
			k.Tasks = nil
		}
		if text == "" {
			text, l = t, k
			continue
		}
		// Recordings of several conversions may differ only in their tasks. The numbers of the
		// tasks are then ignored.
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

// layoutOf returns the stream from which a topic was written, or nil if it is not known.
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

// restoreFeature replaces the feature of a topic by the feature of the original dataset, which the
// layout stores. It does nothing if the message type does not fit that feature.
func (d *Dataset) restoreFeature(t *topic) {
	l := d.layoutOf(t)
	if l == nil || len(t.fields) == 0 {
		return
	}
	original := l.Feature
	decoded := &t.fields[0].Feature
	fits := false
	switch original.Kind {
	case robocache.KindNumeric, robocache.KindPointCloud:
		isNumeric := decoded.Kind == robocache.KindNumeric ||
			decoded.Kind == robocache.KindPointCloud
		fits = isNumeric && decoded.DType.Size() == original.DType.Size() &&
			plainShape(original.Shape)
	case robocache.KindImage:
		fits = decoded.Kind == robocache.KindImage
	case robocache.KindVideo:
		fits = decoded.Kind == robocache.KindVideo
		original.Codec = decoded.Codec
		original.Shape = decoded.Shape
		original.Height = decoded.Height
		original.Width = decoded.Width
		original.Channels = decoded.Channels
	case robocache.KindText, robocache.KindEvent:
		fits = decoded.Kind == robocache.KindText
	}
	if fits {
		t.fields = []ros2.Field{{Feature: original}}
		t.restored = true
	}
}

// sourceColour returns the color properties of the file from which the packets of a topic were
// copied.
func (d *Dataset) sourceColour(t *topic) *video.Colour {
	if l := d.layoutOf(t); l != nil {
		return l.Colour
	}
	return nil
}

// plainShape reports whether a shape from a file has a plausible size.
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

// restoredAnchor chooses a stream on the original dataset's clock. It returns false if there is
// none.
func (d *Dataset) restoredAnchor() bool {
	if d.layout == nil {
		return false
	}
	for i, f := range d.About.Features {
		s := &d.streams[i]
		onOriginalClock := f.Clock == "" || f.Clock == d.layout.Clock
		if d.topics[s.topic].restored && onOriginalClock {
			d.anchor.topic = s.topic
			d.anchor.clock = 0
			d.About.Clock = d.layout.Clock
			return true
		}
	}
	return false
}
