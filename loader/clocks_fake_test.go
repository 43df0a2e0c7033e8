package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/options"
)

// robot is a dataset in memory whose streams have separate clocks: a camera of 30 Hz that starts
// late and is the anchor, joints of 100 Hz, inertia of 333 Hz with jitter and a gap, clouds of 10
// Hz with a varying number of points, and a task with one timestamp. Timestamps are since the Unix
// epoch.
type robot struct {
	info  robocache.Info
	eps   []map[string][]int64 // by clock; "" is the camera's
	blind map[string]int       // n: every n-th row of the masked stream holds no value
}

const epoch = 1_770_000_000_123_456_789

func newRobot(seconds ...float64) *robot {
	f := func(key, clock string, kind robocache.Kind, d robocache.DType, shape ...int) robocache.Feature {
		return robocache.Feature{Key: key, Clock: clock, Kind: kind, DType: d, Shape: shape}
	}
	r := &robot{blind: map[string]int{}}
	r.info = robocache.Info{
		Format:   "robot",
		Clock:    "cam",
		Episodes: len(seconds),
		Features: []robocache.Feature{
			f(
				"cam",
				"",
				robocache.KindImage,
				robocache.Uint8,
				fakeH,
				fakeW,
				3,
			),
			f("exposure", "cam", robocache.KindNumeric, robocache.Float32, 1),
			f(
				"joints",
				"joints",
				robocache.KindNumeric,
				robocache.Float32,
				3,
			),
			f("mode", "joints", robocache.KindNumeric, robocache.Int64, 1),
			f(
				"imu",
				"imu",
				robocache.KindNumeric,
				robocache.Float64,
				2,
			),
			f("pose", "imu", robocache.KindNumeric, robocache.Float64, 4),
			f(
				"points",
				"points",
				robocache.KindPointCloud,
				robocache.Float32,
				-1,
				4,
			),
			f("hits", "points", robocache.KindNumeric, robocache.Int32, -1),
			f("say", "say", robocache.KindText, robocache.String, 1),
		},
	}
	r.info.Features[0].Height, r.info.Features[0].Width, r.info.Features[0].Channels = fakeH, fakeW, 3
	r.info.Feature("pose").Interpolation = "slerp"
	for e, s := range seconds {
		rng := rand.New(rand.NewPCG(uint64(e), 7))
		start, end := int64(epoch+e*1e12), int64(epoch+e*1e12)+int64(s*1e9)
		ep := map[string][]int64{}
		for t := start + 533e6; t < end; t += 33_333_333 {
			ep[""] = append(ep[""], t)
		}
		for t := start; t < end; t += 10e6 {
			ep["joints"] = append(ep["joints"], t)
		}
		for t := start; t < end; t += 3_003_003 {
			if t < start+2000e6 || t > start+2400e6 {
				ep["imu"] = append(ep["imu"], t+rng.Int64N(500_000))
			}
		}
		for t := start + 20e6; t < end; t += 100e6 {
			ep["points"] = append(ep["points"], t)
		}
		ep["say"] = []int64{start + 1e6}
		r.eps = append(r.eps, ep)
		r.info.Frames += int64(len(ep[""]))
	}
	return r
}

func (r *robot) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Valid: r.Valid, GatherRagged: r.GatherRagged}
}

func (r *robot) Info() *robocache.Info { return &r.info }

func (r *robot) Len(e int) int { return len(r.eps[e][""]) }

func (r *robot) Close() error { return nil }

func (r *robot) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{Position: e, Index: int64(e), Length: r.Len(e)}, nil
}

func (r *robot) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

func (r *robot) times(e int, key string) []int64 {
	if f := r.info.Feature(key); f != nil {
		key = f.Clock
	}
	if key == r.info.Clock { // the episode's own, by its name
		key = ""
	}
	return r.eps[e][key]
}

func (r *robot) Times(_ context.Context, e int, key string) ([]int64, error) {
	return slices.Clone(r.times(e, key)), nil
}

// wave is what inertia measures at a time.
func wave(
	t int64,
	k int,
) float64 {
	return math.Sin(2*math.Pi*3*float64(t-epoch)*1e-9 + float64(k))
}

func (r *robot) value(key string, row robocache.Row, k int) float64 {
	t := r.times(row.Episode, key)[row.Index]
	switch key {
	case "imu":
		return wave(t, k)
	case "pose": // about z
		a := float64(t-epoch) * 1e-9
		return []float64{0, 0, math.Sin(a / 2), math.Cos(a / 2)}[k]
	}
	return float64(row.Episode)*1000 + float64(row.Index) + float64(k)/8
}

func (r *robot) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	f := r.info.Feature(key)
	if len(dst) != len(rows)*f.RowBytes() || f.RowBytes() == 0 {
		return fmt.Errorf("%d bytes for %d rows of %s", len(dst), len(rows), key)
	}
	for i, row := range rows {
		if row.Index < 0 || row.Index >= len(r.times(row.Episode, key)) {
			return fmt.Errorf("%s has no row %v", key, row)
		}
		for k := range f.Elements() {
			v, at := r.value(key, row, k), i*f.Elements()+k
			if r.blinded(key, row) {
				v = 0
			}
			switch f.DType {
			case robocache.Float32:
				binary.LittleEndian.PutUint32(dst[4*at:], math.Float32bits(float32(v)))
			case robocache.Float64:
				binary.LittleEndian.PutUint64(dst[8*at:], math.Float64bits(v))
			default:
				binary.LittleEndian.PutUint64(dst[8*at:], uint64(int64(v)))
			}
		}
	}
	return ctx.Err()
}

func (r *robot) blinded(key string, row robocache.Row) bool {
	n := r.blind[key]
	return n > 0 && row.Index%n == n-1
}

func (r *robot) Valid(_ context.Context, key string, rows []robocache.Row, valid []uint8) error {
	for i, row := range rows {
		valid[i] = 1
		if r.blinded(key, row) {
			valid[i] = 0
		}
	}
	return nil
}

// points of a row: their number, and the k-th value of the first one.
func pointsOf(row robocache.Row) int { return (row.Episode + row.Index*7) % 5 }

func (r *robot) GatherRagged(
	_ context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	for _, row := range rows {
		if row.Index < 0 || row.Index >= len(r.times(row.Episode, key)) {
			return nil, nil, fmt.Errorf("%s has no row %v", key, row)
		}
		n := pointsOf(row)
		counts = append(counts, n)
		for p := range n * r.info.Feature(key).Elements() {
			v := uint32(row.Episode*10000 + row.Index*100 + p)
			if key == "points" {
				v = math.Float32bits(float32(v))
			}
			data = binary.LittleEndian.AppendUint32(data, v)
		}
	}
	return data, counts, nil
}

func (r *robot) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = fmt.Sprintf("%s %d %d", key, row.Episode, row.Index)
	}
	return out, nil
}

func (r *robot) Frames(
	_ context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	for i, row := range rows {
		if row.Index < 0 || row.Index >= r.Len(row.Episode) {
			return fmt.Errorf("row %v does not exist", row)
		}
		out[i] = robocache.FrameRef{Encoded: stillOf(row)}
		if r.blinded(key, row) {
			out[i] = robocache.FrameRef{Missing: true}
		}
	}
	return nil
}

// interp is the reference: np.interp in float64 over seconds from the epoch.
func interp(t int64, timestamps []int64, value func(i int) float64) float64 {
	i, _ := slices.BinarySearch(timestamps, t+1)
	switch {
	case i == 0:
		return value(0)
	case i == len(timestamps):
		return value(i - 1)
	}
	w := float64(t-timestamps[i-1]) / float64(timestamps[i]-timestamps[i-1])
	return value(i-1)*(1-w) + value(i)*w
}

// mustMap makes a Map that ends with the test.
func mustMap(t testing.TB, ds robocache.Dataset, cfg options.Config) *Map {
	t.Helper()
	m, err := NewMap(bg, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// allOf gives all samples of a Map in one batch.
func allOf(t testing.TB, m *Map) *layout.Batch {
	t.Helper()
	all := make([]int64, m.Len())
	for i := range all {
		all[i] = int64(i)
	}
	b, err := m.Items(bg, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Release)
	return b
}
