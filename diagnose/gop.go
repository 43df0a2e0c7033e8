package diagnose

import (
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// manyDecoded is the largest average number of frames decoded per random frame that is not
// reported.
const manyDecoded = 8

// findLongGOPs reports cameras whose key frames are far apart, so that random access decodes many
// frames. It looks at the sample table of one file per camera. The finding has severity info: the
// video is valid.
func (x *examination) findLongGOPs() error {
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
			continue // another check reports it
		}
		n := file.Index.DecodedPerFrame()
		entries := file.Index.Entries()
		file.Release()
		if n > manyDecoded && len(entries) > 0 {
			hint := fmt.Sprintf(
				"%s reduces that to 4.5; %s measures the effect on speed, size and quality",
				robocache.Command(
					"edit reencode SRC DST --codec=%s --gop=%d",
					video.Advised(&entries[0]),
					video.AdvisedGOP,
				),
				robocache.Command("inspect --decode-cost"),
			)
			x.addFinding(
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
