package lerobot

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goatnote-inc/robocache"
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

// lookAtStills counts embedded pictures.
func (w *Writer) lookAtStills(f *writtenFeature, ep *EpisodeData, p *preparedEpisode) error {
	look := w.cfg.Frames.Pictures(&f.Feature)
	for _, k := range w.cfg.Frames.Choose(ep.Length) {
		switch err := look.AddStill(&robocache.FrameRef{Encoded: ep.Images[f.Key][k]}); {
		case errors.Is(err, robocache.ErrUnsupported):
			p.note("no-picture-statistics", f.Key, "no statistics of this camera: "+err.Error())
			return nil
		case err != nil:
			return robocache.At(err, robocache.Where{"row": k})
		}
	}
	ep.Pictures[f.Key] = look
	return nil
}
