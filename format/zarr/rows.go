package zarr

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lease"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// loadChunk returns a decoded chunk from the cache or the store.
func (d *tree) loadChunk(ctx context.Context, a *Array, index []int) (*chunk, error) {
	return d.cache.Load(
		ctx,
		cacheKey{a.id, chunkNumber(index, a.grid)},
		func() (*chunk, int64, error) { return d.readChunk(ctx, a, slices.Clone(index)) },
	)
}

// readChunk decodes a chunk and returns it with the memory that it takes.
func (d *tree) readChunk(
	ctx context.Context,
	a *Array,
	index []int,
) (_ *chunk, _ int64, err error) {
	if err := robocache.At(a.err, robocache.Where{"stream": a.Path}); err != nil {
		return nil, 0, err
	}
	raw, err := bytesOf(a.chunks, a.Type.Size)
	if err != nil {
		return nil, 0, err
	}
	defer robocache.LocateIn(&err, "chunk", joinIndex(index, "."))
	room := func(n int64) []byte { return make([]byte, n) }
	// Packed bytes are read into reused memory, because allocating it would take longer than
	// unpacking.
	if a.pipe.ownsMemory {
		l := lease.Get()
		defer l.Done()
		room = l.Room
	}
	b, name, err := d.packedChunk(ctx, a, index, raw, room)
	if err != nil {
		return nil, 0, err
	}
	if b == nil {
		return &chunk{}, 64, nil
	}
	defer robocache.LocateIn(&err, "file", name)
	if b, err = a.pipe.decode(b, raw); err != nil {
		return nil, 0, err
	}
	if a.Text {
		t, err := a.pipe.texts(b, a.pipe.elements)
		if err != nil {
			return nil, 0, err
		}
		return &chunk{texts: t}, int64(len(b)+16*len(t)) + 64, nil
	}
	if int64(len(b)) != raw {
		return nil, 0, robocache.Malformed("zarr chunk", nil, "").
			Expected(fmt.Sprintf("%d bytes", raw), fmt.Sprint(len(b)))
	}
	return &chunk{data: b}, raw + 64, nil
}

// packedChunk reads the stored bytes of a chunk. It returns nil if the chunk is missing.
func (d *tree) packedChunk(
	ctx context.Context,
	a *Array,
	index []int,
	raw int64,
	room func(n int64) []byte,
) (b []byte, name string, err error) {
	if a.shard != nil {
		return d.packedInShard(ctx, a, index, raw, room)
	}
	name = a.key(index)
	if z, ok := d.st.(*zipStore); ok {
		b, err = z.ReadMember(ctx, name, a.pipe.maxPacked(raw))
	} else {
		b, err = store.ReadFileIn(ctx, d.st, name, a.pipe.maxPacked(raw), room)
	}
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, name, nil
	}
	if err := robocache.At(err, robocache.Where{"file": name}); err != nil {
		return b, name, err
	}
	if b == nil {
		b = []byte{} // an empty file is not a missing chunk
	}
	return b, name, nil
}

// forEachChunkRow calls fn once for every row of chunks that the rows touch, several in parallel.
// positions are the positions in rows that belong to it.
func (d *tree) forEachChunkRow(
	ctx context.Context,
	a *Array,
	rows []int,
	fn func(ctx context.Context, c0 int, positions []int) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	c := a.chunks[0]
	positions := make([]int, len(rows))
	for i, r := range rows {
		if r < 0 || r >= a.Shape[0] {
			return robocache.Malformed(
				"zarr",
				robocache.Where{"stream": a.Path},
				"the array ends before its episodes",
			).
				Expected(fmt.Sprintf("row %d", r), fmt.Sprintf("%d rows", a.Shape[0]))
		}
		positions[i] = i
	}
	byChunk := func(x, y int) int { return rows[x]/c - rows[y]/c }
	if !slices.IsSortedFunc(positions, byChunk) {
		slices.SortStableFunc(positions, byChunk)
	}
	if first := rows[positions[0]] / c; first == rows[positions[len(positions)-1]]/c {
		if err := fn(ctx, first, positions); err != nil {
			return err
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	at := runtime.GOMAXPROCS(0)
	if robocache.IsRemote(d.st) {
		at = max(at, 16)
	}
	g.SetLimit(at)
	for i := 0; i < len(positions); {
		k, c0 := i+1, rows[positions[i]]/c
		for k < len(positions) && rows[positions[k]]/c == c0 {
			k++
		}
		part := positions[i:k]
		g.Go(crash.Func("zarr chunk", func() error { return fn(ctx, c0, part) }))
		i = k
	}
	return g.Wait()
}

// forEachChunk calls fn with every chunk in a row of chunks, and its position in the grid.
func (d *tree) forEachChunk(
	ctx context.Context,
	a *Array,
	c0 int,
	fn func(c *chunk, index []int),
) error {
	index := make([]int, len(a.grid))
	index[0] = c0
	for more := true; more; more = nextChunk(index, a.grid) {
		loaded, err := d.loadChunk(ctx, a, index)
		if err != nil {
			return err
		}
		fn(loaded, index)
	}
	return nil
}

// gatherRows copies rows of an array into dst.
func (d *tree) gatherRows(ctx context.Context, a *Array, rows []int, dst []byte) error {
	return d.forEachChunkRow(
		ctx,
		a,
		rows,
		func(ctx context.Context, c0 int, positions []int) error {
			return d.forEachChunk(ctx, a, c0, func(c *chunk, index []int) {
				whole := a.isContiguous() && c.data != nil
				for i, n := 0, 1; i < len(positions); i, n = i+n, 1 {
					p := positions[i]
					r := rows[p] - c0*a.chunks[0]
					if !whole {
						a.copyRow(dst[p*a.rowBytes:(p+1)*a.rowBytes], c, r, index)
						continue
					}
					for i+n < len(positions) && positions[i+n] == p+n && rows[p+n] == rows[p]+n {
						n++
					}
					copy(dst[p*a.rowBytes:(p+n)*a.rowBytes], c.data[r*a.rowBytes:])
				}
			})
		},
	)
}

// nextChunk advances index to the next chunk in the same row of chunks. It returns false at the
// end.
func nextChunk(index, grid []int) bool {
	for i := len(index) - 1; i > 0; i-- {
		if index[i]++; index[i] < grid[i] {
			return true
		}
		index[i] = 0
	}
	return false
}

// copyRow copies the part of a row that a chunk contains. r is the row in the chunk.
func (a *Array) copyRow(dst []byte, c *chunk, r int, index []int) {
	size := a.Type.Size
	if c.data == nil {
		a.blankRow(dst, index)
		return
	}
	if a.isContiguous() {
		copy(dst, c.data[r*a.rowBytes:])
		return
	}
	src := c.data[len(c.data)/a.chunks[0]*r:]
	a.forEachStretch(
		index,
		func(to, from, n int) { copy(dst[to*size:(to+n)*size], src[from*size:]) },
	)
}

// blankRow sets the part of a row that a missing chunk covers to the fill value.
func (a *Array) blankRow(dst []byte, index []int) {
	a.forEachStretch(index, func(to, _, n int) {
		part := dst[to*a.Type.Size : (to+n)*a.Type.Size]
		if a.fill == nil {
			clear(part)
			return
		}
		for len(part) > 0 {
			part = part[copy(part, a.fill):]
		}
	})
}

// forEachStretch calls fn for each contiguous part of a row that a chunk contains. to is the first
// element in the row, from the first element in the chunk's row.
func (a *Array) forEachStretch(index []int, fn func(to, from, n int)) {
	n := len(a.Shape)
	if n == 1 {
		fn(0, 0, 1)
		return
	}
	// width is the extent of the chunk inside the array. to and from are the strides of each
	// dimension.
	at, width := make([]int, n), make([]int, n)
	to, from := make([]int, n), make([]int, n)
	stepTo, stepFrom, base := 1, 1, 0
	for i := n - 1; i > 0; i-- {
		begin := index[i] * a.chunks[i]
		width[i] = min(a.chunks[i], a.Shape[i]-begin)
		to[i], from[i] = stepTo, stepFrom
		base += begin * stepTo
		stepTo *= a.Shape[i]
		stepFrom *= a.chunks[i]
	}
	for i := 1; i < n; i++ {
		if width[i] <= 0 {
			return
		}
	}
	for {
		t, f := base, 0
		for i := 1; i < n-1; i++ {
			t += at[i] * to[i]
			f += at[i] * from[i]
		}
		fn(t, f, width[n-1])
		i := n - 2
		for ; i > 0; i-- {
			if at[i]++; at[i] < width[i] {
				break
			}
			at[i] = 0
		}
		if i <= 0 {
			return
		}
	}
}

// readTexts reads rows of an array of texts with one element per row.
func (d *tree) readTexts(ctx context.Context, a *Array, rows []int, out []string) error {
	return d.forEachChunkRow(
		ctx,
		a,
		rows,
		func(ctx context.Context, c0 int, positions []int) error {
			index := make([]int, len(a.grid))
			index[0] = c0
			c, err := d.loadChunk(ctx, a, index)
			if err != nil {
				return err
			}
			list, blank := c.texts, a.blankText
			if !a.Text && c.data != nil {
				list, _ = (&npy.Array{Type: a.Type, Shape: a.chunks, Data: c.data}).Strings()
			} else if !a.Text && a.fill != nil {
				s, _ := (&npy.Array{Type: a.Type, Shape: []int{1}, Data: a.fill}).Strings()
				blank = s[0]
			}
			for _, p := range positions {
				if out[p] = blank; list != nil {
					out[p] = list[(rows[p]-c0*a.chunks[0])*(len(list)/a.chunks[0])]
				}
			}
			return nil
		},
	)
}
