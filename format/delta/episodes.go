package delta

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"golang.org/x/sync/errgroup"
)

// findEpisodes sorts the rows into episodes (delta.D2).
func (d *Dataset) findEpisodes(ctx context.Context, number, frame *readColumn) error {
	ahead, actx := errgroup.WithContext(ctx)
	ahead.SetLimit(16)
	for g := range d.groups { // reads ahead, because each row group of a remote store is a request
		ahead.Go(crash.Func("delta open", func() error {
			if _, err := d.integers(actx, g, number); err != nil {
				return err
			}
			if frame != nil {
				if _, err := d.integers(actx, g, frame); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if err := ahead.Wait(); err != nil {
		return err
	}
	var runs []run
	next := map[int64]int64{} // frame numbers per episode, used if there is no frame column
	for g := range d.groups {
		of, err := d.integers(ctx, g, number)
		if err != nil {
			return err
		}
		at := []int64(nil)
		if frame != nil {
			if at, err = d.integers(ctx, g, frame); err != nil {
				return err
			}
		}
		for i, e := range of {
			k := next[e]
			if at != nil {
				k = at[i]
			} else {
				next[e]++
			}
			if p := len(runs) - 1; p >= 0 && runs[p].group == g && runs[p].episode == e &&
				runs[p].frame+int64(runs[p].n) == k {
				runs[p].n++
			} else {
				runs = append(runs, run{g, i, 1, e, k})
			}
		}
		if err := d.checkMemory(int64(len(runs)) * 64); err != nil {
			return err
		}
		d.About.Frames += int64(len(of))
	}
	d.chunks.Clear()
	slices.SortStableFunc(
		runs,
		func(a, b run) int {
			return cmp.Or(cmp.Compare(a.episode, b.episode), cmp.Compare(a.frame, b.frame))
		},
	)
	// first is the first episode of a number, and ends holds the next frame of each episode of that
	// number.
	first, ends, twice := 0, []int64(nil), int64(0)
	for i, r := range runs {
		if i == 0 || r.episode != runs[i-1].episode {
			first, ends = len(d.episodes), nil
		}
		k := slices.IndexFunc(ends, func(end int64) bool { return end <= r.frame })
		if k < 0 {
			if k = len(ends); k == 1 {
				twice++
			} else if k == maxTwice {
				return newError(
					robocache.ErrMalformed,
					fmt.Sprintf(
						"episode %d has row %d more than %d times",
						r.episode,
						r.frame,
						maxTwice,
					),
					"name the column that orders the rows of an episode: "+robocache.Option(
						"options",
						"frame",
						"COLUMN",
					),
				)
			}
			ends, d.episodes = append(ends, 0), append(d.episodes, episode{index: r.episode})
		}
		e := &d.episodes[first+k]
		e.runs, e.starts, e.n = append(e.runs, r), append(e.starts, e.n), e.n+r.n
		ends[k] = r.frame + int64(r.n)
	}
	if twice > 0 {
		d.About.Findings = append(d.About.Findings, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "episode-twice",
			Count:    twice,
			Where:    robocache.Where{"column": number.name},
			Message: fmt.Sprintf(
				"%d episode numbers have a row more than once: each set of rows is read as a "+
					"separate episode",
				twice,
			),
			Hint: "give appended episodes higher numbers than the existing ones",
		})
	}
	d.About.Episodes = len(d.episodes)
	indices := make([]int64, len(d.episodes))
	for position := range d.episodes {
		indices[position] = d.episodes[position].index
	}
	d.About.NumberEpisodes(indices)
	return nil
}

// determineUnit determines the unit of the time column from its type, its name or the option.
// Otherwise the magnitude of the values in the first conclusive episode decides.
func (d *Dataset) determineUnit(ctx context.Context, stated string) error {
	c := d.clock
	if stated != "" && robocache.TimeUnits[stated] == 0 {
		return newError(
			robocache.ErrMisuse,
			"option timestamp_unit: expected s, ms, us or ns, found "+strconv.Quote(stated),
			"",
		)
	}
	usual := "ns"
	switch {
	case c == nil:
		return nil
	case strings.HasPrefix(c.elem, "timestamp"):
		usual, stated = "us", "us"
	case c.feature.DType.Float():
		usual = "s"
	case c.name == nanosColumn && stated == "":
		stated = "ns"
	}
	if d.unit = robocache.TimeUnits[cmp.Or(stated, usual)]; stated != "" {
		return nil
	}
	for e := range min(len(d.episodes), 16) {
		b := make([]byte, min(d.Len(e), 4096)*c.feature.DType.Size())
		if d.gatherRows(ctx, c, reader.Rows(e, 0, min(d.Len(e), 4096)), b) != nil {
			continue // reported when the episode is read
		}
		g, err := robocache.InferTimeUnit(
			robocache.Float64s(nil, c.feature.DType, b),
			usual,
			d.About.FPS,
		)
		if err == nil && g.Unit == "" {
			continue
		}
		if f := robocache.UnitFinding(g, err, usual, robocache.Where{"column": c.name}); f != nil {
			d.About.Findings = append(d.About.Findings, *f)
		}
		if d.unitErr = err; err == nil {
			d.unit = robocache.TimeUnits[g.Unit]
		}
		return nil
	}
	return nil
}

// integers returns the values of a column in a row group.
func (d *Dataset) integers(ctx context.Context, g int, c *readColumn) ([]int64, error) {
	if c.feature.Kind != robocache.KindNumeric || c.feature.DType.Float() || c.dims != nil ||
		c.feature.Masked {
		return nil, unsupported(
			"the column "+c.name+" numbers rows, but does not hold integers without nulls",
			"",
		)
	}
	values, err := d.loadChunk(ctx, g, c, "")
	if err != nil {
		return nil, err
	}
	return robocache.Int64s(nil, c.feature.DType, values.data), nil
}
