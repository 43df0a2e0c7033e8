package quality

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Frames states which images are measured.
type Frames string

const (
	AllFrames     Frames = "all"    // every frame
	SampledFrames Frames = "sample" // runs of consecutive frames, evenly spaced
	NoFrames      Frames = "none"
)

// hashesPerCamera is the number of words that describe the frames of a camera.
const hashesPerCamera = cameraWords

// frameMeter accumulates one camera of one episode.
type frameMeter interface {
	// add measures one frame. Frames are added in ascending order of rows. The bytes of f are valid
	// during the call.
	add(f *frameSample)
	// values returns the values of metrics of frames by name. Of several cameras the worst value
	// counts (worseValue). x has the numbers of the episode.
	values(x *recording) map[string]float64
	// spans returns the parts of the episode to which the values belong.
	spans(x *recording) map[string]span
	// hashes returns hashesPerCamera words that describe the frames; nil if there are none.
	hashes() []int64
}

// frameSample is one decoded frame of a camera.
type frameSample struct {
	Luma          []byte // Width × Height, row by row
	Width, Height int
	// Limited reports that black is 16 and white 235, as in most video; otherwise 0 and 255.
	Limited bool
	RGB     [3]float64 // mean colour, 0 to 255
	Row     int        // row of the episode; sampled runs leave gaps
	TimeNS  int64      // timestamp of the row
	IsStill bool       // the image is encoded without other frames
	// Missing is true if the row has no image. Luma is empty.
	Missing bool
	// Err is the error of decoding the frame. Luma is empty.
	Err error
}

// SampledFrames measures sampledRuns runs of runRows consecutive rows, evenly spaced.
const (
	sampledRuns = 8
	runRows     = 12
)

// Check returns ErrMisuse if p is no choice of images.
func (p Frames) Check() error {
	if !slices.Contains([]Frames{AllFrames, SampledFrames, NoFrames}, p) {
		return robocache.Misuse("quality", nil, "%s", robocache.Option("frames")).
			Expected("all, sample or none", string(p))
	}
	return nil
}

// choose returns the rows of an episode whose images are measured, in ascending order.
func (p Frames) choose(n int) []int {
	var out []int
	switch {
	case p == NoFrames || n <= 0:
	case p == AllFrames || n <= sampledRuns*runRows:
		for i := range n {
			out = append(out, i)
		}
	default:
		for k := range sampledRuns {
			first := k * (n - runRows) / (sampledRuns - 1)
			for i := range runRows {
				if row := first + i; len(out) == 0 || row > out[len(out)-1] {
					out = append(out, row)
				}
			}
		}
	}
	return out
}
