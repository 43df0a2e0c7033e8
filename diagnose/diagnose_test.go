package diagnose_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
)

// pair is an arm measured by its encoders (100 Hz, position) and by a sensor at its tip (333 Hz,
// speed). The clock of the sensor is wrong by a known amount.
type pair struct {
	info  robocache.Info
	times map[string][]int64 // timestamps as recorded
	taken map[string][]int64 // true times of the rows
	nan   bool
	// seconds by which the sensor's header clock steps in the middle of the recording
	step      float64
	unrelated bool
	gripper   bool    // both streams measure a gripper that closes once
	from, to  float64 // the arm moves only between these times; 0, 0: always
}

func newPair(seconds float64, offset, ppm float64) *pair {
	p := &pair{times: map[string][]int64{}, taken: map[string][]int64{}}
	for _, s := range []struct {
		key string
		hz  float64
	}{{"joints", 100}, {"imu", 333}} {
		p.info.Features = append(p.info.Features, robocache.Feature{
			Key:   s.key,
			Clock: s.key,
			Kind:  robocache.KindNumeric,
			DType: robocache.Float64,
			Shape: []int{2},
		})
		for k := range int(seconds * s.hz) {
			t := int64(float64(k) * 1e9 / s.hz)
			p.taken[s.key] = append(p.taken[s.key], t)
			if s.key == "imu" {
				t += int64(offset*1e9 + ppm*1e-6*float64(t))
			}
			p.times[s.key] = append(p.times[s.key], t+1_700_000_000_000_000_000)
		}
	}
	p.info.Episodes, p.info.Clock, p.info.Format, p.info.URI, p.info.Frames = 1, "joints", "made", "made", int64(
		len(p.times["joints"]),
	)
	return p
}

// angle returns a motion that does not repeat.
func angle(t float64) (a, b float64) {
	return math.Sin(2.1*t+0.8*math.Sin(0.31*t)) +
		0.4*math.Sin(5.3*t+2*math.Sin(0.17*t)), math.Cos(1.3*t + math.Sin(0.7*t))
}

func (p *pair) value(key string, t int64) (float64, float64) {
	x := float64(t) / 1e9
	if p.unrelated && key == "imu" {
		x = 17*x + 31
	}
	if p.gripper {
		if x > 3.030001 { // just after a sample of the joints and just before one of the sensor
			return 1, 0
		}
		return 0, 0
	}
	if p.to > 0 {
		if (x < p.from || x > p.to) && key == "imu" {
			return 0, 0
		}
		x = min(max(x, p.from), p.to)
	}
	a, b := angle(x)
	if key == "imu" { // speeds
		const h = 1e-4
		a1, b1 := angle(x + h)
		a0, b0 := angle(x - h)
		return (a1 - a0) / (2 * h), (b1 - b0) / (2 * h)
	}
	return a, b
}

func (p *pair) Info() *robocache.Info { return &p.info }
func (p *pair) Len(int) int           { return len(p.times["joints"]) }
func (p *pair) Episode(context.Context, int) (robocache.Episode, error) {
	return robocache.Episode{Length: p.Len(0)}, nil
}

func (p *pair) Times(_ context.Context, _ int, key string) ([]int64, error) {
	if key == "" {
		key = "joints"
	}
	return p.times[key], nil
}

func (p *pair) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	for i, r := range rows {
		a, b := p.value(key, p.taken[key][r.Index])
		if p.nan && key == "joints" && r.Index == 7 {
			a = math.NaN()
		}
		binary.LittleEndian.PutUint64(dst[16*i:], math.Float64bits(a))
		binary.LittleEndian.PutUint64(dst[16*i+8:], math.Float64bits(b))
	}
	return nil
}
func (p *pair) Text(context.Context, string, []robocache.Row) ([]string, error) { return nil, nil }
func (p *pair) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return nil
}
func (p *pair) Stats(context.Context) (robocache.Stats, error) { return nil, nil }
func (p *pair) Close() error                                   { return nil }

func (p *pair) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{Clocks: p.Clocks, TimesBy: p.TimesBy}
}

// The sensor also has its recorder's clock, which is 15 ms late and drifts.
func (p *pair) Clocks(key string) []string {
	if key == "imu" {
		return []string{"header", "log"}
	}
	return nil
}

func (p *pair) TimesBy(_ context.Context, _ int, key, clock string) ([]int64, error) {
	t := append([]int64(nil), p.times[key]...)
	if clock == "header" && p.step != 0 {
		for i := len(t) / 2; i < len(t); i++ {
			t[i] += int64(p.step * 1e9)
		}
	}
	if clock == "log" {
		for i := range t {
			t[i] += 35_000_000 + int64(80e-6*float64(t[i]-t[0])) + int64(i%7)*100_000
		}
	}
	return t, nil
}

func found(t *testing.T, p *pair) map[string][]robocache.Finding {
	t.Helper()
	all, err := diagnose.Run(t.Context(), p, robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]robocache.Finding{}
	for _, f := range all {
		out[f.Code] = append(out[f.Code], f)
	}
	return out
}

// TestOffset is diagnose.D4: known offsets of either sign are measured within 2 ms. Without an
// offset there is no finding.
func TestOffset(t *testing.T) {
	for offset, want := range map[float64]string{
		0.110:  "moves 110.",
		-0.047: "moves -47.",
		0.023:  "moves 2",
		0:      "",
	} {
		f := found(t, newPair(20, offset, 0))["stream-offset"]
		switch {
		case want == "" && len(f) > 0:
			t.Errorf("offset 0: %+v", f)
		case want != "":
			if len(f) != 1 {
				t.Errorf("offset %v: %+v", offset, f)
				continue
			}
			got := measured(t, f[0].Message)
			if math.Abs(got-offset*1e3) > 2 ||
				!strings.Contains(f[0].Hint, `Align: {"offset":{"imu":`) {
				t.Errorf("offset %v: measured %v ms: %+v", offset, got, f[0])
			}
		}
	}
}

// TestOffsetOfJumps is diagnose.D4: a gripper that opens and closes between two samples gives no
// offset below the sample period.
func TestOffsetOfJumps(t *testing.T) {
	for _, offset := range []float64{0, 0.04} {
		p := newPair(20, offset, 0)
		p.gripper = true
		f := found(t, p)["stream-offset"]
		if offset == 0 && len(f) != 0 {
			t.Errorf("no offset: %+v", f)
		}
		if offset != 0 && (len(f) != 1 || math.Abs(measured(t, f[0].Message)-40) > 10) {
			t.Errorf("40 ms: %+v", f)
		}
	}
}

// TestLateMotion is diagnose.D4: an arm rests for minutes and then moves, in the middle of the
// recording or at its end. Each motion is measured once.
func TestLateMotion(t *testing.T) {
	for name, c := range map[string]struct{ seconds, from, to float64 }{
		"middle":             {400, 170, 230},
		"end":                {400, 340, 400},
		"end of two windows": {180, 130, 180},
		"begin and end": {
			400,
			0,
			1e9,
		},
	} {
		p := newPair(c.seconds, 0.110, 0)
		p.from, p.to = c.from, c.to
		f := found(t, p)["stream-offset"]
		if len(f) != 1 || math.Abs(measured(t, f[0].Message)-110) > 2 ||
			!strings.Contains(f[0].Hint, `Align: {"offset":{"imu":-0.1`) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func measured(t *testing.T, text string) float64 {
	t.Helper()
	for _, w := range strings.Fields(text) {
		var v float64
		if n, err := scan(w, &v); n == 1 && err == nil {
			return v
		}
	}
	t.Fatalf("no number in %q", text)
	return 0
}

// TestDrift is diagnose.D4: a clock runs 400 ppm fast for two minutes.
func TestDrift(t *testing.T) {
	f := found(t, newPair(110, 0.02, 400))["stream-drift"]
	if len(f) != 1 {
		t.Fatalf("%+v", f)
	}
	if got := measured(t, f[0].Message); math.Abs(got-400) > 60 {
		t.Errorf("measured %v ppm: %s", got, f[0].Message)
	}
}

func TestNothingShared(t *testing.T) {
	p := newPair(20, 0.1, 0)
	p.unrelated = true
	if f := found(t, p)["stream-offset"]; len(f) > 0 {
		t.Errorf("unrelated motions: %+v", f)
	}
}

// TestClocks is diagnose.D3.
func TestClocks(t *testing.T) {
	f := found(t, newPair(60, 0, 0))
	if o := f["clock-offset"]; len(o) != 1 || math.Abs(measured(t, o[0].Message)-37.7) > 0.5 {
		t.Errorf("offset %+v", o)
	}
	if d := f["clock-drift"]; len(d) != 1 || math.Abs(measured(t, d[0].Message)-80) > 2 {
		t.Errorf("drift %+v", d)
	}
}

// TestClockStep is diagnose.D3: a clock that steps in the middle of the recording gets a finding
// for the step, and the same drift as without it.
func TestClockStep(t *testing.T) {
	for _, step := range []float64{0.05, 0.5, -0.002} {
		p := newPair(60, 0, 0)
		p.step = step
		f := found(t, p)
		if s := f["clock-step"]; step > 0 &&
			(len(s) != 1 || math.Abs(measured(t, s[0].Message)+step*1e3) > 0.5 ||
				s[0].Where["index"] != 9990) ||
			step < 0 && len(s) != 0 {
			t.Errorf("step of %v s: %+v", step, s)
		}
		if d := f["clock-drift"]; step > 0 &&
			(len(d) != 1 || math.Abs(measured(t, d[0].Message)-80) > 5 ||
				strings.Contains(d[0].Hint, "align=") || d[0].Where["index"] != nil) {
			t.Errorf("step of %v s: drift %+v", step, d)
		}
	}
}

// TestStamps is diagnose.D2 and D5.
func TestTimestamps(t *testing.T) {
	p := newPair(20, 0, 0)
	j := p.times["joints"]
	p.nan = true
	for i := 500; i < len(j); i++ {
		j[i] += 400_000_000
	}
	j[20] = j[19]
	m := p.times["imu"]
	p.times["imu"], p.taken["imu"] = m[333:], p.taken["imu"][333:]
	f := found(t, p)
	for code, says := range map[string]string{
		"gap":                 "lasts 0.410 s",
		"repeated-timestamps": "1 of 2000",
		"late-start":          "begins 1.0",
		"not-finite":          "1 values",
		"early-end":           "ends 0.39",
	} {
		if len(f[code]) != 1 || !strings.Contains(f[code][0].Message, says) {
			t.Errorf("%s: %+v", code, f[code])
		}
	}
	j[100] = j[90]
	if b := found(t, p)["timestamps-go-back"]; len(b) != 1 || b[0].Where["index"] != 100 {
		t.Errorf("back: %+v", b)
	}
}

func scan(w string, v *float64) (int, error) { return fmt.Sscanf(w, "%g", v) }
