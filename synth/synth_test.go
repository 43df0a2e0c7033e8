package synth

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// inMemory writes a dataset with still images in memory, which is fast and needs no encoder.
func inMemory(t *testing.T, opt Options) (*storetest.Mem, *Report, robocache.Dataset) {
	t.Helper()
	m := storetest.NewMem(strings.ReplaceAll(t.Name(), "/", "-") + fmt.Sprint(rand.Uint64()))
	opt.Codec = "png"
	r, err := Write(context.Background(), m.URI(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := robocache.Open(context.Background(), m.URI(), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ds.Close() })
	return m, r, ds
}

func files(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	list, err := s.List(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		b, err := store.ReadFile(context.Background(), s, e.Name, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name] = string(b)
	}
	return out
}

func gather(t *testing.T, ds robocache.Dataset, ep int, key string) []byte {
	t.Helper()
	f := ds.Info().Feature(key)
	if f == nil {
		t.Fatalf("no feature %s", key)
	}
	rows := make([]robocache.Row, ds.Len(ep))
	for i := range rows {
		rows[i] = robocache.Row{Episode: ep, Index: i}
	}
	out := make([]byte, len(rows)*f.RowBytes())
	if err := ds.Gather(context.Background(), key, rows, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func f32s(b []byte) (v []float32) {
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}

func f64s(b []byte) (v []float64) {
	for ; len(b) >= 8; b = b[8:] {
		v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return v
}

// TestSameSeedSameBytes covers synth.S1.
func TestSameSeedSameBytes(t *testing.T) {
	opt := Options{
		Episodes: 3,
		Seconds:  0.6,
		Seed:     7,
		Rates:    map[string]float64{"joints": 100, "force": 333},
		Jitter:   2 * time.Millisecond,
		Gaps:     0.05,
	}
	a, _, _ := inMemory(t, opt)
	b, _, _ := inMemory(t, opt)
	fa, fb := files(t, a), files(t, b)
	if !reflect.DeepEqual(fa, fb) {
		for n := range fa {
			if fa[n] != fb[n] {
				t.Errorf("%s differs", n)
			}
		}
	}
	if len(fa) < 5 {
		t.Errorf("only %d files", len(fa))
	}
	opt.Seed = 8
	c, _, _ := inMemory(t, opt)
	if reflect.DeepEqual(fa, files(t, c)) {
		t.Error("another seed gave the same bytes")
	}
}

// TestFlawless covers synth.S4: without jitter and gaps, rows lie on the grid, and opening reports
// no finding.
func TestFlawless(t *testing.T) {
	_, r, ds := inMemory(t, Options{Seconds: 1.5})
	info := ds.Info()
	if r.Episodes != 4 || r.Frames != 4*45 || info.Episodes != 4 || info.Frames != 4*45 ||
		len(info.Tasks) != 3 ||
		info.FPS != (robocache.Rate{Num: 30, Den: 1}) {
		t.Errorf("%+v %+v", r, info)
	}
	if len(info.Findings) != 0 {
		t.Errorf("findings: %v", info.Findings)
	}
	times, err := ds.Times(context.Background(), 2, "")
	if err != nil {
		t.Fatal(err)
	}
	for k, x := range times {
		if x != info.FPS.Nanos(int64(k)) {
			t.Fatalf("row %d at %d ns", k, x)
		}
	}
}

// TestLearnable covers synth.S2: the action follows from the state and from the position of the
// task's disc, which is not in the state.
func TestLearnable(t *testing.T) {
	_, _, ds := inMemory(t, Options{Episodes: 6, Seconds: 3, Cameras: -1})
	for e := range 6 {
		state := f32s(gather(t, ds, e, "observation.state"))
		action := f32s(gather(t, ds, e, "action"))
		reward := f32s(gather(t, ds, e, "next.reward"))
		n, best := len(reward), float32(-9)
		for i := range n {
			// The controller saturates. Elsewhere its output shows where the goal is, and the goal
			// does not move between two rows unless it was reached.
			for j := range 2 {
				if a := action[2*i+j]; a > fastest || a < -fastest {
					t.Fatalf("episode %d row %d: action %v", e, i, a)
				}
			}
			best = max(best, reward[i])
		}
		if best < -0.3 {
			t.Errorf("episode %d never comes near its disc: %v", e, best)
		}
		moved := float32(0)
		for i := 1; i < n; i++ {
			moved += float32(math.Abs(float64(state[4*i] - state[4*i-4])))
		}
		if moved < 0.1 {
			t.Errorf("episode %d stands still", e)
		}
	}
	s := state{q: [2]float64{1, 1}, goal: [2]float64{1.1, -3}}
	if c := s.command(); math.Abs(c[0]-0.4) > 1e-12 || c[1] != -fastest {
		t.Errorf("command %v", c)
	}
	for _, p := range [][2]float64{{1, 1}, {-0.5, 0.9}, {0.2, 1.7}} {
		if _, tip := armPoints(anglesFor(p)); math.Hypot(tip[0]-p[0], tip[1]-p[1]) > 1e-9 {
			t.Errorf("reach %v ends at %v", p, tip)
		}
	}
}

// TestActionFollows covers synth.S2 to the bit: the stored action is the controller's output for
// the stored state and the position of the task's disc.
func TestActionFollows(t *testing.T) {
	opt := Options{Episodes: 3, Seconds: 4, Cameras: 1, Seed: 9, Jitter: 2 * time.Millisecond}
	_, _, ds := inMemory(t, opt)
	o, _, err := opt.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for e := range o.Episodes {
		_, colour := o.taskOf(e)
		world := simulate(o.newRand(e, drawWorld), colour, o.endOf(e)+int64(o.Jitter))
		state := f32s(gather(t, ds, e, "observation.state"))
		action := f32s(gather(t, ds, e, "action"))
		timestamps := f64s(gather(t, ds, e, "observation.state.recorded"))
		places := map[[2]float64]bool{}
		for i, sec := range timestamps {
			w := worldAt(world, int64(math.Round(sec*1e9)))
			goal := anglesFor(w.discs[colour])
			places[w.discs[colour]] = true
			for j := range 2 {
				want := max(-fastest, min(fastest, gain*(goal[j]-float64(state[4*i+j]))))
				if math.Abs(want-float64(action[2*i+j])) > 1e-5 {
					t.Fatalf("episode %d row %d: action %v, want %v", e, i, action[2*i+j], want)
				}
			}
		}
		if len(places) < 2 {
			t.Errorf("episode %d: the disc never moves in 4 s", e)
		}
	}
}

// TestAligned aligns a dataset at the rate of its rows: every row must be itself, through LeRobot's
// float32 timestamps.
func TestAligned(t *testing.T) {
	_, _, ds := inMemory(t, Options{Episodes: 1, Seconds: 3, Cameras: 1})
	a, err := align.Episode(
		context.Background(),
		ds,
		0,
		align.Config{
			HZ:   robocache.Rate{Num: 30, Den: 1},
			Keys: []string{"observation.state", "next.done", cameraKey(0), "task"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Times) != ds.Len(0) {
		t.Fatalf("%d rows of %d", len(a.Times), ds.Len(0))
	}
	for _, key := range []string{"observation.state", "next.done"} {
		if !bytes.Equal(a.Stream(key).Data, gather(t, ds, 0, key)) {
			t.Errorf("%s changed", key)
		}
	}
	for i := range a.Times {
		if a.Stream(cameraKey(0)).Rows[i] != int32(i) ||
			!strings.HasPrefix(a.Stream("task").Text[i], "reach the") ||
			bytes.IndexByte(a.Stream("task").Valid, 0) >= 0 {
			t.Fatalf(
				"row %d: image %d, %q",
				i,
				a.Stream(cameraKey(0)).Rows[i],
				a.Stream("task").Text[i],
			)
		}
	}
	half, err := align.Episode(
		context.Background(),
		ds,
		0,
		align.Config{HZ: robocache.Rate{Num: 60, Den: 1}, Keys: []string{"observation.state"}},
	)
	if err != nil || len(half.Times) != 2*ds.Len(0)-1 {
		t.Fatalf("%d rows at twice the rate: %v", len(half.Times), err)
	}
}

// TestFasterStreams covers the storage of native samples and synth.S5: all rows in sequence are the
// stream itself.
func TestFasterStreams(t *testing.T) {
	for _, opt := range []Options{
		{
			Episodes: 2,
			Seconds:  2,
			Cameras:  1,
			Rates:    map[string]float64{"joints": 100, "force": 333},
		},
		{
			Episodes: 6,
			Seconds:  2,
			Cameras:  1,
			Rates:    map[string]float64{"joints": 100, "force": 333, "camera": 29.97},
			Jitter:   3 * time.Millisecond,
			Gaps:     0.1,
			Seed:     3,
		},
		{
			Episodes: 1,
			Seconds:  2,
			Cameras:  1,
			Rates:    map[string]float64{"joints": 10},
			Jitter:   time.Millisecond,
		},
	} {
		_, r, ds := inMemory(t, opt)
		flawless := opt.Jitter == 0
		for name := range opt.Rates {
			if name == "camera" {
				continue
			}
			key := natives[name].key
			d := natives[name].d
			k := ds.Info().Feature(key).Shape[0]
			for e := range opt.Episodes {
				values := f32s(gather(t, ds, e, key))
				timestamps := f64s(gather(t, ds, e, key+".recorded"))
				counts := gather(t, ds, e, key+".count")
				if len(timestamps) != ds.Len(e)*k || len(values) != len(timestamps)*d {
					t.Fatalf("%s: %d timestamps, %d values", key, len(timestamps), len(values))
				}
				different, sum := 1, 0
				for i := range timestamps {
					if i > 0 {
						same := timestamps[i] == timestamps[i-1]
						for c := range d {
							if same && values[i*d+c] != values[(i-1)*d+c] {
								t.Fatalf("%s: equal timestamps, other values at %d", key, i)
							}
						}
						if timestamps[i] < timestamps[i-1] {
							t.Fatalf(
								"%s: timestamps decrease at %d: %v after %v",
								key,
								i,
								timestamps[i],
								timestamps[i-1],
							)
						}
						if !same {
							different++
						}
					}
				}
				for i := 0; i < len(counts); i += 8 {
					sum += int(binary.LittleEndian.Uint64(counts[i:]))
				}
				want := int(opt.Seconds * opt.Rates[name] * 0.97)
				if flawless && (different < want || sum < want || sum > different+1) ||
					!flawless && (different < want/2 || sum > different+1) {
					t.Errorf(
						"%s episode %d: %d samples in the rows, counts say %d, the stream has "+
							"about %d",
						key,
						e,
						different,
						sum,
						want,
					)
				}
			}
		}
		if flawless != (ds.Info().Feature("observation.state.recorded") == nil) ||
			flawless != (ds.Info().Feature("observation.images.cam_0.recorded") == nil) {
			t.Errorf("recorded timestamps: %v", r.Keys)
		}
		if !flawless {
			jumps := 0
			for e := range opt.Episodes {
				rows := f64s(gather(t, ds, e, "observation.state.recorded"))
				for i := 1; i < len(rows); i++ {
					if rows[i] <= rows[i-1] {
						t.Fatalf("row timestamps do not increase at %d", i)
					}
					if rows[i]-rows[i-1] > 0.07 {
						jumps++
					}
				}
			}
			if (jumps > 0) != (opt.Gaps > 0) {
				t.Errorf("%d gaps, asked for a share of %v", jumps, opt.Gaps)
			}
		}
	}
}

// TestCode covers synth.S3 on the images as drawn.
func TestCode(t *testing.T) {
	ctx := context.Background()
	_, _, ds := inMemory(t, Options{Episodes: 2, Seconds: 0.5, Cameras: 3})
	for e := range 2 {
		for c := range 3 {
			refs := make([]robocache.FrameRef, ds.Len(e))
			rows := make([]robocache.Row, len(refs))
			for i := range rows {
				rows[i] = robocache.Row{Episode: e, Index: i}
			}
			if err := ds.Frames(ctx, cameraKey(c), rows, refs); err != nil {
				t.Fatal(err)
			}
			for i, r := range refs {
				m, err := png.Decode(bytes.NewReader(r.Encoded))
				if err != nil {
					t.Fatal(err)
				}
				rgb, w, h := flat(m)
				if ge, gr, ok := ReadCode(rgb, w, h); !ok || ge != e || gr != i {
					t.Fatalf("camera %d episode %d row %d reads %d, %d, %v", c, e, i, ge, gr, ok)
				}
			}
		}
	}
	// Every legal size has space for the code; noise and limits of the range.
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range [][2]int{
		{64, 64},
		{128, 96},
		{66, 200},
		{640, 480},
		{1920, 1080},
		{128, 128},
	} {
		rgb := make([]byte, size[0]*size[1]*3)
		for _, code := range [][2]int{
			{0, 0},
			{maxEpisodes - 1, maxRows - 1},
			{1, 2},
			{rng.IntN(maxEpisodes), rng.IntN(maxRows)},
		} {
			for i := range rgb {
				rgb[i] = byte(rng.Uint32())
			}
			drawCode(rgb, size[0], size[1], code[0], code[1])
			for i := range rgb {
				rgb[i] = byte(max(0, min(255, int(rgb[i])+rng.IntN(121)-60)))
			}
			if e, r, ok := ReadCode(rgb, size[0], size[1]); !ok || e != code[0] || r != code[1] {
				t.Errorf("%v: %v reads %d, %d, %v", size, code, e, r, ok)
			}
		}
		for _, v := range []byte{0, 128, 255} {
			for i := range rgb {
				rgb[i] = v
			}
			if _, _, ok := ReadCode(rgb, size[0], size[1]); ok {
				t.Errorf("%v: a flat image of %d has a code", size, v)
			}
		}
	}
	if _, _, ok := ReadCode(nil, 128, 96); ok {
		t.Error("nothing has a code")
	}
}

func flat(m image.Image) (rgb []byte, w, h int) {
	w, h = m.Bounds().Dx(), m.Bounds().Dy()
	for y := range h {
		for x := range w {
			r, g, b, _ := m.At(x, y).RGBA()
			rgb = append(rgb, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return rgb, w, h
}

// TestImagesShowTheWorld checks that the disc of the task is at the state's goal and has its color,
// and that cameras differ.
func TestImagesShowTheWorld(t *testing.T) {
	o, _, err := Options{Seed: 5}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for e := range 3 {
		_, colour := o.taskOf(e)
		world := simulate(o.newRand(e, drawWorld), colour, 1e9)
		s := worldAt(world, 5e8)
		if _, tip := armPoints(s.goal); math.Hypot(tip[0]-s.discs[colour][0],
			tip[1]-s.discs[colour][1]) > 1e-9 {
			t.Fatalf("the goal %v is not at its disc %v", tip, s.discs[colour])
		}
		var before []byte
		for c := range 2 {
			cv := newCanvas(c, 640, 480)
			// Without the arm in front of the disc.
			s.q = [2]float64{-1.5, 0}
			rgb := cv.paint(&s, e, 0)
			for i, d := range s.discs {
				x, y := cv.projectPoint(d)
				p := (int(y)*640 + int(x)) * 3
				for k := range 3 {
					if math.Abs(float64(rgb[p+k])-colours[i].rgb[k]) > 1 {
						t.Errorf("camera %d: disc %d at %v, %v is %v", c, i, x, y, rgb[p:p+3])
						break
					}
				}
			}
			if bytes.Equal(before, rgb) {
				t.Error("two cameras see the same")
			}
			before = bytes.Clone(rgb)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	ctx := context.Background()
	for name, o := range map[string]Options{
		"episodes": {Episodes: -1},
		"seconds":  {Seconds: -1},
		"forever":  {Seconds: math.Inf(1)},
		"nan":      {Seconds: math.NaN()},
		"cameras":  {Cameras: 99},
		"jitter":   {Jitter: -1},
		"gaps":     {Gaps: 1},
		"codec":    {Codec: "gif"}, "odd": {Width: 127},
		"small": {
			Width:  32,
			Height: 32,
		},
		"rate":    {Rates: map[string]float64{"camera": 0}},
		"name":    {Rates: map[string]float64{"lidar": 10}},
		"fast":    {Rates: map[string]float64{"force": 1e9}},
		"gop":     {GOP: -1},
		"no room": {Width: 64, Height: 64, Codec: "png", Cameras: 1, Episodes: 70000},
	} {
		if _, err := Write(ctx, "mem://never", o); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := ParseRates("30..333"); err != nil ||
		!reflect.DeepEqual(r, map[string]float64{"camera": 30, "joints": 100, "force": 333}) {
		t.Errorf("%v %v", r, err)
	}
	if r, err := ParseRates("12.5 .. 12.5"); err != nil ||
		!reflect.DeepEqual(r, map[string]float64{"camera": 12.5, "joints": 12.5, "force": 12.5}) {
		t.Errorf("%v %v", r, err)
	}
	for _, text := range []string{"333..30", "0..3", "..", "a..b", "1..", "1..1e9"} {
		if r, err := ParseRates(text); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v %v", text, r, err)
		}
	}
	if r, err := ParseRates("camera=30, joints=100,force=333"); err != nil ||
		!reflect.DeepEqual(r, map[string]float64{"camera": 30, "joints": 100, "force": 333}) {
		t.Errorf("%v %v", r, err)
	}
	for _, text := range []string{"camera", "camera=x", "=,="} {
		if _, err := ParseRates(text); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// A dataset exists already.
	m, _, _ := inMemory(t, Options{Episodes: 1, Seconds: 0.1})
	if _, err := Write(ctx, m.URI(), Options{Codec: "png"}); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a second dataset: %v", err)
	}
}

// TestCancelled covers synth.S6.
func TestCancelled(t *testing.T) {
	m := storetest.NewMem("synth-cancelled")
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Write(
		ctx,
		m.URI(),
		Options{Codec: "png", Seconds: 0.2, Progress: func(p robocache.Progress) {
			if p.Episodes == 2 {
				cancel()
			}
		}},
	)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := files(t, m); len(left) != 0 {
		t.Errorf("%d files were left", len(left))
	}
}

func BenchmarkPaint(b *testing.B) {
	for _, size := range [][2]int{{128, 96}, {640, 480}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			world := simulate(rand.New(rand.NewPCG(1, 1)), 0, 1e9)
			c := newCanvas(0, size[0], size[1])
			b.SetBytes(int64(len(c.rgb)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c.paint(&world[i%1000], 0, i)
			}
		})
	}
}
