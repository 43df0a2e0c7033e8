package delta

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/store"
)

// op names the format in errors.
const op = reader.Op("delta")

const logDir = "_delta_log"

// commitName returns the file name of a version's commit.
func commitName(version int64) string { return fmt.Sprintf("%s/%020d.json", logDir, version) }

// texts maps names to texts. A null value is "", as in partitionValues.
type texts map[string]string

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
}

// fileStats is the content of add.Stats.
type fileStats struct {
	Rows  int64          `json:"numRecords"`
	Min   map[string]any `json:"minValues"`
	Max   map[string]any `json:"maxValues"`
	Nulls map[string]any `json:"nullCount"`
}

// stats returns the parsed statistics of a data file, or zero values if there are none.
func (a *add) stats() (s fileStats) {
	dec := json.NewDecoder(strings.NewReader(a.Stats))
	dec.UseNumber()
	_ = dec.Decode(&s) // statistics are optional
	return s
}

// action is a line of a commit.
type action struct {
	Commit   any       `json:"commitInfo,omitempty"`
	Protocol *protocol `json:"protocol,omitempty"`
	MetaData *metaData `json:"metaData,omitempty"`
	Add      *add      `json:"add,omitempty"`
	Remove   *add      `json:"remove,omitempty"`
}

// table is one version of a table.
type table struct {
	version  int64 // negative if the table does not exist yet
	protocol *protocol
	meta     *metaData
	fields   []field
	files    map[string]*add // path → file
}

func newError(class error, msg, hint string) error {
	return robocache.NewError(class, string(op), nil, "%s", msg).WithHint("%s", hint)
}

func unsupported(msg, hint string) error { return newError(robocache.ErrUnsupported, msg, hint) }

var logName = regexp.MustCompile(
	`^_delta_log/(\d{20})\.(json|checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet|checkpoint\.[0-9a-f-]{36}\.(?:json|parquet))$`,
)

// loadTable replays the log up to a version, or up to the last one if version is negative. Without
// a log it returns a table of version -1.
func loadTable(ctx context.Context, st store.Store, version, budget int64) (t *table, err error) {
	defer crash.Recover(string(op), &err)
	commits, points := map[int64]bool{}, map[int64][]string{}
	parts, strange, last := map[string][]string{}, false, int64(-1)
	list, err := st.List(ctx, logDir)
	if err != nil {
		return t, err
	}
	for _, e := range list {
		m := logName.FindStringSubmatch(e.Name)
		if m == nil {
			continue
		}
		v, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return t, err
		}
		if m[2] == "json" {
			commits[v], last = true, max(last, v)
		} else if key, n := m[1]+m[4], m[4]; !strings.HasPrefix(m[2], "checkpoint.p") && n == "" {
			strange = true
		} else if parts[key] = append(parts[key], e.Name); n == "" ||
			n == fmt.Sprintf("%010d", len(parts[key])) {
			// The list is sorted, so the last part completes the checkpoint.
			points[v], last = parts[key], max(last, v)
		}
	}
	if version < 0 || last < 0 {
		version = last
	}
	t = &table{version: version, files: map[string]*add{}}
	if last < 0 {
		return t, nil
	}
	from := int64(-1)
	for v := range points {
		if v <= version {
			from = max(from, v)
		}
	}
	for _, name := range points[from] {
		if err := robocache.At(t.applyCheckpoint(ctx, st, name, budget),
			robocache.Where{"file": name}); err != nil {
			return t, err
		}
	}
	for v := from + 1; v <= version; v++ {
		name := commitName(v)
		if strange && !commits[v] {
			return t, unsupported(
				"the reader feature v2Checkpoint: the log begins with such a checkpoint",
				"write a classic one (delta.checkpointPolicy)",
			)
		} else if !commits[v] {
			return t, robocache.NotFound(
				string(op),
				robocache.Where{"file": name},
				"version %d cannot be read: a commit is missing",
				version,
			).WithHint("the last version is %d", last)
		}
		b, err := store.ReadFile(ctx, st, name, budget)
		if err != nil {
			return t, err
		}
		if err := robocache.At(t.apply(b), robocache.Where{"file": name}); err != nil {
			return t, err
		}
	}
	if err := t.checkProtocol(); err != nil {
		return t, err
	}
	return t, nil
}

// apply applies the actions of a commit. Their order has no meaning: a commit that adds a deletion
// vector to a file removes and adds the same path.
func (t *table) apply(b []byte) error {
	var added []*add
	number := 0
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		if number++; len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a action
		err := jsonmeta.Unmarshal(string(op), line, &a)
		if err := robocache.At(err, robocache.Where{"line": number}); err != nil {
			return err
		}
		t.protocol, t.meta = cmp.Or(a.Protocol, t.protocol), cmp.Or(a.MetaData, t.meta)
		if a.Add != nil {
			added = append(added, a.Add)
		}
		if a.Remove != nil {
			delete(t.files, a.Remove.Path)
		}
	}
	for _, a := range added {
		t.files[a.Path] = a
	}
	return nil
}

// applyCheckpoint applies the actions of one part of a checkpoint.
func (t *table) applyCheckpoint(
	ctx context.Context,
	st store.Store,
	name string,
	budget int64,
) error {
	r, err := st.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := pq.Open(ctx, r, nil)
	if err != nil {
		return err
	}
	for g := range f.Groups {
		for _, kind := range []string{"protocol", "metaData", "add"} {
			top := f.Column(kind)
			if top == nil {
				continue
			}
			plain := *top // without the columns of parsed statistics
			plain.Children = slices.DeleteFunc(
				slices.Clone(top.Children),
				func(n *pq.Node) bool { return strings.HasSuffix(n.Name, "_parsed") },
			)
			texts, err := pq.ReadJSON(ctx, r, f, g, &plain, nil, pq.Limits{Bytes: budget})
			if err != nil {
				return err
			}
			for _, text := range texts {
				if text != "null" {
					if err := t.apply(fmt.Appendf(nil, `{%q: %s}`, kind, text)); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// harmless lists protocol features that have no effect unless a file or column uses them. A file or
// column that does is rejected or left out by name.
var harmless = []string{
	"timestampNtz",
	"vacuumProtocolCheck",
	"variantType",
	"appendOnly",
	"invariants",
	"deletionVectors",
	"columnMapping",
}

// checkProtocol rejects unsupported tables (delta.D1).
func (t *table) checkProtocol() error {
	p, m := t.protocol, t.meta
	var s structType
	if m != nil && m.Schema != "" {
		err := jsonmeta.Unmarshal(string(op), []byte(m.Schema), &s)
		if err := robocache.At(err, robocache.Where{"field": "metaData.schemaString"}); err != nil {
			return err
		}
	}
	switch {
	case p == nil || m == nil || len(s.Fields) == 0:
		return newError(
			robocache.ErrMalformed,
			"the log has no protocol, no metaData or no schema",
			"",
		)
	case m.Config["delta.columnMapping.mode"] != "" &&
		m.Config["delta.columnMapping.mode"] != "none":
		return unsupported(
			"the reader feature columnMapping",
			"write the rows into a table without it",
		)
	case p.Reader < 1 || p.Reader > 3:
		return unsupported(fmt.Sprintf("reader protocol %d; 1 to 3 are known", p.Reader), "")
	case m.Format.Provider != "" && m.Format.Provider != "parquet":
		return unsupported("data files of the format "+strconv.Quote(m.Format.Provider), "")
	}
	for _, f := range p.Features {
		if !slices.Contains(harmless, f) {
			return unsupported("the reader feature "+f, "write the rows into a table without it")
		}
	}
	t.fields = s.Fields
	for _, a := range t.files {
		if v := string(a.Vector); v != "" && v != "null" {
			return unsupported(
				"the reader feature deletionVectors (of "+a.Path+")",
				"remove them: REORG TABLE … APPLY (PURGE)",
			)
		}
		if _, err := a.name(); err != nil {
			return err
		}
	}
	return nil
}

var absolute = regexp.MustCompile(`^(/|[A-Za-z][A-Za-z0-9+.-]*:/)`)

// name returns the file name that the path encodes.
func (a *add) name() (_ string, err error) {
	defer robocache.LocateIn(&err, "path", a.Path)
	if absolute.MatchString(a.Path) {
		return "", unsupported(
			"a data file outside of the table: an absolute path",
			"the table may be a shallow clone: make a deep clone",
		)
	}
	name, err := url.PathUnescape(a.Path)
	if err != nil {
		return "", newError(robocache.ErrMalformed, "the path is not percent-encoded", "")
	}
	return store.CleanName(name)
}
