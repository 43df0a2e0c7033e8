package quality

import (
	"math"
	"slices"
)

// A camera of an episode is kept in the table as cameraWords words, by which addSetColumns compares
// it with the same camera in other episodes: hashCount hashes, the mean level of each block and
// four times its deviation over time as bytes, and cameraMeans as float32.
const (
	blockWords  = 2 * blockCount / 8
	meanWords   = (len(cameraMeans) + 1) / 2
	cameraWords = hashCount + blockWords + meanWords
)

// cameraMeans are the means of frames that are compared with the median of their camera.
var cameraMeans = [...]string{
	"blur", "image_noise", "brightness", "clipped_pixels", "flicker", "cast_cb", "cast_cr",
}

// packCamera returns the words of a camera. It returns nil without frames.
func packCamera(hashes []uint64, blocks []float32, values map[string]float64) []int64 {
	if blocks == nil {
		return nil
	}
	words := make([]int64, cameraWords)
	for i, h := range hashes {
		words[i] = int64(h)
	}
	for i, v := range blocks {
		if i >= blockCount {
			v *= 4
		}
		level := int64(min(255, max(0, math.Round(float64(v)))))
		words[hashCount+i/8] |= level << (i % 8 * 8)
	}
	for i, name := range cameraMeans {
		bits := int64(math.Float32bits(float32(values[name])))
		words[hashCount+blockWords+i/2] |= bits << (i % 2 * 32)
	}
	return words
}

// cameraOf returns the words of camera c of a row. It returns nil if the row has no frame of it.
func cameraOf(t *Table, row, c int) []int64 {
	words := t.Hash(row)[c*cameraWords : (c+1)*cameraWords]
	if !slices.ContainsFunc(words, func(w int64) bool { return w != 0 }) {
		return nil
	}
	return words
}

// cameraCount returns the number of cameras that a table describes.
func cameraCount(t *Table) int { return t.HashWidth / cameraWords }

// blocksOf returns the blocks of a camera, as blockMeter.sketch does. It returns nil for nil.
func blocksOf(words []int64) []float32 {
	if words == nil {
		return nil
	}
	out := make([]float32, 2*blockCount)
	for i := range out {
		out[i] = float32(uint8(words[hashCount+i/8] >> (i % 8 * 8)))
		if i >= blockCount {
			out[i] /= 4
		}
	}
	return out
}

// meanAt returns value i of cameraMeans. It returns NaN for nil.
func meanAt(words []int64, i int) float64 {
	if words == nil {
		return math.NaN()
	}
	return float64(math.Float32frombits(uint32(words[hashCount+blockWords+i/2] >> (i % 2 * 32))))
}

// addCameraColumns computes the metrics of frames that are relative to their camera. Of several
// cameras, the worst counts.
func addCameraColumns(t *Table) {
	n := t.Len()
	worst := map[string][]float64{}
	put := func(name string, row int, v float64) {
		if worst[name] == nil {
			worst[name] = slices.Repeat([]float64{math.NaN()}, n)
		}
		if old := worst[name][row]; old != old || v > old {
			worst[name][row] = v
		}
	}
	for c := range cameraCount(t) {
		var usual [len(cameraMeans)]float64
		var blocks [][]float32
		column := make([]float64, n)
		for i := range usual {
			for row := range n {
				column[row] = meanAt(cameraOf(t, row, c), i)
			}
			usual[i], _ = medianAndSpread(column)
		}
		for row := range n {
			words := cameraOf(t, row, c)
			blocks = append(blocks, blocksOf(words))
			for i, name := range cameraMeans[:5] {
				v := meanAt(words, i) - usual[i]
				if name == "brightness" {
					v = math.Abs(v)
				}
				put(name, row, v)
			}
			put(
				"colour_cast",
				row,
				math.Hypot(meanAt(words, 5)-usual[5], meanAt(words, 6)-usual[6]),
			)
		}
		for row, v := range occlusions(blocks) {
			put("occlusion", row, v)
		}
	}
	for name, column := range worst {
		t.Columns[name] = column
	}
}
