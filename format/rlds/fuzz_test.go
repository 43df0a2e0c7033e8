package rlds

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// readAll reads everything of the first episodes.
func readAll(t *testing.T, d *Dataset) {
	for e := range min(d.Info().Episodes, 3) {
		var rows []robocache.Row
		for i := range min(d.Len(e), 3) {
			rows = append(rows, robocache.Row{Episode: e, Index: i})
		}
		for i := range d.Info().Features {
			f := &d.Info().Features[i]
			var err error
			switch {
			case f.Kind == robocache.KindImage:
				err = d.Frames(t.Context(), f.Key, rows, make([]robocache.FrameRef, len(rows)))
			case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
				_, err = d.Text(t.Context(), f.Key, rows)
			case f.Ragged():
				_, _, err = d.GatherRagged(t.Context(), f.Key, rows)
			case f.RowBytes() < 1<<16:
				err = d.Gather(t.Context(), f.Key, rows, make([]byte, len(rows)*f.RowBytes()))
			}
			hostile.Typed(t, err)
		}
		_, err := d.Times(t.Context(), e, "")
		hostile.Typed(t, err)
	}
	_, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Episodes: []int{}})
	hostile.Typed(t, err)
}

const fuzzFeatures = `"is_first": {"tensor": {"shape": {}, "dtype": "bool"}}, "f": {"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "float16"}},
	"z": {"tensor": {"shape": {"dimensions": ["3"]}, "dtype": "float64", "encoding": "zlib"}}, "o": {"tensor": {"shape": {"dimensions": ["-1", "2"]}, "dtype": "float32", "encoding": "zlib"}},
	"r": {"sequence": {"length": "-1", "feature": {"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "uint8"}}}}, "four": {"sequence": {"length": "2", "feature": {"tensor": {"shape": {}, "dtype": "int64"}}}},
	"tree": {"sequence": {"length": "-1", "feature": {"sequence": {"length": "-1", "feature": {"tensor": {"shape": {}, "dtype": "int32"}}}}}}, "words": {"sequence": {"length": "-1", "feature": {"text": {}}}},
	"maybe": {"tensor": {"shape": {}, "dtype": "float32", "optional": true}}, "language_instruction": {"text": {}}, "image": {"image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"}},
	"depth": {"image": {"shape": {"dimensions": ["2", "2", "1"]}, "dtype": "float32"}}`

func fuzzExample() []byte {
	x := newExample()
	x.ints("steps/is_first", []int64{1, 0})
	x.floats("steps/f", f32s(1, 2, 3, 4))
	x.ints("steps/r/ragged_flat_values", []int64{1, 2, 3, 4})
	x.ints("steps/r/ragged_row_lengths_0", []int64{2, 0})
	x.ints("steps/four/ragged_flat_values", []int64{1, 2, 3, 4})
	x.ints("steps/four/ragged_row_lengths_0", []int64{2, 2})
	x.ints("steps/tree/ragged_flat_values", []int64{1, 2, 3})
	x.ints("steps/tree/ragged_row_lengths_0", []int64{1, 2})
	x.ints("steps/tree/ragged_row_lengths_1", []int64{1, 0, 2})
	x.strings("steps/words/ragged_flat_values", [][]byte{[]byte("a")})
	x.ints("steps/words/ragged_row_lengths_0", []int64{1, 0})
	x.strings("steps/language_instruction", [][]byte{nil, []byte("b")})
	depth, _ := rgbaPNG(make([]byte, 16), 8, 2, 2)
	x.strings("steps/depth", [][]byte{depth, depth})
	x.strings("steps/image", [][]byte{depth, depth})
	x.strings("steps/z", [][]byte{{0x78}, {}})
	x.strings("steps/o", [][]byte{{0x78}, {}})
	b, _ := x.bytes()
	return b
}

// FuzzShard uses arbitrary bytes as a shard. The result is findings or typed errors, and memory in
// proportion.
func FuzzShard(f *testing.F) {
	one := appendRecord(nil, fuzzExample())
	f.Add(append(bytes.Clone(one), one...))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(one)
	w.Close()
	f.Add(z.Bytes())
	f.Add(one[:len(one)-5])
	h := &hand{features: fuzzFeatures, info: handInfo("toy", "train", 2)}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		s := storetest.NewMem("rlds-fuzz")
		defer s.Drop()
		h.shards = map[string][]byte{handShard: b}
		h.put(s)
		opt := handOptions
		opt.MemoryBudget = 1 << 20
		d, err := OpenStore(t.Context(), s, opt)
		hostile.Typed(t, err)
		if err == nil {
			readAll(t, d)
			d.Close()
		}
		if got := hostile.Allocated() - before; got > uint64(48<<20+200*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzExample uses arbitrary bytes as the data of a record with valid check sums.
func FuzzExample(f *testing.F) {
	f.Add(fuzzExample())
	f.Add([]byte{})
	h := &hand{features: fuzzFeatures, info: handInfo("toy", "train", 1)}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		s := storetest.NewMem("rlds-fuzz-example")
		defer s.Drop()
		h.shards = map[string][]byte{handShard: appendRecord(nil, b)}
		h.put(s)
		opt := handOptions
		opt.MemoryBudget = 1 << 20
		d, err := OpenStore(t.Context(), s, opt)
		hostile.Typed(t, err)
		if err == nil {
			readAll(t, d)
			d.Close()
		}
		if got := hostile.Allocated() - before; got > uint64(48<<20+200*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzMetadata uses arbitrary bytes as features.json, dataset_info.json and metadata.json.
func FuzzMetadata(f *testing.F) {
	h := newHand()
	s := storetest.NewMem("rlds-seed")
	h.put(s)
	features, _ := store.ReadFile(f.Context(), s, featuresName, 1<<20)
	s.Drop()
	f.Add(features)
	f.Add([]byte(h.info))
	f.Add(
		[]byte(
			`{"robocache": {"fps": "30000/1001", "stamps": "t", "features": {"a": {"names": ["x"]}}}}`,
		),
	)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		sc, err := parseFeatures(b)
		hostile.Typed(t, err)
		if err == nil {
			x := fuzzExample()
			_, err := sc.parseData(x)
			hostile.Typed(t, err)
		}
		info, err := parseInfo(b)
		hostile.Typed(t, err)
		if err == nil {
			_, err := info.shardsOf([]int{}, map[string]int64{})
			hostile.Typed(t, err)
		}
		s := storetest.NewMem("rlds-fuzz-meta")
		defer s.Drop()
		h.put(s)
		s.Put(metadataName, b)
		s.Put(featuresName, b)
		d, err := OpenStore(t.Context(), s, robocache.OpenOptions{MemoryBudget: 1 << 20})
		hostile.Typed(t, err)
		if err == nil {
			readAll(t, d)
			d.Close()
		}
		if got := hostile.Allocated() - before; got > uint64(32<<20+1000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzSummary uses an arbitrary plan and two summaries, which are untrusted. The result is the
// metadata of a dataset, or a typed error.
func FuzzSummary(f *testing.F) {
	const schema = `{"name":"set","splits":[{"name":"train","episodes":-1}],"features":"{}","own":{}}`
	f.Add(schema, `{"splits":{"train":{"length":2,"bytes":10}}}`)
	f.Add(schema, `{"splits":{"train":{"length":-1}}}`)
	f.Add(`{"name":"../x","splits":[{"name":"../../y"}]}`, `{"splits":{"../../y":{"length":1}}}`)
	f.Add(`{"splits":null}`, `null`)
	f.Fuzz(func(t *testing.T, schema, summary string) {
		shards := []robocache.ShardReport{
			{Episodes: 1, Frames: 2, Summary: []byte(summary), Dir: "a"},
			{Episodes: 1, Frames: 3, Summary: []byte(summary), Dir: "b"},
		}
		dir := t.TempDir()
		names, err := placeShards(dir, []byte(schema), shards)
		hostile.Typed(t, err)
		for _, of := range names {
			for _, name := range of {
				if clean, err := store.CleanName(name); err != nil || clean != name {
					t.Errorf("a file is named %q", name)
				}
			}
		}
		hostile.Typed(t, mergeShards(t.Context(), dir, []byte(schema), shards))
	})
}
