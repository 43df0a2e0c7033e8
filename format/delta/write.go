package delta

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

var writeOptions = map[string]string{
	"partition": "partition the data files by a column: task or source; default: none",
	"source":    "the value of the column source; default: the name of the source",
	"append": "true: append the episodes to the existing table, with the next episode " +
		"numbers; columns that it lacks are left out",
}

var partitions = []string{"", "task", "source"}

// sharding writes a table in shards. Their data files become data files of the table, and Merge
// writes the only commit.
var sharding = &robocache.Sharding{
	Plan:        planTable,
	Merge:       mergeTable,
	LeavesEmpty: true,
	Kept: func(name string) bool {
		return path.Ext(name) == ".parquet" || strings.HasPrefix(name, videosDir+"/")
	},
}

// writing is one run of Write.
type writing struct {
	src        robocache.Dataset
	info       *robocache.Info
	dst        store.Writable
	options    robocache.WriteOptions
	partition  string
	source     string
	appends    bool
	columns    []column
	library    *video.Library
	videos     map[string]videoFile // path in the source → file in the table
	addedFiles []*add
	prefix     string
	modified   int64
	report     robocache.WriteReport
	origins    *origin.Tracer
}

// newWriting parses the options and chooses the columns.
func newWriting(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (*writing, error) {
	w := &writing{
		src:     src,
		info:    src.Info(),
		options: opt,
		library: video.LibraryOf(src),
		videos:  map[string]videoFile{},
		prefix:  "part-" + rand.Text(),
	}
	w.report.Dropped = []string{}
	if err := op.Settle(opt.Options, writeOptions,
		map[string]reader.Set{
			"partition": reader.Text(&w.partition, partitions...),
			"source":    reader.Text(&w.source), "append": reader.Yes(&w.appends),
		}); err != nil {
		return nil, err
	}
	uri, _, _ := strings.Cut(w.info.URI, "?")
	w.source = cmp.Or(w.source, path.Base(strings.TrimRight(uri, "/")))
	w.origins = origin.NewTracer(src, opt)
	hasOrigins, err := w.origins.Any(ctx)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{sourceColumn: true}
	if hasOrigins {
		w.columns = append(w.columns, bookColumn(sourceColumn, "string"))
	}
	for _, c := range bookkeeping {
		used[c.Name] = true
		if (c.Name != secondsColumn && c.Name != nanosColumn) || robocache.KeepsTime(ctx, src) {
			w.columns = append(w.columns, c)
		}
	}
	for i := range w.info.Features {
		f := &w.info.Features[i]
		if !opt.Wants(f) {
			continue
		}
		if c, err := columnOf(f); err != nil {
			return nil, err
		} else if c.elem == "" || used[strings.ToLower(c.Name)] {
			// names that differ only in case are equal
			w.dropStream(f.Key, "a table cannot hold it, or already has a column of that name")
		} else {
			used[strings.ToLower(c.Name)] = true
			w.columns = append(w.columns, c)
		}
	}
	return w, nil
}

// keepsFeature reports whether a table can hold a feature.
func keepsFeature(f *robocache.Feature) bool {
	c, err := columnOf(f)
	return err != nil || c.elem != "" // Write reports the error
}

// dropStream reports that a stream is left out.
func (w *writing) dropStream(key, why string) {
	w.report.Dropped = append(w.report.Dropped, key)
	w.report.Findings = append(w.report.Findings, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "stream-dropped",
		Where:    robocache.Where{"stream": key},
		Message:  "the stream is left out: " + why,
	})
}

// metaData returns the description of a new table. Its id is derived from its content (delta.D6).
func (w *writing) metaData() (*metaData, error) {
	m := &metaData{Config: texts{}, Partitions: []string{}}
	s := structType{Type: "struct"}
	for _, c := range w.columns {
		s.Fields = append(s.Fields, c.field)
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	m.Schema = string(encoded)
	m.Format.Provider, m.Format.Options = "parquet", texts{}
	if w.partition != "" {
		m.Partitions = append(m.Partitions, w.partition)
	}
	if fps := cmp.Or(w.options.FPS, w.info.FPS); !fps.Zero() {
		m.Config["robocache.fps"] = fps.String()
	}
	if w.info.Robot != "" {
		m.Config["robocache.robot_type"] = w.info.Robot
	}
	return m, nil
}

// Write writes a dataset as a table, or appends it to one. writeOptions describes the options.
func Write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (_ *robocache.WriteReport, err error) {
	defer crash.Recover("write delta", &err)
	defer robocache.LocateIn(&err, "dataset", robocache.Redact(dst))
	w, err := newWriting(ctx, src, opt)
	if err != nil {
		return nil, err
	}
	if w.dst, err = store.OpenWritable(dst); err != nil {
		return nil, err
	}
	defer store.Close(w.dst)
	if s := opt.Shard; s != nil {
		w.prefix = fmt.Sprintf("part-%05d", s.Index)
		if err := w.writeEpisodes(ctx, int64(s.FirstEpisode)); err != nil {
			return nil, err
		}
		if w.report.Summary, err = json.Marshal(w.addedFiles); err != nil {
			return nil, err
		}
		return &w.report, nil
	}
	w.modified = time.Now().UnixMilli()
	if have, err := w.dst.List(ctx, ""); err != nil {
		return nil, err
	} else if len(have) > 0 && !w.appends {
		return nil, robocache.Misuse(
			string(op),
			robocache.Where{"file": have[0].Name},
			"the destination is not empty",
		).WithHint(
			"choose an empty one, or pass %s to append to an existing table",
			robocache.Option("write_option", "append", true),
		)
	}
	if err := store.Probe(ctx, w.dst); err != nil {
		return nil, err
	}
	if err = w.commit(ctx); err != nil {
		w.removeFiles(ctx)
	}
	return &w.report, err
}

// removeFiles removes the data files. Videos may belong to other versions and stay.
func (w *writing) removeFiles(ctx context.Context) {
	for _, a := range w.addedFiles {
		_ = w.dst.Remove(context.WithoutCancel(ctx), a.Path)
	}
	w.addedFiles = nil
}

// commit writes the files of a version and then its commit (delta.D3).
func (w *writing) commit(ctx context.Context) error {
	columns, report := w.columns, w.report
	var before *table
	for base := int64(-1); ; {
		t, err := loadTable(ctx, w.dst, -1, defaultBudget)
		if err != nil {
			return err
		}
		switch {
		case t.version >= 0 && !w.appends:
			return newError(
				robocache.ErrMisuse,
				"another writer created a table in the destination",
				"pass "+robocache.Option("write_option", "append", true)+" to append to it",
			)
		case before != nil && before.meta != nil &&
			(!reflect.DeepEqual(t.meta, before.meta) ||
				!reflect.DeepEqual(t.protocol, before.protocol)):
			// a new constraint is also such a change
			return newError(
				robocache.ErrTemporary,
				"the schema or protocol of the table changed during the write",
				"run it again",
			)
		}
		meta := t.meta
		if next, err := t.nextEpisode(ctx, w.dst); err != nil {
			return err
		} else if base < next || before.version < 0 { // otherwise the files are still valid
			w.removeFiles(ctx)
			w.columns, w.report, base = slices.Clone(columns), report, next
			if t.version >= 0 {
				if err := w.fitTable(t); err != nil {
					return err
				}
			}
			if err := w.writeEpisodes(ctx, base); err != nil {
				return err
			}
		}
		if t.version < 0 {
			if meta, err = w.metaData(); err != nil {
				return err
			}
		}
		lines, err := commitActions(meta, w.addedFiles, w.modified, t.version >= 0)
		if err != nil {
			return err
		}
		err = store.PutNew(ctx, w.dst, commitName(t.version+1), lines)
		if err == nil {
			return nil
		}
		if before = t; !errors.Is(err, store.ErrExists) {
			// The commit may exist despite the error, so its files must not be removed.
			w.addedFiles = nil
			return err
		}
	}
}

// nextEpisode returns the number of the next episode.
func (t *table) nextEpisode(ctx context.Context, st store.Store) (next int64, err error) {
	for _, a := range t.files {
		n, _ := a.stats().Max["episode_index"].(json.Number)
		last, err := n.Int64()
		if err != nil { // the log does not state it, so the rows are read
			d, err := openTable(ctx, st, t, robocache.OpenOptions{})
			if err != nil {
				return next, err
			}
			defer d.openFiles.Close() // the caller owns the store
			for _, e := range d.episodes {
				next = max(next, e.index+1)
			}
			return next, nil
		}
		next = max(next, last+1)
	}
	return next, nil
}

// fitTable adapts the columns to an existing table. It rejects tables that require more of a writer
// than this one supports.
func (w *writing) fitTable(t *table) error {
	refused := t.protocol.Writer > 7
	for _, f := range t.protocol.Writers {
		refused = refused || !slices.Contains(harmless, f)
	}
	for k := range t.meta.Config {
		refused = refused || strings.HasPrefix(k, "delta.constraints.")
	}
	for _, f := range t.fields {
		for k := range f.Metadata {
			refused = refused || strings.HasPrefix(k, "delta.")
		}
	}
	if refused {
		return unsupported(
			fmt.Sprintf(
				"rows for a table with constraints, or of writer protocol %d %v",
				t.protocol.Writer,
				t.protocol.Writers,
			),
			"",
		)
	}
	w.partition = strings.Join(t.meta.Partitions, ", ")
	if !slices.Contains(partitions, w.partition) {
		return unsupported(
			"rows for a table partitioned by "+w.partition,
			"append to a table that is partitioned by task, by source, or not at all",
		)
	}
	var out []column
	for _, f := range t.fields {
		i := slices.IndexFunc(w.columns, func(c column) bool { return c.Name == f.Name })
		if i < 0 {
			if !f.Nullable {
				return unsupported(
					"the table's column "+f.Name+" may not be null, but the source lacks it",
					"",
				)
			}
			continue
		}
		c := w.columns[i]
		w.columns = slices.Delete(w.columns, i, i+1)
		elem, lists := f.element()
		same := elem == c.elem ||
			dtypes[elem] != 0 && dtypes[c.elem] != 0 &&
				dtypes[elem].Float() == dtypes[c.elem].Float() &&
				elem != "boolean" && c.elem != "boolean" &&
				!strings.HasPrefix(elem, "timestamp")
		if own := f.feature(); own != nil && c.feature != nil &&
			(own.Kind != c.feature.Kind || !slices.Equal(own.Shape, c.feature.Shape)) {
			same = false
		}
		if !same || lists != len(c.dims) {
			return robocache.Unsupported(
				string(op),
				robocache.Where{"column": f.Name},
				"the table's column has another type",
			).Expected(string(f.Type), string(c.Type)+" "+fmt.Sprint(c.dims)).
				WithHint("leave it out with %s, or write another table", robocache.Option("keys"))
		}
		c.field, c.elem = f, elem
		out = append(out, c)
	}
	for _, c := range w.columns {
		if c.feature != nil {
			w.dropStream(c.feature.Key, "the table has no such column")
		} else if c.Name == "episode_index" {
			return unsupported("a table without the column episode_index", "")
		}
	}
	w.columns = out
	return nil
}

// commitActions returns the lines of a commit. m is needed for a new table, which is one if more is
// false. If modified is 0, the commit has no time (delta.D6).
func commitActions(m *metaData, adds []*add, modified int64, more bool) ([]byte, error) {
	mode := "ErrorIfExists"
	if more {
		mode = "Append"
	}
	info := map[string]any{
		"operation":           "WRITE",
		"operationParameters": map[string]string{"mode": mode},
		"engineInfo":          "RoboCache",
	}
	if modified > 0 {
		info["timestamp"] = modified
	}
	actions := []action{{Commit: info}}
	if !more {
		var err error
		if m.ID, err = identity(m, adds); err != nil {
			return nil, err
		}
		actions = append(
			actions,
			action{Protocol: &protocol{Reader: 1, Writer: 2}},
			action{MetaData: m},
		)
	}
	for _, a := range adds {
		actions = append(actions, action{Add: a})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range actions {
		if err := enc.Encode(&actions[i]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// identity returns a UUID that is derived from the content of a table's first version.
func identity(m *metaData, adds []*add) (string, error) {
	own := *m
	own.ID = ""
	encoded, err := json.Marshal([]any{own, adds})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]), nil
}

// planTable determines the schema of all shards.
func planTable(
	ctx context.Context,
	src robocache.Dataset,
	opt robocache.WriteOptions,
) (_ json.RawMessage, err error) {
	defer crash.Recover("plan", &err)
	w, err := newWriting(ctx, src, opt)
	if err != nil {
		return nil, err
	}
	if w.appends {
		return nil, unsupported("shards that are appended to a table",
			"plan into an empty destination, or append with "+
				robocache.Option("write_option", "append", true)+" of convert")
	}
	description, err := w.metaData()
	if err != nil {
		return nil, err
	}
	return json.Marshal(description)
}

// shardFile matches the name of a shard's data file.
var shardFile = regexp.MustCompile(`^part-\d{5}-\d{5,}\.parquet$`)

// mergeTable writes the first commit of a table whose data files were written in shards.
func mergeTable(
	ctx context.Context,
	dst string,
	schema json.RawMessage,
	shards []robocache.ShardReport,
) (err error) {
	defer crash.Recover("write delta", &err)
	m, adds := &metaData{}, []*add{}
	if err := json.Unmarshal(schema, m); err != nil {
		return err
	}
	named := map[string]bool{}
	for _, s := range shards {
		var own []*add
		bad := json.Unmarshal(s.Summary, &own) != nil
		// The summary is untrusted, and other readers follow any path in it.
		for _, a := range own {
			if bad = bad || a == nil || !shardFile.MatchString(a.Path) || named[a.Path]; !bad {
				named[a.Path] = true
			}
		}
		if bad {
			return robocache.Malformed(
				string(op),
				robocache.Where{"folder": s.Dir},
				"the summary of a shard cannot be read, or names a data file twice, or one of "+
					"no shard",
			)
		}
		adds = append(adds, own...)
	}
	st, err := store.OpenWritable(dst)
	if err != nil {
		return err
	}
	defer store.Close(st)
	actions, err := commitActions(m, adds, 0, false)
	if err != nil {
		return err
	}
	if err = store.PutNew(ctx, st, commitName(0), actions); !errors.Is(err, store.ErrExists) {
		return err
	}
	if b, err := store.ReadFile(ctx, st, commitName(0), math.MaxInt32); err != nil {
		return err
	} else if !bytes.Equal(b, actions) {
		return robocache.Misuse(
			string(op),
			robocache.Where{"dataset": robocache.Redact(dst)},
			"the destination holds another table",
		).WithHint("plan into an empty destination")
	}
	return nil
}
