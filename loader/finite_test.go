package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// holed is a fake whose first number of some rows of "action" is not finite.
type holed struct {
	*fake
	holes map[robocache.Row]float64
}

func (h *holed) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if err := h.fake.Gather(ctx, key, rows, dst); err != nil || key != "action" {
		return err
	}
	for i, r := range rows {
		if v, is := h.holes[r]; is {
			binary.LittleEndian.PutUint64(dst[i*16+8:], math.Float64bits(v))
		}
	}
	return nil
}

func newHoled() *holed {
	return &holed{
		newFake(10, 10, 10),
		map[robocache.Row]float64{
			{Episode: 1, Index: 4}: math.NaN(),
			{Episode: 1, Index: 7}: math.Inf(-1),
		},
	}
}

// given counts the samples of an epoch by episode.
func given(t *testing.T, l *Loader) map[int]int {
	t.Helper()
	out := map[int]int{}
	for {
		b, err := l.Next(bg)
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range b.Indices {
			out[int(s)/10]++
		}
		b.Release()
	}
}

// TestNaNIsAnError checks that an episode with a number that is not finite is an error before its
// first row, with episode, row and column. It also requests other rows of the episode, rows on a
// timeline and spans.
func TestNaNIsAnError(t *testing.T) {
	for name, cfg := range map[string]options.Config{
		"rows": {Windows: options.Windows{Keys: []string{"action"}}},
		"window": {
			Windows: options.Windows{
				Keys:   []string{"action"},
				Deltas: Deltas{{Key: "action", Offsets: []float64{0, 0.1}}},
			},
		},
		"timeline": {
			Windows: options.Windows{Keys: []string{"action"}},
			Align:   &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}},
		},
		"span": {
			Windows: options.Windows{
				Keys:   []string{"action"},
				Native: NativeWindows{{Key: "action", Span: &[2]float64{-0.1, 0}}},
			},
		},
		"more": {
			Windows: options.Windows{Keys: []string{"cam", "action", "observation.state"}},
		},
	} {
		m, err := NewMap(bg, newHoled(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		first := int64(10)
		if name == "timeline" {
			first = 19
		}
		if _, err := m.Items(bg, []int64{0, first - 1}); err != nil {
			t.Errorf("%s: the episode before: %v", name, err)
		}
		_, err = m.Items(bg, []int64{first})
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Fatalf("%s: %v", name, err)
		}
		for _, s := range []string{
			"episode 1",
			"row 4",
			"column 1",
			"action",
			"NaN",
			"the first of 2",
			"OnNaN",
		} {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not name %s", name, err, s)
			}
		}
		m.Close()
	}
}

// TestNaNSkipped: with skip no sample of the episode is given, whatever the order and the threads;
// with allow all are, with mask too.
func TestNaNSkipped(t *testing.T) {
	for _, shuffle := range []Shuffle{"", Global, Pool} {
		for _, threads := range []int{1, 4} {
			cfg := options.Config{
				Order: options.Order{
					BatchSize:    4,
					Shuffle:      shuffle,
					Seed:         3,
					OnBadEpisode: options.Skip,
				},
				Windows: options.Windows{Keys: []string{"action"}},
				Runtime: options.Runtime{Threads: threads},
			}
			l, err := New(bg, newHoled(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if n := given(t, l); n[0] != 10 || n[1] != 0 || n[2] != 10 {
				t.Errorf("%q: samples by episode %v", shuffle, n)
			}
			if bad := l.State().BadEpisodes; len(bad) != 1 || bad[0].Episode != 1 ||
				!strings.Contains(bad[0].Error, "row 4") {
				t.Errorf("%q: %+v", shuffle, bad)
			}
			l.Close()
			for _, how := range []options.OnNaN{options.NaNAllow, options.NaNMask} {
				cfg.OnNaN = how
				l, err := New(bg, newHoled(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if n := given(t, l); n[1] != 10 {
					t.Errorf("%q, %s: samples by episode %v", shuffle, how, n)
				}
				l.Close()
			}
		}
	}
}

// TestNaNMasked: such rows are zeros and padding, in rows, in windows and on a timeline, where no
// value is made of one.
func TestNaNMasked(t *testing.T) {
	m, err := NewMap(
		bg,
		newHoled(),
		options.Config{
			Order:   options.Order{OnNaN: options.NaNMask},
			Windows: options.Windows{Keys: []string{"action", "observation.state"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := m.Items(bg, []int64{13, 14, 15, 17})
	if err != nil {
		t.Fatal(err)
	}
	if pads := b.Tensor("action_is_pad").Data; string(pads) != "\x00\x01\x00\x01" {
		t.Errorf("action_is_pad %v", pads)
	}
	if pads := b.Tensor("observation.state_is_pad").Data; string(pads) != "\x00\x00\x00\x00" {
		t.Errorf("state_is_pad %v", pads)
	}
	if v := column.AsSlice[float64](b.Tensor("action").Data); v[2] != 0 || v[3] != 0 ||
		v[0] != 1003.1 {
		t.Errorf("action %v", v)
	}
	b.Release()
	grid, err := NewMap(
		bg,
		newHoled(),
		options.Config{
			Align:   &align.Config{HZ: robocache.Rate{Num: 20, Den: 1}},
			Order:   options.Order{OnNaN: options.NaNMask},
			Windows: options.Windows{Keys: []string{"action"}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer grid.Close()
	if b, err = grid.Items(bg, []int64{19 + 6, 19 + 7, 19 + 8, 19 + 9, 19 + 10}); err != nil {
		t.Fatal(err)
	}
	if pads := b.Tensor("action_is_pad").Data; string(pads) != "\x00\x01\x01\x01\x00" {
		t.Errorf("on a timeline %v", pads)
	}
	b.Release()
}
