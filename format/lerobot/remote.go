package lerobot

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Where each read is a request, what a table costs is their number: the small columns of a row
// group are read together, and the row groups and video indexes that one call needs are read at the
// same time.
const (
	clusterChunk = 64 << 10 // a larger column is read for itself: nobody may have asked for it
	clusterBytes = smallFile
	// up to this size a file is read at once: a request costs more than its bytes
	smallFile = 256 << 10
	atOnce    = 16
)

// openSmall opens a file, and reads it whole where its parts would be several requests.
func (d *Dataset) openSmall(ctx context.Context, name string) (robocache.Ranged, error) {
	r, err := d.Bytes.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if store.Remote(r) && r.Size() <= smallFile {
		return inMemory(ctx, r)
	}
	return r, nil
}

// clustered serves the small columns of a row group out of the table cache, where each cluster is
// one read.
type clustered struct {
	robocache.Ranged
	t           *tables
	file, group int32
	clusters    []piece
}

func (c *clustered) ReadAt(ctx context.Context, p []byte, off int64) error {
	i, ok := slices.BinarySearchFunc(
		c.clusters,
		off,
		func(c piece, off int64) int { return cmp.Compare(c.off, off) },
	)
	if !ok {
		i--
	}
	if i < 0 || int64(len(p)) > c.clusters[i].size ||
		off > c.clusters[i].off+c.clusters[i].size-int64(len(p)) {
		return c.Ranged.ReadAt(ctx, p, off)
	}
	at := c.clusters[i]
	v, err := c.t.cache.Get(
		ctx,
		unit{file: c.file, group: c.group, col: unitCluster, page: int32(i)},
		func() (any, int64, error) {
			b := make([]byte, at.size)
			return b, at.size, c.Ranged.ReadAt(ctx, b, at.off)
		},
	)
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
	return &clustered{
		Ranged:   h.Value.Ranged,
		t:        t,
		file:     file,
		group:    int32(group),
		clusters: join(pieces(nil, f.pq, f.pq.Leaves, group, clusterChunk), clusterBytes),
	}
}

// warm loads what rows of several episodes need of a column at the same time, where reads are
// requests. Its errors are left to those who come after it for the units: they know for which row.
func (d *Dataset) warm(
	ctx context.Context,
	c *column,
	num int32,
	rows []robocache.Row,
	read decodeUnit,
) {
	if !d.tab.remote.Load() || c.src == derived {
		return
	}
	var first []robocache.Row // of each episode
	var bytes int64
	seen := map[int]bool{}
	for _, r := range rows {
		if seen[r.Episode] || r.Episode < 0 || r.Episode >= d.eps.n() || r.Index < 0 ||
			r.Index >= int(d.eps.length[r.Episode]) {
			continue
		}
		seen[r.Episode] = true
		file, start := d.tab.fileOf(r.Episode)
		if d.tab.loaded(file, start+int64(r.Index), num) {
			continue
		}
		// What does not fit into the cache together would be read twice.
		if bytes += int64(
			d.eps.length[r.Episode],
		) * int64(
			c.rowBytes+16,
		); bytes > d.tab.cache.Stats().Budget/2 {
			break
		}
		first = append(first, r)
	}
	together(ctx, len(first), func(ctx context.Context, i int) error {
		if _, err := d.walk(c, func(file int32, row int64) (span, error) { return d.tab.load(ctx, file, row, num, read) }).
			to(first[i]); err != nil {
			return err
		}
		return nil
	})
}

// together makes n loads at the same time, where there are several.
func together(ctx context.Context, n int, load func(ctx context.Context, i int) error) {
	if n < 2 {
		return
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(crash.Func("lerobot warm", func() error { return load(ctx, i) }))
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
		if n := c.fileOf(r.Episode); n != unknownFile && c.files[n].Load() == nil && !seen[n] {
			seen[n] = true
			first = append(first, r.Episode)
		}
	}
	together(ctx, len(first), func(ctx context.Context, i int) error {
		if _, err := d.layout(ctx, c, first[i]); err != nil {
			return err
		}
		return nil
	})
}

// A recorder's episodes file has a row group every ten episodes: read one by one, its column chunks
// are ten thousand requests. Those of neighbouring columns lie side by side and are read together.
const (
	prefetchGap   = 8 << 10  // bytes that are read for nothing rather than asking twice
	prefetchBatch = 32 << 20 // bytes held at a time
)

// piece is a part of a file.
type piece struct{ off, size int64 }

// pieces are the column chunks of leaves in a row group of at most a size. What does not lie in the
// file is left to ReadColumn, which says so.
func pieces(to []piece, f *pq.File, leaves []*pq.Node, group int, most int64) []piece {
	for _, l := range leaves {
		if k, ok := f.Chunk(
			group,
			l,
		); ok && k.Offset >= 0 && k.Size > 0 && k.Size <= min(most, f.Size) &&
			k.Offset <= f.Size-k.Size {
			to = append(to, piece{k.Offset, k.Size})
		}
	}
	return to
}

// join sorts pieces and joins those that lie side by side, up to a size.
func join(list []piece, most int64) []piece {
	slices.SortFunc(
		list,
		func(a, b piece) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.size, b.size)) },
	)
	out := list[:0]
	for _, p := range list {
		end := p.off + p.size
		if n := len(out); n > 0 {
			if last := &out[n-1]; p.off <= last.off+last.size+prefetchGap && end-last.off <= most {
				last.size = max(last.size, end-last.off)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// prefetched serves reads out of spans that were read ahead, and others from the file.
type prefetched struct {
	robocache.Ranged
	spans []store.Span // by offset
}

func (p *prefetched) ReadAt(ctx context.Context, b []byte, off int64) error {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].Off > off }) - 1
	if i >= 0 {
		if s := p.spans[i]; off+int64(len(b)) <= s.Off+int64(len(s.P)) {
			copy(b, s.P[off-s.Off:])
			return nil
		}
	}
	return p.Ranged.ReadAt(ctx, b, off)
}

// inMemory reads a file as a whole.
func inMemory(ctx context.Context, r robocache.Ranged) (robocache.Ranged, error) {
	p := &prefetched{r, []store.Span{{P: make([]byte, r.Size())}}}
	if err := r.ReadAt(ctx, p.spans[0].P, 0); err != nil {
		r.Close()
		return nil, err
	}
	return p, nil
}

// ahead reads the chunks of the leaves in the row groups from first on, up to a batch of bytes, and
// says which group comes next.
func (p *prefetched) ahead(
	ctx context.Context,
	f *pq.File,
	leaves []*pq.Node,
	first int,
) (next int, err error) {
	p.spans = p.spans[:0]
	var list []piece
	var total int64
	for next = first; next < len(f.Groups) && (total < prefetchBatch || next == first); next++ {
		n := len(list)
		// a huge chunk is read where it is needed
		list = pieces(list, f, leaves, next, 2*prefetchBatch)
		for _, k := range list[n:] {
			total += k.size
		}
	}
	for _, k := range join(list, prefetchBatch) {
		p.spans = append(p.spans, store.Span{Off: k.off, P: make([]byte, k.size)})
	}
	if err := store.ReadRanges(ctx, p.Ranged, p.spans); err != nil {
		return next, err
	}
	return next, nil
}

// eachGroup opens a table of the metadata and reads its row groups one after the other. leaves says
// which columns are read of them, out of those wanted. Errors name the file.
func (d *Dataset) eachGroup(
	ctx context.Context,
	name string,
	want func(column string) bool,
	leaves func(*pq.File) ([]*pq.Node, error),
	read func(r robocache.Ranged, f *pq.File, group int) error,
) (rows int, err error) {
	defer robocache.LocateIn(&err, "file", name)
	r, err := d.openSmall(ctx, name)
	if err != nil {
		return rows, err
	}
	defer r.Close()
	f, err := pq.Open(ctx, r, want)
	if err != nil {
		return rows, err
	}
	list, err := leaves(f)
	if err != nil {
		return rows, err
	}
	p := &prefetched{Ranged: r}
	for g, next := 0, 0; g < len(f.Groups); g++ {
		if g == next {
			if next, err = p.ahead(ctx, f, list, g); err != nil {
				return rows, err
			}
		}
		if err := read(p, f, g); err != nil {
			return rows, err
		}
	}
	return int(f.Rows), nil
}
