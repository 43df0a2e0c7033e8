package align

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// clocked is a dataset whose streams have their own clocks, several timestamps per row, and rows
// without a value.
type clocked struct {
	*fake
	invalid map[string][]int
	by      map[string]map[string][]int64
}

func newClocked() *clocked {
	s := &clocked{fake: newFake(), invalid: map[string][]int{}, by: map[string]map[string][]int64{}}
	for i := range s.info.Features {
		f := &s.info.Features[i]
		if _, ok := s.clocks[f.Key]; ok {
			f.Clock = f.Key
		}
	}
	s.info.Clock = "rows"
	return s
}

func (s *clocked) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Valid: s.Valid, Clocks: s.Clocks, TimesBy: s.TimesBy}
}

func (s *clocked) Valid(_ context.Context, key string, rows []robocache.Row, valid []uint8) error {
	for i, r := range rows {
		valid[i] = 1
		if slices.Contains(s.invalid[key], r.Index) {
			valid[i] = 0
		}
	}
	return nil
}

func (s *clocked) Clocks(key string) []string {
	var out []string
	for k := range s.by[key] {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (s *clocked) TimesBy(_ context.Context, _ int, key, clock string) ([]int64, error) {
	return s.by[key][clock], nil
}

// TestDefaultMode checks that the mode of the feature is the default, that a chosen mode overrides
// it, and that a mode which the kind does not allow is ignored.
func TestDefaultMode(t *testing.T) {
	num := func(d robocache.DType, n int, i string) *robocache.Feature {
		return &robocache.Feature{
			Key:           "x",
			Kind:          robocache.KindNumeric,
			DType:         d,
			Shape:         []int{n},
			Interpolation: i,
		}
	}
	for i, c := range []struct {
		f    *robocache.Feature
		want Mode
	}{
		{num(robocache.Float32, 3, ""), Linear},
		{num(robocache.Int64, 3, ""), Previous},
		{num(robocache.Bool, 1, ""), Previous},
		{num(robocache.Float32, 4, "slerp"), Slerp},
		{num(robocache.Float32, 3, "slerp"), Linear},
		{num(robocache.Float64, 1, "angle"), Angle},
		{num(robocache.Float32, 1, "nearest"), Nearest},
		{num(robocache.Int64, 1, "nearest"), Nearest},
		{num(robocache.Int64, 1, "linear"), Previous},
		{num(robocache.Float32, 1, "what"), Linear},
		{
			&robocache.Feature{
				Kind:  robocache.KindNumeric,
				DType: robocache.Float32,
				Shape: []int{-1, 3},
			},
			Previous,
		},
		{
			&robocache.Feature{
				Kind:          robocache.KindPointCloud,
				DType:         robocache.Float32,
				Shape:         []int{-1, 3},
				Interpolation: "linear",
			},
			Nearest,
		},
		{&robocache.Feature{Kind: robocache.KindImage}, Nearest},
		{&robocache.Feature{Kind: robocache.KindText}, Previous},
		{&robocache.Feature{Kind: robocache.KindEvent, Interpolation: "next"}, Next},
	} {
		if got := DefaultMode(c.f); got != c.want {
			t.Errorf("%d: %v, expected %v", i, got, c.want)
		}
	}
}

// TestRowsWithoutValue covers align.A14.
func TestRowsWithoutValue(t *testing.T) {
	s := newClocked()
	f := s.info.Feature("joints") // 100 Hz from 0
	f.Masked = true
	s.invalid["joints"] = []int{3, 4}
	cfg := Config{Times: []int64{20e6, 25e6, 30e6, 45e6, 50e6, 55e6}, Keys: []string{"joints"}}
	got, err := Episode(context.Background(), s, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	st := got.Stream("joints")
	if want := []uint8{1, 0, 0, 0, 1, 1}; !bytes.Equal(st.Valid, want) {
		t.Errorf("valid %v, expected %v", st.Valid, want)
	}
	if v := math.Float32frombits(binary.LittleEndian.Uint32(st.Data[3*8:])); v != 0 {
		t.Errorf("a row that is not valid holds %v", v)
	}
	if v := math.Float32frombits(binary.LittleEndian.Uint32(st.Data[5*8:])); v == 0 {
		t.Error("a valid row is zero")
	}
	cfg.Edge.All = EdgeError
	if _, err := Episode(context.Background(), s, 0, cfg); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("edge=error gives %v", err)
	}
	cfg = Config{
		Times:  []int64{30e6},
		Keys:   []string{"joints"},
		Modes:  map[string]Mode{"joints": Mean},
		Window: 40e6,
	}
	if got, err = Episode(context.Background(), s, 0, cfg); err != nil ||
		got.Streams[0].Valid[0] != 0 {
		t.Errorf("a mean over a row without a value: %v, %v", got, err)
	}
}

// TestClockChoice checks the choice of a clock, and errors that name it.
func TestClockChoice(t *testing.T) {
	s := newClocked()
	own := s.clocks["joints"]
	late := slices.Clone(own)
	for i := range late {
		late[i] += 5e6
	}
	back := slices.Clone(own)
	back[7] = 0
	s.by["joints"] = map[string][]int64{"header": own, "log": late, "publish": back}
	at := func(clock string) ([]byte, error) {
		got, err := Episode(
			context.Background(),
			s,
			0,
			Config{
				Times: []int64{500e6},
				Keys:  []string{"joints"},
				Clock: map[string]string{"joints": clock},
			},
		)
		if err != nil {
			return nil, err
		}
		return got.Streams[0].Data, nil
	}
	a, err := at("header")
	if err != nil {
		t.Fatal(err)
	}
	b, err := at("log")
	if err != nil {
		t.Fatal(err)
	}
	x := math.Float32frombits(binary.LittleEndian.Uint32(a))
	y := math.Float32frombits(binary.LittleEndian.Uint32(b))
	if d := float64(x - y); math.Abs(d-0.04) > 1e-5 { // the value increases by 8 per second
		t.Errorf("5 ms later the value is %v less", d)
	}
	if _, err := at("publish"); !errors.Is(err, robocache.ErrMalformed) {
		t.Errorf("timestamps that go backwards: %v", err)
	} else if e := new(robocache.Error); !errors.As(err, &e) ||
		!strings.Contains(e.Hint, `Options: {"clock": "publish"}`) {
		t.Errorf("timestamps that go backwards do not say how rows come in their order: %q", e.Hint)
	}
	if _, err := at("wall"); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("an unknown clock: %v", err)
	}
	if _, err := Episode(context.Background(), s, 0, Config{
		Times: []int64{0},
		Keys:  []string{"force"}, Clock: map[string]string{"force": "log"},
	}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("a stream of one clock: %v", err)
	}
}

// TestLatency checks that latency makes samples older: the value at t is the one with the timestamp
// t + latency.
func TestLatency(t *testing.T) {
	s := newClocked()
	at := func(c Config) float64 {
		c.Times, c.Keys = []int64{500e6}, []string{"force"}
		got, err := Episode(context.Background(), s, 0, c)
		if err != nil {
			t.Fatal(err)
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(got.Streams[0].Data))
	}
	plain := at(Config{})
	late := at(Config{Latency: map[string]Latency{"force": {Fixed: 10e6}}})
	both := at(
		Config{
			Latency: map[string]Latency{"force": {Fixed: 10e6}},
			Offset:  map[string]Nanos{"force": 10e6},
		},
	)
	if math.Abs(late-plain-0.08) > 1e-9 || both != plain {
		t.Errorf("%v, with a latency %v, and an offset against it %v", plain, late, both)
	}
}

// TestDrift covers align.A18. A clock that runs 300 ppm fast and starts 20 ms early must give the
// values of an exact clock, in Episode and in View.
func TestDrift(t *testing.T) {
	s := newClocked()
	s.info.Clock = "rows"
	plain := func(c Config) *Aligned {
		c.HZ, c.Keys = robocache.Rate{Num: 50, Den: 1}, []string{"force", "joints"}
		got, err := Episode(context.Background(), s, 0, c)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := plain(Config{})
	taken := slices.Clone(s.clocks["force"])
	timestamps := slices.Clone(taken)
	at := taken[0] + 20e6
	for i, x := range taken {
		timestamps[i] = at + int64(math.Round(float64(x-taken[0])*(1+300e-6)))
	}
	s.by["force"] = map[string][]int64{"header": timestamps}
	shift := map[string]Nanos{"force": -20e6}
	clock := map[string]string{"force": "header"}
	wrong := plain(Config{Clock: clock, Offset: shift})
	for _, d := range []robocache.Drift{{PPM: 300}, {PPM: 300, At: at, Fixed: true}} {
		cfg := Config{Clock: clock, Offset: shift, Drift: map[string]robocache.Drift{"force": d}}
		got := plain(cfg)
		if !slices.Equal(got.Times, want.Times) {
			t.Fatalf(
				"%+v: a timeline of %d rows from %d, want %d from %d",
				d,
				len(got.Times),
				got.Times[0],
				len(want.Times),
				want.Times[0],
			)
		}
		var worst, before float64
		for i := range got.Times {
			x := func(a *Aligned) float64 {
				return math.Float64frombits(
					binary.LittleEndian.Uint64(a.Stream("force").Data[24*i:]),
				)
			}
			worst = max(worst, math.Abs(x(got)-x(want)))
			if i < len(wrong.Times) {
				before = max(before, math.Abs(x(wrong)-x(want)))
			}
		}
		// 8 per second, with timestamps rounded to the nanosecond; without the correction the end
		// is off by 0.24 ms.
		if worst > 8*1.01e-9 || before < 8*0.2e-3 {
			t.Errorf("%+v: off by %g, without drift by %g", d, worst, before)
		}
		cfg.HZ, cfg.Keys = robocache.Rate{Num: 50, Den: 1}, []string{"force", "joints"}
		v, err := View(context.Background(), s, cfg, ViewOptions{})
		if err != nil {
			t.Fatal(err)
		}
		row := make([]byte, 24)
		if err := v.Gather(context.Background(), "force", []robocache.Row{{Index: 30}}, row); err !=
			nil || !slices.Equal(row, got.Stream("force").Data[720:744]) {
			t.Errorf("the view's row is another: %v", err)
		}
	}
	for _, bad := range []robocache.Drift{{PPM: 1e6}, {PPM: math.NaN()}} {
		if _, err := Episode(context.Background(), s, 0, Config{
			Times: []int64{0},
			Drift: map[string]robocache.Drift{"force": bad},
		}); !errors.Is(err,
			robocache.ErrMisuse) || !strings.Contains(err.Error(), "force") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := Episode(context.Background(), s, 0, Config{
		Times: []int64{0},
		Drift: map[string]robocache.Drift{"forse": {PPM: 1}},
	}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Errorf("a stream that is not there: %v", err)
	}
	c, err := ParseConfig(
		[]byte(`{"hz": 50, "drift": {"force": 80.5, "joints": {"ppm": -3, "at": "17ns"}}}`),
	)
	if err != nil || c.Drift["force"].PPM != 80.5 ||
		c.Drift["joints"] != (robocache.Drift{PPM: -3, At: 17, Fixed: true}) {
		t.Errorf("%+v, %v", c.Drift, err)
	}
}

// TestLatchedStreamsBoundNothing covers align.A15: a task that was published once does not end the
// timeline.
func TestLatchedStreamsBoundNothing(t *testing.T) {
	s := newClocked()
	s.clocks["words"] = []int64{300e6}
	s.info.Feature("words").Clock = "words"
	got, err := Episode(
		context.Background(),
		s,
		0,
		Config{HZ: robocache.Rate{Num: 10, Den: 1}, Keys: []string{"joints", "words"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Times) != 11 {
		t.Errorf("%d rows", len(got.Times))
	}
	if w := got.Stream("words").Text; w[0] != w[10] {
		t.Errorf("%q", w)
	}
}

// TestOnGridLeavesEpochs covers align.A13: it applies to seconds of an episode, not to timestamps
// that count from an epoch. Their jitter stays.
func TestOnGridLeavesEpochs(t *testing.T) {
	const epoch = 1_770_000_000_123_456_789
	in := []int64{epoch, epoch + 34_000_000, epoch + 66_000_000, epoch + 101_000_000}
	if got := OnGrid(in, robocache.Rate{Num: 30, Den: 1}); !slices.Equal(got, in) {
		t.Errorf("%v became %v", in, got)
	}
}

// TestLatchedStreamsHold covers align.A17: a latched stream holds from start to end and bounds no
// extent.
func TestLatchedStreamsHold(t *testing.T) {
	s := newClocked()
	s.clocks["words"] = []int64{300e6, 500e6}
	s.info.Feature("words").Clock, s.info.Feature("words").Latched = "words", true
	cfg := Config{
		HZ:     robocache.Rate{Num: 10, Den: 1},
		Keys:   []string{"joints", "words"},
		Edge:   PerKey[Edge]{All: EdgeMask},
		MaxGap: PerKey[Nanos]{All: 1},
	}
	got, err := Episode(context.Background(), s, 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := got.Stream("words")
	if len(got.Times) != 11 || slices.Contains(w.Valid, 0) {
		t.Errorf("%d rows, valid %v", len(got.Times), w.Valid)
	}
	if w.Text[0] != w.Text[4] || w.Text[5] != w.Text[10] || w.Text[0] == w.Text[10] {
		t.Errorf("%q", w.Text)
	}
}

// TestDriftFarAway checks that the error names a drift moment far from the timestamps, and not the
// corrected timestamps.
func TestDriftFarAway(t *testing.T) {
	cfg := Config{
		Times: []int64{0},
		Keys:  []string{"force"},
		Drift: map[string]robocache.Drift{"force": {PPM: -90000, At: 1<<62 - 1, Fixed: true}},
	}
	s := newClocked()
	for i := range s.clocks["force"] {
		s.clocks["force"][i] -= 1<<62 - 2e9
	}
	_, err := Episode(context.Background(), s, 0, cfg)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "drift") ||
		!strings.Contains(err.Error(), "force") {
		t.Errorf("%v", err)
	}
}
