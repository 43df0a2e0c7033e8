package h5

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Piece asks for rows of a data set.
type Piece struct {
	D      *Dataset
	Row, N int64
	Dst    []byte // N × RowBytes bytes
}

// direct is the size from which on rows of a data set without filters are read where they are
// wanted, past the cache.
const direct = 64 << 10

// Read fills all pieces. Bands that must be decoded are, as many at once as there are cores, or
// reads of a remote file; none is decoded twice.
func Read(ctx context.Context, pieces []Piece) error {
	rest, far := pieces[:0:0], pieces[:0:0]
	for i := range pieces { // the common case, all there: copies
		if p := &pieces[i]; len(pieces) > 1 && p.D.Past() && store.Remote(p.D.f.r) {
			far = append(far, *p)
			continue
		}
		done, err := pieces[i].quick(ctx)
		if err != nil {
			return err
		}
		if !done {
			rest = append(rest, pieces[i])
		}
	}
	if err := together(ctx, far); err != nil {
		return err
	}
	return decode(ctx, rest)
}

// together reads pieces past the cache, of each file near ones in one request and several at once.
func together(ctx context.Context, pieces []Piece) (err error) {
	defer guard.Recover("hdf5", &err)
	spans := map[*File][]store.Span{}
	var files []*File
	for _, p := range pieces {
		guard.Check(p.check())
		guard.Check(p.D.Readable())
		if addr := p.D.layout.addr; addr == undefined {
			p.D.blank(p.Dst)
		} else if len(p.Dst) > 0 {
			f := p.D.f
			if spans[f] == nil {
				files = append(files, f)
			}
			spans[f] = append(
				spans[f],
				store.Span{
					Off: f.place(addr+uint64(p.Row*p.D.rowBytes), uint64(len(p.Dst)), "the data"),
					P:   p.Dst,
				},
			)
		}
	}
	guard.Check(
		each(
			ctx,
			reads,
			len(files),
			func(ctx context.Context, i int) error { return store.ReadRanges(ctx, files[i].r, spans[files[i]]) },
		),
	)
	for _, p := range pieces {
		p.D.native(p.Dst)
	}
	return nil
}

// inside says that the rows are those of the data set.
func (p *Piece) inside() error {
	if p.Row < 0 || p.N < 0 || p.N > p.D.rows-p.Row {
		return robocache.Misuse(
			"hdf5",
			robocache.Where{"pointer": p.D.name},
			"rows %d to %d of %d into %d bytes",
			p.Row,
			p.Row+p.N,
			p.D.rows,
			len(p.Dst),
		)
	}
	return nil
}

func (p *Piece) check() error {
	if err := p.inside(); err != nil || int64(len(p.Dst)) == p.N*p.D.rowBytes {
		return err
	}
	return robocache.Misuse("hdf5", robocache.Where{"pointer": p.D.name}, "").
		Expected(fmt.Sprintf("%d bytes for %d rows", p.N*p.D.rowBytes, p.N), fmt.Sprint(len(p.Dst)))
}

// parts calls each with the rows of the piece by band, as far as it says: rows at to at+n of band i
// go to dst.
func (p *Piece) parts(each func(i, at, n int64, dst []byte) bool) bool {
	d := p.D
	for row, end := p.Row, p.Row+p.N; row < end; {
		i := row / d.bandRows
		first, have := d.span(i)
		n := min(end, first+have) - row
		if !each(i, row-first, n, p.Dst[(row-p.Row)*d.rowBytes:(row-p.Row+n)*d.rowBytes]) {
			return false
		}
		row += n
	}
	return true
}

// quick serves a piece without decoding, where that is possible.
func (p *Piece) quick(ctx context.Context) (_ bool, err error) {
	d := p.D
	if err := p.check(); err != nil || p.N == 0 || d.rowBytes == 0 {
		return true, err
	}
	if d.Past() || d.layout.class == layoutContiguous && len(p.Dst) >= direct {
		defer guard.Recover("hdf5", &err)
		defer guard.In("pointer", d.name)
		guard.Check(d.Readable())
		d.plain(ctx, p.Row, p.Dst)
		d.native(p.Dst)
		return true, nil
	}
	return p.parts(func(i, at, n int64, dst []byte) bool {
		b, ok := d.held(i)
		if ok {
			copy(dst, b[at*d.rowBytes:])
		}
		return ok
	}), nil
}

// part is what is wanted of a band.
type part struct {
	d    *Dataset
	band int64
	at   int64 // first row of the band
	dst  []byte
}

// decode serves pieces by the band.
func decode(ctx context.Context, pieces []Piece) error {
	var parts []part
	for i := range pieces {
		pieces[i].parts(func(band, at, _ int64, dst []byte) bool {
			parts = append(parts, part{pieces[i].D, band, at, dst})
			return true
		})
	}
	order := func(a, b part) int {
		return cmp.Or(
			cmp.Compare(a.d.f.id, b.d.f.id),
			cmp.Compare(a.d.addr, b.d.addr),
			cmp.Compare(a.band, b.band),
		)
	}
	slices.SortStableFunc(parts, order)
	var bands [][]part
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && order(parts[0], parts[n]) == 0 {
			n++
		}
		bands, parts = append(bands, parts[:n]), parts[n:]
	}
	workers := len(bands)
	for _, b := range bands {
		workers = min(workers, b[0].d.workers())
	}
	return each(ctx, workers, len(bands), func(ctx context.Context, i int) error {
		d := bands[i][0].d
		b, err := d.band(ctx, bands[i][0].band)
		if err != nil {
			return err
		}
		for _, p := range bands[i] {
			copy(p.dst, b[p.at*d.rowBytes:])
		}
		return nil
	})
}

// reads is how many reads of a remote file are under way at once.
const reads = 16

// workers is how many bands are read and decoded at once: as there are cores, and of a remote file
// more, as far as they fit into a quarter of the cache.
func (d *Dataset) workers() int {
	cores := runtime.GOMAXPROCS(0)
	if !store.Remote(d.f.r) {
		return cores
	}
	return max(cores, int(d.room(2*reads)/2))
}

// each calls do for 0 to n-1, so many at the same time. It returns when all are over.
func each(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	work := func(ctx context.Context) (err error) {
		defer guard.Recover("hdf5", &err)
		for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
			guard.Check(ctx.Err())
			guard.Check(do(ctx, i))
		}
		return nil
	}
	if workers = min(n, workers); workers <= 1 {
		return work(ctx)
	}
	g, ctx := errgroup.WithContext(ctx)
	for range workers { // not a goroutine for each: chunks may be of a few bytes
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}

// ReadRows fills dst with n rows.
func (d *Dataset) ReadRows(ctx context.Context, row, n int64, dst []byte) error {
	return Read(ctx, []Piece{{d, row, n, dst}})
}

// Past says that rows are read past the cache: View takes new memory for them.
func (d *Dataset) Past() bool { return d.layout.class == layoutContiguous && !d.Keep }

// View gives rows that lie one after the other in memory: row and up to n-1 that follow it. They
// are shared: nobody may change them.
func (d *Dataset) View(ctx context.Context, row, n int64) ([]byte, int64, error) {
	if err := (&Piece{D: d, Row: row, N: min(n, 1)}).inside(); err != nil {
		return nil, 0, err
	}
	if n = min(n, d.rows-row); n == 0 || d.rowBytes == 0 {
		return nil, n, nil
	}
	if d.Past() {
		if d.rowBytes > maxRow {
			return nil, 0, robocache.At(
				d.f.above(d.addr, "a row", uint64(d.rowBytes), maxRow),
				robocache.Where{"pointer": d.name},
			)
		}
		n = min(n, max(1, maxChunk/d.rowBytes))
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

// Warm loads the bands of n rows that must be decoded, as many at once as there are cores, as far
// as they fit into half of the cache.
func (d *Dataset) Warm(ctx context.Context, row, n int64) error {
	if !d.Filtered() || n <= 1 {
		return nil
	}
	first := row / d.bandRows
	bands := d.room((row+n-1)/d.bandRows - first + 1)
	return each(ctx, d.workers(), int(bands), func(ctx context.Context, i int) error {
		_, err := d.band(ctx, first+int64(i))
		return err
	})
}

// room is how many of n bands fit into half of the cache.
func (d *Dataset) room(n int64) int64 {
	return max(min(n, d.f.cache.Budget()/2/max(d.bandRows*d.rowBytes, 1)), 0)
}

// maxAhead bounds the chunks that are read together.
const maxAhead = 256

// Ahead loads the bands of rows of a remote file together, several at once and near ones in one
// request, as far as they fit into half of the cache.
func (d *Dataset) Ahead(ctx context.Context, rows []int64) (err error) {
	if d.layout.class != layoutChunked || !store.Remote(d.f.r) || len(rows) < 2 {
		return nil
	}
	defer guard.Recover("hdf5", &err)
	defer guard.In("file", d.f.name)
	defer guard.In("pointer", d.name)
	guard.Check(d.Readable())
	bands := make([]int64, len(rows))
	for i, r := range rows {
		bands[i] = r / d.bandRows
	}
	slices.Sort(bands)
	bands = slices.Compact(bands)
	bands = slices.DeleteFunc(
		bands[:d.room(int64(len(bands)))],
		func(i int64) bool { _, held := d.held(i); return held },
	)
	refs, across := d.chunkIndex(ctx), d.across()
	a := &ahead{Ranged: d.f.r}
	for n, i := range bands {
		if int64(len(a.spans))+across > maxAhead {
			bands = bands[:n]
			break
		}
		for k := i * across; k < (i+1)*across; k++ {
			// else chunk says what is wrong
			if ref, ok := refs.find(k); ok && int64(ref.size) <= d.chunkBytes+d.chunkBytes/8+4096 {
				a.spans = append(
					a.spans,
					store.Span{
						Off: d.f.place(ref.addr, uint64(ref.size), "a chunk"),
						P:   make([]byte, ref.size),
					},
				)
			}
		}
	}
	guard.Check(store.ReadRanges(ctx, d.f.r, a.spans))
	f, c := *d.f, *d
	f.r, c.f = a, &f
	return each(ctx, c.workers(), len(bands), func(ctx context.Context, i int) error {
		_, err := c.band(ctx, bands[i])
		return err
	})
}

// ahead is a file of which some pieces have been read.
type ahead struct {
	robocache.Ranged
	spans []store.Span
}

func (a *ahead) ReadAt(ctx context.Context, p []byte, off int64) error {
	for _, s := range a.spans {
		if at := off - s.Off; at >= 0 && at <= int64(len(s.P)-len(p)) {
			copy(p, s.P[at:])
			return nil
		}
	}
	return a.Ranged.ReadAt(ctx, p, off)
}
