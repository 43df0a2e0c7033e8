package lerobot

import (
	"context"
	"fmt"
	"maps"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// prove compares the rows of a row group with the metadata, once: episode_index says whose they are, index (or frame_index)
// that they are in order. Rows found elsewhere in the file are remembered and errMoved is given.
func (t *tables) prove(ctx context.Context, f *tableFile, file int32, group int) {
	t.cache.Load(ctx, unit{file: file, group: int32(group), col: unitProof}, func() (any, int64) {
		t.proveGroup(ctx, f, file, group)
		return struct{}{}, 64
	})
}

func (t *tables) proveGroup(ctx context.Context, f *tableFile, file int32, group int) {
	g := f.pq.Groups[group]
	eps := t.episodesOf(file)
	if t.d.raw.major == 2 && len(eps) == 1 && f.pq.Rows != int64(t.d.Len(int(eps[0]))) {
		guard.Fail(t.lengthError(f, int(eps[0]), f.pq.Rows))
	}
	ids := t.integers(ctx, f, file, group, "episode_index")
	order := t.integers(ctx, f, file, group, "index")
	if order == nil {
		order = t.integers(ctx, f, file, group, "frame_index")
	}
	if t.moved.Load() == nil {
		// By start: what ends before the group is passed over at once, or a file of many groups and episodes costs their product.
		eps = eps[sort.Search(len(eps), func(i int) bool {
			_, start := t.fileOf(int(eps[i]))
			return start+int64(t.d.Len(int(eps[i]))) > g.Start
		}):]
	}
	for _, e := range eps {
		_, start := t.fileOf(int(e))
		end := start + int64(t.d.Len(int(e)))
		if start < g.Start+g.Rows && end > f.pq.Rows {
			t.search(ctx, f, file)
		}
		lo, hi := max(start, g.Start), min(end, g.Start+g.Rows)
		if lo >= hi {
			continue
		}
		id := t.d.eps.id(int(e))
		for r := lo; r < hi; r++ {
			if ids != nil && ids[r-g.Start] != id {
				if t.d.raw.major == 2 {
					t.d.notice(robocache.Finding{Severity: robocache.SeverityWarning, Code: "episode-index", Where: robocache.Where{"file": f.name, "row": r, "episode": id},
						Message: fmt.Sprintf("column episode_index says %d in the file of episode %d", ids[r-g.Start], id), Hint: "renumber the column"})
					break
				}
				t.search(ctx, f, file)
			}
			if order == nil || r == lo || order[r-g.Start] == order[r-1-g.Start]+1 {
				continue
			}
			// A wrong index column says nothing against rows that frame_index counts.
			frames := t.integers(ctx, f, file, group, "frame_index")
			if frames == nil || !counts(frames[lo-g.Start:hi-g.Start]) {
				guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": f.name, "row_group": group, "column": "index", "row": r - g.Start, "episode": id},
					Want: fmt.Sprint(order[r-1-g.Start] + 1), Got: fmt.Sprint(order[r-g.Start]), Msg: "rows are not in order", Hint: "sort the rows by index"})
			}
			t.d.notice(warn("index-order", f.name, "column index does not count the rows, frame_index does", "renumber the column"))
			break
		}
	}
}

// counts says that every number is the one before plus 1.
func counts(v []int64) bool {
	for i := 1; i < len(v); i++ {
		if v[i] != v[i-1]+1 {
			return false
		}
	}
	return true
}

// scalar reads a column of a row group that has a number a row; nil where the file does not have it.
func scalar[T any](ctx context.Context, t *tables, f *tableFile, file int32, group int, name string, to func(*pq.Column) ([]T, error)) []T {
	leaf := f.pq.Column(name)
	if leaf == nil || leaf.Group() || leaf.MaxRep > 0 {
		return nil
	}
	h := t.open(ctx, file)
	defer t.handles.Put(h)
	defer guard.At(robocache.Where{"file": f.name, "row_group": group, "column": name})
	return guard.Must(to(guard.Must(pq.ReadColumn(ctx, t.ranged(h, f, file, group), f.pq, group, leaf, []int{}, f.limits()))))
}

func (t *tables) integers(ctx context.Context, f *tableFile, file int32, group int, name string) []int64 {
	return scalar(ctx, t, f, file, group, name, pq.Int64s)
}

// search looks through a whole file for its episodes. Each must be one unbroken run of the length that the metadata says; else
// no row of the file can be trusted. It ends the work: by errMoved where they were found elsewhere.
func (t *tables) search(ctx context.Context, f *tableFile, file int32) {
	type run struct{ start, rows, runs int64 }
	found := map[int64]*run{}
	last := int64(-1)
	some := false
	for g := range f.pq.Groups {
		for i, id := range t.integers(ctx, f, file, g, "episode_index") {
			some = true
			r := found[id]
			if r == nil {
				r = &run{start: f.pq.Groups[g].Start + int64(i)}
				found[id] = r
			}
			if r.rows++; id != last {
				r.runs++
			}
			last = id
		}
	}
	t.moving.Lock()
	defer t.moving.Unlock()
	starts := map[int32]int64{}
	if m := t.moved.Load(); m != nil {
		maps.Copy(starts, *m)
	}
	changed := false
	for _, e := range t.episodesOf(file) {
		id := t.d.eps.id(int(e))
		r := found[id]
		if !some || r == nil || r.runs != 1 || r.rows != int64(t.d.Len(int(e))) {
			var rows int64
			if r != nil {
				rows = r.rows
			} else if !some {
				rows = f.pq.Rows
			}
			if r != nil && r.runs > 1 {
				guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": f.name, "column": "episode_index", "episode": id}, Want: "the rows of an episode in one run", Got: fmt.Sprintf("%d runs", r.runs), Hint: "sort the rows by index"})
			}
			guard.Fail(t.lengthError(f, int(e), rows))
		}
		_, was := t.fileOf(int(e))
		changed = changed || was != r.start
		starts[e] = r.start
	}
	if changed { // else another goroutine was faster
		t.moved.Store(&starts)
		t.d.notice(warn("rows-moved", f.name, "episodes lie at other rows than dataset_from_index says: found by episode_index", "sort the rows by index, and the episodes table with them"))
	}
	guard.Fail(errMoved)
}

func (t *tables) lengthError(f *tableFile, episode int, rows int64) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "lerobot", Where: robocache.Where{"file": f.name, "episode": t.d.eps.id(episode)},
		Want: fmt.Sprintf("%d rows, as the episodes table says", t.d.Len(episode)), Got: fmt.Sprint(rows), Hint: "run 'robocache doctor'; the file may be cut or of another version"}
}

// short ends the work on a row after the end of its file, unless the episodes can be found elsewhere in it.
func (t *tables) short(ctx context.Context, f *tableFile, file int32) {
	if t.d.raw.major == 2 {
		guard.Fail(t.lengthError(f, int(file), f.pq.Rows))
	}
	t.search(ctx, f, file)
}
