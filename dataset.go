package robocache

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// Info describes a dataset: its metadata, corrected by what opening it found.
type Info struct {
	URI     string `json:"uri"`
	Format  string `json:"format"`
	Version string `json:"version"`
	Robot   string `json:"robot_type,omitempty"`
	FPS     Rate   `json:"fps,omitzero"`
	// Clock names the clock of the rows (of streams with Feature.Clock ""), if there are several.
	Clock    string    `json:"clock,omitempty"`
	Episodes int       `json:"num_episodes"`
	Frames   int64     `json:"num_frames"`
	Features []Feature `json:"features"` // in the dataset's order
	Tasks    []Task    `json:"tasks,omitempty"`
	// Splits maps a name to ranges of positions, such as "0:40" or "0:3,5:6".
	Splits map[string]string `json:"splits,omitempty"`
	// Split is the name of the opened split. It is empty if all episodes were opened.
	Split    string    `json:"split,omitempty"`
	Findings []Finding `json:"findings,omitempty"` // faults found while opening

	// UnusedClocks are the time columns from which no timestamps of the rows are taken.
	UnusedClocks []UnusedClock `json:"unused_clocks,omitempty"`

	// Groups are the named parts of streams that the dataset states, in its order.
	Groups []Group `json:"groups,omitempty"`

	numbers *numbering // nil: every episode index is the position
}

// Feature returns the feature with a key, or nil if there is none.
func (i *Info) Feature(key string) *Feature {
	for k := range i.Features {
		if i.Features[k].Key == key {
			return &i.Features[k]
		}
	}
	return nil
}

// Keys returns the keys of all features, in the dataset's order.
func (i *Info) Keys() []string {
	keys := make([]string, len(i.Features))
	for k := range i.Features {
		keys[k] = i.Features[k].Key
	}
	return keys
}

// Withheld returns why a stream that the dataset declares cannot be delivered. It returns nil if
// no stream with that key is withheld.
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
			f.errorClass(),
			"open",
			where,
			"the stream is declared and cannot be delivered: %s",
			f.Message,
		).
			WithHint("%s", f.Hint)
	}
	return nil
}

// Vital reports whether training must stop if a stream is missing: it is a camera or an action.
func Vital(kind Kind, key string) bool {
	return kind == KindVideo || kind == KindImage || key == "action" || key == "actions" ||
		strings.HasPrefix(key, "action.")
}

// Task is a text and its number in the dataset.
type Task struct {
	Index int64  `json:"task_index"`
	Text  string `json:"task"`
}

// Episode is the metadata of one episode.
type Episode struct {
	Position int `json:"position"` // slot in the dataset, from 0: Row.Episode
	// the number that users see and pass: Info.EpisodeIndex(Position)
	Index  int64    `json:"episode_index"`
	Length int      `json:"length"` // rows
	Tasks  []string `json:"tasks"`
	// Aliases are other names of the task in the recording, such as the name of its environment.
	Aliases []string `json:"task_aliases,omitempty"`
}

// Row identifies one row by the position of its episode and the row in that episode. Both count
// from 0. If streams have separate clocks (Feature.Clock), Index counts the rows of the requested
// stream, from 0 to len(Times(episode, key))-1.
type Row struct{ Episode, Index int }

// RowsOf returns n consecutive rows of an episode, starting at row from.
func RowsOf(episode, from, n int) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{episode, from + i}
	}
	return rows
}

// FrameRef locates the image of a row.
type FrameRef struct {
	Path    string // video file, relative to the dataset's root; "" for a still image
	Ordinal int    // number of the frame in that file, in presentation order
	Encoded []byte // still image: PNG, JPEG or TIFF bytes
	Raw     *Raw   // still image: its pixels
	Missing bool   // the row has no image; the others are zero
}

// Raw is an image as its pixels: rows of Width × Channels elements, channels last.
type Raw struct {
	Pix                     []byte
	Height, Width, Channels int
	// DType is Uint8, Uint16 or Float32, little-endian. One channel of Uint16 or Float32 is depth.
	DType  DType
	Stride int  // bytes from row to row; 0 = packed
	BGR    bool // the first three channels are blue, green, red
}

// Dataset is a set of episodes with one schema. It is safe for concurrent use until Close. Its
// methods take an episode by position; users name episodes by index (Info.EpisodeIndex,
// Info.EpisodePosition).
type Dataset interface {
	// Info returns the description of the dataset. The dataset owns it: callers must not change it.
	Info() *Info
	// Len returns the number of rows of an episode. If streams have separate clocks, it counts the
	// rows of Info.Clock.
	Len(episode int) int
	// Episode returns the metadata of one episode.
	Episode(ctx context.Context, episode int) (Episode, error)
	// Times returns the timestamps of one stream of an episode, in int64 ns as recorded. The key ""
	// means the rows of the episode. If a format rounds timestamps (float32 seconds) of rows on a
	// grid, Times returns the exact times of the grid.
	Times(ctx context.Context, episode int, key string) ([]int64, error)
	// Gather copies rows of a numeric feature into dst, in the order of rows. The elements have the
	// stored dtype, in C order and little-endian. len(dst) must be len(rows) × RowBytes.
	Gather(ctx context.Context, key string, rows []Row, dst []byte) error
	// Text returns the rows of a text or event feature; an event is JSON text. The key "task"
	// returns the task text of each row.
	Text(ctx context.Context, key string, rows []Row) ([]string, error)
	// Frames locates the images of rows and fills out. len(out) must be len(rows).
	Frames(ctx context.Context, key string, rows []Row, out []FrameRef) error
	// Stats returns the statistics that the dataset stores, or nil if it stores none.
	Stats(ctx context.Context) (Stats, error)
	// Capabilities returns the optional operations that the dataset has. The result is never nil,
	// and is the same at every call. The dataset owns it: callers must not change it. A call
	// allocates nothing. Safe for concurrent use, also after Close.
	Capabilities() *Capabilities
	// Close releases files and memory. Afterwards only Capabilities may be called.
	Close() error
}

// RowsIn returns the number of rows of a stream in an episode. A stream with a separate clock is
// counted by that clock.
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

// Stats maps a feature's key to its statistics. The vectors of FeatureStats are flat. The format
// decides over which axes they are taken: LeRobot takes them over all but the last axis, and over
// each channel of images.
type Stats map[string]*FeatureStats

// FeatureStats holds the statistics of one feature.
type FeatureStats struct {
	Min, Max, Mean, Std []float64
	Count               int64
	Quantiles           map[string][]float64 // "q01", "q10", "q50", "q90", "q99"
	Shape               []int                // of each vector as stored, e.g. [26] or [3,1,1]
}

// Findings returns the findings of a dataset so far: those of opening it, then those of reading it.
// The latter are sorted by code and location, so that their order does not depend on who read
// first.
func Findings(ds Dataset) []Finding {
	out := append([]Finding{}, ds.Info().Findings...) // an empty list in JSON, not null
	noticed := ds.Capabilities().Noticed
	if noticed == nil {
		return out
	}
	identity := func(f Finding) string { return f.Code + "\x00" + f.Where.String() }
	listed := map[string]bool{}
	for _, f := range out {
		listed[identity(f)] = true
	}
	var more []Finding
	for _, f := range noticed() {
		if !listed[identity(f)] {
			more = append(more, f)
		}
	}
	slices.SortStableFunc(more, func(a, b Finding) int {
		return strings.Compare(identity(a), identity(b))
	})
	return append(out, more...)
}

// Severity ranks a Finding.
type Severity string

const (
	SeverityError   Severity = "error"   // data is lost, wrong or unreadable
	SeverityWarning Severity = "warning" // readable, but other tools may fail, or metadata is wrong
	SeverityInfo    Severity = "info"
)

// Finding is one fault of a dataset: its kind, its location, and a hint how to repair it.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // stable, kebab-case: "timestamp-drift", "missing-file" …
	Where    Where    `json:"where,omitempty"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
	Count    int64    `json:"count,omitempty"` // number of occurrences, if they were counted
	// NotDelivered is the key of a stream that the dataset declares and cannot deliver. Loading
	// fails unless the caller names the keys that it wants.
	NotDelivered string `json:"not_delivered,omitempty"`
	// Class is the name (ClassOf) of the error class for a request of the stream NotDelivered. The
	// default is "unsupported".
	Class string `json:"class,omitempty"`
	// Lost reports that the episode in Where, or files of episodes, cannot be read. Training and
	// conversion omit these episodes only if bad episodes are to be skipped (Whole). Other findings
	// omit no episode.
	Lost bool `json:"lost,omitempty"`
}

// errorClass returns the error class that Class names.
func (f *Finding) errorClass() error {
	for _, c := range classes {
		if c.name == f.Class {
			return c.err
		}
	}
	return ErrUnsupported
}

// MarshalJSON writes the result of Advice as the hint.
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

// Ranged is a file that readers use: bytes at an offset, and a version that shows a change of the
// file. It is safe for concurrent use until Close. Package store/tests/storetest tests
// implementations.
type Ranged interface {
	// ReadAt fills p with the bytes at off or returns an error. It never returns a short read
	// without an error.
	ReadAt(ctx context.Context, p []byte, off int64) error
	// Size returns the number of bytes of the file when it was opened.
	Size() int64
	// Version returns the ETag, or the size and modification time. A change while the file is read
	// is an error.
	Version() string
	// Close releases the file.
	Close() error
}

// Remoter is a file (Ranged) or a recording that may be on another machine. IsRemote calls it.
type Remoter interface {
	// Remote reports whether reads may wait for a network. A wrapper returns the answer of the
	// wrapped value.
	Remote() bool
}

// IsRemote reports whether reads of v may wait for a network, so that reading ahead pays.
func IsRemote(v any) bool {
	r, ok := v.(Remoter)
	return ok && r.Remote()
}

// DiagnoseOptions are the choices of a dataset's doctor.
type DiagnoseOptions struct {
	Episodes []int // positions; nil = all
	Decode   bool  // also decode every image
	// Deep also reads every column of every data file to its last page, including columns that no
	// feature uses.
	Deep     bool
	Progress func(done, total int64) `json:"-"`
}
