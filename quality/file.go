package quality

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/sidecar"
	"github.com/goatnote-inc/robocache/store"
)

const (
	// SidecarName is the table of a dataset that is a folder.
	SidecarName = "meta/quality.parquet"
	// sidecarSuffix is added to the name of a dataset that is a file.
	sidecarSuffix = ".quality.parquet"
	// loadLimit bounds the memory of a table that is read.
	loadLimit = 8 << 30
)

// Names of the columns that are no metrics.
const (
	episodeColumn       = "episode_index"
	taskColumn          = "task"
	lengthColumn        = "length"
	sourceColumn        = "source"
	sourceEpisodeColumn = "source_episode"
	errorColumn         = "error"
	sketchColumn        = "sketch"
	hashColumn          = "frame_hashes"
	spanColumn          = "spans"
)

// SidecarOf returns the URI of the table that belongs to a dataset. isFile reports that the dataset
// is a file.
func SidecarOf(uri string, isFile bool) string {
	if isFile {
		return uri + sidecarSuffix
	}
	base, query := uri, ""
	if i := strings.IndexAny(uri, "?#"); i >= 0 && strings.Contains(uri, "://") {
		base, query = uri[:i], uri[i:]
	}
	return strings.TrimRight(base, "/") + "/" + SidecarName + query
}

// CheckName returns ErrMisuse if Write does not write to such a name.
func CheckName(uri string) error {
	if (&Table{}).encoderFor(uri) == nil {
		return robocache.Misuse("quality", nil, "%s", robocache.Option("out")).
			Expected("a name that ends with .parquet, .csv or .json", uri)
	}
	return nil
}

// encoderFor returns the encoder for the suffix of a name; nil if there is none.
func (t *Table) encoderFor(uri string) func(io.Writer) error {
	switch name := strings.ToLower(uri); {
	case strings.HasSuffix(name, ".parquet"):
		return t.EncodeParquet
	case strings.HasSuffix(name, ".csv"):
		return t.encodeCSV
	case strings.HasSuffix(name, ".json"):
		return t.encodeJSON
	}
	return nil
}

// Write writes the table: as Parquet, CSV or JSON by the suffix of the URI.
func (t *Table) Write(ctx context.Context, uri string) (err error) {
	if err := CheckName(uri); err != nil {
		return err
	}
	folder, name := store.Above(uri)
	dst, err := store.OpenWritable(folder)
	if err != nil {
		return err
	}
	defer store.Close(dst)
	return writeTable(ctx, dst, name, t.encoderFor(uri))
}

// writeTable writes a file that appears complete or not at all.
func writeTable(
	ctx context.Context, dst store.Writable, name string, encode func(io.Writer) error,
) (err error) {
	defer robocache.LocateIn(&err, "file", name)
	w, err := dst.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	buffered := bufio.NewWriterSize(w, 1<<20)
	if err := encode(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return w.Commit()
}

// Fields returns all columns in the order of the file, without spans, sketches and hashes.
func (t *Table) Fields() []sidecar.Column {
	out := []sidecar.Column{
		{Name: episodeColumn, Integers: t.Episodes},
		{Name: taskColumn, Texts: t.Tasks},
		{Name: lengthColumn, Integers: t.Lengths},
		{Name: sourceColumn, Texts: t.Sources},
		{Name: sourceEpisodeColumn, Integers: t.SourceEpisodes},
		{Name: errorColumn, Texts: t.Errors},
	}
	for i := range registry {
		name := registry[i].Name
		out = append(out, sidecar.Column{Name: name, Numbers: t.Column(name)})
	}
	return out
}

// tableMeta is the metadata of a file.
type tableMeta struct {
	Version     int    `json:"version"`
	Dataset     string `json:"dataset"`
	Fingerprint string `json:"fingerprint"`
	State       string `json:"state,omitempty"`
	Frames      Frames `json:"frames"`
	Timeless    bool   `json:"timeless,omitempty"`
	// SketchPoints and SketchStates are those of the table.
	SketchPoints int `json:"sketch_points,omitempty"`
	SketchStates int `json:"sketch_states,omitempty"`
	// Settings identifies the work of which a file is a part: see resumeParts.
	Settings string `json:"settings,omitempty"`
}

// meta returns the metadata of the table.
func (t *Table) meta() tableMeta {
	return tableMeta{
		Version:      metaVersion,
		Dataset:      t.Dataset,
		Fingerprint:  t.Fingerprint,
		State:        t.State,
		Frames:       t.Frames,
		Timeless:     t.Timeless,
		SketchPoints: t.SketchPoints,
		SketchStates: t.SketchStates,
	}
}

const (
	metaKey     = "robocache_quality"
	metaVersion = 2
)

// EncodeParquet writes the table as Parquet, with sketches and hashes.
func (t *Table) EncodeParquet(w io.Writer) error { return t.encodePart(w, "") }

func (t *Table) encodePart(w io.Writer, settings string) error {
	columns := t.Fields()
	if len(t.Spans) > 0 {
		columns = append(columns, sidecar.Column{
			Name: spanColumn, Vectors: t.Spans, Width: 2 * len(timedMetrics()),
		})
	}
	if t.SketchWidth > 0 {
		columns = append(columns, sidecar.Column{
			Name: sketchColumn, Vectors: t.Sketches, Width: t.SketchWidth,
		})
	}
	if t.HashWidth > 0 {
		columns = append(columns, sidecar.Column{
			Name: hashColumn, Words: t.Hashes, Width: t.HashWidth,
		})
	}
	head := t.meta()
	head.Settings = settings
	meta, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return sidecar.Write(w, columns, map[string]string{metaKey: string(meta)})
}

// Load reads the table that belongs to a dataset. If there is none, the error is ErrNotFound: no
// one measures implicitly. A URI that ends with .parquet is the table itself.
func Load(ctx context.Context, uri string) (*Table, error) {
	candidates := []string{SidecarOf(uri, false), SidecarOf(uri, true)}
	if strings.HasSuffix(uri, ".parquet") {
		candidates = []string{uri}
	}
	for _, name := range candidates {
		t, err := loadFile(ctx, name)
		if err == nil || !errors.Is(err, robocache.ErrNotFound) &&
			!errors.Is(err, robocache.ErrMisuse) {
			return t, err
		}
	}
	return nil, robocache.NotFound("quality", robocache.Where{"dataset": robocache.Redact(uri)},
		"the dataset has no table of metrics").
		WithHint("Run robocache quality %s.", robocache.Redact(uri))
}

func loadFile(ctx context.Context, uri string) (*Table, error) {
	folder, name := store.Above(uri)
	s, err := store.Open(folder)
	if err != nil {
		return nil, err
	}
	defer store.Close(s)
	return Read(ctx, s, name)
}

// Read reads a table that EncodeParquet wrote.
func Read(ctx context.Context, s store.Store, name string) (*Table, error) {
	t, _, err := readTable(ctx, s, name)
	return t, err
}

// readTable reads a Parquet file of EncodeParquet, and its settings.
func readTable(ctx context.Context, s store.Store, name string) (_ *Table, _ string, err error) {
	defer robocache.LocateIn(&err, "file", name)
	f, err := s.Open(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	columns, metadata, err := sidecar.Read(ctx, f, loadLimit)
	if err != nil {
		return nil, "", err
	}
	var meta tableMeta
	if err := json.Unmarshal([]byte(metadata[metaKey]), &meta); err != nil ||
		meta.Version != metaVersion {
		return nil, "", robocache.Malformed("quality", nil, "the file is no table of metrics of this version").
			WithHint("Run %s again.", robocache.Command("quality"))
	}
	return tableOf(columns, &meta)
}

// tableOf returns the table of columns that were read.
func tableOf(columns []sidecar.Column, meta *tableMeta) (*Table, string, error) {
	t := &Table{
		Columns: map[string][]float64{}, Dataset: meta.Dataset, Fingerprint: meta.Fingerprint,
		State: meta.State, Frames: meta.Frames, Timeless: meta.Timeless,
		SketchPoints: meta.SketchPoints, SketchStates: meta.SketchStates,
	}
	for i := range columns {
		c := &columns[i]
		switch c.Name {
		case episodeColumn:
			t.Episodes = c.Integers
		case taskColumn:
			t.Tasks = c.Texts
		case lengthColumn:
			t.Lengths = c.Integers
		case sourceColumn:
			t.Sources = c.Texts
		case sourceEpisodeColumn:
			t.SourceEpisodes = c.Integers
		case errorColumn:
			t.Errors = c.Texts
		case spanColumn:
			t.Spans = c.Vectors
		case sketchColumn:
			t.Sketches, t.SketchWidth = c.Vectors, c.Width
		case hashColumn:
			t.Hashes, t.HashWidth = c.Words, c.Width
		default:
			if c.Numbers != nil {
				t.Columns[c.Name] = c.Numbers
			}
		}
	}
	n := len(t.Episodes)
	if len(t.Tasks) != n || len(t.Lengths) != n || len(t.Sources) != n ||
		len(t.SourceEpisodes) != n || len(t.Errors) != n || !slices.IsSorted(t.Episodes) {
		return nil, "", robocache.Malformed("quality", nil,
			"the table lacks columns, or its episodes do not ascend")
	}
	return t, meta.Settings, nil
}

// encodeCSV writes the table as CSV. A missing value is empty.
func (t *Table) encodeCSV(w io.Writer) error {
	columns := t.Fields()
	out := csv.NewWriter(w)
	record := make([]string, len(columns))
	for c := range columns {
		record[c] = columns[c].Name
	}
	if err := out.Write(record); err != nil {
		return err
	}
	for i := range t.Episodes {
		for c := range columns {
			record[c] = cellText(&columns[c], i)
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func cellText(c *sidecar.Column, i int) string {
	switch {
	case c.Integers != nil:
		return strconv.FormatInt(c.Integers[i], 10)
	case c.Texts != nil:
		return c.Texts[i]
	case c.Numbers[i] != c.Numbers[i]:
		return ""
	}
	return strconv.FormatFloat(c.Numbers[i], 'g', -1, 64)
}

// encodeJSON writes the table as JSON: an object of columns, in their order. A missing value is
// null.
func (t *Table) encodeJSON(w io.Writer) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// MarshalJSON writes the table as an object: dataset, fingerprint, frames, and columns by name.
func (t *Table) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	head, err := json.Marshal(t.meta())
	if err != nil {
		return nil, err
	}
	b.Write(head[:len(head)-1])
	b.WriteString(`,"columns":{`)
	for i, c := range t.Fields() {
		if i > 0 {
			b.WriteByte(',')
		}
		var values any
		switch {
		case c.Integers != nil:
			values = c.Integers
		case c.Texts != nil:
			values = c.Texts
		default:
			values = nullable(c.Numbers)
		}
		name, _ := json.Marshal(c.Name)
		text, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(text)
	}
	b.WriteString("}}")
	return b.Bytes(), nil
}

// nullable is a list of numbers in JSON, with null for NaN.
type nullable []float64

// MarshalJSON writes the shortest text of each number.
func (v nullable) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, x, 'g', -1, 64)
		}
	}
	return append(b, ']'), nil
}
