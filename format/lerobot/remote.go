package lerobot

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Where each read is a request, what a table costs is their number: the small columns of a row group are read together, and the row
// groups and video indexes that one call needs are read at the same time.
const (
	clusterChunk = 64 << 10 // a larger column is read for itself: nobody may have asked for it
	clusterBytes = smallFile
	smallFile    = 256 << 10 // up to this size a file is read at once: a request costs more than its bytes
	atOnce       = 16
)

// openSmall opens a file, and reads it whole where its parts would be several requests.
func (d *Dataset) openSmall(ctx context.Context, name string) robocache.Ranged {
	r := guard.Must(d.st.Open(ctx, name))
	if store.Remote(r) && r.Size() <= smallFile {
		return inMemory(ctx, r)
	}
	return r
}

// clustered serves the small columns of a row group out of the table cache, where each cluster is one read.
type clustered struct {
	robocache.Ranged
	t           *tables
	file, group int32
	clusters    []piece
}

func (c *clustered) ReadAt(ctx context.Context, p []byte, off int64) error {
	i, ok := slices.BinarySearchFunc(c.clusters, off, func(c piece, off int64) int { return cmp.Compare(c.off, off) })
	if !ok {
		i--
	}
	if i < 0 || int64(len(p)) > c.clusters[i].size || off > c.clusters[i].off+c.clusters[i].size-int64(len(p)) {
		return c.Ranged.ReadAt(ctx, p, off)
	}
	at := c.clusters[i]
	v, err := c.t.cache.Get(ctx, unit{file: c.file, group: c.group, col: unitCluster, page: int32(i)}, func() (any, int64, error) {
		b := make([]byte, at.size)
		return b, at.size, c.Ranged.ReadAt(ctx, b, at.off)
	})
	if err != nil {
		return err
	}
	copy(p, v.([]byte)[off-at.off:])
	return nil
}

// ranged is what a row group of an open file is read through.
func (t *tables) ranged(h *handle, f *tableFile, file int32, group int) robocache.Ranged {
	if !store.Remote(h.Value.Ranged) {
		return h.Value.Ranged
	}
	return &clustered{Ranged: h.Value.Ranged, t: t, file: file, group: int32(group), clusters: join(pieces(nil, f.pq, f.pq.Leaves, group, clusterChunk), clusterBytes)}
}

// warm loads what rows of several episodes need of a column at the same time, where reads are requests. Its errors are left to those who
// come after it for the units: they know for which row.
func (d *Dataset) warm(ctx context.Context, c *column, num int32, rows []robocache.Row, read decodeUnit) {
	if !d.tab.remote.Load() || c.src == derived {
		return
	}
	var first []robocache.Row // of each episode
	var bytes int64
	seen := map[int]bool{}
	for _, r := range rows {
		if seen[r.Episode] || r.Episode < 0 || r.Episode >= d.eps.n() || r.Index < 0 || r.Index >= int(d.eps.length[r.Episode]) {
			continue
		}
		seen[r.Episode] = true
		file, start := d.tab.fileOf(r.Episode)
		if d.tab.loaded(file, start+int64(r.Index), num) {
			continue
		}
		// What does not fit into the cache together would be read twice.
		if bytes += int64(d.eps.length[r.Episode]) * int64(c.rowBytes+16); bytes > d.tab.cache.Stats().Budget/2 {
			break
		}
		first = append(first, r)
	}
	together(ctx, len(first), func(ctx context.Context, i int) {
		d.walk(c, func(file int32, row int64) span { return d.tab.load(ctx, file, row, num, read) }).to(first[i])
	})
}

// together makes n loads at the same time, where there are several.
func together(ctx context.Context, n int, load func(ctx context.Context, i int)) {
	if n < 2 {
		return
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(guard.Func("lerobot warm", func() { load(ctx, i) }))
	}
	_ = g.Wait()
}

// loaded says whether a column of a row's group is in the cache.
func (t *tables) loaded(file int32, row int64, num int32) bool {
	v, ok := t.cache.Peek(unit{file: file, col: unitFooter})
	if !ok {
		return false
	}
	_, ok = t.cache.Peek(unit{file: file, group: int32(v.(*tableFile).group(row)), col: num})
	return ok
}

// warmFrames lays out the video files of rows at the same time, where reads are requests.
func (d *Dataset) warmFrames(ctx context.Context, c *camera, rows []robocache.Row) {
	if !d.tab.remote.Load() {
		return
	}
	seen := map[int32]bool{}
	var first []int // an episode of each file
	for _, r := range rows {
		if r.Episode < 0 || r.Episode >= d.eps.n() {
			continue
		}
		if n := c.fileOf(r.Episode); c.files[n].Load() == nil && !seen[n] {
			seen[n] = true
			first = append(first, r.Episode)
		}
	}
	together(ctx, len(first), func(ctx context.Context, i int) { guard.Must(d.layout(ctx, c, first[i])) })
}
