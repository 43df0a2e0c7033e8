package quality

import "math"

// occlusionMetric is the share of the 8 × 6 blocks of the image that a static object may cover.
// Such a block differs from the camera's median block by more than 5 robust deviations and 10
// levels, after the median difference of all blocks is subtracted, and changes over time at most
// 1.5 times as much as is usual plus 1 level. Unit: share. Source: none. Known failure: a
// background that changes from episode to episode hides it, and a moved camera looks covered.
var occlusionMetric = metric{
	Metric: Metric{
		Name:     "occlusion",
		Group:    GroupImages,
		Unit:     "share",
		Worse:    1,
		Summary:  "Share of the image that a static object covers only in this episode.",
		Source:   "blocks against the camera's median",
		Inferred: true,
	},
	rule: &rule{code: "occluded-camera", spread: 6, floor: 0.03, hint: hintLook},
}

// blockMeter accumulates the mean level of each block over frames.
type blockMeter struct {
	n            float64
	sum, squares [blockCount]float64
}

// addBlocks accumulates the blocks of a frame.
func (b *blockMeter) addBlocks(means *[blockCount]float64) {
	for k, mean := range means {
		b.sum[k] += mean
		b.squares[k] += mean * mean
	}
	b.n++
}

// sketch returns the mean of each block over time, and then its standard deviation. It is nil
// without frames.
func (b *blockMeter) sketch() []float32 {
	if b.n == 0 {
		return nil
	}
	out := make([]float32, 2*blockCount)
	for k := range blockCount {
		mean := b.sum[k] / b.n
		out[k] = float32(mean)
		out[blockCount+k] = float32(math.Sqrt(max(0, b.squares[k]/b.n-mean*mean)))
	}
	return out
}

// occlusions returns the occlusion of each episode from the blocks of one camera; nil blocks give
// NaN.
func occlusions(blocks [][]float32) []float64 {
	out := make([]float64, len(blocks))
	var usual, spread [2 * blockCount]float64
	column := make([]float64, 0, len(blocks))
	for k := range usual {
		column = column[:0]
		for _, b := range blocks {
			if len(b) == 2*blockCount {
				column = append(column, float64(b[k]))
			}
		}
		usual[k], spread[k] = medianAndSpread(column)
	}
	for e, b := range blocks {
		if len(b) != 2*blockCount {
			out[e] = nan
			continue
		}
		var shifts [blockCount]float64
		for k := range shifts {
			shifts[k] = float64(b[k]) - usual[k]
		}
		shift, _ := medianAndSpread(shifts[:])
		covered := 0.0
		for k, s := range shifts {
			differs := math.Abs(s-shift) > max(10, 5*spread[k])
			covered += oneIf(differs && float64(b[blockCount+k]) <= 1.5*usual[blockCount+k]+1)
		}
		out[e] = covered / blockCount
	}
	return out
}
