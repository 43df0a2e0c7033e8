package inspect

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// ChannelNames returns a name for each channel of a numeric stream: the format's own names if their
// number fits, else the indices in the shape.
func ChannelNames(f *robocache.Feature) []string {
	if own := f.ChannelNames(); own != nil {
		return own
	}
	names := make([]string, f.Elements())
	for i := range names {
		rest := i
		for k := len(f.Shape) - 1; k >= 0; k-- {
			place := strconv.Itoa(rest % f.Shape[k])
			if rest /= f.Shape[k]; names[i] != "" {
				place += ","
			}
			names[i] = place + names[i]
		}
	}
	return names
}
