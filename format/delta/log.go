package delta

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// op names the format in errors.
const op = reader.Op("delta")

const logDir = "_delta_log"

// commitName is the file of a version.
func commitName(version int64) string { return fmt.Sprintf("%s/%020d.json", logDir, version) }

// texts is a map in JSON, or in a checkpoint: {"key_value": [{"key": …, "value": …}]}. Null values are left out.
type texts map[string]string

// UnmarshalJSON reads both forms.
func (t *texts) UnmarshalJSON(b []byte) error {
	var any map[string]json.RawMessage
	if err := json.Unmarshal(b, &any); err != nil {
		return err
	}
	*t = texts{}
	type pair struct {
		Key   string  `json:"key"`
		Value *string `json:"value"`
	}
	for k, v := range any {
		one := []pair{{Key: k}}
		if json.Unmarshal(v, &one[0].Value) != nil {
			one = nil
			if err := json.Unmarshal(v, &one); err != nil {
				return err
			}
		}
		for _, p := range one {
			if p.Value != nil {
				(*t)[p.Key] = *p.Value
			}
		}
	}
	return nil
}

type protocol struct {
	Reader   int      `json:"minReaderVersion"`
	Writer   int      `json:"minWriterVersion"`
	Features []string `json:"readerFeatures,omitempty"`
	Writers  []string `json:"writerFeatures,omitempty"`
}

type metaData struct {
	ID     string `json:"id"`
	Format struct {
		Provider string `json:"provider"`
		Options  texts  `json:"options"`
	} `json:"format"`
	Schema     string   `json:"schemaString"`
	Partitions []string `json:"partitionColumns"`
	Config     texts    `json:"configuration"`
}

// add is a data file of the table.
type add struct {
	Path       string          `json:"path"` // percent-encoded
	Partitions texts           `json:"partitionValues"`
	Size       int64           `json:"size"`
	Modified   int64           `json:"modificationTime"` // ms
	DataChange bool            `json:"dataChange"`
	Stats      string          `json:"stats,omitempty"`
	Vector     json.RawMessage `json:"deletionVector,omitempty"`

	name string
}

// fileStats is what add.Stats says.
type fileStats struct {
	Rows  int64          `json:"numRecords"`
	Min   map[string]any `json:"minValues"`
	Max   map[string]any `json:"maxValues"`
	Nulls map[string]any `json:"nullCount"`
}

func (a *add) stats() (s fileStats, ok bool) {
	dec := json.NewDecoder(strings.NewReader(a.Stats))
	dec.UseNumber()
	return s, dec.Decode(&s) == nil
}

// action is a line of a commit.
type action struct {
	Protocol *protocol `json:"protocol,omitempty"`
	MetaData *metaData `json:"metaData,omitempty"`
	Add      *add      `json:"add,omitempty"`
	Remove   *struct {
		Path string `json:"path"`
	} `json:"remove,omitempty"`
	Commit any `json:"commitInfo,omitempty"`
}

// table is a version of a table.
type table struct {
	version  int64
	protocol *protocol
	meta     *metaData
	fields   []field
	files    map[string]*add // by path
}

// sorted are the files in the order of their paths.
func (t *table) sorted() []*add {
	out := make([]*add, 0, len(t.files))
	for _, p := range slices.Sorted(maps.Keys(t.files)) {
		out = append(out, t.files[p])
	}
	return out
}

func unsupported(msg, hint string) {
	guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: string(op), Msg: msg, Hint: hint})
}

func malformed(msg string, err error) {
	guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Msg: msg, Err: err})
}

var logName = regexp.MustCompile(`^_delta_log/(\d{20})\.(json|checkpoint\.parquet|checkpoint\.(\d{10})\.(\d{10})\.parquet|checkpoint\.[0-9a-f-]{36}\.(?:json|parquet))$`)

// listing is what the log's folder holds.
type listing struct {
	commits map[int64]bool
	points  map[int64][]string // the parts of each whole checkpoint
	strange bool               // there are checkpoints of version 2
	last    int64
}

func list(ctx context.Context, st store.Store) listing {
	l := listing{commits: map[int64]bool{}, points: map[int64][]string{}, last: -1}
	entries, err := st.List(ctx, logDir)
	for v := int64(0); errors.Is(err, robocache.ErrUnsupported); v++ { // a store that cannot list: the versions are tried
		e, serr := st.Stat(ctx, commitName(v))
		if serr != nil && !errors.Is(serr, robocache.ErrNotFound) {
			guard.Fail(serr)
		} else if serr != nil {
			err = nil
		} else {
			entries = append(entries, e)
		}
	}
	guard.Check(err)
	parts := map[string][]string{}
	for _, e := range entries {
		m := logName.FindStringSubmatch(e.Name)
		if m == nil {
			continue
		}
		v, err := strconv.ParseInt(m[1], 10, 64)
		n, _ := strconv.Atoi(m[4])
		key := m[1] + m[4]
		switch {
		case err != nil:
		case m[2] == "json":
			l.commits[v], l.last = true, max(l.last, v)
		case m[2] != "checkpoint.parquet" && m[3] == "":
			l.strange = true
		default:
			if parts[key] = append(parts[key], e.Name); len(parts[key]) == max(n, 1) {
				l.points[v], l.last = parts[key], max(l.last, v)
			}
		}
	}
	return l
}

// load replays the log up to a version; the last one where it is negative. ErrNotFound where there is no log.
func load(ctx context.Context, st store.Store, version, budget int64) (t *table, err error) {
	defer guard.Malformed(string(op), &err)
	l := list(ctx, st)
	if l.last < 0 {
		return nil, &robocache.Error{Class: robocache.ErrNotFound, Op: string(op), Msg: "there is no " + logDir}
	}
	if version < 0 {
		version = l.last
	}
	t = &table{version: version, files: map[string]*add{}}
	from := int64(-1)
	for v := range l.points {
		if v <= version {
			from = max(from, v)
		}
	}
	for _, name := range l.points[from] {
		guard.Check(robocache.At(guard.Try(func() { t.checkpoint(ctx, st, name, budget) }), robocache.Where{"file": name}))
	}
	for v := from + 1; v <= version; v++ {
		name := commitName(v)
		if !l.commits[v] {
			if l.strange {
				unsupported("the reader feature v2Checkpoint: the log begins with a checkpoint of version 2", "write a classic checkpoint: ALTER TABLE … SET TBLPROPERTIES('delta.checkpointPolicy'='classic')")
			}
			guard.Fail(&robocache.Error{Class: robocache.ErrNotFound, Op: string(op), Where: robocache.Where{"file": name}, Msg: fmt.Sprintf("version %d cannot be made: a commit is not there", version), Hint: fmt.Sprintf("versions up to %d are there", l.last)})
		}
		b := guard.Must(store.ReadFile(ctx, st, name, budget))
		guard.Check(robocache.At(guard.Try(func() { t.apply(b) }), robocache.Where{"file": name}))
	}
	t.check()
	return t, nil
}

// apply takes the actions of a commit.
func (t *table) apply(b []byte) {
	n := 0
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if n++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a action
		if err := json.Unmarshal(line, &a); err != nil {
			malformed(fmt.Sprintf("line %d is no action", n), err)
		}
		t.protocol, t.meta = cmp.Or(a.Protocol, t.protocol), cmp.Or(a.MetaData, t.meta)
		if a.Add != nil {
			t.files[a.Add.Path] = a.Add
		}
		if a.Remove != nil {
			delete(t.files, a.Remove.Path)
		}
	}
}

// checkpoint takes the actions of a part of a checkpoint.
func (t *table) checkpoint(ctx context.Context, st store.Store, name string, budget int64) {
	r := guard.Must(st.Open(ctx, name))
	defer r.Close()
	f := guard.Must(pq.Open(ctx, r, nil))
	for g := range f.Groups {
		for _, kind := range []string{"protocol", "metaData", "add"} {
			top := f.Column(kind)
			if top == nil {
				continue
			}
			plain := *top // without statistics in columns of their own
			plain.Children = slices.DeleteFunc(slices.Clone(top.Children), func(n *pq.Node) bool { return strings.HasSuffix(n.Name, "_parsed") })
			for _, text := range guard.Must(pq.ReadJSON(ctx, r, f, g, &plain, nil, pq.Limits{Bytes: budget})) {
				if text != "null" {
					t.apply(fmt.Appendf(nil, `{%q: %s}`, kind, text))
				}
			}
		}
	}
}

// harmless are features of a protocol that change nothing where no file and no column uses them; one that does is refused, or left out, by name.
var harmless = []string{"timestampNtz", "vacuumProtocolCheck", "variantType", "appendOnly", "invariants", "deletionVectors", "columnMapping"}

// check refuses what is not followed (D1).
func (t *table) check() {
	if t.protocol == nil || t.meta == nil {
		malformed("the log has no protocol or no metaData", nil)
	}
	p := t.protocol
	if mode := t.meta.Config["delta.columnMapping.mode"]; mode != "" && mode != "none" {
		unsupported("the reader feature columnMapping ("+mode+")", "")
	}
	for _, f := range p.Features {
		if !slices.Contains(harmless, f) {
			unsupported("the reader feature "+f, "write the rows into a table without it")
		}
	}
	if p.Reader < 1 || p.Reader > 3 {
		unsupported(fmt.Sprintf("reader protocol %d; 1 to 3 are known", p.Reader), "")
	}
	if f := t.meta.Format.Provider; f != "" && f != "parquet" {
		unsupported("data files of the format "+strconv.Quote(f), "")
	}
	t.fields = parseSchema(t.meta.Schema)
	for _, a := range t.files {
		if v := string(a.Vector); v != "" && v != "null" {
			unsupported("the reader feature deletionVectors (of "+a.Path+")", "purge them: REORG TABLE … APPLY (PURGE)")
		}
		a.name = fileName(a.Path)
	}
}

var absolute = regexp.MustCompile(`^(/|[A-Za-z][A-Za-z0-9+.-]*:/)`)

// fileName is the file that a path of the log names.
func fileName(path string) string {
	defer guard.In("path", path)
	if absolute.MatchString(path) {
		unsupported("a data file outside of the table: an absolute path", "a shallow clone: make a deep one")
	}
	name, err := url.PathUnescape(path)
	if err != nil {
		malformed("its path is not percent-encoded", err)
	}
	return guard.Must(store.CleanName(name))
}

// filePath is the path of a file in the log.
func filePath(name string) string { return (&url.URL{Path: name}).EscapedPath() }
