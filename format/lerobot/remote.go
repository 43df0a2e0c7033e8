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

// In a remote store each read is a request, and the number of requests dominates the cost. The
// small columns of a row group are therefore read together. The row groups and video indexes that
// one call needs are read concurrently.
const (
	clusterChunk = 64 << 10 // a larger column is read alone, because it may not be needed
	clusterBytes = smallFile
	// A file up to this size is read at once, because a request costs more than its bytes.
	smallFile = 256 << 10
	atOnce    = 16
)

// openSmall opens a file. It reads a small remote file as a whole, to avoid several requests.
func (d *Dataset) openSmall(ctx context.Context, name string) (robocache.Ranged, error) {
	r, err := d.Bytes.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if store.Remote(r) && r.Size() <= smallFile {
		return readIntoMemory(ctx, r)
	}
	return r, nil
}

// clustered serves reads of the small columns of a row group from the table cache. Each cluster of
// columns is one read.
type clustered struct {
	robocache.Ranged
	t           *tables
	file, group int32
	clusters    []piece
}

// ReadAt reads from the cached cluster that holds the range, or from the file.
func (c *clustered) ReadAt(ctx context.Context, p []byte, off int64) error {
	i, found := slices.BinarySearchFunc(
		c.clusters,
		off,
		func(cluster piece, off int64) int { return cmp.Compare(cluster.off, off) },
	)
	if !found {
		i-- // the last cluster that begins before off
	}
	if i < 0 {
		return c.Ranged.ReadAt(ctx, p, off)
	}
	cluster := c.clusters[i]
	n := int64(len(p))
	isInside := n <= cluster.size && off <= cluster.off+cluster.size-n
	if !isInside {
		return c.Ranged.ReadAt(ctx, p, off)
	}
	v, err := c.t.cache.Get(
		ctx,
		unitKey{file: c.file, group: c.group, col: unitCluster, page: int32(i)},
		func() (any, int64, error) {
			b := make([]byte, cluster.size)
			return b, cluster.size, c.Ranged.ReadAt(ctx, b, cluster.off)
		},
	)
	if err != nil {
		return err
	}
	copy(p, v.([]byte)[off-cluster.off:])
	return nil
}

// ranged returns the reader for a row group of an open file.
func (t *tables) ranged(h *handle, f *tableFile, file int32, group int) robocache.Ranged {
	if !store.Remote(h.Value.Ranged) {
		return h.Value.Ranged
	}
	return &clustered{
		Ranged: h.Value.Ranged,
		t:      t,
		file:   file,
		group:  int32(group),
		clusters: joinPieces(
			appendPieces(nil, f.pq, f.pq.Leaves, group, clusterChunk),
			clusterBytes,
		),
	}
}

// warm concurrently loads the units of a column that rows of several episodes need, if reads are
// requests. Errors are ignored: later reads of the units report them with the row.
func (d *Dataset) warm(
	ctx context.Context,
	c *column,
	num int32,
	rows []robocache.Row,
	read decodeUnit,
) {
	if !d.tables.isRemote.Load() || c.source == computed {
		return
	}
	var first []robocache.Row // first row of each episode
	var bytes int64
	seen := map[int]bool{}
	for _, r := range rows {
		isEpisode := r.Episode >= 0 && r.Episode < d.episodes.count()
		if !isEpisode || seen[r.Episode] {
			continue
		}
		if r.Index < 0 || r.Index >= int(d.episodes.length[r.Episode]) {
			continue
		}
		seen[r.Episode] = true
		file, start := d.tables.fileOf(r.Episode)
		if d.tables.isLoaded(file, start+int64(r.Index), num) {
			continue
		}
		// Units that do not fit into the cache together would be read twice.
		bytes += int64(d.episodes.length[r.Episode]) * int64(c.rowBytes+16)
		if bytes > d.tables.cache.Stats().Budget/2 {
			break
		}
		first = append(first, r)
	}
	loadTogether(ctx, len(first), func(ctx context.Context, i int) error {
		load := func(file int32, row int64) (span, error) {
			return d.tables.loadUnit(ctx, file, row, num, read)
		}
		_, err := d.newWalker(c, load).seek(first[i])
		return err
	})
}

// loadTogether runs n loads concurrently. It skips a single load, because the caller's read does
// the same. Errors are ignored: the caller's read reports them.
func loadTogether(ctx context.Context, n int, load func(ctx context.Context, i int) error) {
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

// isLoaded reports whether a column of a row's group is in the cache.
func (t *tables) isLoaded(file int32, row int64, num int32) bool {
	v, ok := t.cache.Peek(unitKey{file: file, col: unitFooter})
	if !ok {
		return false
	}
	_, ok = t.cache.Peek(unitKey{file: file, group: int32(v.(*tableFile).groupOf(row)), col: num})
	return ok
}

// warmFrames loads the video files of rows concurrently, if reads are requests.
func (d *Dataset) warmFrames(ctx context.Context, c *camera, rows []robocache.Row) {
	if !d.tables.isRemote.Load() {
		return
	}
	seen := map[int32]bool{}
	var first []int // one episode of each file
	for _, r := range rows {
		if r.Episode < 0 || r.Episode >= d.episodes.count() {
			continue
		}
		if n := c.fileOf(r.Episode); n != unknownFile && c.files[n].Load() == nil && !seen[n] {
			seen[n] = true
			first = append(first, r.Episode)
		}
	}
	loadTogether(ctx, len(first), func(ctx context.Context, i int) error {
		if _, err := d.cameraFile(ctx, c, first[i]); err != nil {
			return err
		}
		return nil
	})
}

// The episodes file of lerobot's recorder has a row group for every ten episodes, so reading each
// column chunk alone would need thousands of requests. Chunks of adjacent columns are adjacent in
// the file and are read together.
const (
	prefetchGap   = 8 << 10  // unneeded bytes that cost less than another request
	prefetchBatch = 32 << 20 // bytes in memory at once
)

// piece is a part of a file.
type piece struct{ off, size int64 }

// appendPieces appends the column chunks of leaves in a row group. Chunks larger than limit and
// chunks beyond the end of the file are left out; ReadColumn reports them.
func appendPieces(to []piece, f *pq.File, leaves []*pq.Node, group int, limit int64) []piece {
	for _, l := range leaves {
		k, ok := f.Chunk(group, l)
		hasSize := k.Size > 0 && k.Size <= min(limit, f.Size)
		isInFile := k.Offset >= 0 && k.Offset <= f.Size-k.Size
		if ok && hasSize && isInFile {
			to = append(to, piece{k.Offset, k.Size})
		}
	}
	return to
}

// joinPieces sorts pieces and joins those that are adjacent, up to limit bytes.
func joinPieces(list []piece, limit int64) []piece {
	slices.SortFunc(
		list,
		func(a, b piece) int {
			return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.size, b.size))
		},
	)
	out := list[:0]
	for _, p := range list {
		end := p.off + p.size
		if n := len(out); n > 0 {
			if last := &out[n-1]; p.off <= last.off+last.size+prefetchGap && end-last.off <= limit {
				last.size = max(last.size, end-last.off)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// prefetched serves reads from spans that were read ahead, and other reads from the file.
type prefetched struct {
	robocache.Ranged
	spans []store.Span // ordered by offset
}

// ReadAt reads from the span that holds the range, or from the file.
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

// readIntoMemory returns a Ranged over a copy of the file in memory. It closes r on error.
func readIntoMemory(ctx context.Context, r robocache.Ranged) (robocache.Ranged, error) {
	whole := store.Span{Off: 0, P: make([]byte, r.Size())}
	p := &prefetched{Ranged: r, spans: []store.Span{whole}}
	if err := r.ReadAt(ctx, whole.P, 0); err != nil {
		r.Close()
		return nil, err
	}
	return p, nil
}

// readAhead reads the chunks of the leaves in the row groups from first on, up to a batch of bytes.
// It returns the next group to read.
func (p *prefetched) readAhead(
	ctx context.Context,
	f *pq.File,
	leaves []*pq.Node,
	first int,
) (next int, err error) {
	p.spans = p.spans[:0]
	var list []piece
	var total int64
	for next = first; next < len(f.Groups) && (total < prefetchBatch || next == first); next++ {
		before := len(list)
		// a huge chunk is not read ahead
		list = appendPieces(list, f, leaves, next, 2*prefetchBatch)
		for _, k := range list[before:] {
			total += k.size
		}
	}
	for _, k := range joinPieces(list, prefetchBatch) {
		p.spans = append(p.spans, store.Span{Off: k.off, P: make([]byte, k.size)})
	}
	if err := store.ReadRanges(ctx, p.Ranged, p.spans); err != nil {
		return next, err
	}
	return next, nil
}

// eachGroup opens a metadata table and calls read for its row groups in order. want selects
// columns, and leaves returns those to read ahead. It returns the number of rows. Errors name the
// file.
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
			if next, err = p.readAhead(ctx, f, list, g); err != nil {
				return rows, err
			}
		}
		if err := read(p, f, g); err != nil {
			return rows, err
		}
	}
	return int(f.Rows), nil
}
