package write

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
)

// stillName is the bare file name that the reference's recorder leaves beside embedded bytes.
func stillName(k int, b []byte) string {
	ext := "png"
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xd8}):
		ext = "jpg"
	case bytes.HasPrefix(b, []byte("II*\x00")), bytes.HasPrefix(b, []byte("MM\x00*")):
		ext = "tiff"
	}
	return fmt.Sprintf("frame-%06d.%s", k, ext)
}

// stillColumn makes the two leaves of a column of embedded frames: bytes and names.
func stillColumn(leaves []*pqw.Leaf, imgs [][]byte, out *preparedColumn) error {
	names := make([][]byte, len(imgs))
	for k, b := range imgs {
		names[k] = []byte(stillName(k, b))
	}
	for i, rows := range [][][]byte{imgs, names} {
		c, err := leaves[i].Blobs(rows)
		if err != nil {
			return err
		}
		out.chunks = append(out.chunks, c)
	}
	return nil
}

// stillsAtOnce is how many frames are worth a goroutine.
const stillsAtOnce = 16

// lookAtStills counts embedded frames, several runs of them side by side: counts merge to the same whatever the split.
func (w *Writer) lookAtStills(f *writtenFeature, ep *EpisodeData, out *preparedColumn) error {
	chosen := w.cfg.Frames.Choose(ep.Length)
	look := w.cfg.Frames.Images(&f.Feature)
	share := max(stillsAtOnce, (len(chosen)+w.cfg.Encoders-1)/w.cfg.Encoders)
	var looks []*stats.Pixels
	var errs []error
	var wg sync.WaitGroup
	for from := 0; from < len(chosen); from += share {
		looks, errs = append(looks, look.Empty()), append(errs, nil)
	}
	for i := range looks {
		wg.Go(func() {
			defer guard.Malformed("write lerobot", &errs[i])
			for _, k := range chosen[i*share : min((i+1)*share, len(chosen))] {
				if err := looks[i].AddStill(&robocache.FrameRef{Encoded: ep.Images[f.Key][k]}); err != nil {
					errs[i] = robocache.At(err, robocache.Where{"row": k})
					return
				}
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		switch {
		case errors.Is(err, robocache.ErrUnsupported):
			out.note = "no statistics of this camera: " + err.Error()
			return nil
		case err != nil:
			return err
		}
		look.Merge(looks[i])
	}
	out.look = look
	return nil
}
