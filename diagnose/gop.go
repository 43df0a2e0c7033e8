package diagnose

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// manyDecoded frames for one are more than training in any order should pay for.
const manyDecoded = 8

// longGOPs tells of cameras of which a frame in any order makes many be decoded, by the sample
// table of one file each: nothing is wrong with them.
func (x *examination) longGOPs() error {
	for i := range x.ds.Info().Features {
		f := &x.ds.Info().Features[i]
		if f.Kind != robocache.KindVideo {
			continue
		}
		file, err := video.FirstFile(x.ctx, x.ds, f)
		if err := x.ctx.Err(); err != nil {
			return err
		}
		if robocache.IsFatal(err) {
			return err
		}
		if err != nil || file == nil {
			continue // told elsewhere
		}
		n, entries := file.Index.DecodedPerFrame(), file.Index.Entries()
		file.Release()
		if n > manyDecoded && len(entries) > 0 {
			hint := fmt.Sprintf(
				"%s makes that 4.5; %s says what it brings, in size and quality too",
				robocache.Command(
					"edit reencode SRC DST --codec=%s --gop=%d",
					video.Advised(&entries[0]),
					video.AdvisedGOP,
				),
				robocache.Command("inspect --decode-cost"),
			)
			x.add(
				robocache.SeverityInfo,
				"long-gop",
				robocache.Where{"stream": f.Key},
				0,
				hint,
				"a frame in random order makes %.1f be decoded, for key frames are far apart",
				n,
			)
		}
	}
	return nil
}
