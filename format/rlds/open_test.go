package rlds

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// folder writes the dataset into a local folder.
func (h *hand) folder(t *testing.T, dir string) {
	t.Helper()
	s := storetest.NewMem("rlds-folder")
	defer s.Drop()
	h.put(s)
	list, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		b, err := store.ReadFile(t.Context(), s, e.Name, 1<<20)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLevels checks that any level can be opened. Of several versions the highest number is opened,
// and several datasets are an error that names them.
func TestLevels(t *testing.T) {
	root := t.TempDir()
	h := newHand()
	for _, v := range []string{"0.9.0", "0.10.0"} {
		h.info = strings.Replace(handInfo("toy", "train", 3), "1.0.0", v, 1)
		h.folder(t, filepath.Join(root, "toy", v))
	}
	h.folder(t, filepath.Join(root, "toy", "not-a-version"))
	for _, dir := range []string{root, filepath.Join(root, "toy")} {
		d := mustOpen(t, dir, handOptions)
		if d.Info().Version != "0.10.0" || !has(d, "several-versions") {
			t.Errorf("%s: %+v", dir, d.Info())
		}
		if err := checkEpisode(t, d, 2, 2); err != nil {
			t.Error(err)
		}
	}
	opt := handOptions
	opt.Options = map[string]string{"version": "0.9.0"}
	if d := mustOpen(t, root, opt); d.Info().Version != "0.9.0" {
		t.Errorf("%+v", d.Info())
	}
	opt.Options = map[string]string{"version": "2.0.0"}
	if _, err := Open(t.Context(), root, opt); !errors.Is(err, robocache.ErrNotFound) {
		t.Error(err)
	}
	h.folder(t, filepath.Join(root, "other", "low_dim", "1.0.0"))
	if _, err := Open(t.Context(), root, handOptions); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "other/low_dim") {
		t.Error(err)
	}
	opt.Options = map[string]string{"config": "low_dim"}
	if d := mustOpen(t, root, opt); !strings.HasSuffix(d.Info().URI, "other/low_dim/1.0.0") {
		t.Errorf("%+v", d.Info())
	}
	for dir, want := range map[string]bool{
		root:                                true,
		filepath.Join(root, "toy"):          true,
		filepath.Join(root, "toy", "0.9.0"): true,
		t.TempDir():                         false,
	} {
		if ok, err := Detect(t.Context(), dir, robocache.OpenOptions{}); ok != want || err != nil {
			t.Errorf("%s: %v %v", dir, ok, err)
		}
	}
	os.Remove(filepath.Join(root, "toy", "0.9.0", featuresName))
	if _, err := Open(t.Context(), filepath.Join(root, "toy", "0.9.0"),
		handOptions); !errors.Is(err, robocache.ErrNotFound) || !strings.Contains(err.Error(),
		featuresName) {
		t.Error(err)
	}
}

// TestClock checks the sources of the rate (caller, mapping, table) and a stream of timestamps.
// Without any, the error names both ways.
func TestClock(t *testing.T) {
	h := newHand()
	dir := t.TempDir()
	h.folder(t, dir)
	// opening and values need no rate
	_, err := mustOpen(t, dir, robocache.OpenOptions{}).Times(t.Context(), 2, "reward")
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "OpenOptions.HZ") ||
		!strings.Contains(err.Error(), "timestamps") {
		t.Error(err)
	}
	times := func(opt robocache.OpenOptions) []int64 {
		t.Helper()
		d := mustOpen(t, dir, opt)
		ts, err := d.Times(t.Context(), 2, "reward")
		if err != nil {
			t.Fatal(err)
		}
		return ts
	}
	if ts := times(robocache.OpenOptions{HZ: robocache.Rate{Num: 25, Den: 2}}); ts[4] !=
		320_000_000 {
		t.Error(ts)
	}
	if ts := times(
		robocache.OpenOptions{Map: &robocache.Mapping{HZ: robocache.Rate{Num: 4, Den: 1}}},
	); ts[4] != 1e9 {
		t.Error(ts)
	}
	// reward is 0, 1, 2 …: seconds, or milliseconds.
	if ts := times(
		robocache.OpenOptions{
			Options: map[string]string{"timestamps": "reward", "timestamp_unit": "ms"},
		},
	); ts[4] != 4e6 {
		t.Error(ts)
	}
	if ts := times(
		robocache.OpenOptions{
			Map: &robocache.Mapping{
				Streams: map[string]robocache.StreamMapping{
					"r": {From: []string{"reward"}, Clock: "timestamps:reward"},
				},
			},
		},
	); ts[4] != 4e9 {
		t.Error(ts)
	}
	for k, v := range map[string]string{
		"timestamps":     "observation.state",
		"timestamp_unit": "hours",
		"split":          "nothing",
	} {
		opt := robocache.OpenOptions{Options: map[string]string{"timestamps": "reward", k: v}}
		if _, err := Open(t.Context(), dir, opt); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s %s: %v", k, v, err)
		}
	}
	for name, want := range map[string]string{
		"bridge":         "5",
		"bridge_dataset": "5",
		"droid":          "15",
		"asu_table_top_converted_externally_to_rlds": "12.5",
		"dobbe": "3.75",
		"berkeley_rpt_converted_externally_to_rlds":        "30",
		"austin_buds_dataset_converted_externally_to_rlds": "20",
		"toy": "",
		"stanford_mask_vit_converted_externally_to_rlds": "",
		"robo_net":     "1",
		"uiuc_d3field": "1",
		"ucsd_kitchen_dataset_converted_externally_to_rlds": "2",
		"fmb_dataset": "10",
	} {
		r, ok := rateOf(name)
		if ok != (want != "") || ok && r.String() != want {
			t.Errorf("%s: %s", name, r)
		}
	}
}

// TestInfoFile checks other templates, missing lengths, and unsupported formats.
func TestInfoFile(t *testing.T) {
	h := newHand()
	shard := h.shards[handShard]
	for template, name := range map[string]string{
		"{SPLIT}/{DATASET}.{FILEFORMAT}-{SHARD_INDEX}":    "train/toy.tfrecord-00000",
		"{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}":   handShard,
		"{SPLIT}-{SHARD_INDEX}-{NUM_SHARDS}.{FILEFORMAT}": "train-00000-00001.tfrecord",
	} {
		h.info = strings.Replace(handInfo("toy", "train", 3), defaultTemplate, template, 1)
		h.shards = map[string][]byte{name: shard}
		if d, err := h.open(t, "template"); err != nil || d.Info().Episodes != 3 ||
			len(d.Info().Findings) != 0 {
			t.Errorf("%s: %v", template, err)
		}
	}
	h.shards = map[string][]byte{handShard: shard}
	h.info = `{"name": "toy", "splits": [{"name": "train"}]}`
	if d, err := h.open(t, "bare"); err != nil || d.Info().Episodes != 3 {
		t.Error("without lengths:", err)
	}
	for text, class := range map[string]error{
		strings.Replace(
			handInfo("toy", "train", 3),
			`"tfrecord"`,
			`"array_record"`,
			1,
		): robocache.ErrUnsupported,
		strings.Replace(
			handInfo("toy", "train", 3),
			defaultTemplate,
			"../{SPLIT}",
			1,
		): robocache.ErrMalformed,
		strings.Replace(
			handInfo("toy", "train", 3),
			defaultTemplate,
			"/etc/{SPLIT}",
			1,
		): robocache.ErrMalformed,
		strings.Replace(
			handInfo("toy", "train", 3),
			defaultTemplate,
			"{SPLIT}-{SECRET}",
			1,
		): robocache.ErrMalformed,
		strings.Replace(
			handInfo("toy", "train", 3),
			`["3"]`,
			`["-3"]`,
			1,
		): robocache.ErrMalformed,
		strings.Replace(
			handInfo("toy", "train", 3),
			`"toy"`,
			`""`,
			1,
		): robocache.ErrMalformed,
		`{"name": "toy"`:               robocache.ErrMalformed,
		strings.Repeat("[", 1_000_000): robocache.ErrMalformed,
	} {
		h.info = text
		if _, err := h.open(t, "info"); !errors.Is(err, class) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

// TestUnsupported checks that unsupported features are named, and that the others are read.
func TestUnsupported(t *testing.T) {
	h := newHand()
	h.features += `, "sound": {"audio": {"shape": {"dimensions": ["-1"]}, "dtype": "int64"}}, "deep": {"sequence": {"length": "-1", "feature": {"image": {"shape": {"dimensions": ["2", "2", "3"]}, "dtype": "uint8"}}}},
		"odd": {"tensor": {"shape": {"dimensions": ["-1", "-1"]}, "dtype": "float32", "encoding": "zlib"}}, "what": {"pythonClassName": "my.own.Feature"}, "c64": {"tensor": {"shape": {}, "dtype": "complex64"}}`
	d, err := h.open(t, "unsupported")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkEpisode(t, d, 0, 0); err != nil {
		t.Error(err)
	}
	for _, k := range []string{"sound", "deep", "odd", "what", "c64"} {
		if d.Info().Feature(k) != nil {
			t.Errorf("%s is a stream", k)
		}
		if err := d.Gather(t.Context(), k, nil, nil); !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%s: %v", k, err)
		}
		if n := 0; !func() bool {
			for _, f := range d.Info().Findings {
				if f.Code == "unsupported-feature" && f.Where["stream"] == k {
					n++
				}
			}
			return n == 1
		}() {
			t.Errorf("%s is in %d findings", k, n)
		}
	}
	// Images alone do not determine the number of steps.
	h = newHand()
	h.features = `"image": {"image": {"shape": {"dimensions": ["2", "2", "3"]}, "dtype": "uint8"}}`
	if _, err := h.open(t, "images"); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	h = newHand()
	h.features = `"is_first": ` + scalar("bool") + `, "a": {"featuresDict": {"features": {"b": ` +
		scalar("float32") + `}}}, "a.b": ` + scalar("float32")
	x := handExample(0, 3)
	x.floats("steps/a/b", f32s(1, 2, 3))
	x.floats("steps/a.b", f32s(4, 5, 6))
	record, err := x.bytes()
	if err != nil {
		t.Fatal(err)
	}
	h.info, h.shards[handShard] = handInfo("toy", "train", 1), appendRecord(nil, record)
	if d, err := h.open(t, "twins"); err != nil || d.Info().Feature("a.b") == nil ||
		len(d.Info().Features) != 3 {
		t.Error("two streams of one key:", err)
	}
}

// TestNoFeatures checks that a dataset without features.json is detected, and that the error names
// the missing file.
func TestNoFeatures(t *testing.T) {
	for _, below := range []string{"", "set/1.0.0"} {
		dir := t.TempDir()
		folder := filepath.Join(dir, below)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"dataset_info.json":                 `{"name": "set", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [{"name": "train", "shardLengths": ["1"], "numBytes": "1"}]}`,
			"set-train.tfrecord-00000-of-00001": "x",
		} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err := robocache.Open(t.Context(), dir)
		if !errors.Is(err, robocache.ErrNotFound) || !strings.Contains(err.Error(),
			"the folder has dataset_info.json and shards, but not features.json") {
			t.Errorf("%q: %v", below, err)
		}
	}
}
