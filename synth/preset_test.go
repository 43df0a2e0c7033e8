package synth

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestHeterogeneous checks 5,000 trajectories with their own timestamps: robot i mod 5, each at its
// own rate, for 1 to 4 s. The state is the action with a little noise, and its derivative.
func TestHeterogeneous(t *testing.T) {
	d := made(t, Options{Preset: "heterogeneous"})
	if i := d.Info(); i.Episodes != 5000 || i.Frames < 1_500_000 || i.Frames > 1_700_000 ||
		!i.FPS.Zero() ||
		i.Clock != "" {
		t.Fatalf("%d trajectories, %d rows at %v Hz", i.Episodes, i.Frames, i.FPS)
	}
	for e := range 20 {
		hz := float64(robotHZ[e%5])
		if n := d.Len(e); float64(n) < hz-1 || float64(n) > 4*hz {
			t.Errorf("trajectory %d at %g Hz: %d rows", e, hz, n)
		}
		times, _ := all(t, d, e, d.Info().Feature(actionKey))
		for k, at := range times {
			if want := int64(math.Round(float64(k) * 1e9 / hz)); at != want {
				t.Fatalf("trajectory %d row %d at %d ns, want %d", e, k, at, want)
			}
		}
		action, state := f32s(gather(t, d, e, actionKey)), f32s(gather(t, d, e, stateKey))
		var noise float64
		for k := 1; k < len(times)-1; k++ {
			for j := range 7 {
				x := action[7*k+j]
				if x > 1.1 || x < -1.1 {
					t.Fatalf("trajectory %d row %d: action %v", e, k, x)
				}
				noise += math.Pow(float64(state[14*k+j]-x), 2)
				if slope := float64(
					action[7*k+7+j]-action[7*k-7+j],
				) / (2 / hz); math.Abs(
					slope-float64(state[14*k+7+j]),
				) > 0.02+60/hz/hz*2 {
					t.Fatalf(
						"trajectory %d row %d: derivative %v, differences give %v",
						e,
						k,
						state[14*k+7+j],
						slope,
					)
				}
			}
		}
		if sigma := math.Sqrt(noise / float64(7*(len(times)-2))); sigma < 0.008 || sigma > 0.012 {
			t.Errorf("trajectory %d: noise of %v", e, sigma)
		}
	}
}

// TestPresetsMove checks that trajectories differ. Each joint of the heterogeneous set has two
// sines, the slower one larger.
func TestPresetsMove(t *testing.T) {
	for preset, key := range map[string]string{"heterogeneous": actionKey, "rtx": stateKey} {
		d := made(t, Options{Preset: preset, Episodes: 6})
		a, b := f32s(gather(t, d, 0, key)), f32s(gather(t, d, 5, key)) // at the same rate
		if n := min(len(a), len(b), 70); slices.Equal(a[:n], b[:n]) {
			t.Errorf("%s: two trajectories are one", preset)
		}
	}
	// After removing one sine of any amplitude, phase and frequency, at least a tenth of the
	// joint's movement remains, because there is a second sine.
	d := made(t, Options{Preset: "heterogeneous", Episodes: 25})
	left := 1.0
	for _, e := range []int{4, 9, 14, 19, 24} { // at 333 Hz
		x := f32s(gather(t, d, e, actionKey))
		n, best := len(x)/7, math.Inf(1)
		for f := 0.3; f < 2; f += 0.004 {
			var ss, cc, sc, sx, cx, xx float64
			for k := range n {
				s, c := math.Sincos(2 * math.Pi * f * float64(k) / 333)
				y := float64(x[7*k])
				ss, cc, sc, sx, cx, xx = ss+s*s, cc+c*c, sc+s*c, sx+s*y, cx+c*y, xx+y*y
			}
			det := ss*cc - sc*sc
			p, q := (sx*cc-cx*sc)/det, (cx*ss-sx*sc)/det
			best = min(best, math.Sqrt(max(0, xx-p*sx-q*cx)/float64(n)))
		}
		left = min(left, best)
	}
	if left < 0.02 {
		t.Errorf("one sine leaves %v", left)
	}
}

// TestCap checks that Cap limits the number of rows over the same time: 333 Hz becomes 50 to 199
// Hz.
func TestCap(t *testing.T) {
	d := made(t, Options{Preset: "heterogeneous", Cap: 200})
	free := made(t, Options{Preset: "heterogeneous"})
	if mean := float64(d.Info().Frames) / 5000; mean < 150 || mean > 160 {
		t.Errorf("trajectories of %v rows", mean)
	}
	for e := range 15 {
		times, _ := all(t, d, e, d.Info().Feature(actionKey))
		long, _ := all(t, free, e, free.Info().Feature(actionKey))
		if len(times) != min(len(long), 200) || !slices.IsSorted(times) {
			t.Errorf("trajectory %d: %d rows of %d", e, len(times), len(long))
		}
		if end, was := times[len(times)-1], long[len(long)-1]; len(long) > 200 &&
			(end < was || end > was+34_000_000) ||
			len(long) <= 200 && end != was {
			t.Errorf("trajectory %d ends at %d ns, not capped at %d", e, end, was)
		}
	}
}

// TestRTX checks three streams, each with its own rate. The action is the same map of the state and
// 8 vision values in every set, so that a loss can decrease.
func TestRTX(t *testing.T) {
	for _, seed := range []uint64{0, 9} {
		d := made(t, Options{Preset: "rtx", Episodes: 3, Seed: seed})
		weights, w := rand.New(rand.NewPCG(0, 0)), [14 + rtxSeen][7]float64{}
		for i := range w {
			for j := range w[i] {
				w[i][j] = 0.5 * weights.NormFloat64()
			}
		}
		for e := range 3 {
			read := func(key string, n int) []float32 {
				times, values := all(t, d, e, d.Info().Feature(key))
				if len(times) != n || times[n-1] != d.streams[key].feature.FPS.Nanos(int64(n-1)) {
					t.Fatalf(
						"%s: %d samples, the last at %d ns",
						key,
						len(times),
						times[len(times)-1],
					)
				}
				return f32s(values.([]byte))
			}
			vision, state, action := read(visionKey, 150), read(stateKey, 500), read(actionKey, 50)
			for k := range 50 {
				for j := range 7 {
					var x float64
					for i := range w {
						if i < 14 {
							x += w[i][j] * float64(state[14*10*k+i])
						} else {
							x += w[i][j] * float64(vision[512*3*k+i-14])
						}
					}
					if got := float64(action[7*k+j]); math.Abs(got-math.Tanh(x)) > 1e-5 {
						t.Fatalf(
							"episode %d row %d: action %v, the map gives %v",
							e,
							k,
							got,
							math.Tanh(x),
						)
					}
				}
			}
		}
	}
}

// TestPresetSame checks that the same seed gives the same samples and another seed others. Options
// that a preset does not use are rejected.
func TestPresetSame(t *testing.T) {
	for _, name := range Presets() {
		a := made(t, Options{Preset: name, Episodes: 12})
		b := made(t, Options{Preset: name, Episodes: 12})
		c := made(t, Options{Preset: name, Episodes: 12, Seed: 1})
		for e := 11; e >= 0; e-- {
			for _, key := range a.Info().Keys() {
				_, x := all(t, a, e, a.Info().Feature(key))
				_, y := all(t, b, e, b.Info().Feature(key))
				_, z := all(t, c, e, c.Info().Feature(key))
				if !bytes.Equal(x.([]byte), y.([]byte)) || bytes.Equal(x.([]byte), z.([]byte)) {
					t.Errorf("%s: %s of episode %d", name, key, e)
				}
			}
		}
	}
	for _, opt := range []Options{
		{Preset: "none"},
		{Preset: "rtx", Cap: 20},
		{Preset: "heterogeneous", Cap: 1},
		{Preset: "rtx", Episodes: -1},
	} {
		if _, err := New(opt); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// TestABC checks the episodes of two arms: their lengths, clocks and tasks, and that the action is
// the next position.
func TestABC(t *testing.T) {
	d := made(t, Options{Preset: "abc", Episodes: 40})
	info := d.Info()
	if info.Episodes != 40 || len(info.Tasks) != 5 || len(info.Features) != 3 {
		t.Fatalf("%+v", info)
	}
	lengths := map[int]bool{}
	for e := range 40 {
		n := d.Len(e)
		lengths[n] = true
		if n < 10 || n > 30 {
			t.Errorf("episode %d has %d rows", e, n)
		}
		episode, err := d.Episode(t.Context(), e)
		if err != nil || !slices.Equal(episode.Tasks, []string{info.Tasks[e%5].Text}) {
			t.Errorf("episode %d: %v %v", e, episode.Tasks, err)
		}
		left := f32s(gather(t, d, e, "observation.left_arm"))
		right := f32s(gather(t, d, e, "observation.right_arm"))
		action := f32s(gather(t, d, e, actionKey))
		if len(left) != 8*n || len(right) != 8*n || len(action) != 16*n {
			t.Fatalf("episode %d: %d, %d, %d values", e, len(left), len(right), len(action))
		}
		for k := range n - 1 {
			if action[16*k+3] != left[8*(k+1)+3] || action[16*k+8] != right[8*(k+1)] {
				t.Fatalf("episode %d row %d: the action is not the next position", e, k)
			}
		}
	}
	if len(lengths) < 5 {
		t.Errorf("%d lengths", len(lengths))
	}
}
