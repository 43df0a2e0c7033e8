package video

import (
	"fmt"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
)

// Nearest returns the number of the frame whose presentation time is nearest to seconds. Of two
// equally near frames it is the earlier. The index must have a frame.
func (ix *Index) Nearest(seconds float64) int {
	n := ix.NumFrames()
	// the conversion prevents a fused multiply-subtract
	t := float64(seconds * float64(ix.timescale))
	i := sort.Search(n, func(i int) bool { return float64(ix.PTS(i)) >= t })
	if i == n || i > 0 && t-float64(ix.PTS(i-1)) <= float64(ix.PTS(i))-t {
		return i - 1
	}
	return i
}

// Interval returns the median time between two frames in nanoseconds, or 0 if there are fewer than
// two.
func (ix *Index) Interval() int64 {
	times := make([]int64, ix.NumFrames())
	for i := range times {
		times[i] = ix.TimeNS(i)
	}
	return MedianStep(times)
}

// MedianStep returns the median of the differences between neighboring times, or 0 if there are
// none.
func MedianStep(times []int64) int64 {
	if len(times) < 2 {
		return 0
	}
	steps := make([]int64, len(times)-1)
	for i := range steps {
		steps[i] = times[i+1] - times[i]
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}

// HalfFrame returns the maximum distance between a frame and the time of its row. It is just below
// half of the shorter of the frame interval and the row interval. Two rows then never share a
// frame, and a row at a gap in the video gets none. The margin of 1 % rejects frames half-way
// between two rows. An interval of 0 or less is unknown and ignored.
func HalfFrame(frames, rows int64) int64 {
	switch {
	case frames <= 0:
		frames = rows
	case rows <= 0:
		rows = frames
	}
	shorter := max(0, min(frames, rows))
	return shorter/2 - shorter/100
}

// FramesAt returns the frame nearest to each of the times, in nanoseconds. row is the first time
// that has no frame within the given distance; it is -1 if all have one, and frames is complete.
func (ix *Index) FramesAt(times []int64, within int64) (frames []int32, row int) {
	frames = make([]int32, 0, min(len(times), ix.NumFrames()+1))
	for k, t := range times {
		if ix.NumFrames() == 0 {
			return frames, k
		}
		i := ix.Nearest(float64(t) / 1e9)
		if absDifference(ix.TimeNS(i), t) > uint64(within) {
			return frames, k
		}
		frames = append(frames, int32(i))
	}
	return frames, -1
}

// NoFrame describes the first row of an episode that has no frame of its own.
type NoFrame struct {
	Row            int
	Msg, Want, Got string
}

// FramesOfRows returns the frame of each row of an episode by the rows' times on the file's clock,
// in nanoseconds. missing is nil if every row has a frame of its own within the given distance;
// otherwise the episode as a whole cannot be delivered.
func (ix *Index) FramesOfRows(times []int64, within int64) (frames []int32, missing *NoFrame) {
	frames, row := ix.FramesAt(times, within)
	if row >= 0 {
		got := "no frame"
		if ix.NumFrames() > 0 {
			i := ix.Nearest(float64(times[row]) / 1e9)
			got = fmt.Sprintf("frame %d at %s", i, Seconds(ix.TimeNS(i)))
		}
		return nil, &NoFrame{
			Row: row, Msg: "a row has none within half a frame",
			Want: fmt.Sprintf("a frame at %s ± %s", Seconds(times[row]), Seconds(within)), Got: got,
		}
	}
	for k := 1; k < len(frames); k++ {
		if frames[k] <= frames[k-1] {
			return nil, &NoFrame{
				Row: k, Msg: "two rows have the same frame: the timestamps repeat",
				Want: "a frame of its own", Got: fmt.Sprintf("frame %d", frames[k]),
			}
		}
	}
	return frames, nil
}

// NoFrameHint returns the hint for a row without a frame.
func NoFrameHint() string {
	return "skip the episode with " + robocache.SkipBadEpisodes() +
		", or remove it with " + robocache.Command("edit delete")
}

// Seconds formats nanoseconds for a message.
func Seconds(ns int64) string { return fmt.Sprintf("%.6g s", float64(ns)/1e9) }

// absDifference returns |a − b|, also if the difference does not fit into int64.
func absDifference(a, b int64) uint64 {
	if a < b {
		a, b = b, a
	}
	return uint64(a) - uint64(b)
}
