package column

import (
	"strings"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// Affine is a normalization in the form that kernels apply (kernel.K10). Its columns repeat along a
// row.
type Affine struct {
	kernel.Norm
	Clip      bool
	Mode      string    // as configured
	Low, High []float64 // the statistics behind Norm: mean and std, or the two ends
}

// IsBookkeeping reports whether a column holds only numbers or times of rows. Most formats mark such
// columns (Feature.Default). Others are recognized by the name "timestamp".
func (c *Column) IsBookkeeping() bool {
	name := c.Feature.Key[strings.LastIndexAny(c.Feature.Key, "./")+1:]
	return c.Feature.Default || name == "timestamp" || name == "timestamps"
}

// IsDepth reports whether the column is depth. Recorded statistics of depth may have another unit.
func (c *Column) IsDepth() bool {
	i := c.Image()
	return i != nil && (i.Spec.Pixel == video.DepthMM || i.Spec.Pixel == video.DepthM)
}

// clipRange is the range that Clip limits values to.
var clipRange = [2]float32{-1, 1}

// Epilogue returns the normalization as a kernel applies it. With plane 0, statistics repeat along
// a row. Otherwise each number applies to plane consecutive elements (channels first). f may be
// nil.
func (f *Affine) Epilogue(plane int) kernel.Epilogue {
	if f == nil {
		return kernel.Epilogue{}
	}
	e := kernel.Epilogue{Norm: &f.Norm, Plane: plane}
	if f.Clip {
		e.Clip = &clipRange
	}
	return e
}
