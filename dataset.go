package robocache

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// Info is what a dataset says of itself, corrected where opening it showed otherwise.
type Info struct {
	URI     string `json:"uri"`
	Format  string `json:"format"`
	Version string `json:"version"`
	Robot   string `json:"robot_type,omitempty"`
	FPS     Rate   `json:"fps,omitzero"`
	// of a dataset with several clocks: the one that "" stands for (Feature.Clock)
	Clock    string    `json:"clock,omitempty"`
	Episodes int       `json:"num_episodes"`
	Frames   int64     `json:"num_frames"`
	Features []Feature `json:"features"` // in the dataset's order
	Tasks    []Task    `json:"tasks,omitempty"`
	// name → ranges of positions, "0:40" or "0:3,5:6"
	Splits map[string]string `json:"splits,omitempty"`
	// the one that was opened, in place of all
	Split    string    `json:"split,omitempty"`
	Findings []Finding `json:"findings,omitempty"` // what opening noticed

	// UnusedClocks are the time columns from which no timestamps of the rows are taken.
	UnusedClocks []UnusedClock `json:"unused_clocks,omitempty"`

	numbers *numbering // nil: every episode index is the position
}

// Feature finds a feature by key; nil where there is none.
func (i *Info) Feature(key string) *Feature {
	for k := range i.Features {
		if i.Features[k].Key == key {
			return &i.Features[k]
		}
	}
	return nil
}

// Keys lists the features' keys.
func (i *Info) Keys() []string {
	keys := make([]string, len(i.Features))
	for k := range i.Features {
		keys[k] = i.Features[k].Key
	}
	return keys
}

// Withheld says why a stream that the dataset declares cannot be given; nil where none of that key
// is withheld.
func (i *Info) Withheld(key string) error {
	for k := range i.Findings {
		f := &i.Findings[k]
		if f.NotDelivered != key || key == "" {
			continue
		}
		where := Where{"stream": key}
		for n, v := range f.Where {
			if n != "stream" {
				where[n] = v
			}
		}
		return NewError(
			f.class(),
			"open",
			where,
			"the stream is declared and cannot be delivered: %s",
			f.Message,
		).
			WithHint("%s", f.Hint)
	}
	return nil
}

// Vital says whether training must not go on without a stream: a camera, or an action.
func Vital(kind Kind, key string) bool {
	return kind == KindVideo || kind == KindImage || key == "action" || key == "actions" ||
		strings.HasPrefix(key, "action.")
}

// Task is a text and its number in the dataset.
type Task struct {
	Index int64  `json:"task_index"`
	Text  string `json:"task"`
}

// Episode is what the metadata says of one episode.
type Episode struct {
	Position int `json:"position"` // slot in the dataset, from 0: Row.Episode
	// the number that users see and pass: Info.EpisodeIndex(Position)
	Index  int64    `json:"episode_index"`
	Length int      `json:"length"` // rows
	Tasks  []string `json:"tasks"`
	// what else the recording calls the task: names of its environment
	Aliases []string `json:"task_aliases,omitempty"`
}

// Row names one row: the episode's position and the row in it, both from 0. Where streams have
// clocks of their own (Feature.Clock), Index counts the rows of the stream that is asked, 0 to
// len(Times(episode, key))-1.
type Row struct{ Episode, Index int }

// RowsOf names n rows of an episode, from one on.
func RowsOf(episode, from, n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{episode, from + i}
	}
	return rows
}

// FrameRef says where the image of a row lies.
type FrameRef struct {
	Path    string // video file, relative to the dataset's root; "" for a still image
	Ordinal int    // k-th presented frame of that file
	Encoded []byte // still image: PNG, JPEG or TIFF bytes
	Raw     *Raw   // still image: its pixels
	Missing bool   // the row has no image; the others are zero
}

// Raw is an image as its pixels: rows of Width × Channels elements, channels last.
type Raw struct {
	Pix                     []byte
	Height, Width, Channels int
	// Uint8, Uint16 or Float32, little-endian. One channel of Uint16 or Float32 is depth
	DType  DType
	Stride int  // bytes from row to row; 0 = packed
	BGR    bool // the first three channels are blue, green, red
}

// Dataset is a set of episodes with one schema. See the package contract for what may be called
// when. Its methods take an episode by position; users name episodes by index (Info.EpisodeIndex,
// Info.EpisodePosition).
type Dataset interface {
	Info() *Info
	// Len is the number of rows of an episode: of its own clock, where streams have others
	// (Info.Clock).
	Len(episode int) int
	// Episode gives the metadata of one episode.
	Episode(ctx context.Context, episode int) (Episode, error)
	// Times gives the timestamps of one stream of an episode, int64 ns, as recorded; "" means the
	// episode's own rows. Where a format rounds them (float32 seconds), a timestamp that is a
	// rounded grid time is given as the grid time.
	Times(ctx context.Context, episode int, key string) ([]int64, error)
	// Gather copies rows of a numeric feature into dst, in the order asked, C order, the stored
	// dtype, little-endian. len(dst) must be len(rows) × RowBytes.
	Gather(ctx context.Context, key string, rows []Row, dst []byte) error
	// Text gives the rows of a text or event feature (event: JSON text), and of the pseudo-feature
	// "task": the row's task text.
	Text(ctx context.Context, key string, rows []Row) ([]string, error)
	// Frames says where the images of rows lie. out is filled; len(out) = len(rows).
	Frames(ctx context.Context, key string, rows []Row, out []FrameRef) error
	// Stats gives the statistics that the dataset brings; nil where it brings none.
	Stats(ctx context.Context) (Stats, error)
	// Capabilities returns the optional operations that the dataset has. The result is never nil,
	// and is the same at every call. The dataset owns it: callers must not change it. A call
	// allocates nothing. Safe for concurrent use, also after Close.
	Capabilities() *Capabilities
	Close() error
}

// RowsIn is the number of rows of a stream in an episode, by its own clock where it has one.
func RowsIn(ctx context.Context, ds Dataset, episode int, f *Feature) (int, error) {
	if f.Clock == "" {
		return ds.Len(episode), nil
	}
	if rows := ds.Capabilities().Rows; rows != nil {
		return rows(ctx, episode, f.Key)
	}
	times, err := ds.Times(ctx, episode, f.Key)
	return len(times), err
}

// Stats is feature → statistics. FeatureStats' vectors are flat, in the format's own reduction
// (LeRobot: over all but the last axis; images: a channel each).
type Stats map[string]*FeatureStats

// FeatureStats holds the statistics of one feature.
type FeatureStats struct {
	Min, Max, Mean, Std []float64
	Count               int64
	Quantiles           map[string][]float64 // "q01", "q10", "q50", "q90", "q99"
	Shape               []int                // of each vector as stored, e.g. [26] or [3,1,1]
}

// Findings is what a dataset has found by now: when it was opened, and while it was read; these in
// an order of their own, whoever read first.
func Findings(ds Dataset) []Finding {
	out := append([]Finding{}, ds.Info().Findings...) // an empty list in JSON, not null
	noticed := ds.Capabilities().Noticed
	if noticed == nil {
		return out
	}
	name := func(f Finding) string { return f.Code + "\x00" + f.Where.String() }
	said := map[string]bool{}
	for _, f := range out {
		said[name(f)] = true
	}
	var more []Finding
	for _, f := range noticed() {
		if !said[name(f)] {
			more = append(more, f)
		}
	}
	slices.SortStableFunc(more, func(a, b Finding) int { return strings.Compare(name(a), name(b)) })
	return append(out, more...)
}

// Severity of a Finding.
type Severity string

const (
	SeverityError   Severity = "error"   // data is lost, wrong or unreadable
	SeverityWarning Severity = "warning" // readable, but other tools will stumble, or metadata lies
	SeverityInfo    Severity = "info"
)

// Finding is one thing that is wrong with a dataset: what, where, and a hint what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // stable, kebab-case: "timestamp-drift", "missing-file" …
	Where    Where    `json:"where,omitempty"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
	Count    int64    `json:"count,omitempty"` // how often, where it was counted
	// NotDelivered is the key of a stream that the dataset declares and that cannot be given. An
	// error: training does not go on without it unless its keys are named.
	NotDelivered string `json:"not_delivered,omitempty"`
	// Class is the class of the error of asking for the stream NotDelivered, by its name (ClassOf).
	// "" = "unsupported".
	Class string `json:"class,omitempty"`
	// Lost says that the episode that Where names, or files of episodes, cannot be read. Training
	// and conversion go on without them only where bad episodes are to be skipped (Whole). Other
	// findings leave out no episode.
	Lost bool `json:"lost,omitempty"`
}

// class returns the class of error that Class names.
func (f *Finding) class() error {
	for _, c := range classes {
		if c.name == f.Class {
			return c.err
		}
	}
	return ErrUnsupported
}

// MarshalJSON writes the Advice as the hint.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	f.Hint = f.Advice()
	return json.Marshal(plain(f))
}

// UnmarshalJSON reads a finding from JSON. Whole numbers in Where are ints again.
func (f *Finding) UnmarshalJSON(b []byte) error {
	type plain Finding
	if err := json.Unmarshal(b, (*plain)(f)); err != nil {
		return err
	}
	for k, v := range f.Where {
		if n, ok := v.(float64); ok && n == float64(int(n)) {
			f.Where[k] = int(n)
		}
	}
	return nil
}

// Ranged is what a reader needs of a file: bytes at an offset, and to know that the file is still
// the one it opened. ReadAt may be called from many goroutines; it fills p or fails. A short read
// without an error is a bug of the implementation: store/tests/storetest checks it.
type Ranged interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
	Size() int64
	Version() string // ETag, or size and mtime; a change while reading is an error
	Close() error
}

// Remoter is a file (Ranged) or a recording whose reads may wait for a network. Called by IsRemote.
type Remoter interface{ Remote() bool }

// IsRemote reports whether reading ahead of need pays. Decorators answer for what they wrap.
func IsRemote(v any) bool {
	r, ok := v.(Remoter)
	return ok && r.Remote()
}

// DiagnoseOptions are the choices of a dataset's doctor.
type DiagnoseOptions struct {
	Episodes []int // positions; nil = all
	Decode   bool  // also decode every image
	// also read every column of every data file to its last page, those of which nothing is wanted
	// too
	Deep     bool
	Progress func(done, total int64) `json:"-"`
}
