package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/store"
)

// momentsOf counts mean and deviation of a float64 column in the plain way.
func momentsOf(values []float64, width int) (mean, std []float64) {
	mean, std = make([]float64, width), make([]float64, width)
	rows := float64(len(values) / width)
	for i, v := range values {
		mean[i%width] += v / rows
	}
	for i, v := range values {
		std[i%width] += (v - mean[i%width]) * (v - mean[i%width]) / rows
	}
	for k := range std {
		std[k] = math.Sqrt(std[k])
	}
	return mean, std
}

// near reports whether got is raw normalized by mean and deviation.
func near(got, raw []float64, mean, std []float64) bool {
	for i := range raw {
		if k := i % len(mean); !(math.Abs(got[i]-(raw[i]-mean[k])/std[k]) < 1e-4) {
			return false
		}
	}
	return len(got) == len(raw) && len(raw) > 0
}

func one(mode string) Normalize { return Normalize{Mode: mode} }

// TestOneWordLeavesNothingRaw checks that a mode normalizes all keys that it applies to. Statistics
// that the dataset lacks are computed at opening, over the selected episodes.
func TestOneWordLeavesNothingRaw(t *testing.T) {
	keys := []string{"action", "count", "index"}
	for _, episodes := range [][]int{nil, {1, 2}} {
		f := newFake(6, 9, 4)
		raw := allOf(
			t,
			mustMap(
				t,
				f,
				options.Config{
					Windows: options.Windows{Keys: keys},
					Order:   options.Order{Episodes: episodes},
				},
			),
		)
		var lines []string
		m := mustMap(
			t,
			f,
			options.Config{
				Log:        func(s string) { lines = append(lines, s) },
				Windows:    options.Windows{Keys: keys},
				Order:      options.Order{Episodes: episodes},
				Statistics: options.Statistics{Normalize: one("mean_std")},
			},
		)
		got := allOf(t, m)
		plain := column.AsSlice[float64](raw.Tensor("action").Data)
		mean, std := momentsOf(plain, 2)
		if !near(column.AsSlice[float64](got.Tensor("action").Data), plain, mean, std) {
			t.Errorf("episodes %v: action is not normalised by the selected episodes", episodes)
		}
		for _, k := range []string{"count", "index"} { // integers and bookkeeping
			if !slices.Equal(got.Tensor(k).Data, raw.Tensor(k).Data) {
				t.Errorf("%s was changed", k)
			}
		}
		if len(lines) != 2 || !strings.Contains(lines[0], "is applied to action;") ||
			!strings.Contains(lines[1], "mean_std of action") {
			t.Errorf("the log names the keys once, and what is computed: %q", lines)
		}
	}
	// The dataset's own statistics lack the quantiles; and stats="compute" takes others than its
	// own.
	for _, cfg := range []options.Config{
		{Statistics: options.Statistics{Normalize: one("quantiles")}},
		{Statistics: options.Statistics{Normalize: one("min_max"), ComputeStats: true}},
	} {
		cfg.Keys = []string{"observation.state"}
		n := mustMap(t, newFake(5, 5), cfg).Normalizers()[0].Keys["observation.state"]
		if n.Shift[0] < 0 || n.Scale[0] < 1000 || n.Mode != cfg.Normalize.Mode {
			t.Errorf("%s: %+v", cfg.Normalize.Mode, n)
		}
	}
	// With the vectors that were settled the same loader is made without a look at the data.
	f := newFake(6, 9)
	first := mustMap(
		t,
		f,
		options.Config{
			Windows:    options.Windows{Keys: keys},
			Statistics: options.Statistics{Normalize: one("quantile10")},
		},
	)
	f.badRows = map[int]error{0: errors.New("read"), 1: errors.New("read")}
	second := mustMap(
		t,
		f,
		options.Config{
			Windows:    options.Windows{Keys: keys},
			Statistics: options.Statistics{Normalize: first.Settled()[0]},
		},
	)
	if a, b := first.Normalizers()[0].Keys["action"],
		second.Normalizers()[0].Keys["action"]; !slices.Equal(a.Shift, b.Shift) ||
		!slices.Equal(a.Scale, b.Scale) {
		t.Errorf("%v and %v", a, b)
	}
}

// A stream on its own clock is counted by its own rows.
func TestStatisticsOfManyClocks(t *testing.T) {
	r := newRobot(1.5, 1)
	stats := allOf(
		t,
		mustMap(
			t,
			r,
			options.Config{Windows: options.Windows{Keys: []string{"imu"}, Anchor: "imu"}},
		),
	)
	mean, std := momentsOf(column.AsSlice[float64](stats.Tensor("imu").Data), 2)
	got := mustMap(
		t,
		r,
		options.Config{
			Windows: options.Windows{
				Keys: []string{"exposure", "imu"},
				Hz:   &robocache.Rate{Num: 30, Den: 1},
			},
			Statistics: options.Statistics{Normalize: one("mean_std")},
		},
	).Normalizers()[0].Keys["imu"]
	for k := range mean {
		if math.Abs(float64(got.Shift[k])-mean[k]) > 1e-4*math.Abs(mean[k])+1e-6 ||
			math.Abs(float64(got.Scale[k])-std[k]) > 1e-4*std[k]+1e-6 {
			t.Errorf("channel %d: %v %v of %v %v", k, got.Shift[k], got.Scale[k], mean[k], std[k])
		}
	}
}

// TestUnaskedPassIsBounded checks that a pass over much data without a request is rejected with the
// key and the alternatives.
func TestUnaskedPassIsBounded(t *testing.T) {
	_, err := NewMap(
		bg,
		newFake(1<<25),
		options.Config{
			Windows:    options.Windows{Keys: []string{"action", "observation.state"}},
			Statistics: options.Statistics{Normalize: one("mean_std")},
		},
	)
	if !errors.Is(err, robocache.ErrMisuse) {
		t.Fatal(err)
	}
	var e *robocache.Error
	errors.As(err, &e)
	for _, word := range []string{
		"action",
		"ComputeStats: true",
		"robocache stats URI",
		"512.0 MiB",
	} {
		if !strings.Contains(err.Error()+e.Hint, word) {
			t.Errorf("no %s in %v, %s", word, err, e.Hint)
		}
	}
	if strings.Contains(err.Error(), "observation.state") {
		t.Errorf("it has statistics of the state: %v", err)
	}
}

// remoteStore is a store whose reads wait for a network, as those of s3, gs and hf do.
type remoteStore struct{ store.Store }

func (remoteStore) Remote() bool { return true }

// TestUnaskedPassIsLocal checks that no pass over a remote dataset starts without a request.
func TestUnaskedPassIsLocal(t *testing.T) {
	local, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range []store.Store{remoteStore{local}, local} {
		_, err := NewMap(bg, filed{newFake(10), st}, options.Config{
			Windows:    options.Windows{Keys: []string{"action"}},
			Statistics: options.Statistics{Normalize: one("mean_std")},
		})
		if remote := robocache.IsRemote(st); remote != errors.Is(err, robocache.ErrMisuse) ||
			remote && !strings.Contains(err.Error(), "the dataset is remote") {
			t.Errorf("remote %v: %v", remote, err)
		}
	}
}

// Episodes that are skipped as bad take no part; without that the error names what cannot be read.
func TestStatisticsSkipBadEpisodes(t *testing.T) {
	f := newFake(6, 9, 4)
	f.badRows = map[int]error{
		1: &robocache.Error{Class: robocache.ErrMalformed, Msg: "a broken row"},
	}
	cfg := options.Config{
		Windows:    options.Windows{Keys: []string{"action"}},
		Statistics: options.Statistics{Normalize: one("mean_std")},
	}
	if _, err := NewMap(bg, f, cfg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("a broken episode: %v", err)
	}
	cfg.OnBadEpisode = "skip"
	got := mustMap(t, f, cfg).Normalizers()[0].Keys["action"]
	raw := allOf(
		t,
		mustMap(
			t,
			newFake(6, 9, 4),
			options.Config{
				Windows: options.Windows{Keys: []string{"action"}},
				Order:   options.Order{Episodes: []int{0, 2}},
			},
		),
	)
	if mean, _ := momentsOf(column.AsSlice[float64](raw.Tensor("action").Data),
		2); math.Abs(float64(got.Shift[0])-mean[0]) > 1e-3 {
		t.Errorf("%v of %v", got.Shift[0], mean[0])
	}
}

// filed is a fake with a folder of files.
type filed struct {
	*fake
	st store.Store
}

func (f filed) Store() store.Store { return f.st }

// Statistics are counted once: for the process, and with a cache directory for others; not where
// the files are others by now.
func TestStatisticsAreRemembered(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(root, "rows.bin")
	if err := os.WriteFile(file, []byte("rows"), 0o666); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	reads := func(f *fake) int {
		mustLoader(
			t,
			filed{f, st},
			options.Config{
				Windows:      options.Windows{Keys: []string{"action"}},
				Statistics:   options.Statistics{Normalize: one("mean_std")},
				CacheOptions: options.CacheOptions{Cache: dir},
			},
		).Close()
		n := f.touched["action"]
		f.touched["action"] = 0
		return n
	}
	forget := func() {
		plan.Memory.Lock()
		clear(plan.Memory.M)
		plan.Memory.Unlock()
	}
	forget()
	f := newFake(300, 300)
	if n := reads(f); n < 600 {
		t.Fatalf("%d rows read the first time", n)
	}
	if n := reads(f); n > plan.ProbedRows {
		t.Errorf("%d rows read by the same process", n)
	}
	forget()
	if n := reads(f); n > plan.ProbedRows {
		t.Errorf("%d rows read by another process with the cache directory", n)
	}
	g := &doubled{filed{newFake(300, 300), st}}
	m := mustMap(
		t,
		g,
		options.Config{
			Windows:    options.Windows{Keys: []string{"action"}},
			Statistics: options.Statistics{Normalize: one("mean_std")},
		},
	)
	if mean := m.Normalizers()[0].Keys["action"].Shift[0]; mean < 1200 {
		t.Errorf("other values of the same files: mean %v", mean)
	}
	if err := os.WriteFile(file, []byte("other rows"), 0o666); err != nil {
		t.Fatal(err)
	}
	if n := reads(f); n < 600 {
		t.Errorf("%d rows read of other files", n)
	}
	if plan.Memory.M[cache.Key{}] != nil {
		t.Error("statistics without a name are remembered")
	}
}

// doubled is a mapping of units.
type doubled struct{ filed }

func (d *doubled) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	err := d.filed.Gather(ctx, key, rows, dst)
	if key == "action" {
		for i := 0; i < len(dst); i += 8 {
			binary.LittleEndian.PutUint64(
				dst[i:],
				math.Float64bits(2*math.Float64frombits(binary.LittleEndian.Uint64(dst[i:]))),
			)
		}
	}
	return err
}

// TestStatisticsFollowTheRename checks that every source of a mixture is normalized. Statistics may
// have the dataset's names or the batch's.
func TestStatisticsFollowTheRename(t *testing.T) {
	given := func(mean float64) *robocache.FeatureStats {
		return &robocache.FeatureStats{Mean: []float64{mean, mean}, Std: []float64{1, 1}}
	}
	open := func(rename map[string]string, stats robocache.Stats) (plan.Normalizer, error) {
		l, err := NewMix(
			bg,
			[]options.Mix{
				{Dataset: newFake(6)},
				{
					Dataset:       newFake(9),
					Rename:        rename,
					MixStatistics: options.MixStatistics{Stats: stats},
					Keys:          []string{"act"},
				},
				{
					Dataset: newFake(5),
					Rename:  map[string]string{"action": "act"},
					Keys:    []string{"act"},
				},
			},
			options.Config{
				Windows:    options.Windows{Missing: "pad"},
				Statistics: options.Statistics{Normalize: one("mean_std")},
			},
		)
		if err != nil {
			return plan.Normalizer{}, err
		}
		defer l.Close()
		all := l.Normalizers()
		if all[0].Keys["action"].Scale == nil || all[2].Keys["act"].Scale == nil {
			t.Errorf("a source is raw: %v", all)
		}
		return all[1], nil
	}
	for _, key := range []string{"action", "act"} {
		n, err := open(
			map[string]string{"action": "act"},
			robocache.Stats{key: given(7), "observation.state": given(9)},
		)
		if err != nil || n.Keys["act"].Shift[0] != 7 {
			t.Errorf("by %s: %v %v", key, n, err)
		}
	}
	for name, stats := range map[string]robocache.Stats{
		"twice":   {"action": given(7), "act": given(8)},
		"unknown": {"acton": given(7)},
	} {
		if _, err := open(map[string]string{"action": "act"}, stats); !errors.Is(err,
			robocache.ErrMisuse) || !strings.Contains(err.Error(), "act") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := open(map[string]string{"action": "act", "observation.state": "action"},
		robocache.Stats{"action": given(7)}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a key of both: %v", err)
	}
}
