package verbs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/video"
)

// defaultDecodeSpan is how long a camera is decoded on a device to measure its cost.
const defaultDecodeSpan = 2 * time.Second

// trialFrames is the number of frames of a camera that the trial encodes.
const trialFrames = 128

// measureDecodeCost measures the cost of decoding frames as they are, and after they are encoded
// again. The trial edits a piece of an episode into a temporary folder.
func measureDecodeCost(
	ctx context.Context, ds robocache.Dataset, r *InspectRequest,
) (*inspect.Decoding, error) {
	opt, err := r.Options()
	if err != nil {
		return nil, err
	}
	span := cmp.Or(r.DecodeSpan, defaultDecodeSpan)
	d, err := inspect.MeasureDecoding(ctx, ds, -1, 0, span)
	if err != nil {
		return nil, err
	}
	e := ds.Info().Episodes / 2
	for range ds.Info().Episodes {
		if ds.Len(e) > 0 {
			break
		}
		e = (e + 1) % ds.Info().Episodes
	}
	t := &inspect.EncodingTrial{
		Codec: cmp.Or(r.Codec, advisedCodec(ctx, ds)), GOP: valueOr(r.GOP, video.AdvisedGOP),
		Episode: ds.Info().EpisodeIndex(e), Frames: min(ds.Len(e), trialFrames),
	}
	t.Command = fmt.Sprintf("robocache edit reencode %s DST --codec %s --gop %d",
		robocache.Redact(r.URI), t.Codec, t.GOP)
	d.Trial = t
	err = encodeTrial(ctx, ds, e, r.URI, opt, t, span)
	switch {
	case robocache.IsFatal(err):
		return nil, err
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		t.Problem = err.Error()
	}
	return d, nil
}

// advisedCodec returns the codec for the first camera whose file can be read.
func advisedCodec(ctx context.Context, ds robocache.Dataset) string {
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if f.Kind != robocache.KindVideo || f.Depth != nil {
			continue
		}
		if file, err := video.FirstFile(ctx, ds, f); err == nil && file != nil {
			defer file.Release()
			return string(video.Advised(&file.Index.Entries()[0]))
		}
	}
	return string(video.HEVC)
}

// encodeTrial encodes the beginning of an episode by t, and adds the cost of its frames to t.
func encodeTrial(
	ctx context.Context, ds robocache.Dataset, position int, uri string,
	open robocache.OpenOptions, t *inspect.EncodingTrial, span time.Duration,
) error {
	dir, err := os.MkdirTemp("", "robocache-trial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := edit.Run(ctx, &edit.Request{
		Sources: []string{uri}, Open: open, DST: filepath.Join(dir, "trial"),
		To: robocache.DefaultFormat(), Stats: "rows",
		Verbs: []edit.Verb{
			{Verb: "keep", Choice: edit.Choice{Episodes: strconv.FormatInt(t.Episode, 10)}},
			{Verb: "trim", To: fmt.Sprintf("%dr", t.Frames)},
			{Verb: "reencode", Video: &edit.Video{Codec: t.Codec, GOP: t.GOP}},
		},
	})
	if err != nil {
		return err
	}
	encoded, err := robocache.Open(ctx, r.DST, robocache.OpenOptions{Format: r.Format})
	if err != nil {
		return err
	}
	defer encoded.Close()
	after, err := inspect.MeasureDecoding(ctx, encoded, 0, t.Frames, span)
	if err != nil {
		return err
	}
	before, err := inspect.MeasureDecoding(ctx, ds, position, t.Frames, 0)
	if err != nil {
		return err
	}
	bytesBefore := map[string]float64{}
	for _, s := range before.Streams {
		bytesBefore[s.Key] = s.Bytes
	}
	for _, s := range after.Streams {
		psnr := r.Video.PSNR[s.Key]
		x := inspect.StreamTrial{StreamCost: s, PSNR: psnr.Mean, LeastPSNR: psnr.Min}
		if n := bytesBefore[s.Key]; n > 0 {
			x.SizeRatio = s.Bytes / n
		}
		t.Streams = append(t.Streams, x)
	}
	return nil
}
