// Package resize scales uint8 images by the filters of the libraries that training code uses.
//
// Contract:
//
//	resize.C1  A pixel depends on the filter, on both sizes and on the source image only. Results do
//	           not depend on the machine or on the number of threads.
//	resize.C2  A pixel is computed in two passes, first along the row and then along the column, in
//	           the arithmetic of the library: integers with the library's number of fractional bits,
//	           or float32 operations that are rounded one by one and never fused.
//	resize.C3  After New, no function of this package allocates memory per image.
//	resize.C4  The AVX2 code computes the same bits as the plain code. It reads only the source
//	           image. The build tag purego excludes it.
//
// Intuitively, each axis is a sparse matrix: output i is a weighted sum of neighboring samples. The
// matrices depend on the sizes only, so they are computed once and shared.
package resize

import (
	"fmt"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Filter names the library and its rule for scaling.
type Filter string

const (
	CV2Area        Filter = "cv2-area"        // cv2.resize, INTER_AREA
	CV2Linear      Filter = "cv2-linear"      // cv2.resize, INTER_LINEAR
	PILBilinear    Filter = "pil-bilinear"    // PIL.Image.resize, BILINEAR
	PILLanczos     Filter = "pil-lanczos"     // PIL.Image.resize, LANCZOS
	TorchAntialias Filter = "torch-antialias" // torch interpolate, bilinear, antialias=True, uint8
	TFLanczos3     Filter = "tf-lanczos3"     // tf.image.resize, lanczos3, antialias=True, rounded
	Nearest        Filter = "nearest"         // the pixel at the center: PIL NEAREST
)

// Filters lists all filters.
var Filters = []Filter{
	CV2Area, CV2Linear, PILBilinear, PILLanczos, TorchAntialias, TFLanczos3, Nearest,
}

// MaxSide is the maximum width or height of an image.
const MaxSide = 1 << 15

// Arithmetic states how the two passes compute.
type Arithmetic int32

const (
	// Bytes sums integers in both passes. Both results are rounded and clipped to bytes.
	Bytes Arithmetic = iota
	// Floats sums float32. Only the second result is rounded, half to even, and clipped.
	Floats
	// Fixed blends two samples per axis by weights with 11 fractional bits, as cv2 does.
	Fixed
)

// Axis is the sparse matrix of one axis. Output i is the sum of Count(i) samples from First[i] on.
type Axis struct {
	From, To int     // number of samples and of outputs
	First    []int32 // Fixed: First[i] and First[i]+1 may be outside and are then clamped
	Start    []int32 // of the weights of output i; one longer than First
	Weights  []int32 // Bytes, Fixed
	Floats   []float32
	Shift    int32 // fractional bits of Weights

	// The weights of all outputs with zeros up to taps, a multiple of 4, so that loops have no
	// remainder. A zero does not change a sum.
	taps       int
	padded     []uint64 // of Weights, with their sign extended
	paddedReal []float32
	blends     []blend // of Fixed

	// For vector instructions; nil without them.
	steps    int         // loads per group of eight outputs, or pairs of rows per output
	loads    []tapLoad   // of the pass along the row
	rowPairs [][2]uint32 // of the pass along the column: high and low parts of two weights
}

// blend is the two samples of an output and their weights.
type blend struct{ first, second, low, high int32 }

// Count returns the number of samples of output i.
func (a *Axis) Count(i int) int { return int(a.Start[i+1] - a.Start[i]) }

// Scaler scales images from one size to another. It is immutable and safe for concurrent use.
type Scaler struct {
	Filter     Filter
	Arithmetic Arithmetic
	X, Y       *Axis
	// Gain and Bias are used by the arithmetic Floats: the result is round(sum × Gain + Bias).
	Gain, Bias float32
	isCopy     bool
}

// scalerKey identifies a Scaler.
type scalerKey struct {
	filter                                   Filter
	fromHeight, fromWidth, toHeight, toWidth int
}

// scalers holds a *Scaler per scalerKey. Datasets have few image sizes.
var scalers sync.Map

// New returns the scaler from one size to another. It rejects unknown filters and sizes that are
// not 1 to MaxSide.
func New(filter Filter, fromHeight, fromWidth, toHeight, toWidth int) (*Scaler, error) {
	if !slices.Contains(Filters, filter) {
		return nil, robocache.Misuse("resize", nil, "unknown filter").
			Expected(fmt.Sprint(Filters), string(filter))
	}
	if min(fromHeight, fromWidth, toHeight, toWidth) < 1 ||
		max(fromHeight, fromWidth, toHeight, toWidth) > MaxSide {
		return nil, robocache.ResourceLimit("resize", nil, "an image size").
			Expected(fmt.Sprintf("1 to %d pixels per side", MaxSide), fmt.Sprintf(
				"%d×%d to %d×%d", fromWidth, fromHeight, toWidth, toHeight))
	}
	key := scalerKey{filter, fromHeight, fromWidth, toHeight, toWidth}
	if s, ok := scalers.Load(key); ok {
		return s.(*Scaler), nil
	}
	s, _ := scalers.LoadOrStore(key, newScaler(key))
	return s.(*Scaler), nil
}

// newScaler builds the axes of a filter for two sizes that New has checked.
func newScaler(k scalerKey) *Scaler {
	s := &Scaler{Filter: k.filter, Gain: 1}
	axis := func(build func(from, to int) *Axis) {
		s.X, s.Y = build(k.fromWidth, k.toWidth), build(k.fromHeight, k.toHeight)
	}
	s.isCopy = k.fromHeight == k.toHeight && k.fromWidth == k.toWidth
	switch k.filter {
	case CV2Area, CV2Linear:
		if s.isCopy {
			axis(nearestAxis)
			break
		}
		s.setCV2(k)
	case PILBilinear:
		axis(func(from, to int) *Axis { return pilAxis(from, to, 1, triangle) })
	case PILLanczos:
		axis(func(from, to int) *Axis { return pilAxis(from, to, 3, lanczos3) })
	case TorchAntialias:
		axis(torchAxis)
	case TFLanczos3:
		s.Arithmetic = Floats
		axis(tensorflowAxis)
	default:
		axis(nearestAxis)
	}
	// Only the pass along the row uses padded weights.
	s.X.padWeights(s.Arithmetic)
	s.setVectors()
	return s
}
