package live_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
	"math"
	"math/rand"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/options"
)

// numbersContract returns a contract of numeric streams of two float64 values.
func numbersContract(t testing.TB, text string, keys ...string) *contract.Contract {
	t.Helper()
	cfg, err := options.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Keys, cfg.Align.Causal = keys, true
	c := &contract.Contract{Options: cfg}
	for _, k := range keys {
		c.Streams = append(c.Streams, contract.Stream{Feature: robocache.Feature{
			Key: k, Kind: robocache.KindNumeric, DType: robocache.Float64, Shape: []int{2},
		}})
		c.Outputs = append(c.Outputs, contract.Output{Key: k, DType: robocache.Float64})
	}
	if err := c.Seal(); err != nil {
		t.Fatal(err)
	}
	return c
}

func openLive(t testing.TB, c *contract.Contract) *live.Live {
	t.Helper()
	l, err := live.Open(t.Context(), c, live.Config{MemoryBudget: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair returns a row of two numbers.
func pair(a, b float64) []byte {
	row := binary.LittleEndian.AppendUint64(nil, math.Float64bits(a))
	return binary.LittleEndian.AppendUint64(row, math.Float64bits(b))
}

// firstNumber returns the first number of a key of an observation, and whether it is padding.
func firstNumber(o *live.Observation, key string) (x float64, isPad bool) {
	x = math.Float64frombits(binary.LittleEndian.Uint64(o.Tensor(key).Data))
	return x, o.Tensor(key + "_is_pad").Data[0] == 1
}

const ms = int64(1e6)

// TestObserveSimulatedFaults pushes a stream whose samples are late, lost, reordered and repeated,
// and checks each tick: the value is the newest sample that had arrived, never one from the future,
// and nothing is held beyond max_age without a mask.
func TestObserveSimulatedFaults(t *testing.T) {
	events := 1_000_000
	if testing.Short() {
		events = 20_000
	}
	type message struct{ stamp, arrival int64 }
	r := rand.New(rand.NewSource(7))
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50, "max_age": 0.1}}`, "state"))
	var all []message
	start := int64(1_700_000_000_000_000_000)
	at := start
	for range events {
		at += 10*ms + r.Int63n(ms)
		if r.Intn(20) == 0 {
			at += 300 * ms // a pause
		}
		if r.Intn(10) == 0 {
			continue // lost
		}
		m := message{at, at + 2*ms + r.Int63n(30*ms)}
		all = append(all, m)
		if r.Intn(50) == 0 {
			all = append(all, message{m.stamp, m.arrival + r.Int63n(10*ms)})
		}
	}
	slices.SortStableFunc(all, func(x, y message) int { return int(x.arrival - y.arrival) })
	var o *live.Observation
	var err error
	next, padded, held, ticks := 0, 0, 0, 0
	var newest int64
	for tick := start + 50*ms; next < len(all); tick += 20 * ms {
		for ; next < len(all) && all[next].arrival <= tick; next++ {
			m := all[next]
			newest = max(newest, m.stamp)
			x := live.Sample{Stamp: m.stamp, Arrival: m.arrival, Data: pair(float64(m.stamp), 1)}
			if err := l.Push("state", &x); err != nil {
				t.Fatal(err)
			}
		}
		// A message that arrives later must change nothing, even if it was pushed before the tick.
		if next < len(all) && next%7 == 0 {
			m := all[next]
			x := live.Sample{Stamp: m.stamp, Arrival: m.arrival, Data: pair(float64(m.stamp), 1)}
			if err := l.Push("state", &x); err != nil {
				t.Fatal(err)
			}
		}
		if o, err = l.Observe(t.Context(), tick, 0, o); err != nil {
			t.Fatal(err)
		}
		ticks++
		got, isPad := firstNumber(o, "state")
		isOld := newest == 0 || tick-newest > 100*ms
		if isPad != isOld || !isPad && got != float64(newest) {
			t.Fatalf("tick %d: %f (padding %v), the newest sample is %d, %v old", tick, got, isPad,
				newest, time.Duration(tick-newest))
		}
		if isPad {
			padded++
		} else if tick-newest > 20*ms {
			held++
		}
	}
	if padded == 0 || held == 0 {
		t.Errorf("%d of %d ticks are padding, %d hold a value", padded, ticks, held)
	}
	if s := l.Stats()["state"]; s.Late == 0 || s.Repeated == 0 || s.Rejected != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPushRejects checks that a value that does not fit is a typed error and changes nothing.
func TestPushRejects(t *testing.T) {
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50}}`, "state"))
	good := live.Sample{Stamp: 100 * ms, Arrival: 101 * ms, Data: pair(5, 6)}
	if err := l.Push("state", &good); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]live.Sample{
		"short":        {Stamp: 110 * ms, Arrival: 111 * ms, Data: pair(1, 2)[:8]},
		"no data":      {Stamp: 110 * ms, Arrival: 111 * ms},
		"NaN":          {Stamp: 110 * ms, Arrival: 111 * ms, Data: pair(math.NaN(), 2)},
		"infinite":     {Stamp: 110 * ms, Arrival: 111 * ms, Data: pair(1, math.Inf(-1))},
		"out of range": {Stamp: math.MaxInt64, Arrival: math.MaxInt64, Data: pair(1, 2)},
		"other clock":  {Stamp: 110 * ms, Arrival: live.Now, Data: pair(1, 2)},
	} {
		if err := l.Push("state", &x); err == nil || !robocache.Bad(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.Push("stat", &good); err == nil {
		t.Error("an unknown stream is accepted")
	}
	o, err := l.Observe(t.Context(), 120*ms, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Release()
	if x, isPad := firstNumber(o, "state"); x != 5 || isPad || o.Ages[0] != 20*ms {
		t.Errorf("%v %v, age %d", x, isPad, o.Ages[0])
	}
	if s := l.Stats()["state"]; s.Rejected != 6 || s.Received != 7 {
		t.Errorf("%+v", s)
	}
}

// TestClockStep checks that a clock that is set back is noticed, and that its samples are used.
func TestClockStep(t *testing.T) {
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50, "max_age": 0.5}}`, "state"))
	arrival := int64(1e12)
	push := func(stamp int64) {
		arrival += 10 * ms
		x := live.Sample{Stamp: stamp, Arrival: arrival, Data: pair(float64(stamp), 0)}
		if err := l.Push("state", &x); err != nil {
			t.Fatal(err)
		}
	}
	for k := range int64(50) {
		push(arrival + 20e9 + k) // the clock is 20 s ahead
	}
	for range 3 {
		push(arrival)
	}
	o, err := l.Observe(t.Context(), arrival, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Release()
	if x, isPad := firstNumber(o, "state"); x != float64(arrival-10*ms) || isPad {
		t.Errorf("%f, padding %v, want %d", x, isPad, arrival-10*ms)
	}
	if o.Ages[0] != 10*ms {
		t.Errorf("the newest sample is %v old: samples of the old clock are still there",
			time.Duration(o.Ages[0]))
	}
	if s := l.Stats()["state"]; s.ClockSteps != 1 {
		t.Errorf("%+v", s)
	}
}

// TestStaleError checks stale="error", and streams that never came.
func TestStaleError(t *testing.T) {
	l := openLive(t, numbersContract(t,
		`{"align": {"hz": 50, "max_age": 0.05, "stale": "error"}}`, "state"))
	if _, err := l.Observe(t.Context(), 1e9, time.Millisecond, nil); err == nil {
		t.Error("a stream that never came is no error")
	}
	x := live.Sample{Stamp: 1e9, Arrival: 1e9, Data: pair(1, 2)}
	if err := l.Push("state", &x); err != nil {
		t.Fatal(err)
	}
	for tick, ok := range map[int64]bool{1e9 + 40*ms: true, 1e9 + 60*ms: false} {
		if _, err := l.Observe(t.Context(), tick, 0, nil); (err == nil) != ok {
			t.Errorf("tick %d: %v", tick, err)
		}
	}
}

// TestBudget checks that a stream without an observer stays within its budget.
func TestBudget(t *testing.T) {
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50}}`, "a", "b"))
	for k := range int64(100_000) {
		x := live.Sample{Stamp: k * ms, Arrival: k * ms, Data: pair(float64(k), 0)}
		if err := l.Push("a", &x); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Stats()["a"]; s.Dropped < 80_000 {
		t.Errorf("%d samples of 100,000 were dropped, want all beyond 4 MiB", s.Dropped)
	}
	o, err := l.Observe(t.Context(), 99_999*ms, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Release()
	if x, isPad := firstNumber(o, "a"); x != 99_999 || isPad {
		t.Errorf("%v %v", x, isPad)
	}
	if _, isPad := firstNumber(o, "b"); !isPad || o.Ages[1] != -1 {
		t.Error("a stream without samples is not padding")
	}
}

// TestConcurrentPush pushes from several goroutines while observations are made.
func TestConcurrentPush(t *testing.T) {
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50}}`, "a", "b"))
	var publishers sync.WaitGroup
	for _, key := range []string{"a", "b", "a"} {
		publishers.Add(1)
		go func() {
			defer publishers.Done()
			for k := range int64(3000) {
				x := live.Sample{Stamp: k * ms, Arrival: k * ms, Data: pair(float64(k*ms), 0)}
				if err := l.Push(key, &x); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var o *live.Observation
	var err error
	for tick := int64(0); tick < 3000*ms; tick += 10 * ms {
		if o, err = l.Observe(t.Context(), tick, 0, o); err != nil {
			t.Fatal(err)
		}
		if x, isPad := firstNumber(o, "a"); !isPad && x > float64(tick) {
			t.Fatalf("tick %d: a value from %f", tick, x)
		}
	}
	publishers.Wait()
}

// TestRecordVerify records what a policy saw while others push, verifies it, and checks that a
// changed recording is noticed.
func TestRecordVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.mcap")
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50}}`, "a", "b"))
	if err := l.Record(path); err != nil {
		t.Fatal(err)
	}
	var o *live.Observation
	var err error
	for episode := range int64(3) {
		var publishers sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			publishers.Add(1)
			go func() {
				defer publishers.Done()
				for k := range int64(400) {
					at := episode*1e9 + k*ms
					x := live.Sample{Stamp: at, Arrival: at, Data: pair(float64(at), 1)}
					if err := l.Push(key, &x); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		for tick := range int64(40) {
			if o, err = l.Observe(t.Context(), episode*1e9+tick*10*ms, 0, o); err != nil {
				t.Fatal(err)
			}
		}
		publishers.Wait()
		if err := l.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Record(path); err == nil {
		t.Error("a second recording is begun")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := live.Verify(t.Context(), path)
	if err != nil || r.Ticks != 120 || r.DifferentTicks != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := live.Verify(t.Context(), "observe_test.go"); err == nil {
		t.Error("another file is verified")
	}
}

// TestSoak runs two hours of a robot's time, a state at 100 Hz and ticks at 20 Hz, and checks that
// memory stays flat and that the last observations are as young as the first ones.
func TestSoak(t *testing.T) {
	seconds := int64(7200)
	if testing.Short() {
		seconds = 300
	}
	l := openLive(t, numbersContract(t, `{"align": {"hz": 20},
		"delta_timestamps": {"a": [-0.1, -0.05, 0]}}`, "a", "b"))
	var o *live.Observation
	var err error
	heapAfter := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var early int64
	row := pair(1, 2)
	for at := 10 * ms; at < seconds*1e9; at += 10 * ms {
		x := live.Sample{Stamp: at - 3*ms, Arrival: at, Data: row}
		for _, key := range []string{"a", "b"} {
			if err := l.Push(key, &x); err != nil {
				t.Fatal(err)
			}
		}
		if at%(50*ms) != 0 {
			continue
		}
		if o, err = l.Observe(t.Context(), at, 0, o); err != nil {
			t.Fatal(err)
		}
		if o.Ages[0] != 3*ms || o.Ages[1] != 3*ms {
			t.Fatalf("at %v: ages %v", time.Duration(at), o.Ages)
		}
		if at == 60e9 {
			early = heapAfter()
		}
	}
	if grown := heapAfter() - early; grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes after the first minute", grown)
	}
}

// TestTickClock checks that Observe(Now) follows a clock of arrivals that goes back, with Reset and
// without, and that it refuses a tick before the last one.
func TestTickClock(t *testing.T) {
	l := openLive(t, numbersContract(t, `{"align": {"hz": 50, "max_age": 0.5}}`, "state"))
	observe := func(at int64) (isPad bool) {
		t.Helper()
		x := live.Sample{Stamp: at, Arrival: at, Data: pair(1, 0)}
		if err := l.Push("state", &x); err != nil {
			t.Fatal(err)
		}
		o, err := l.Observe(t.Context(), live.Now, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Release()
		_, isPad = firstNumber(o, "state")
		return isPad
	}
	if observe(1000e9) {
		t.Error("the first observation is padding")
	}
	if _, err := l.Observe(t.Context(), 900e9, 0, nil); err == nil {
		t.Error("a tick before the last one is accepted")
	}
	if err := l.Reset(); err != nil {
		t.Fatal(err)
	}
	if observe(5e9) {
		t.Error("a simulator that begins again gives padding")
	}
	if s := l.Latency()["state"]; s.Age != 0 {
		t.Errorf("%+v", s)
	}
	observe(2000e9) // one arrival is wrong
	for k := range int64(2) {
		x := live.Sample{Stamp: 6e9 + k*ms, Arrival: 6e9 + k*ms, Data: pair(1, 0)}
		if err := l.Push("state", &x); err != nil {
			t.Fatal(err)
		}
	}
	if observe(6e9 + 2*ms) {
		t.Error("a clock that was set back gives padding")
	}
}

// TestDamagedImage checks that an image that cannot be decoded is replaced by the one before, and
// counted, and that it does not fail later observations.
func TestDamagedImage(t *testing.T) {
	c := numbersContract(t, `{"align": {"hz": 50}, "image_size": [4, 4]}`, "camera", "state")
	c.Streams[0] = contract.Stream{Feature: robocache.Feature{
		Key: "camera", Kind: robocache.KindImage, DType: robocache.Uint8,
		Shape: []int{8, 8, 3}, Height: 8, Width: 8, Channels: 3,
	}}
	l := openLive(t, c)
	var whole bytes.Buffer
	picture := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for i := range picture.Pix {
		picture.Pix[i] = 200
	}
	if err := png.Encode(&whole, picture); err != nil {
		t.Fatal(err)
	}
	cut := whole.Bytes()[:whole.Len()-25]
	for k, data := range [][]byte{whole.Bytes(), cut} {
		at := int64(k+1) * 20 * ms
		x := live.Sample{Stamp: at, Arrival: at, Still: &robocache.FrameRef{Encoded: data}}
		if err := l.Push("camera", &x); err != nil {
			t.Fatal(err)
		}
	}
	o, err := l.Observe(t.Context(), 50*ms, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Release()
	if o.Tensor("camera").Data[0] == 0 || o.Tensor("camera_is_pad").Data[0] == 1 {
		t.Error("the image before the damaged one is not delivered")
	}
	if s := l.Stats()["camera"]; s.Rejected != 1 || l.Err() == nil || o.Ages[0] != 30*ms {
		t.Errorf("%+v, %v, age %v", s, l.Err(), o.Ages[0])
	}
}
