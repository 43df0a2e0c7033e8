package quality

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// scene draws frames of a textured image in which a square moves, with normal noise.
type scene struct {
	width, height int
	noise         float64
	gain          float64
	rng           *rand.Rand
}

func newScene() *scene {
	return &scene{width: 128, height: 96, noise: 2, gain: 1, rng: rand.New(rand.NewPCG(1, 2))}
}

// draw returns a frame with the square at x.
func (s *scene) draw(x float64) *frameSample {
	luma := make([]byte, s.width*s.height)
	for i := range luma {
		px, py := i%s.width, i/s.width
		v := 110 + 25*math.Sin(float64(px)*0.9)*math.Cos(float64(py)*0.7)
		if math.Abs(float64(px)-x) < 10 && math.Abs(float64(py)-45) < 30 {
			v = 220
		}
		luma[i] = byte(min(255, max(0, s.gain*v+s.noise*s.rng.NormFloat64())))
	}
	return &frameSample{
		Luma: luma, Width: s.width, Height: s.height, RGB: [3]float64{110, 110, 110},
	}
}

// measureFramesOf returns the values of n frames of a square that moves by 2 pixels a frame. edit
// may change a frame.
func measureFramesOf(
	n int,
	s *scene,
	edit func(i int, f *frameSample) *frameSample,
) map[string]float64 {
	m := newCameraMeter(n)
	for i := range n {
		f := s.draw(20 + 2*float64(i%40))
		if edit != nil {
			f = edit(i, f)
		}
		f.Row = i
		m.add(f)
	}
	return m.values(nil)
}

func expectNear(t *testing.T, name string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v ± %v", name, got, want, within)
	}
}

// Each defect changes its own metric by the expected amount, and clean frames have none.
func TestFrameMetrics(t *testing.T) {
	clean := measureFramesOf(40, newScene(), nil)
	for name, want := range map[string]float64{
		"black_frames": 0, "frozen_frames": 0, "duplicated_frames": 0, "corrupted_frames": 0,
		"glitched_frames": 0, "missing_frames": 0, "clipped_pixels": 0,
	} {
		expectNear(t, "clean "+name, clean[name], want, 0)
	}
	// Immerkær's estimate includes the texture, so that it is above the noise.
	expectNear(t, "noise", clean["image_noise"], math.Log2(2), 1.5)
	noisy := newScene()
	noisy.noise = 20
	expectNear(
		t,
		"noise of 20",
		measureFramesOf(40, noisy, nil)["image_noise"],
		math.Log2(20),
		0.15,
	)

	var last *frameSample
	hold := func(from, to int) func(int, *frameSample) *frameSample {
		return func(i int, f *frameSample) *frameSample {
			if i >= from && i < to {
				return &frameSample{Luma: last.Luma, Width: f.Width, Height: f.Height, RGB: f.RGB}
			}
			last = f
			return f
		}
	}
	frozen := measureFramesOf(40, newScene(), hold(10, 17))
	expectNear(t, "frozen", frozen["frozen_frames"], 7, 0)
	expectNear(t, "frozen, as repeated", frozen["duplicated_frames"], 0, 0)
	twice := measureFramesOf(40, newScene(), hold(10, 11))
	expectNear(t, "one repeated", twice["duplicated_frames"], 1.0/39, 1e-9)

	black := measureFramesOf(40, newScene(), func(i int, f *frameSample) *frameSample {
		if i < 10 {
			clear(f.Luma)
		}
		return f
	})
	expectNear(t, "black", black["black_frames"], 0.25, 0)
	expectNear(t, "blur without the black frames", black["blur"], clean["blur"], 0.1)

	bad := measureFramesOf(40, newScene(), func(i int, f *frameSample) *frameSample {
		switch {
		case i < 4:
			return &frameSample{Err: errors.New("damaged")}
		case i < 8:
			return &frameSample{Missing: true}
		}
		return f
	})
	expectNear(t, "corrupted", bad["corrupted_frames"], 4.0/36, 1e-9)
	expectNear(t, "missing", bad["missing_frames"], 0.1, 1e-9)

	glitch := measureFramesOf(40, newScene(), func(i int, f *frameSample) *frameSample {
		if i == 12 || i == 30 {
			for k := range f.Luma[:len(f.Luma)/2] {
				f.Luma[k] = byte(k * 7)
			}
		}
		return f
	})
	expectNear(t, "glitched", glitch["glitched_frames"], 2, 0)

	rng := rand.New(rand.NewPCG(3, 4))
	flickering := measureFramesOf(400, newScene(), func(_ int, f *frameSample) *frameSample {
		d := int(math.Round(6 * rng.NormFloat64()))
		for k, v := range f.Luma {
			f.Luma[k] = byte(int(v) + d)
		}
		return f
	})
	expectNear(t, "flicker", flickering["flicker"], 6, 0.7)
}

// A frame that is skipped during a motion jumps by the ratio of the differences.
func TestFrameJump(t *testing.T) {
	facts := make([]frameFacts, 20)
	const floor = 0.008
	for i := range facts {
		facts[i].changed = 0.05
	}
	facts[10].changed = 4*(0.05+floor) - floor
	v, at := frameJump(facts)
	expectNear(t, "jump", v, 2, 1e-6)
	if at != 10 {
		t.Errorf("the jump is at frame %d, want 10", at)
	}
	if v, at := frameJump(facts[:4]); v == v || at >= 0 {
		t.Errorf("too few frames: %v at %d, want NaN", v, at)
	}
}

// Blur lowers the variance of the Laplacian by the square of the response of the filter.
func TestBlur(t *testing.T) {
	sharp, soft := []frameFacts{{mean: 100, spread: 20, laplace: 1023}},
		[]frameFacts{{mean: 100, spread: 20, laplace: 255}}
	expectNear(t, "octaves", blur(soft)-blur(sharp), 2, 1e-6)
}

// Frames count as frozen only in rows in which the robot moves.
func TestFrozenNeedsMotion(t *testing.T) {
	facts := make([]frameFacts, 40)
	for i := range facts {
		facts[i] = frameFacts{row: i, changed: 0.1}
		if i >= 15 && i < 25 {
			facts[i].changed = 0.0005
		}
	}
	facts[25].changed = 0.2 // the first live frame shows the whole motion
	x := &recording{speed: make([]float64, 40)}
	for i := range x.speed {
		if i < 19 || i > 26 {
			x.speed[i] = 1
		}
	}
	expectNear(t, "frozen", frozenFrames(unchangedFrames(facts, x)), 4, 0)
	expectNear(t, "always moving", frozenFrames(unchangedFrames(facts, nil)), 10, 0)
}

// A still image with new noise is no repeat, although the same points of the scene rest. A frame of
// a video may have new noise from its codec.
func TestRepeatedNoise(t *testing.T) {
	frozen := func(isStill bool, change float32) float64 {
		facts := make([]frameFacts, 40)
		for i := range facts {
			facts[i] = frameFacts{row: i, changed: 0.1, change: 5, noise: 2, isStill: isStill}
			if i >= 15 && i < 25 {
				facts[i].changed, facts[i].change = 0, change
			}
		}
		facts[25].changed = 0.2
		return frozenFrames(unchangedFrames(facts, nil))
	}
	expectNear(t, "repeated still", frozen(true, 0), 10, 0)
	expectNear(t, "still with new noise", frozen(true, 2.2), 0, 0)
	expectNear(t, "video with new noise", frozen(false, 2.2), 10, 0)
}

// The words of a camera keep its hashes, blocks and means.
func TestCameraWords(t *testing.T) {
	values := map[string]float64{"blur": -7.5, "cast_cr": 3.25, "flicker": math.NaN()}
	blocks := make([]float32, 2*blockCount)
	for i := range blocks {
		blocks[i] = float32(i % 60)
	}
	words := packCamera([]uint64{1 << 63, 2, 3, 4}, blocks, values)
	if len(words) != cameraWords || uint64(words[0]) != 1<<63 {
		t.Fatalf("%d words: %x", len(words), words[0])
	}
	for i, v := range blocksOf(words) {
		expectNear(t, "block", float64(v), float64(blocks[i]), 0)
	}
	expectNear(t, "blur", meanAt(words, 0), -7.5, 0)
	expectNear(t, "cast_cr", meanAt(words, 6), 3.25, 0)
	if v := meanAt(words, 4); v == v {
		t.Errorf("flicker: %v, want NaN", v)
	}
}

// A covered part of the image is found in the episode that has it, whatever the light.
func TestOcclusion(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var all [][]float32
	for e := range 30 {
		b := make([]float32, 2*blockCount)
		for k := range blockCount {
			b[k] = float32(80 + 2*float64(k) + 1.5*rng.NormFloat64() + float64(e%7))
			b[blockCount+k] = float32(3 + 0.2*rng.NormFloat64())
		}
		all = append(all, b)
	}
	for k := range 6 {
		all[11][k], all[11][blockCount+k] = 20, 0.5
	}
	all = append(all, nil)
	for e, v := range occlusions(all) {
		want := 0.0
		switch e {
		case 11:
			want = 6.0 / blockCount
		case 30:
			if v == v {
				t.Errorf("without frames: %v, want NaN", v)
			}
			continue
		}
		expectNear(t, "occlusion", v, want, 1e-9)
	}
}

// The hash of a mirrored image is the mirrored hash.
func TestMirrorHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const w, h = 63, 48 // a multiple of the cells
	grid, mirrored := make([]byte, w*h), make([]byte, w*h)
	for i := range grid {
		grid[i] = byte(rng.IntN(256))
		mirrored[i/w*w+w-1-i%w] = grid[i]
	}
	if a, b := gridHash(mirrored, w, h), mirrorHash(gridHash(grid, w, h)); a != b {
		t.Errorf("%064b, want %064b", a, b)
	}
}

// Frames of one pixel, of changing sizes, and none at all have defined values.
func TestFrameMetricsOfOddFrames(t *testing.T) {
	m := newCameraMeter(0)
	if m.hashes() != nil {
		t.Error("a camera without frames has words")
	}
	for name, v := range m.values(nil) {
		if v == v {
			t.Errorf("%s without frames: %v, want NaN", name, v)
		}
	}
	for i, side := range []int{1, 2, 3, 1, 200, 7} {
		m.add(&frameSample{Luma: make([]byte, side*side), Width: side, Height: side, Row: i})
	}
	expectNear(t, "black", m.values(nil)["black_frames"], 1, 0)
}

func BenchmarkCameraMeter(b *testing.B) {
	s := newScene()
	s.width, s.height = 320, 180
	frames := []*frameSample{s.draw(20), s.draw(22), s.draw(24)}
	m := newCameraMeter(b.N)
	b.SetBytes(int64(s.width * s.height))
	for i := range b.N {
		f := *frames[i%3]
		f.Row = i
		m.add(&f)
	}
}
