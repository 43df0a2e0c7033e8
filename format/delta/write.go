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
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

var writeOptions = map[string]string{
	"partition": "the column whose values have data files of their own: task or source; default: none",
	"source":    "what the column source says; default: the name of the source",
	"append":    "true: add the episodes to the table that is there, numbered behind its own; columns that it does not have are left out",
}

var partitions = []string{"", "task", "source"}

// sharding writes a table in shards: their data files are those of the whole, and Merge puts the one commit.
var sharding = &robocache.Sharding{Plan: plan, Merge: merge, LeavesEmpty: true,
	Kept: func(name string) bool { return path.Ext(name) == ".parquet" || strings.HasPrefix(name, videosDir+"/") }}

// writing is one run of Write.
type writing struct {
	src       robocache.Dataset
	info      *robocache.Info
	dst       store.Writable
	opt       robocache.WriteOptions
	partition string
	source    string
	add       bool
	columns   []column
	lib       *video.Library
	videos    map[string]videoFile // by the path in the source
	adds      []*add
	prefix    string
	modified  int64
	report    robocache.WriteReport
}

func newWriting(ctx context.Context, src robocache.Dataset, opt robocache.WriteOptions) *writing {
	w := &writing{src: src, info: src.Info(), opt: opt, lib: video.LibraryOf(src), videos: map[string]videoFile{}, prefix: "part-" + rand.Text()}
	w.report.Dropped = []string{}
	op.Settle(opt.Options, writeOptions, map[string]reader.Set{"partition": reader.Text(&w.partition, partitions...), "source": reader.Text(&w.source), "append": reader.Yes(&w.add)})
	uri, _, _ := strings.Cut(w.info.URI, "?")
	w.source = cmp.Or(w.source, path.Base(strings.TrimRight(uri, "/")))
	used := map[string]bool{}
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
		if c := columnOf(f); c.elem == "" || used[strings.ToLower(c.Name)] { // names that differ in case alone are one
			w.drop(f.Key, "a table has no column for it, or another of that name")
		} else {
			used[strings.ToLower(c.Name)] = true
			w.columns = append(w.columns, c)
		}
	}
	return w
}

func (w *writing) drop(key, why string) {
	w.report.Dropped = append(w.report.Dropped, key)
	w.report.Findings = append(w.report.Findings, robocache.Finding{Severity: robocache.SeverityWarning, Code: "stream-dropped", Where: robocache.Where{"stream": key}, Message: "the stream is left out: " + why})
}

// metaData describes a new table. Its id comes from what is in it (D6).
func (w *writing) metaData() *metaData {
	m := &metaData{Config: texts{}, Partitions: []string{}}
	s := structType{Type: "struct"}
	for _, c := range w.columns {
		s.Fields = append(s.Fields, c.field)
	}
	m.Schema = string(guard.Must(json.Marshal(s)))
	m.Format.Provider, m.Format.Options = "parquet", texts{}
	if w.partition != "" {
		m.Partitions = append(m.Partitions, w.partition)
	}
	if fps := cmp.Or(w.opt.FPS, w.info.FPS); !fps.Zero() {
		m.Config["robocache.fps"] = fps.String()
	}
	if w.info.Robot != "" {
		m.Config["robocache.robot_type"] = w.info.Robot
	}
	return m
}

// Write writes a dataset as a table, or adds it to one. writeOptions lists the options.
func Write(ctx context.Context, src robocache.Dataset, dst string, opt robocache.WriteOptions) (_ *robocache.WriteReport, err error) {
	defer guard.Recover("write delta", &err)
	defer guard.At(robocache.Where{"dataset": robocache.Redact(dst)})
	w := newWriting(ctx, src, opt)
	w.dst = guard.Must(store.OpenWritable(dst))
	defer store.Close(w.dst)
	if s := opt.Shard; s != nil {
		w.prefix = fmt.Sprintf("part-%05d", s.Index)
		w.write(ctx, int64(s.FirstEpisode))
		w.report.Summary = guard.Must(json.Marshal(w.adds))
		return &w.report, nil
	}
	w.modified = time.Now().UnixMilli()
	if have := guard.Must(w.dst.List(ctx, "")); len(have) > 0 && !w.add {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: string(op), Where: robocache.Where{"file": have[0].Name}, Msg: "the destination is not empty", Hint: "choose an empty one; --write-option append=true adds to a table that is there"}
	}
	guard.Check(store.Probe(ctx, w.dst))
	if err = guard.Try(func() { w.commit(ctx) }); err != nil {
		w.clear(ctx)
	}
	return &w.report, err
}

// clear removes the data files; videos may be those of other versions.
func (w *writing) clear(ctx context.Context) {
	for _, a := range w.adds {
		_ = w.dst.Remove(context.WithoutCancel(ctx), a.Path)
	}
	w.adds = nil
}

// commit writes the files of a version, and puts its commit (D3).
func (w *writing) commit(ctx context.Context) {
	columns, report := w.columns, w.report
	var before *table
	for base := int64(-1); ; {
		t := guard.Must(load(ctx, w.dst, -1, defaultBudget))
		switch {
		case t.version >= 0 && !w.add:
			fail(robocache.ErrMisuse, "another writer has made a table here", "--write-option append=true adds to it")
		case before != nil && before.meta != nil && (!reflect.DeepEqual(t.meta, before.meta) || !reflect.DeepEqual(t.protocol, before.protocol)): // a constraint is one, too
			fail(robocache.ErrTemporary, "the table's schema or protocol was changed meanwhile", "run it again")
		}
		meta := t.meta
		if next := t.next(ctx, w.dst); base < next || before.version < 0 { // else the files are good as they are
			w.clear(ctx)
			w.columns, w.report, base = slices.Clone(columns), report, next
			if t.version >= 0 {
				w.fit(t)
			}
			w.write(ctx, base)
		}
		if t.version < 0 {
			meta = w.metaData()
		}
		err := store.PutNew(ctx, w.dst, commitName(t.version+1), commitActions(meta, w.adds, w.modified, t.version >= 0))
		if err == nil {
			return
		}
		if before = t; !errors.Is(err, store.ErrExists) {
			w.adds = nil // not to be cleared: the commit may be there, whatever the answer was
			guard.Fail(err)
		}
	}
}

// next is the number of the next episode.
func (t *table) next(ctx context.Context, st store.Store) (next int64) {
	for _, a := range t.files {
		n, _ := a.stats().Max["episode_index"].(json.Number)
		last, err := n.Int64()
		if err != nil { // the log does not say it: the rows do
			d := guard.Must(open(ctx, st, t, robocache.OpenOptions{}))
			defer d.open.Close() // the store is the caller's
			for _, e := range d.episodes {
				next = max(next, e.index+1)
			}
			return next
		}
		next = max(next, last+1)
	}
	return next
}

// fit brings the columns to those of a table that is there, and refuses one that asks of a writer what this one does not do.
func (w *writing) fit(t *table) {
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
		unsupported(fmt.Sprintf("rows for a table with constraints, or of writer protocol %d %v", t.protocol.Writer, t.protocol.Writers), "")
	}
	w.partition = strings.Join(t.meta.Partitions, ", ")
	if !slices.Contains(partitions, w.partition) {
		unsupported("rows for a table partitioned by "+w.partition, "it is added to where it is partitioned by task, by source, or not")
	}
	var out []column
	for _, f := range t.fields {
		i := slices.IndexFunc(w.columns, func(c column) bool { return c.Name == f.Name })
		if i < 0 {
			if !f.Nullable {
				unsupported("the table's column "+f.Name+" may not be null, and the source has none", "")
			}
			continue
		}
		c := w.columns[i]
		w.columns = slices.Delete(w.columns, i, i+1)
		elem, lists := f.element()
		same := elem == c.elem || dtypes[elem] != 0 && dtypes[c.elem] != 0 && dtypes[elem].Float() == dtypes[c.elem].Float() && elem != "boolean" && c.elem != "boolean" && !strings.HasPrefix(elem, "timestamp")
		if own := f.feature(); own != nil && c.f != nil && (own.Kind != c.f.Kind || !slices.Equal(own.Shape, c.f.Shape)) {
			same = false
		}
		if !same || lists != len(c.dims) {
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: string(op), Where: robocache.Where{"column": f.Name}, Msg: "the table's column has another type", Want: string(f.Type), Got: string(c.Type) + " " + fmt.Sprint(c.dims), Hint: "leave it out by --keys, or write another table"})
		}
		c.field, c.elem = f, elem
		out = append(out, c)
	}
	for _, c := range w.columns {
		if c.f != nil {
			w.drop(c.f.Key, "the table has no such column")
		} else if c.Name == "episode_index" {
			unsupported("a table without the column episode_index", "")
		}
	}
	w.columns = out
}

// commitActions are the lines of a commit: of a new table, where there is metaData. Without a time there is none in it (D6).
func commitActions(m *metaData, adds []*add, modified int64, more bool) []byte {
	mode := "ErrorIfExists"
	if more {
		mode = "Append"
	}
	info := map[string]any{"operation": "WRITE", "operationParameters": map[string]string{"mode": mode}, "engineInfo": "RoboCache"}
	if modified > 0 {
		info["timestamp"] = modified
	}
	actions := []action{{Commit: info}}
	if !more {
		m.ID = identity(m, adds)
		actions = append(actions, action{Protocol: &protocol{Reader: 1, Writer: 2}}, action{MetaData: m})
	}
	for _, a := range adds {
		actions = append(actions, action{Add: a})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range actions {
		guard.Check(enc.Encode(&actions[i]))
	}
	return b.Bytes()
}

// identity is a UUID of a table's first version, by its contents.
func identity(m *metaData, adds []*add) string {
	own := *m
	own.ID = ""
	sum := sha256.Sum256(guard.Must(json.Marshal([]any{own, adds})))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// plan settles the schema of all shards.
func plan(ctx context.Context, src robocache.Dataset, opt robocache.WriteOptions) (_ json.RawMessage, err error) {
	defer guard.Recover("plan", &err)
	w := newWriting(ctx, src, opt)
	if w.add {
		unsupported("shards that are added to a table", "plan into an empty destination, or add by robocache convert --write-option append=true")
	}
	return json.Marshal(w.metaData())
}

// shardFile is a data file as a shard names it.
var shardFile = regexp.MustCompile(`^part-\d{5}-\d{5,}\.parquet$`)

// merge puts the first commit of a table, which its shards have filled.
func merge(ctx context.Context, dst string, schema json.RawMessage, shards []robocache.ShardReport) (err error) {
	defer guard.Recover("write delta", &err)
	m, adds := &metaData{}, []*add{}
	guard.Check(json.Unmarshal(schema, m))
	named := map[string]bool{}
	for _, s := range shards {
		var own []*add
		bad := json.Unmarshal(s.Summary, &own) != nil
		for _, a := range own { // a stranger's, perhaps: other readers follow any path
			if bad = bad || a == nil || !shardFile.MatchString(a.Path) || named[a.Path]; !bad {
				named[a.Path] = true
			}
		}
		if bad {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Where: robocache.Where{"folder": s.Dir}, Msg: "the summary of a shard cannot be read, or names a data file twice or one that is no shard's"})
		}
		adds = append(adds, own...)
	}
	st := guard.Must(store.OpenWritable(dst))
	defer store.Close(st)
	actions := commitActions(m, adds, 0, false)
	if err = store.PutNew(ctx, st, commitName(0), actions); !errors.Is(err, store.ErrExists) {
		return err
	}
	if b := guard.Must(store.ReadFile(ctx, st, commitName(0), math.MaxInt32)); !bytes.Equal(b, actions) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: string(op), Where: robocache.Where{"dataset": robocache.Redact(dst)}, Msg: "another table is here", Hint: "plan into an empty destination"}
	}
	return nil
}
