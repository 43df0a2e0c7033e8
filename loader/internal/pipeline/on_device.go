package pipeline

import (
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/options"
	"github.com/goatnote-inc/robocache/loader/internal/plan"
	"github.com/goatnote-inc/robocache/video"
)

// IsOnDevice has frames that a device decodes stay there: those of batches that go to it, where every source's do.
func (a *Assembler) onDevice() {
	first := a.Sources[0]
	if !a.Config.Raw || a.Config.Cache != "" && a.Config.Cache != options.CacheOnDevice || first.DecodeDevice == nil {
		return
	}
	for _, own := range first.Columns {
		all := !slices.ContainsFunc(a.Sources, func(src *plan.Source) bool {
			c := src.ImageColumn(own.Key)
			return c == nil || src.DecodeDevice != first.DecodeDevice || c.IsStill || c.Spec.Pixel != video.RGB8 || c.Norm != nil ||
				c.Augment != nil && c.Deferred == nil
		})
		for _, src := range a.Sources {
			if all {
				src.ImageColumn(own.Key).FrameDevice, a.device = first.DecodeDevice, first.DecodeDevice
			}
		}
	}
}
