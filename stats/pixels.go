package stats

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/goatnote-inc/robocache"
)

// Pixels counts the levels of images, channel by channel. It computes exact moments and quantiles
// of any number of frames in constant space.
type Pixels struct {
	Frames int64
	value  []float64 // of each level
	hist   [][]int64 // per channel and level
	code   *robocache.Depth
	thin   bool // count only every few pixels of large images (stats.S4)
	buf    []byte
}

// NewPixels returns a counter for 8-bit images with the given number of channels, in [0,1].
func NewPixels(channels int) *Pixels {
	p := &Pixels{value: make([]float64, 256), hist: make([][]int64, channels)}
	for v := range p.value {
		p.value[v] = float64(v) / 255
	}
	for c := range p.hist {
		p.hist[c] = make([]int64, 256)
	}
	return p
}

// NewDepth returns a counter for 16-bit depth images. With a code, levels are the 12-bit codes of a
// depth video, and the statistics are those of the depth, in the code's unit. Without one, they are
// those of the levels.
func NewDepth(code *robocache.Depth) *Pixels {
	p := &Pixels{value: make([]float64, 65536), hist: [][]int64{make([]int64, 65536)}, code: code}
	for v := range p.value {
		p.value[v] = float64(v)
		if code != nil {
			p.value[v] = depthOfCode(code, min(v, 4095))
		}
	}
	return p
}

func depthOfCode(c *robocache.Depth, q int) float64 {
	n := float64(q) / 4095
	d := c.Min + float64(n*(c.Max-c.Min))
	if c.Log {
		lo, hi := math.Log(c.Min+c.Shift), math.Log(c.Max+c.Shift)
		d = math.Exp(lo+float64(n*(hi-lo))) - c.Shift
	}
	if c.Unit == "mm" {
		d *= 1000
	}
	return d
}

// Empty returns an empty counter of the same kind.
func (p *Pixels) Empty() *Pixels {
	o := &Pixels{value: p.value, code: p.code, thin: p.thin, hist: make([][]int64, len(p.hist))}
	for c := range o.hist {
		o.hist[c] = make([]int64, len(p.hist[c]))
	}
	return o
}

// Channels returns the number of channels.
func (p *Pixels) Channels() int { return len(p.hist) }

// pixelStride returns the step between counted pixels, in both directions. It follows lerobot's
// rule for large images: about 150 pixels of the longer side are counted.
func (p *Pixels) pixelStride(width, height int) int {
	const target, threshold = 150, 300
	if longer := max(width, height); p.thin && longer >= threshold {
		return longer / target
	}
	return 1
}

// Add8 counts an image of 8-bit samples, channels last.
func (p *Pixels) Add8(hwc []byte, width int) {
	p.Frames++
	n := len(p.hist)
	line := n * width
	if line == 0 {
		return
	}
	step := p.pixelStride(width, len(hwc)/line)
	for ; len(hwc) >= line; hwc = hwc[min(step*line, len(hwc)):] {
		row := hwc[:line]
		if n != 3 {
			for x := 0; x < width; x += step {
				for c, h := range p.hist {
					h[row[x*n+c]]++
				}
			}
			continue
		}
		r, g, b := (*[256]int64)(p.hist[0]), (*[256]int64)(p.hist[1]), (*[256]int64)(p.hist[2])
		for i := 0; i+2 < len(row); i += 3 * step {
			r[row[i]]++
			g[row[i+1]]++
			b[row[i+2]]++
		}
	}
}

// Add16 counts an image of one channel of little-endian 16-bit samples.
func (p *Pixels) Add16(le []byte, width int) {
	p.Frames++
	line := 2 * width
	if line == 0 {
		return
	}
	step := p.pixelStride(width, len(le)/line)
	for ; len(le) >= line; le = le[min(step*line, len(le)):] {
		for i := 0; i+1 < line; i += 2 * step {
			p.hist[0][binary.LittleEndian.Uint16(le[i:])]++
		}
	}
}

// Merge adds the counts of o, which must be of the same kind.
func (p *Pixels) Merge(o *Pixels) {
	p.Frames += o.Frames
	for c := range p.hist {
		for v, n := range o.hist[c] {
			p.hist[c][v] += n
		}
	}
}

// Stats returns the statistics in shape (channels,1,1), or nil if nothing was counted.
func (p *Pixels) Stats() *robocache.FeatureStats {
	if p == nil || p.Frames == 0 {
		return nil
	}
	fs := &robocache.FeatureStats{
		Count:     p.Frames,
		Shape:     []int{len(p.hist), 1, 1},
		Quantiles: map[string][]float64{},
	}
	for _, h := range p.hist {
		lo, hi := -1, 0
		var n int64
		var sum float64
		for v, k := range h {
			if k > 0 {
				if lo < 0 {
					lo = v
				}
				hi = v
				n += k
				sum += float64(p.value[v] * float64(k))
			}
		}
		if n == 0 {
			return nil
		}
		mean := sum / float64(n)
		var m2 float64
		for v, k := range h {
			if k > 0 {
				d := p.value[v] - mean
				m2 += float64(d * d * float64(k))
			}
		}
		fs.Min, fs.Max = append(fs.Min, p.value[lo]), append(fs.Max, p.value[hi])
		fs.Mean, fs.Std = append(fs.Mean, mean), append(fs.Std, math.Sqrt(m2/float64(n)))
		for i, q := range countedQuantiles(func(i int) float64 { return p.value[i] }, h) {
			fs.Quantiles[Quantiles[i].Name] = append(fs.Quantiles[Quantiles[i].Name], q)
		}
	}
	return fs
}

// pixelsJSON is the JSON form of Pixels: for each channel, the levels that occur with their counts.
type pixelsJSON struct {
	Frames int64            `json:"frames"`
	Levels [][]int64        `json:"levels"`
	Wide   bool             `json:"wide,omitempty"` // 16 bits
	Depth  *robocache.Depth `json:"depth,omitempty"`
}

// MarshalJSON encodes the counts.
func (p *Pixels) MarshalJSON() ([]byte, error) {
	o := pixelsJSON{Frames: p.Frames, Wide: len(p.value) > 256, Depth: p.code}
	for _, h := range p.hist {
		list := []int64{}
		for v, n := range h {
			if n > 0 {
				list = append(list, int64(v), n)
			}
		}
		o.Levels = append(o.Levels, list)
	}
	return json.Marshal(o)
}

// UnmarshalJSON adds encoded counts to a counter of the same kind. A zero counter gets the kind of
// the encoded one.
func (p *Pixels) UnmarshalJSON(b []byte) error {
	var o pixelsJSON
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	bad := robocache.Malformed("statistics", nil, "counts of another kind of image")
	if p.hist == nil && len(o.Levels) <= 16 {
		if *p = *NewPixels(len(o.Levels)); o.Wide {
			*p = *NewDepth(o.Depth)
		}
	}
	if len(o.Levels) != len(p.hist) {
		return bad
	}
	for c, list := range o.Levels {
		for i := 0; i+1 < len(list); i += 2 {
			if v := list[i]; v < 0 || v >= int64(len(p.hist[c])) || list[i+1] < 0 {
				return bad
			}
			p.hist[c][list[i]] += list[i+1]
		}
	}
	p.Frames += o.Frames
	return nil
}

// SampleFrames returns the rows of an episode whose images are counted: clamp(n^0.75, 100, 10000)
// rows, evenly spaced, with the first and the last.
func SampleFrames(n int) []int {
	lo := min(n, 100)
	k := max(lo, min(int(math.Pow(float64(n), 0.75)), 10000))
	out := make([]int, k)
	for i := range out {
		if k > 1 {
			// numpy.round(numpy.linspace(0, n-1, k)): step times i, half to even
			out[i] = int(math.RoundToEven(float64(n-1) / float64(k-1) * float64(i)))
		}
	}
	if k > 1 {
		out[k-1] = n - 1
	}
	return out
}
