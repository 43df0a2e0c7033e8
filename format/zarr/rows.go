package zarr

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// load gives a decoded chunk.
func (d *tree) load(ctx context.Context, a *Array, index []int) (*chunk, error) {
	key := unit{a.id, linear(index, a.grid)}
	if c, ok := d.cache.Peek(key); ok {
		return c, nil
	}
	return d.cache.Get(ctx, key, func() (*chunk, int64, error) { return d.read(ctx, a, slices.Clone(index)) })
}

// read decodes a chunk, and says what it takes.
func (d *tree) read(ctx context.Context, a *Array, index []int) (*chunk, int64, error) {
	if a.err != nil {
		return nil, 0, robocache.At(a.err, robocache.Where{"stream": a.Path})
	}
	raw, err := bytesOf(a.chunks, a.Type.Size)
	if err != nil {
		return nil, 0, err
	}
	b, name, err := d.packed(ctx, a, index, raw)
	where := robocache.Where{"file": name, "chunk": join(index, ".")}
	if err != nil {
		return nil, 0, robocache.At(err, where)
	}
	if b == nil {
		return &chunk{}, 64, nil
	}
	if b, err = a.pipe.decode(b, raw); err != nil {
		return nil, 0, robocache.At(err, where)
	}
	if a.Text {
		t, err := a.pipe.texts(b, a.pipe.n)
		if err != nil {
			return nil, 0, robocache.At(err, where)
		}
		return &chunk{texts: t}, int64(len(b)+16*len(t)) + 64, nil
	}
	if int64(len(b)) != raw {
		return nil, 0, robocache.At(&robocache.Error{Class: robocache.ErrMalformed, Op: "zarr chunk", Want: fmt.Sprintf("%d bytes", raw), Got: fmt.Sprint(len(b))}, where)
	}
	return &chunk{data: b}, raw + 64, nil
}

// packed reads a chunk's bytes as they lie in the store; nil where it is absent.
func (d *tree) packed(ctx context.Context, a *Array, index []int, raw int64) (b []byte, name string, err error) {
	if a.shard != nil {
		return d.packedInShard(ctx, a, index)
	}
	name = a.key(index)
	if z, ok := d.st.(*zipStore); ok {
		b, err = z.ReadMember(ctx, name, a.pipe.maxPacked(raw))
	} else {
		b, err = store.ReadFile(ctx, d.st, name, a.pipe.maxPacked(raw))
	}
	if errors.Is(err, robocache.ErrNotFound) {
		return nil, name, nil
	}
	if err == nil && b == nil {
		b = []byte{}
	}
	return b, name, err
}

var _ store.Store = (*zipdir.Store)(nil)

// each calls fn once for every row of chunks that rows touch, with the positions in rows that lie in it; several at the same time.
func (d *tree) each(ctx context.Context, a *Array, rows []int, fn func(ctx context.Context, c0 int, positions []int) error) error {
	if len(rows) == 0 {
		return ctx.Err()
	}
	c := a.chunks[0]
	positions := make([]int, len(rows))
	for i, r := range rows {
		if r < 0 || r >= a.Shape[0] {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "zarr", Where: robocache.Where{"stream": a.Path}, Msg: "the array ends before its episodes", Want: fmt.Sprintf("row %d", r), Got: fmt.Sprintf("%d rows", a.Shape[0])}
		}
		positions[i] = i
	}
	sorted := true
	for i := 1; i < len(rows) && sorted; i++ {
		sorted = rows[i-1]/c <= rows[i]/c
	}
	if !sorted {
		slices.SortStableFunc(positions, func(x, y int) int { return rows[x]/c - rows[y]/c })
	}
	if first := rows[positions[0]] / c; first == rows[positions[len(positions)-1]]/c {
		return fn(ctx, first, positions)
	}
	g, ctx := errgroup.WithContext(ctx)
	at := runtime.GOMAXPROCS(0)
	if _, http := d.st.(*store.HTTP); http {
		at = max(at, 16)
	}
	g.SetLimit(at)
	for i := 0; i < len(positions); {
		k, c0 := i+1, rows[positions[i]]/c
		for k < len(positions) && rows[positions[k]]/c == c0 {
			k++
		}
		part := positions[i:k]
		g.Go(func() (err error) {
			defer guard.Malformed("zarr chunk", &err)
			return fn(ctx, c0, part)
		})
		i = k
	}
	return g.Wait()
}

// gather copies rows of an array into dst.
func (d *tree) gather(ctx context.Context, a *Array, rows []int, dst []byte) error {
	return d.each(ctx, a, rows, func(ctx context.Context, c0 int, positions []int) error {
		index := make([]int, len(a.grid))
		index[0] = c0
		for {
			c, err := d.load(ctx, a, index)
			if err != nil {
				return err
			}
			for _, p := range positions {
				a.copyRow(dst[p*a.row:(p+1)*a.row], c, rows[p]-c0*a.chunks[0], index)
			}
			if !next(index, a.grid) {
				return nil
			}
		}
	})
}

// next goes to the next chunk of the same row of chunks.
func next(index, grid []int) bool {
	for i := len(index) - 1; i > 0; i-- {
		if index[i]++; index[i] < grid[i] {
			return true
		}
		index[i] = 0
	}
	return false
}

// copyRow copies what a chunk has of a row into it. r is the row in the chunk.
func (a *Array) copyRow(dst []byte, c *chunk, r int, index []int) {
	size := a.Type.Size
	if c.data == nil {
		a.blankRow(dst, index)
		return
	}
	if a.contiguous() {
		copy(dst, c.data[r*a.row:])
		return
	}
	src := c.data[len(c.data)/a.chunks[0]*r:]
	a.runs(index, func(to, from, n int) { copy(dst[to*size:(to+n)*size], src[from*size:]) })
}

// blankRow fills a chunk's part of a row with the fill value.
func (a *Array) blankRow(dst []byte, index []int) {
	a.runs(index, func(to, _, n int) {
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

// runs gives the stretches of a row that a chunk holds: elements to of the row, from of the chunk's row.
func (a *Array) runs(index []int, fn func(to, from, n int)) {
	n := len(a.Shape)
	if n == 1 {
		fn(0, 0, 1)
		return
	}
	// Where the chunk ends inside the array, and how far a step of each dimension is.
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

// texts gives rows of an array of texts, of one element each.
func (d *tree) texts(ctx context.Context, a *Array, rows []int, out []string) error {
	return d.each(ctx, a, rows, func(ctx context.Context, c0 int, positions []int) error {
		index := make([]int, len(a.grid))
		index[0] = c0
		c, err := d.load(ctx, a, index)
		if err != nil {
			return err
		}
		if !a.Text {
			t := npy.Array{Type: a.Type, Shape: a.chunks, Data: c.data}
			if c.data != nil {
				c = &chunk{texts: stringsOf(&t)}
			} else {
				fill := npy.Array{Type: a.Type, Shape: []int{1}, Data: append(make([]byte, 0, a.Type.Size), a.fill...)}
				if fill.Data = fill.Data[:a.Type.Size]; a.Type.Size == 0 {
					fill.Data = nil
				}
				blank := stringsOf(&fill)
				for _, p := range positions {
					out[p] = blank[0]
				}
				return nil
			}
		}
		for _, p := range positions {
			if c.texts == nil {
				out[p] = a.blank
				continue
			}
			out[p] = c.texts[(rows[p]-c0*a.chunks[0])*(len(c.texts)/a.chunks[0])]
		}
		return nil
	})
}

func stringsOf(a *npy.Array) []string {
	s, _ := a.Strings()
	return s
}
