package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// robotOf is a fake whose actions are of so many numbers.
type robotOf struct {
	*fake
	width int
}

func newRobotOf(width int, lengths ...int) *robotOf {
	r := &robotOf{newFake(lengths...), width}
	f := r.info.Feature("action")
	f.Shape, f.DType = []int{width}, robocache.Float32
	return r
}

func (r *robotOf) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if key != "action" {
		return r.fake.Gather(ctx, key, rows, dst)
	}
	for i, row := range rows {
		for k := range r.width {
			binary.LittleEndian.PutUint32(
				dst[4*(i*r.width+k):],
				math.Float32bits(stateValue(row, k)+float32(r.width)),
			)
		}
	}
	return nil
}

// TestWidthsArePadded checks that rows of a narrower source hold its own numbers at their
// positions. The other numbers are 0 and masked.
func TestWidthsArePadded(t *testing.T) {
	for name, cfg := range map[string]options.Config{
		"rows":    {},
		"windows": {Windows: options.Windows{Deltas: deltas("action", []float64{-0.1, 0, 0.2})}},
		"normalised": {
			Statistics: options.Statistics{
				Normalize: Normalize{Keys: map[string]Norm{"action": {Mode: "mean_std"}}},
			},
			Windows: options.Windows{Deltas: deltas("action", []float64{0, 0.1})},
		},
		"timeline": {Windows: options.Windows{Hz: &robocache.Rate{Num: 7, Den: 1}}},
		"raw": {
			Device:     options.Device{Raw: true},
			Statistics: options.Statistics{Normalize: one("min_max")},
		},
	} {
		places := [][]int{{0, 1, 2}, {6, 0}, {0}}
		sources := []robocache.Dataset{newRobotOf(3, 12, 5), newRobotOf(2, 9), newRobotOf(1, 11)}
		for _, mapped := range []bool{false, true} {
			cfg := cfg
			cfg.Keys, cfg.BatchSize, cfg.Shuffle, cfg.Missing = []string{
				"action",
				"index",
			}, 8, Global, "pad"
			width, own := 3, [][]int{{0, 1, 2}, {0, 1}, {0}}
			mix := []options.Mix{
				{Dataset: sources[0]},
				{Dataset: sources[1]},
				{Dataset: sources[2]},
				{Dataset: newFake(7), Keys: []string{"index"}},
			}
			if mapped {
				width, own = 7, places
				mix[1].Dims = map[string][]int{"action": places[1]}
			}
			l, err := NewMix(bg, mix, cfg)
			if err != nil {
				t.Fatal(name, err)
			}
			alone := cfg
			alone.Missing, alone.Shuffle, alone.Raw = "", FileOrder, false
			var maps []*Map
			for _, ds := range sources {
				maps = append(maps, mustMap(t, ds, alone))
			}
			for {
				b, err := l.Next(bg)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(name, err)
				}
				x, mask := b.Tensor("action"), b.Tensor("action_dim_is_pad")
				if x.Shape[len(x.Shape)-1] != width ||
					!slices.Equal(mask.Shape, []int{b.Rows, width}) {
					t.Fatalf("%s: shapes %v and %v", name, x.Shape, mask.Shape)
				}
				size := len(x.Data) / b.Rows / 4
				for k, s := range b.Indices {
					src, number := l.assembler.SourceOf(s)
					want, pad := make([]float32, size), slices.Repeat([]byte{1}, width)
					if src.Index < 3 {
						one, err := maps[src.Index].Items(bg, []int64{number})
						if err != nil {
							t.Fatal(err)
						}
						from := column.Floats32(one.Tensor("action").Data)
						for i, v := range from {
							n := len(own[src.Index])
							want[i/n*width+own[src.Index][i%n]] = v
						}
						for _, d := range own[src.Index] {
							pad[d] = 0
						}
						one.Release()
					}
					if got := column.Floats32(x.Data)[k*size : (k+1)*size]; !slices.Equal(got,
						want) || !slices.Equal(mask.Data[k*width:(k+1)*width], pad) {
						t.Fatalf(
							"%s, source %d: %v, expected %v; mask %v",
							name,
							src.Index,
							got,
							want,
							mask.Data[k*width:(k+1)*width],
						)
					}
				}
				b.Release()
			}
			if n := l.Normalizers()[1].Keys["action"]; !cfg.Normalize.IsZero() &&
				(n.Width != width || !slices.Equal(n.Dims, own[1])) {
				t.Errorf("%s: %+v", name, n)
			}
			l.Close()
		}
	}
}

// Errors of widths speak of widths, and those of dims name the key and the place.
func TestWidthsMisuse(t *testing.T) {
	open := func(cfg options.Config, dims map[string][]int) error {
		cfg.Keys = []string{"action", "done"}
		l, err := NewMix(
			bg,
			[]options.Mix{
				{Dataset: newRobotOf(3, 12)},
				{Dataset: newRobotOf(2, 9), Name: "second", Dims: dims},
			},
			cfg,
		)
		if err == nil {
			l.Close()
		}
		return err
	}
	hint := func(err error) string {
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrMisuse) || !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
		return err.Error() + " " + e.Hint
	}
	for _, cfg := range []options.Config{
		{},
		{Windows: options.Windows{Deltas: deltas("action", []float64{0, 0.1})}},
	} {
		if text := hint(open(cfg, nil)); !strings.Contains(text, "widths") ||
			!strings.Contains(text, `Missing: "pad"`) {
			t.Errorf("widths: %s", text)
		}
	}
	pad := options.Config{Windows: options.Windows{Missing: "pad"}}
	for name, dims := range map[string]map[string][]int{
		"2 places":    {"action": {0}},
		"each once":   {"action": {1, 1}},
		"0 to":        {"action": {-1, 0}},
		"no such key": {"acton": {0, 1}}, "0 to 65535": {"action": {0, 1 << 20}},
	} {
		if text := hint(open(pad, dims)); !strings.Contains(text, name) ||
			!strings.Contains(text, "second") {
			t.Errorf("%v: %s", dims, text)
		}
	}
	if text := hint(open(options.Config{Windows: options.Windows{Keys: nil}},
		map[string][]int{"action": {0, 1}})); !strings.Contains(text, `Missing: "pad"`) {
		t.Errorf("without pad: %s", text)
	}
	if _, err := NewMix(bg,
		[]options.Mix{{Dataset: newRobotOf(2, 9), Dims: map[string][]int{"action": {0, 1}}}},
		pad); err == nil {
		t.Error("dims of one source")
	}
}
