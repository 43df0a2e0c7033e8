package inspect

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// ChannelNames gives each channel of a row of a numeric stream a name: the format's own where there
// are as many, else its place in the shape.
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
