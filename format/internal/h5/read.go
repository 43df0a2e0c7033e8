package h5

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Piece asks for rows of a data set.
type Piece struct {
	D      *Dataset
	Row, N int64
	Dst    []byte // N × RowBytes bytes
}

// direct is the size from which on rows of a data set without filters are read where they are wanted, past the cache.
const direct = 64 << 10

// Read fills all pieces. Bands that must be decoded are, as many at once as there are cores; none is decoded twice.
func Read(ctx context.Context, pieces []Piece) error {
	// The common case, all there: copies.
	rest := pieces
	for len(rest) > 0 {
		done, err := rest[0].Quick(ctx)
		if err != nil {
			return err
		}
		if !done {
			break
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return nil
	}
	return decode(ctx, rest)
}

func (p *Piece) check() error {
	if p.Row < 0 || p.N < 0 || p.N > p.D.rows-p.Row || int64(len(p.Dst)) != p.N*p.D.rowBytes {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "hdf5", Where: robocache.Where{"pointer": p.D.name}, Msg: fmt.Sprintf("rows %d to %d of %d into %d bytes", p.Row, p.Row+p.N, p.D.rows, len(p.Dst))}
	}
	return nil
}

// Quick serves a piece without decoding, where that is possible.
func (p *Piece) Quick(ctx context.Context) (bool, error) {
	d := p.D
	if err := p.check(); err != nil || p.N == 0 || d.rowBytes == 0 {
		return true, err
	}
	if d.Past() || d.layout.class == layoutContiguous && len(p.Dst) >= direct {
		if err := d.Readable(); err != nil {
			return true, err
		}
		if err := d.plain(ctx, p.Row, p.Dst); err != nil {
			return true, d.at(err)
		}
		d.native(p.Dst)
		return true, nil
	}
	for row, end := p.Row, p.Row+p.N; row < end; {
		i := row / d.bandRows
		first, n := d.span(i)
		k := min(end, first+n) - row
		b, ok := d.held(i)
		if !ok {
			return false, nil
		}
		copy(p.Dst[(row-p.Row)*d.rowBytes:], b[(row-first)*d.rowBytes:(row-first+k)*d.rowBytes])
		row += k
	}
	return true, nil
}

// task is a band and what is wanted of it.
type task struct {
	d     *Dataset
	band  int64
	parts []part
}

type part struct {
	at, n int64 // rows of the band
	dst   []byte
}

// decode serves pieces by the band.
func decode(ctx context.Context, pieces []Piece) error {
	type id struct {
		d    *Dataset
		band int64
	}
	var tasks []task
	known := map[id]int{}
	for i := range pieces {
		p := &pieces[i]
		d := p.D
		if err := p.check(); err != nil {
			return err
		}
		if p.N == 0 || d.rowBytes == 0 {
			continue
		}
		for row, end := p.Row, p.Row+p.N; row < end; {
			b := row / d.bandRows
			first, n := d.span(b)
			k := min(end, first+n) - row
			t, ok := known[id{d, b}]
			if !ok {
				t = len(tasks)
				known[id{d, b}] = t
				tasks = append(tasks, task{d: d, band: b})
			}
			tasks[t].parts = append(tasks[t].parts, part{row - first, k, p.Dst[(row-p.Row)*d.rowBytes : (row-p.Row+k)*d.rowBytes]})
			row += k
		}
	}
	return each(ctx, len(tasks), func(ctx context.Context, i int) error {
		t := &tasks[i]
		b, err := t.d.band(ctx, t.band)
		if err != nil {
			return err
		}
		for _, p := range t.parts {
			copy(p.dst, b[p.at*t.d.rowBytes:(p.at+p.n)*t.d.rowBytes])
		}
		return nil
	})
}

// each calls do for 0 to n-1 on the cores that there are. It returns when all are over.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		for i := range n {
			if err := do(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() (err error) {
			defer guard.Malformed("hdf5", &err)
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// ReadRows fills dst with n rows.
func (d *Dataset) ReadRows(ctx context.Context, row, n int64, dst []byte) error {
	return Read(ctx, []Piece{{d, row, n, dst}})
}

// Past says that rows are read past the cache: View takes new memory for them.
func (d *Dataset) Past() bool { return d.layout.class == layoutContiguous && !d.Keep }

// View gives rows that lie one after the other in memory: row and up to n-1 that follow it. They are shared: nobody may change them.
func (d *Dataset) View(ctx context.Context, row, n int64) ([]byte, int64, error) {
	if row < 0 || n <= 0 || row >= d.rows {
		return nil, 0, (&Piece{D: d, Row: row, N: n}).check()
	}
	if d.rowBytes == 0 {
		return nil, min(n, d.rows-row), nil
	}
	if d.Past() {
		if d.rowBytes > maxRow {
			return nil, 0, d.at(d.f.limit(d.addr, "a row", uint64(d.rowBytes), maxRow))
		}
		n = min(n, d.rows-row, max(1, maxChunk/d.rowBytes))
		b := make([]byte, n*d.rowBytes)
		return b, n, d.ReadRows(ctx, row, n, b)
	}
	i := row / d.bandRows
	first, have := d.span(i)
	b, err := d.band(ctx, i)
	if err != nil {
		return nil, 0, err
	}
	n = min(n, first+have-row)
	return b[(row-first)*d.rowBytes : (row-first+n)*d.rowBytes], n, nil
}

// Warm loads the bands of rows that must be decoded, as many at once as there are cores, as far as they fit into half of the cache.
func (d *Dataset) Warm(ctx context.Context, rows []int64) error {
	if !d.Filtered() {
		return nil
	}
	room := d.f.cache.Budget() / 2 / max(d.bandRows*d.rowBytes, 1)
	var bands []int64
	seen := map[int64]bool{}
	for _, r := range rows {
		if i := r / d.bandRows; r >= 0 && r < d.rows && !seen[i] && int64(len(bands)) < room && !d.kept(i) {
			seen[i] = true
			bands = append(bands, i)
		}
	}
	return each(ctx, len(bands), func(ctx context.Context, i int) error {
		_, err := d.band(ctx, bands[i])
		return err
	})
}
