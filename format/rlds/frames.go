package rlds

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func roundNanos(v, scale float64) int64 { return int64(math.RoundToEven(v * scale)) }

// Frames gives pictures: encoded as they are in the record, but float32 depth as its pixels.
func (d *Dataset) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) (err error) {
	defer guard("frames", &err)
	l, _, _, err := d.leafOf(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if len(out) != len(rows) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "rlds frames", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("room for %d pictures", len(rows)), Got: fmt.Sprint(len(out))}
	}
	return d.eachEpisode(ctx, l, rows, func(rec *record, episode int, which []int) error {
		spans := rec.lists[l.slot].spans
		asked := int64(0)
		visit(rows, which, func(i int) error {
			sp := spans[l.row(rows[i].Index)]
			asked += int64(sp.to - sp.from)
			return nil
		})
		// Copied: a slice of the record would hold all of it in memory for as long as the picture is wanted, and the caller may write to it.
		var arena []byte
		if l.coding == picture {
			arena = make([]byte, 0, asked)
		}
		return visit(rows, which, func(i int) error {
			sp := spans[l.row(rows[i].Index)]
			b := rec.data[sp.from:sp.to:sp.to]
			if len(b) == 0 {
				out[i] = robocache.FrameRef{Missing: true}
				return nil
			}
			if l.coding == floatPNG {
				raw, err := l.depth(b)
				if err != nil {
					return robocache.At(err, robocache.Where{"episode": episode, "stream": key, "row": rows[i].Index})
				}
				out[i] = robocache.FrameRef{Raw: raw}
				return nil
			}
			at := len(arena)
			arena = append(arena, b...)
			out[i] = robocache.FrameRef{Encoded: arena[at:len(arena):len(arena)]}
			return nil
		})
	})
}

// measure finds the size of pictures whose shape is open: that of the first one that can be read.
func (d *Dataset) measure(ctx context.Context, i int, f *robocache.Feature) error {
	l := &d.s.leaves[i]
	for e := range min(d.info.Episodes, 8) {
		if d.Len(e) == 0 {
			continue
		}
		rec, err := d.load(ctx, e)
		if errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) {
			continue
		}
		if err != nil {
			return err
		}
		sp := rec.lists[l.slot].spans[0]
		if info, err := video.StillSize(rec.data[sp.from:sp.to]); err == nil {
			f.Height, f.Width = info.Height, info.Width
			return nil
		}
	}
	return nil
}
