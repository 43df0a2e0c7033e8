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

// LayoutRecord is the metadata record in which a writer stores information that messages do not
// contain. LayoutDataset is its key for a Layout, and LayoutEpisodeKey that for a LayoutEpisode.
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

// SetTasks stores the tasks of the dataset, unless they take more than maxLayoutTaskBytes.
func (l *Layout) SetTasks(tasks []robocache.Task) {
	const overhead = 32 // bytes of a task without its text
	n := 0
	for _, t := range tasks {
		n += len(t.Text) + overhead
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

// readLayout sets d.layout to the layout that the notes of all recordings contain. d.layout stays nil
// if a recording has none or another one. Recordings that cannot be opened, which have an error in
// errs, do not count.
func (d *Dataset) readLayout(errs []error) {
	var shared Layout
	var sharedText string // JSON of shared; "" before the first layout
	for i, notes := range d.notes {
		if errs[i] != nil {
			continue
		}
		text := notes[LayoutRecord+"."+LayoutDataset]
		if text != "" && text == sharedText {
			continue
		}
		var l Layout
		if json.Unmarshal([]byte(text), &l) != nil { // text is "" without a layout
			return
		}
		if !hasUniqueTasks(l.Tasks) {
			l.Tasks = nil
		}
		if sharedText == "" {
			sharedText, shared = text, l
			continue
		}
		// Recordings of several conversions may differ only in their tasks. The numbers of the
		// tasks are then ignored.
		if !slices.Equal(shared.Tasks, l.Tasks) {
			shared.Tasks = nil
		}
		l.Tasks = shared.Tasks // ignore the tasks in the comparison
		if !reflect.DeepEqual(shared, l) {
			return
		}
	}
	if sharedText == "" {
		return
	}
	d.layout = &shared
	d.About.FPS, d.About.Robot = shared.FPS, shared.Robot
}

// layoutOf returns the stream of the original dataset from which a topic was written, or nil if it
// is not known.
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
			isPlausibleShape(original.Shape)
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

// Limits on a shape from a file, which may be damaged. Their product does not overflow.
const (
	maxDimension   = 1 << 24
	maxRowElements = 1 << 26
)

// isPlausibleShape reports whether a shape from a file has a plausible size. The first dimension
// may be -1, which means any length.
func isPlausibleShape(shape []int) bool {
	n := 1
	for i, v := range shape {
		isAnyLength := i == 0 && v == -1
		if v < 0 && !isAnyLength || v > maxDimension {
			return false
		}
		if v > 0 {
			n *= v
		}
		if n > maxRowElements {
			return false
		}
	}
	return true
}

// restoredAnchor makes the first stream on the original dataset's clock the anchor. It returns
// false if there is none.
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
