package column

import (
	"strings"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/video"
)

// Affine is a normalisation ready to run: kernel.Norm's arithmetic (K10) over repeating columns.
type Affine struct {
	kernel.Norm
	Clip      bool
	Mode      string    // as it was asked for
	Low, High []float64 // what Norm was made of: mean and std, or the ends
}

// IsBookkeeping says that a column holds what a format counts by: Feature.Default, and times where a format does not mark them.
func (c *Column) IsBookkeeping() bool {
	name := c.Feature.Key[strings.LastIndexAny(c.Feature.Key, "./")+1:]
	return c.Feature.Default || name == "timestamp" || name == "timestamps"
}

// IsDepth says that the column is depth: its statistics would be of another unit.
func (c *Column) IsDepth() bool {
	i := c.Image()
	return i != nil && (i.Spec.Pixel == video.DepthMM || i.Spec.Pixel == video.DepthM)
}

var unitRange = [2]float32{-1, 1}

// Epilogue is what a kernel does: columns repeat with the statistics' length, or by planes (channels first); 0: no planes.
func (f *Affine) Epilogue(plane int) kernel.Epilogue {
	if f == nil {
		return kernel.Epilogue{}
	}
	e := kernel.Epilogue{Norm: &f.Norm, Plane: plane}
	if f.Clip {
		e.Clip = &unitRange
	}
	return e
}
