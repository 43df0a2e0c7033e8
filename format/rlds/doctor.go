package rlds

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// Diagnose reads whole records and checks check sums, counts and flags. With Decode it also decodes
// every image.
func (d *Dataset) Diagnose(
	ctx context.Context,
	opt robocache.DiagnoseOptions,
) (out []robocache.Finding, err error) {
	defer guard.Recover("rlds diagnose", &err)
	episodes := reader.Episodes(opt.Episodes, d.About.Episodes)
	out = append(out, d.About.Findings...)
	found := make([][]robocache.Finding, len(episodes))
	var done atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for i, e := range episodes {
		g.Go(func() (err error) {
			defer guard.Recover("rlds diagnose", &err)
			found[i], err = guard.Value(
				func() []robocache.Finding { return d.diagnoseEpisode(gctx, e, opt.Decode) },
			)
			if opt.Progress != nil {
				opt.Progress(done.Add(1), int64(len(episodes)))
			}
			return err
		})
	}
	guard.Check(g.Wait())
	return append(out, slices.Concat(found...)...), nil
}

// diagnoseEpisode returns the findings of one episode. Only an error of the store or of the caller
// is an error; a fault of the data is a finding.
func (d *Dataset) diagnoseEpisode(
	ctx context.Context,
	episode int,
	decode bool,
) (out []robocache.Finding) {
	rec, err := guard.Value(func() *record { return d.loadRecord(ctx, episode) })
	_ = guard.RaiseInternal(err)
	if errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrResourceLimit) {
		where := robocache.Where{"episode": d.About.EpisodeIndex(episode)}
		var e *robocache.Error
		if errors.As(err, &e) {
			where = e.Where
		}
		return []robocache.Finding{
			{
				Severity: robocache.SeverityError,
				Code:     "bad-record",
				Where:    where,
				Message:  err.Error(),
				Hint:     "fetch the shard again",
			},
		}
	}
	guard.Check(err)
	add := func(s robocache.Severity, code, stream string, row int, message, hint string) {
		out = append(out, robocache.Finding{
			Severity: s,
			Code:     code,
			Where: robocache.Where{
				"episode": d.About.EpisodeIndex(episode),
				"stream":  stream,
				"row":     row,
			},
			Message: message,
			Hint:    hint,
		})
	}
	if rec.steps == 0 {
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "empty-episode",
			Where:    robocache.Where{"episode": d.About.EpisodeIndex(episode)},
			Message:  "the episode has no steps",
		})
	}
	for i := range d.schema.leaves {
		l := &d.schema.leaves[i]
		if l.unsupported != "" {
			continue
		}
		if l.isMissing(rec) {
			_, isStream := d.byKey[l.key]
			// otherwise Open reported it
			if _, known := d.lacksLeaf(episode, i); isStream && !known {
				var lacking reader.LackingFindings
				lacking.Add(d.About.Feature(l.key), d.lackingWhere(episode, l.key), l.name)
				out = append(out, lacking.List()...)
			}
			continue
		}
		if l.coding == plain || l.varies || l.inner > 0 {
			if _, err := d.schema.column(rec, i, func(int64) {}); guard.RaiseInternal(err) != nil {
				add(robocache.SeverityError, "bad-values", l.key, 0, err.Error(), "")
			}
		}
		if l.coding != frame && l.coding != floatPNG {
			continue
		}
		for k, sp := range rec.lists[l.slot].spans {
			b := rec.data[sp.from:sp.to]
			if len(b) == 0 {
				add(robocache.SeverityWarning, "missing-image", l.key, k, "no bytes", "")
				continue
			}
			if err := guard.Try(
				func() { l.checkImage(b, decode) },
			); guard.RaiseInternal(
				err,
			) != nil {
				add(robocache.SeverityError, "bad-image", l.key, k, err.Error(), "")
				break
			}
		}
	}
	if n, ok := d.flaggedSteps(rec, "is_first"); ok && rec.steps > 0 && (len(n) != 1 || n[0] != 0) {
		add(
			robocache.SeverityWarning,
			"odd-flags",
			"is_first",
			0,
			fmt.Sprintf("is_first is set at %v, expected only at the first step", firstFew(n)),
			"",
		)
	}
	if n, ok := d.flaggedSteps(rec, "is_last"); ok && rec.steps > 0 &&
		(len(n) > 1 || len(n) == 1 && n[0] != rec.steps-1) {
		add(
			robocache.SeverityWarning,
			"odd-flags",
			"is_last",
			0,
			fmt.Sprintf("is_last is set at %v, expected only at the last step", firstFew(n)),
			"",
		)
	}
	return out
}

func firstFew(n []int) []int { return n[:min(len(n), 8)] }

// checkImage checks the size of an image. With decode it also decodes the pixels.
func (l *leaf) checkImage(b []byte, decode bool) {
	if l.coding == floatPNG {
		l.decodeDepth(b)
		return
	}
	info := guard.Must(video.StillSize(b))
	if l.shape[0] != 0 && l.shape[0] != info.Height || l.shape[1] != 0 && l.shape[1] != info.Width {
		guard.Fail(robocache.Malformed("rlds", nil, "the size of the image").
			Expected(
				fmt.Sprintf("%d × %d", l.shape[0], l.shape[1]),
				fmt.Sprintf("%d × %d", info.Height, info.Width),
			),
		)
	}
	if !decode {
		return
	}
	spec := info.Own()
	n := guard.Must(video.StillBytes(info, spec))
	guard.Check(video.DecodeStill(b, spec, make([]byte, n)))
}

// flaggedSteps returns the steps at which a flag is set.
func (d *Dataset) flaggedSteps(rec *record, key string) ([]int, bool) {
	s, ok := d.byKey[key]
	if !ok {
		return nil, false
	}
	l := &d.schema.leaves[s.leaf]
	if !l.countsSteps() || l.coding != plain || l.elements() != 1 {
		return nil, false
	}
	c, err := d.schema.column(rec, s.leaf, func(int64) {})
	if err != nil {
		return nil, false
	}
	var out []int
	for i, v := range robocache.Float64s(nil, l.dtype, c.rows) {
		if v != 0 {
			out = append(out, i)
		}
	}
	return out, true
}
