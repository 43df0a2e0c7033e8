package delta_test

import (
	"bytes"
	gocontext "context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/delta"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	_ "github.com/goatnote-inc/robocache/store/s3"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/synth"
)

type context = gocontext.Context

// same compares every row of every stream of src with those of got, beginning at an episode.
func same(t *testing.T, src, got robocache.Dataset, from int) {
	t.Helper()
	for i := range src.Info().Features {
		f := &src.Info().Features[i]
		g := got.Info().Feature(f.Key)
		if f.Default || f.Kind == robocache.KindPointCloud {
			continue
		}
		if g == nil || g.Kind != f.Kind || g.DType != f.DType && f.DType != robocache.BFloat16 ||
			fmt.Sprint(g.Shape) != fmt.Sprint(f.Shape) {
			t.Fatalf("%+v became %+v", f, g)
		}
		for e := range src.Info().Episodes {
			rows, there := robocache.RowsOf(e, 0, src.Len(e)), robocache.RowsOf(e+
				from, 0, src.Len(e))
			switch f.Kind {
			case robocache.KindNumeric:
				a, b := make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*g.RowBytes())
				if err := errors.Join(src.Gather(t.Context(), f.Key, rows, a),
					got.Gather(t.Context(), f.Key, there, b)); err != nil {
					t.Fatal(err)
				}
				x, y := make([]uint8, len(rows)), make([]uint8, len(rows))
				if err := errors.Join(robocache.Valid(t.Context(), src, f.Key, rows, x),
					robocache.Valid(t.Context(), got, f.Key, there, y)); err != nil {
					t.Fatal(err)
				}
				if f.DType == g.DType && !bytes.Equal(a, b) || !bytes.Equal(x, y) {
					t.Errorf("%s of episode %d differs", f.Key, e)
				}
			case robocache.KindText, robocache.KindEvent:
				a, err := src.Text(t.Context(), f.Key, rows)
				b, err2 := got.Text(t.Context(), f.Key, there)
				if err != nil || err2 != nil || fmt.Sprint(a) != fmt.Sprint(b) {
					t.Errorf("%s of episode %d: %v %v", f.Key, e, err, err2)
				}
			case robocache.KindImage:
				a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
				if err := errors.Join(src.Frames(t.Context(), f.Key, rows, a),
					got.Frames(t.Context(), f.Key, there, b)); err != nil {
					t.Fatal(err)
				}
				for k := range a {
					if len(a[k].Encoded) > 0 && !bytes.Equal(a[k].Encoded, b[k].Encoded) ||
						a[k].Missing != b[k].Missing {
						t.Fatalf("image %d of %s in episode %d differs", k, f.Key, e)
					}
				}
			}
		}
	}
	for e := range src.Info().Episodes {
		a, err := src.Times(t.Context(), e, "")
		b, err2 := got.Times(t.Context(), e+from, "")
		x, err3 := src.Text(t.Context(), "task", robocache.RowsOf(e, 0, src.Len(e)))
		y, err4 := got.Text(t.Context(), "task", robocache.RowsOf(e+from, 0, src.Len(e)))
		if errors.Join(err, err2, err3, err4) != nil || fmt.Sprint(a, x) != fmt.Sprint(b, y) {
			t.Errorf("times or tasks of episode %d: %v", e, errors.Join(err, err2, err3, err4))
		}
	}
}

// TestEveryType checks that each dtype, shape and kind is unchanged after writing and reading, with
// and without partitions.
func TestEveryType(t *testing.T) {
	src := made(
		t,
		synth.Options{
			Episodes: 5,
			Seconds:  0.4,
			Spread:   0.5,
			Cameras:  1,
			Codec:    "png",
			Depth:    true,
		},
	)
	for _, partition := range []string{"", "task", "source"} {
		dst := filepath.Join(t.TempDir(), "t")
		table(t, src, dst, "partition", partition)
		same(t, src, openTable(t, dst), 0)
	}
	every := &typed{Dataset: src}
	dst := filepath.Join(t.TempDir(), "t")
	table(t, every, dst)
	same(t, every, openTable(t, dst), 0)
	// Writers count nulls only in the first columns; for the others the files state them.
	name := filepath.Join(dst, "_delta_log", "00000000000000000000.json")
	b, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(
			name,
			regexp.MustCompile(`,"stats":"(\\.|[^"\\])*"`).ReplaceAll(b, nil),
			0o644,
		)
	}
	if err != nil || !bytes.Contains(b, []byte(`"stats"`)) {
		t.Fatal(err)
	}
	same(t, every, openTable(t, dst), 0)
}

// typed is a dataset with a stream of each dtype. Its bytes are the row numbers, and every third
// row of some streams has no value.
type typed struct {
	*synth.Dataset
	about *robocache.Info
}

func (d *typed) Info() *robocache.Info {
	if d.about == nil {
		own := *d.Dataset.Info()
		own.Features = nil
		for i, dt := range []robocache.DType{
			robocache.Bool,
			robocache.Int8,
			robocache.Int16,
			robocache.Int32,
			robocache.Int64,
			robocache.Uint8,
			robocache.Uint16,
			robocache.Uint32,
			robocache.Uint64,
			robocache.Float16,
			robocache.BFloat16,
			robocache.Float32,
			robocache.Float64,
		} {
			for k, shape := range [][]int{{1}, {3}, {2, 3}} {
				own.Features = append(
					own.Features,
					robocache.Feature{
						Key:    fmt.Sprintf("x y.%v.%d", dt, k),
						Kind:   robocache.KindNumeric,
						DType:  dt,
						Shape:  shape,
						Masked: (i+k)%2 == 0,
					},
				)
			}
		}
		d.about = &own
	}
	return d.about
}

func (d *typed) Unwrap() robocache.Dataset { return nil }

func (d *typed) Gather(ctx context, key string, rows []robocache.Row, dst []byte) error {
	f := d.Info().Feature(key)
	n := f.RowBytes()
	valid := make([]uint8, len(rows))
	_ = d.Valid(ctx, key, rows, valid)
	for i, r := range rows {
		for k := range n {
			if dst[i*n+k] = 0; valid[i] == 1 && f.DType == robocache.Bool {
				dst[i*n+k] = byte((r.Index + k) % 2)
			} else if valid[i] == 1 && (k%f.DType.Size() == 0 || f.DType.Size() > 4 && k%8 == 5) {
				dst[i*n+k] = byte(r.Index*7 + k)
			}
		}
	}
	return nil
}

func (d *typed) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Valid: d.Valid}
}

func (d *typed) Valid(_ context, key string, rows []robocache.Row, valid []uint8) error {
	for i, r := range rows {
		valid[i] = 1
		if d.Info().Feature(key).Masked && r.Index%3 == 0 {
			valid[i] = 0
		}
	}
	return nil
}

// TestWritersAtOnce checks concurrent writers, with and without an existing table (delta.D3). All
// succeed, and every episode has a unique number.
func TestWritersAtOnce(t *testing.T) {
	for _, first := range []bool{true, false} {
		dst := filepath.Join(t.TempDir(), "t")
		opt := synth.Options{Episodes: 3, Seconds: 0.1, Spread: 0.5}
		n := 0
		if first {
			table(t, made(t, opt), dst)
			n = 3
		}
		var g sync.WaitGroup
		for range 4 {
			g.Go(func() {
				o := convert.Options{}
				o.Options = map[string]string{"append": "true"}
				if _, err := convert.Write(t.Context(), made(t, opt), "delta", dst, o); err != nil {
					t.Error(err)
				}
			})
			n += 3
		}
		g.Wait()
		d := openTable(t, dst)
		if d.Info().Episodes != n || len(d.Info().Findings) > 0 {
			t.Errorf("%d episodes, want %d; %v", d.Info().Episodes, n, d.Info().Findings)
		}
		for from := 0; from < n; from += 3 {
			same(t, made(t, opt), d, from)
		}
	}
}

// TestRefused checks that a rejected or failed writer leaves the table unchanged.
func TestRefused(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "t")
	src := made(t, synth.Options{Episodes: 2, Seconds: 0.3})
	table(t, src, dst)
	files := func() (out []string) {
		_ = filepath.WalkDir(
			dst,
			func(p string, _ os.DirEntry, _ error) error { out = append(out, p); return nil },
		)
		return out
	}
	before := files()
	write := func(options map[string]string, src robocache.Dataset) error {
		o := convert.Options{}
		o.Options = options
		_, err := convert.Write(t.Context(), src, "delta", dst, o)
		return err
	}
	for want, err := range map[string]error{
		"not empty":          write(nil, src),
		"option partition":   write(map[string]string{"partition": "robot"}, src),
		"another type":       write(map[string]string{"append": "true"}, &other{src}),
		"the lights are out": write(map[string]string{"append": "true"}, &dark{src}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		hostile.Typed(t, err)
	}
	if now := files(); fmt.Sprint(before) != fmt.Sprint(now) {
		t.Errorf("%v became %v", before, now)
	}
}

type other struct{ *synth.Dataset }

func (d *other) Info() *robocache.Info {
	own := *d.Dataset.Info()
	own.Features = append([]robocache.Feature{}, own.Features...)
	for i := range own.Features {
		if own.Features[i].Key == "action" {
			own.Features[i].Shape = []int{own.Features[i].Shape[0] + 1}
		}
	}
	return &own
}

type dark struct{ *synth.Dataset }

func (d *dark) Gather(context, string, []robocache.Row, []byte) error {
	return &robocache.Error{Class: robocache.ErrTemporary, Msg: "the lights are out"}
}

// TestBucket writes a table to a bucket of a real server, appends to it, and reads it.
func TestBucket(t *testing.T) {
	dir, endpoint := servers.S3(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	if err := os.Mkdir(filepath.Join(dir, "lab"), 0o777); err != nil {
		t.Fatal(err)
	}
	src := made(t, synth.Options{Episodes: 3, Seconds: 0.3, Cameras: 1, Codec: "png"})
	table(t, src, "s3://lab/t", "partition", "task")
	table(t, src, "s3://lab/t", "append", "true")
	d := openTable(t, "s3://lab/t")
	if d.Info().Episodes != 6 {
		t.Errorf("%d episodes", d.Info().Episodes)
	}
	same(t, src, d, 3)
}

// FuzzLog checks that any log gives a readable table or a typed error.
func FuzzLog(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "t")
	src, err := synth.New(synth.Options{Episodes: 2, Seconds: 0.2})
	if err != nil {
		f.Fatal(err)
	}
	table(f, src, dir, "partition", "task")
	st, err := store.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	mem := storetest.NewMem("fuzz-delta")
	list, _ := st.List(f.Context(), "")
	const first = "_delta_log/00000000000000000000.json"
	for _, e := range list {
		b, err := store.ReadFile(f.Context(), st, e.Name, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		mem.Put(e.Name, b)
		if e.Name == first {
			f.Add(string(b), "")
			f.Add(string(b), `{"remove":{"path":"x"}}`)
			f.Add(
				string(b),
				`{"add":{"path":"../x%2f","partitionValues":{"task":null},"size":1,"stats":"{\"numRecords\":-1}"}}`,
			)
			f.Add(
				strings.ReplaceAll(string(b), `[6]`, `[6,1000000000]`),
				`{"protocol":{"minReaderVersion":3,"readerFeatures":["deletionVectors"]}}`,
			)
			f.Add(
				strings.ReplaceAll(
					string(b),
					`\"long\"`,
					`{\"type\":\"array\",\"elementType\":\"long\"}`,
				),
				`{"metaData":null}`,
			)
			f.Add(strings.ReplaceAll(string(b), `{\"type\":\"array\"`, `{\"type\":\"\"`), "")
			f.Add(
				strings.ReplaceAll(string(b), `["task"]`, `["episode_index","action"]`),
				`{"metaData":{"schemaString":"{}"}}`,
			)
		}
	}
	f.Fuzz(func(t *testing.T, zero, one string) {
		mem.Put(first, []byte(zero))
		mem.Put("_delta_log/00000000000000000001.json", []byte(one))
		d, err := delta.OpenStore(t.Context(), mem, robocache.OpenOptions{MemoryBudget: 4 << 20})
		hostile.Typed(t, err)
		if err != nil {
			return
		}
		for e := range min(d.Info().Episodes, 3) {
			_, err := d.Episode(t.Context(), e)
			hostile.Typed(t, err)
			_, err = d.Times(t.Context(), e, "")
			hostile.Typed(t, err)
			rows := robocache.RowsOf(e, 0, min(d.Len(e), 3))
			for _, f := range d.Info().Features {
				switch f.Kind {
				case robocache.KindNumeric:
					if f.RowBytes() < 1<<20 {
						hostile.Typed(
							t,
							d.Gather(
								t.Context(),
								f.Key,
								rows,
								make([]byte, len(rows)*f.RowBytes()),
							),
						)
					}
				case robocache.KindImage, robocache.KindVideo:
					hostile.Typed(
						t,
						d.Frames(t.Context(), f.Key, rows, make([]robocache.FrameRef, len(rows))),
					)
				default:
					_, err := d.Text(t.Context(), f.Key, rows)
					hostile.Typed(t, err)
				}
				hostile.Typed(t, d.Valid(t.Context(), f.Key, rows, make([]uint8, len(rows))))
			}
		}
	})
}

// TestCommitLines checks that each action of a commit is one line of JSON, with statistics that
// hold for the rows (delta.D5, delta.D6). Commits of shards have no times.
func TestCommitLines(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "t")
	table(
		t,
		made(t, synth.Options{Episodes: 3, Seconds: 0.3, Spread: 0.5}),
		dst,
		"partition",
		"task",
		"source",
		"bench 1",
	)
	b, err := os.ReadFile(filepath.Join(dst, "_delta_log/00000000000000000000.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows float64
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i, want := range []string{"commitInfo", "protocol", "metaData", "add", "add", "add"} {
		var a map[string]map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &a); err != nil || len(a) != 1 ||
			a[want] == nil {
			t.Fatalf("%s: %v", lines[i], err)
		}
		if want == "add" {
			var s struct {
				Rows                 float64 `json:"numRecords"`
				MinValues, MaxValues map[string]any
			}
			if err := json.Unmarshal([]byte(a[want]["stats"].(string)), &s); err != nil ||
				s.MinValues["source"] != "bench 1" ||
				s.MaxValues["frame_index"].(float64) != s.Rows-1 {
				t.Errorf("%+v: %v", a, err)
			}
			rows += s.Rows
		}
	}
	if d := openTable(t, dst); float64(d.Info().Frames) != rows {
		t.Errorf("%v rows, want %d", rows, d.Info().Frames)
	}
}

// TestFeatures reads logs with the features of the Delta project's golden tables. Each is read, or
// rejected by name.
func TestFeatures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	table(t, made(t, synth.Options{Episodes: 2, Seconds: 0.2}), dir)
	log := filepath.Join(dir, "_delta_log", "00000000000000000000.json")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	file := lines[3]
	remove := strings.Replace(file, `{"add"`, `{"remove"`, 1)
	vector := strings.Replace(
		file,
		`"dataChange"`,
		`"deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":1,"sizeInBytes":36,"cardinality":2},"dataChange"`,
		1,
	)
	clone := strings.Replace(file, `"path":"`, `"path":"file:/elsewhere/`, 1)
	features := func(reader, writer string) string {
		return `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[` +
			reader + `],"writerFeatures":[` + writer + `]}}`
	}
	all, none := made(t, synth.Options{Episodes: 2, Seconds: 0.2}).Info().Frames, int64(0)
	for name, c := range map[string]struct {
		second []string
		frames int64
		want   string
	}{
		"optimize":               {[]string{file, remove}, all, ""}, // in either order
		"optimize the other way": {[]string{remove, file}, all, ""},
		"removed":                {[]string{remove}, none, ""},
		"unknown action": {
			[]string{
				`{"txn":{"appId":"x","version":3}}`,
				`{"domainMetadata":{"domain":"d","configuration":"","removed":false}}`,
				`{"cdc":{"path":"_change_data/x","size":1}}`,
			},
			all,
			"",
		},
		"vector, then removed": {
			[]string{features(`"deletionVectors"`, `"deletionVectors"`), vector, remove},
			0,
			"deletionVectors",
		},
		"removed, then vector": {[]string{remove, vector}, 0, "deletionVectors"},
		"vectors enabled": {
			[]string{
				features(
					`"deletionVectors","timestampNtz","vacuumProtocolCheck"`,
					`"deletionVectors"`,
				),
			},
			all,
			"",
		},
		"checkpoints of version 2": {
			[]string{features(`"v2Checkpoint"`, `"v2Checkpoint"`)},
			0,
			"v2Checkpoint",
		},
		"wider types": {
			[]string{features(`"typeWidening"`, `"typeWidening"`)},
			0,
			"typeWidening",
		},
		"a later protocol": {
			[]string{`{"protocol":{"minReaderVersion":4,"minWriterVersion":8}}`},
			0,
			"reader protocol 4",
		},
		"a shallow clone": {[]string{clone}, 0, "absolute"},
		"a clone that was removed": {
			[]string{clone + "\n" + strings.Replace(clone, `{"add"`, `{"remove"`, 1)},
			0,
			"absolute",
		},
		"names by mapping": {
			[]string{
				strings.Replace(
					lines[2],
					`"configuration":{`,
					`"configuration":{"delta.columnMapping.mode":"id",`,
					1,
				),
			},
			0,
			"columnMapping",
		},
		"no mapping": {
			[]string{
				strings.Replace(
					lines[2],
					`"configuration":{`,
					`"configuration":{"delta.columnMapping.mode":"none",`,
					1,
				),
			},
			all,
			"",
		},
		"files of another kind": {
			[]string{strings.Replace(lines[2], `"parquet"`, `"orc"`, 1)},
			0,
			`"orc"`,
		},
		"cut": {[]string{file[:40]}, 0, "not valid JSON"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "_delta_log", "00000000000000000001.json"),
			[]byte(strings.Join(c.second, "\n")), 0o666); err != nil {
			t.Fatal(err)
		}
		d, err := robocache.Open(t.Context(), dir)
		hostile.Typed(t, err)
		switch {
		case c.want == "" && (err != nil || d.Info().Frames != c.frames):
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if d != nil {
			d.Close()
		}
	}
}

// TestLostAnswers checks that the data files stay if the commit may exist although its response was
// lost. A writer killed anywhere else leaves the table unchanged.
func TestLostAnswers(t *testing.T) {
	mem, plan := storetest.NewMem("lost"), &storetest.Plan{}
	store.Register(
		"lost",
		func(string) (store.Store, error) { return storetest.Faulty(mem, plan), nil },
	)
	src := made(t, synth.Options{Episodes: 2, Seconds: 0.2})
	table(t, src, "lost://t")
	for n := int64(1); ; n++ {
		plan = &storetest.Plan{Nth: n, Ops: storetest.OpCommit, Fault: storetest.FaultLost}
		o := convert.Options{}
		o.Options = map[string]string{"append": "true"}
		_, err := convert.Write(t.Context(), src, "delta", "lost://t", o)
		struck := plan.Struck()
		plan = &storetest.Plan{}
		d, oerr := robocache.Open(t.Context(), "lost://t")
		if oerr != nil || d.Info().Episodes%2 != 0 {
			t.Fatalf("after the %dth: %v, %v", n, err, oerr)
		}
		same(t, src, d, d.Info().Episodes-2)
		d.Close()
		if !struck {
			break
		}
	}
}

// TestConstraintMeanwhile checks that a writer fails and leaves nothing if a constraint is added
// during the write.
func TestConstraintMeanwhile(t *testing.T) {
	mem := storetest.NewMem("meanwhile")
	src := made(t, synth.Options{Episodes: 2, Seconds: 0.2})
	table(t, src, "mem://meanwhile")
	b, err := store.ReadFile(t.Context(), mem, "_delta_log/00000000000000000000.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	meta := strings.Replace(
		strings.Split(string(b), "\n")[2],
		`"configuration":{`,
		`"configuration":{"delta.constraints.x":"episode_index > 7",`,
		1,
	)
	files := func() int {
		list, _ := mem.List(t.Context(), "")
		// the probe
		return len(
			slices.DeleteFunc(
				list,
				func(e store.Entry) bool { return strings.HasPrefix(e.Name, ".") },
			),
		)
	}
	before := files()
	mem.OnChange(func() {
		if files() > before { // the rows
			mem.OnChange(nil)
			mem.Put("_delta_log/00000000000000000001.json", []byte(meta))
		}
	})
	o := convert.Options{}
	o.Options = map[string]string{"append": "true"}
	if _, err = convert.Write(t.Context(), src, "delta", "mem://meanwhile", o); !errors.Is(err,
		robocache.ErrTemporary) {
		t.Errorf("%v", err)
	}
	if n := files(); n != before+1 {
		t.Errorf("%d files, want %d", n, before+1)
	}
	if _, err = convert.Write(t.Context(), src, "delta", "mem://meanwhile", o); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

// TestSummariesOfStrangers checks that summaries of shards, which are untrusted, name only the
// shards' own data files, each once.
func TestSummariesOfStrangers(t *testing.T) {
	src := made(t, synth.Options{Episodes: 2, Seconds: 0.2})
	format, err := convert.Writer("delta")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := format.Sharding.Plan(t.Context(), src, robocache.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"path":"part-00000-00000.parquet","size":1}`
	for _, summary := range []string{
		`[null]`,
		`[{}]`,
		`[{"path":"/etc/passwd"}]`,
		`[{"path":"../part-00000-00000.parquet"}]`,
		`[{"path":"s3://other/part-00000-00000.parquet"}]`,
		"[" + good + "," + good + "]",
		`7`,
	} {
		dst := filepath.Join(t.TempDir(), "t")
		err := format.Sharding.Merge(
			t.Context(),
			dst,
			schema,
			[]robocache.ShardReport{{Summary: json.RawMessage(summary)}},
		)
		if hostile.Typed(t, err); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", summary, err)
		}
		if _, err := os.Stat(filepath.Join(dst, "_delta_log")); err == nil {
			t.Errorf("%s made a table", summary)
		}
	}
}
