package quality

import (
	"math"
	"slices"
)

const (
	gridSide     = 64 // points of the longer side of a frame that are read
	blockColumns = 8
	blockRows    = 6
	blockCount   = blockColumns * blockRows
	changedBy    = 10 // levels; a smaller change of a point may be the codec's
)

// frameFacts are the numbers of one frame from which the metrics of frames are computed. Levels
// are those of a full range of 0 to 255.
type frameFacts struct {
	row      int
	time     int64   // timestamp of the row
	isBad    bool    // the frame cannot be decoded
	isAbsent bool    // the row has no frame
	isStill  bool    // it is encoded without other frames
	mean     float32 // level
	spread   float32 // standard deviation of the levels
	clipped  float32 // share of the points that are black or white
	laplace  float32 // variance of the Laplacian
	noise    float32 // Immerkær's estimate of the standard deviation of the noise
	change   float32 // mean absolute difference to the previous frame; NaN for the first
	change2  float32 // … to the frame before the previous one
	changed  float32 // share of the points that differ by more than changedBy
	light    float32 // median change of the blocks since the previous frame; NaN for the first
	cb, cr   float32
}

// cameraMeter accumulates the frames of one camera of one episode, in the order of time. It reads a
// grid of at most gridSide × gridSide points of each frame. Memory is about 72 bytes per frame.
type cameraMeter struct {
	facts  []frameFacts
	frames int // expected number, for the times of the hashes
	prints []uint64

	columns, rows  int
	width, height  int
	grid, old, new []byte // new is the frame in hand; grid is the previous one, old the one before
	held           int    // number of valid previous frames: 0 to 2
	lastRow        int
	blockOf        []uint8
	blockPoints    [blockCount]int // number of points of each block
	lastBlocks     [blockCount]float64
	blocks         blockMeter
}

// newCameraMeter returns a meter of a camera with an expected number of frames.
func newCameraMeter(frames int) *cameraMeter {
	return &cameraMeter{frames: frames, facts: make([]frameFacts, 0, min(max(frames, 0), 1<<16))}
}

// add accumulates the next frame.
func (m *cameraMeter) add(f *frameSample) {
	nan := float32(math.NaN())
	s := frameFacts{
		row:     f.Row,
		time:    f.TimeNS,
		isBad:   f.Err != nil,
		isStill: f.IsStill,
		change:  nan,
		change2: nan,
		changed: nan,
	}
	s.isAbsent = f.Err == nil && len(f.Luma) == 0
	if f.Row != m.lastRow+1 {
		m.held = 0 // frames between are not measured
	}
	m.lastRow = f.Row
	if isSeen(&s) {
		m.resize(f.Width, f.Height)
		m.readGrid(f, &s)
		m.compareGrids(f, &s)
		r, g, b := f.RGB[0], f.RGB[1], f.RGB[2] // chroma of BT.601
		s.cb = float32(-0.168736*r - 0.331264*g + 0.5*b)
		s.cr = float32(0.5*r - 0.418688*g - 0.081312*b)
		for k := range hashCount {
			if m.frames > 0 && len(m.facts) == (2*k+1)*m.frames/(2*hashCount) {
				m.prints = append(m.prints, gridHash(m.new, m.columns, m.rows))
			}
		}
		m.addBlocks(f, &s)
		m.old, m.grid, m.new = m.grid, m.new, m.old
		m.held = min(m.held+1, 2)
	}
	m.facts = append(m.facts, s)
}

// resize prepares the grid for frames of a size. After a change of the size, the next frame is
// compared with none.
func (m *cameraMeter) resize(width, height int) {
	if width == m.width && height == m.height {
		return
	}
	m.width, m.height, m.held = width, height, 0
	step := gridStep(width, height)
	m.columns, m.rows = (width+step-1)/step, (height+step-1)/step
	n := m.columns * m.rows
	m.grid, m.old, m.new = make([]byte, n), make([]byte, n), make([]byte, n)
	m.blockOf = make([]uint8, n)
	m.blockPoints = [blockCount]int{}
	for i := range m.blockOf {
		m.blockOf[i] = uint8(
			i/m.columns*blockRows/m.rows*blockColumns + i%m.columns*blockColumns/m.columns,
		)
		m.blockPoints[m.blockOf[i]]++
	}
}

// addBlocks accumulates the mean levels of the blocks. It sets the change of light: the median change
// of a block since the previous frame, which local motion does not alter.
func (m *cameraMeter) addBlocks(f *frameSample, s *frameFacts) {
	var sums [blockCount]int
	for i, v := range m.new {
		sums[m.blockOf[i]] += int(v)
	}
	var means [blockCount]float64
	changes := make([]float64, 0, blockCount)
	for k, sum := range sums {
		if m.blockPoints[k] > 0 {
			means[k] = levelScale(f) * float64(sum) / float64(m.blockPoints[k])
			changes = append(changes, means[k]-m.lastBlocks[k])
		}
	}
	s.light = float32(math.NaN())
	if m.held > 0 {
		s.light = float32(medianOf(changes))
	}
	m.lastBlocks = means
	m.blocks.addBlocks(&means)
}

// gridStep returns the distance of the points of the grid, in pixels.
func gridStep(width, height int) int { return (max(width, height) + gridSide - 1) / gridSide }

// levelScale returns the factor from stored levels to those of the full range.
func levelScale(f *frameSample) float64 {
	if f.Limited {
		return 255.0 / 219
	}
	return 1
}

// readGrid reads the points of the grid and sets the facts that need one frame. The Laplacian and
// the noise compare a point with its neighbors at a distance of one pixel in 320 columns.
func (m *cameraMeter) readGrid(f *frameSample, s *frameFacts) {
	step, arm := gridStep(f.Width, f.Height), max(1, f.Width/320)
	var histogram [256]int32
	var sum, squares, noise, inner int64
	k := 0
	for y := 0; y < f.Height; y += step {
		row := f.Luma[y*f.Width:]
		if y < arm || y+arm >= f.Height || f.Width <= 2*arm {
			for x := 0; x < f.Width; x += step {
				c := row[x]
				histogram[c]++
				m.new[k] = c
				k++
			}
			continue
		}
		// The slices have the length of a row, so that one check of the bounds covers all.
		row = row[:f.Width]
		up, down := f.Luma[(y-arm)*f.Width:][:f.Width], f.Luma[(y+arm)*f.Width:][:f.Width]
		for x := 0; x < f.Width; x += step {
			c := row[x]
			histogram[c]++
			m.new[k] = c
			k++
			left, right := x-arm, x+arm
			if left < 0 || right >= f.Width {
				continue
			}
			cross := int32(row[left]) + int32(row[right]) + int32(up[x]) + int32(down[x])
			corners := int32(up[left]) + int32(up[right]) + int32(down[left]) + int32(down[right])
			laplace := cross - 4*int32(c)
			sum += int64(laplace)
			squares += int64(laplace * laplace)
			n := corners - 2*cross + 4*int32(c)
			sign := n >> 31
			noise += int64((n ^ sign) - sign)
			inner++
		}
	}
	scale := levelScale(f)
	if inner > 0 {
		mean := float64(sum) / float64(inner)
		s.laplace = float32(scale * scale * (float64(squares)/float64(inner) - mean*mean))
		// Immerkær 1996: σ = sqrt(π/2) / 6 × mean |N|.
		s.noise = float32(scale * math.Sqrt(math.Pi/2) / 6 * float64(noise) / float64(inner))
	}
	m.setLevels(f, s, &histogram)
}

// setLevels sets the facts about the levels of the points.
func (m *cameraMeter) setLevels(f *frameSample, s *frameFacts, histogram *[256]int32) {
	black, white, offset := 2, 253, 0.0
	if f.Limited {
		black, white, offset = 18, 233, 16
	}
	var sum, squares, clipped, n float64
	for level, count := range histogram {
		c, v := float64(count), float64(level)
		n += c
		sum += c * v
		squares += c * v * v
		if level <= black || level >= white {
			clipped += c
		}
	}
	mean, scale := sum/n, levelScale(f)
	s.mean = float32(max(0, scale*(mean-offset)))
	s.spread = float32(scale * math.Sqrt(max(0, squares/n-mean*mean)))
	s.clipped = float32(clipped / n)
}

// compareGrids sets the differences to the previous frames.
func (m *cameraMeter) compareGrids(f *frameSample, s *frameFacts) {
	n, scale := float64(len(m.new)), levelScale(f)
	if m.held > 0 {
		sum, changed := gridDifference(m.new, m.grid)
		s.change, s.changed = float32(scale*float64(sum)/n), float32(float64(changed)/n)
	}
	if m.held > 1 {
		sum, _ := gridDifference(m.new, m.old)
		s.change2 = float32(scale * float64(sum) / n)
	}
}

// gridDifference returns the sum of the absolute differences of two grids, and the number of points
// that differ by more than changedBy.
func gridDifference(a, b []byte) (sum, changed int) {
	b = b[:len(a)]
	for i, v := range a {
		d := int(v) - int(b[i])
		sign := d >> 63
		d = (d ^ sign) - sign
		sum += d
		changed += int(uint(changedBy-d) >> 63)
	}
	return sum, changed
}

// movingShare is the share of the 90th percentile of the speed from which the robot moves.
const movingShare = 0.25

// movingAt returns a function that reports whether the robot moves at a row of the episode. Without
// a speed for each row, the robot always moves.
func (x *recording) movingAt(rows int) func(row int) bool {
	if x == nil || len(x.speed) < rows {
		return func(int) bool { return true }
	}
	least := movingShare * sortedQuantile(slices.Sorted(slices.Values(x.speed)), 0.9)
	return func(row int) bool { return row < len(x.speed) && x.speed[row] > least }
}

// values returns the metrics of the camera. x may be nil: the robot then always moves.
func (m *cameraMeter) values(x *recording) map[string]float64 {
	unchanged := unchangedFrames(m.facts, x)
	jump, _ := frameJump(m.facts)
	return map[string]float64{
		"blur":              blur(m.facts),
		"image_noise":       imageNoise(m.facts),
		"brightness":        brightness(m.facts),
		"clipped_pixels":    clippedPixels(m.facts),
		"black_frames":      blackFrames(m.facts),
		"frozen_frames":     frozenFrames(unchanged),
		"duplicated_frames": duplicatedFrames(unchanged),
		"frame_jump":        jump,
		"corrupted_frames":  corruptedFrames(m.facts),
		"glitched_frames":   glitchedFrames(m.facts),
		"missing_frames":    missingFrames(m.facts),
		"flicker":           flicker(m.facts),
		"cast_cb":           castOf(m.facts, func(f *frameFacts) float32 { return f.cb }),
		"cast_cr":           castOf(m.facts, func(f *frameFacts) float32 { return f.cr }),
	}
}

// hashes returns the words of the camera: see packCamera.
func (m *cameraMeter) hashes() []int64 {
	return packCamera(m.prints, m.blocks.sketch(), m.values(nil))
}
