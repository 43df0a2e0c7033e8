package quality

import "math"

// changeMeter measures the movement that a camera sees: the mean absolute difference of luma
// between consecutive frames, over every few pixels.
type changeMeter struct {
	before  []byte
	row     int
	time    int64
	pixels  []byte
	times   []int64 // in the middle between two frames
	changes []float64
}

// changePixels is the number of pixels that are compared, approximately.
const changePixels = 4096

// add compares a frame with the one before, if it is of the row before.
func (m *changeMeter) add(f *frameSample) {
	if len(f.Luma) == 0 {
		m.before = m.before[:0]
		return
	}
	step := max(1, int(math.Sqrt(float64(len(f.Luma))/changePixels)))
	m.pixels = m.pixels[:0]
	for y := step / 2; y < f.Height; y += step {
		line := f.Luma[y*f.Width : (y+1)*f.Width]
		for i := step / 2; i < len(line); i += step {
			m.pixels = append(m.pixels, line[i])
		}
	}
	if len(m.before) == len(m.pixels) && f.Row == m.row+1 {
		sum := 0
		for i, v := range m.pixels {
			if d := int(v) - int(m.before[i]); d < 0 {
				sum -= d
			} else {
				sum += d
			}
		}
		m.times = append(m.times, m.time+(f.TimeNS-m.time)/2)
		m.changes = append(m.changes, float64(sum)/float64(len(m.pixels)))
	}
	m.before, m.pixels = m.pixels, m.before
	m.row, m.time = f.Row, f.TimeNS
}

// series returns the changes in seconds from the start of the episode.
func (m *changeMeter) series(x *recording) cameraChange {
	c := cameraChange{change: m.changes}
	for _, t := range m.times {
		c.seconds = append(c.seconds, float64(t-x.start)/1e9)
	}
	return c
}
