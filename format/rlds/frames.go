package rlds

import (
	"context"
	"errors"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

// Frames returns images as they are encoded in the record. Float32 depth is returned as pixels.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer guard.Recover("rlds frames", &err)
	l, _, _ := d.leafOf(key, robocache.KindImage)
	guard.Check(op.Room(key, "frames", len(rows), len(out)))
	d.eachEpisode(
		ctx,
		l,
		rows,
		func(rec *record, episode int, which []int) {
			d.episodeFrames(ctx, l, rec, episode, rows, which, out)
		},
	)
	return nil
}

// episodeFrames returns images of one episode. They are copied, because a slice would keep the
// whole record in memory and the caller may modify it.
func (d *Dataset) episodeFrames(
	ctx context.Context,
	l *leaf,
	rec *record,
	episode int,
	rows []robocache.Row,
	which []int,
	out []robocache.FrameRef,
) {
	spans := rec.lists[l.slot].spans
	asked := 0
	for _, i := range which {
		sp := spans[l.rowOf(rows[i].Index)]
		asked += int(sp.to - sp.from)
	}
	if rec.isImageless && asked > d.recordSize(episode)/8 {
		// Much of the record is needed, so it is read as a whole, which also serves the next call.
		rec = d.loadRecord(ctx, episode)
	}
	arena := make([]byte, asked)
	at := 0
	var reads []store.Span
	for _, i := range which {
		sp := spans[l.rowOf(rows[i].Index)]
		n := int(sp.to - sp.from)
		b := arena[at : at+n : at+n]
		at += n
		out[i] = robocache.FrameRef{Encoded: b, Missing: n == 0}
		switch {
		case n == 0:
			out[i].Encoded = nil
		case rec.isImageless:
			reads = append(reads, store.Span{Off: int64(sp.from), P: b})
		default:
			copy(b, rec.data[sp.from:sp.to])
		}
	}
	if rec.isImageless {
		d.readParts(ctx, episode, reads)
	}
	for _, i := range which {
		if l.coding != floatPNG || out[i].Missing {
			continue
		}
		err := guard.Try(func() { out[i] = robocache.FrameRef{Raw: l.decodeDepth(out[i].Encoded)} })
		guard.Check(robocache.At(err, robocache.Where{
			"episode": d.About.EpisodeIndex(episode),
			"stream":  l.key,
			"row":     rows[i].Index,
		}))
	}
}

// recordSize returns the size of an episode's record.
func (d *Dataset) recordSize(episode int) int {
	s, r := d.locateEpisode(episode)
	return int(d.index[s].length[r])
}

// readParts reads parts of a record whose check sum was verified when it was read as a whole.
func (d *Dataset) readParts(ctx context.Context, episode int, parts []store.Span) {
	s, r := d.locateEpisode(episode)
	defer guard.At(d.locate(s, r))
	d.withShard(ctx, s, func(f robocache.Ranged) error {
		for i := range parts {
			parts[i].Off += d.index[s].offset[r] + headBytes
		}
		return store.ReadRanges(ctx, f, parts)
	})
}

// measureImages determines the size of images with varying shape from the first image that can be
// read.
func (d *Dataset) measureImages(ctx context.Context, i int, f *robocache.Feature) {
	l := &d.schema.leaves[i]
	for e := range min(d.About.Episodes, 8) {
		if d.Len(e) == 0 {
			continue
		}
		rec, err := guard.Value(func() *record { return d.loadRecord(ctx, e) })
		_ = guard.RaiseInternal(err)
		if errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) {
			continue
		}
		guard.Check(err)
		spans := rec.lists[l.slot].spans
		if len(spans) == 0 { // the record lacks the stream
			continue
		}
		sp := spans[0]
		if info, err := video.StillSize(rec.data[sp.from:sp.to]); err == nil {
			f.Height, f.Width = info.Height, info.Width
			return
		}
	}
}
