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

// Piece is a request for rows of a data set.
type Piece struct {
	D      *Dataset
	Row, N int64
	Dst    []byte // N × RowBytes bytes
}

// directReadBytes is the request size from which rows of a data set without filters are read
// directly into the caller's buffer, without the cache.
const directReadBytes = 64 << 10

// Read fills all pieces. Bands are decoded in parallel, as many as there are cores, or more for a
// remote file. No band is decoded twice.
func Read(ctx context.Context, pieces []Piece) error {
	rest, far := pieces[:0:0], pieces[:0:0]
	for i := range pieces { // in the common case all rows are cached and only copied
		if p := &pieces[i]; len(pieces) > 1 && p.D.Past() && store.Remote(p.D.f.r) {
			far = append(far, *p)
			continue
		}
		done, err := pieces[i].readWithoutDecoding(ctx)
		if err != nil {
			return err
		}
		if !done {
			rest = append(rest, pieces[i])
		}
	}
	if err := readUncached(ctx, far); err != nil {
		return err
	}
	return decodePieces(ctx, rest)
}

// readUncached reads pieces without the cache. For each file, close ranges are joined into one
// request. Several requests run in parallel.
func readUncached(ctx context.Context, pieces []Piece) (err error) {
	defer guard.Recover("hdf5", &err)
	spans := map[*File][]store.Span{}
	var files []*File
	for _, p := range pieces {
		guard.Check(p.checkPiece())
		guard.Check(p.D.Readable())
		if addr := p.D.layout.addr; addr == undefined {
			p.D.fillBlank(p.Dst)
		} else if len(p.Dst) > 0 {
			f := p.D.f
			if spans[f] == nil {
				files = append(files, f)
			}
			spans[f] = append(
				spans[f],
				store.Span{
					Off: f.fileOffset(
						addr+uint64(p.Row*p.D.rowBytes),
						uint64(len(p.Dst)),
						"the data",
					),
					P: p.Dst,
				},
			)
		}
	}
	guard.Check(
		runParallel(
			ctx,
			remoteReads,
			len(files),
			func(ctx context.Context, i int) error {
				return store.ReadRanges(ctx, files[i].r, spans[files[i]])
			},
		),
	)
	for _, p := range pieces {
		p.D.toLittleEndian(p.Dst)
	}
	return nil
}

// checkRange rejects rows that are outside the data set.
func (p *Piece) checkRange() error {
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

func (p *Piece) checkPiece() error {
	if err := p.checkRange(); err != nil || int64(len(p.Dst)) == p.N*p.D.rowBytes {
		return err
	}
	return robocache.Misuse("hdf5", robocache.Where{"pointer": p.D.name}, "").
		Expected(fmt.Sprintf("%d bytes for %d rows", p.N*p.D.rowBytes, p.N), fmt.Sprint(len(p.Dst)))
}

// splitByBand calls each for every band that the piece touches, until each returns false. Rows at
// to at+n of band i belong in dst.
func (p *Piece) splitByBand(each func(i, at, n int64, dst []byte) bool) bool {
	d := p.D
	for row, end := p.Row, p.Row+p.N; row < end; {
		i := row / d.bandRows
		first, have := d.bandSpan(i)
		n := min(end, first+have) - row
		if !each(i, row-first, n, p.Dst[(row-p.Row)*d.rowBytes:(row-p.Row+n)*d.rowBytes]) {
			return false
		}
		row += n
	}
	return true
}

// readWithoutDecoding fills a piece if no band needs to be decoded. It returns false if a band is
// missing.
func (p *Piece) readWithoutDecoding(ctx context.Context) (_ bool, err error) {
	d := p.D
	if err := p.checkPiece(); err != nil || p.N == 0 || d.rowBytes == 0 {
		return true, err
	}
	if d.Past() || d.layout.class == layoutContiguous && len(p.Dst) >= directReadBytes {
		defer guard.Recover("hdf5", &err)
		defer guard.In("pointer", d.name)
		guard.Check(d.Readable())
		d.readContiguous(ctx, p.Row, p.Dst)
		d.toLittleEndian(p.Dst)
		return true, nil
	}
	return p.splitByBand(func(i, at, n int64, dst []byte) bool {
		b, ok := d.cachedBand(i)
		if ok {
			copy(dst, b[at*d.rowBytes:])
		}
		return ok
	}), nil
}

// bandRead is the part of a piece that is in one band.
type bandRead struct {
	d        *Dataset
	band     int64
	firstRow int64 // first row within the band
	dst      []byte
}

// decodePieces decodes the bands of the pieces and copies the rows.
func decodePieces(ctx context.Context, pieces []Piece) error {
	var parts []bandRead
	for i := range pieces {
		pieces[i].splitByBand(func(band, at, _ int64, dst []byte) bool {
			parts = append(parts, bandRead{pieces[i].D, band, at, dst})
			return true
		})
	}
	order := func(a, b bandRead) int {
		return cmp.Or(
			cmp.Compare(a.d.f.id, b.d.f.id),
			cmp.Compare(a.d.addr, b.d.addr),
			cmp.Compare(a.band, b.band),
		)
	}
	slices.SortStableFunc(parts, order)
	var bands [][]bandRead
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && order(parts[0], parts[n]) == 0 {
			n++
		}
		bands, parts = append(bands, parts[:n]), parts[n:]
	}
	workers := len(bands)
	for _, b := range bands {
		workers = min(workers, b[0].d.workerCount())
	}
	return runParallel(ctx, workers, len(bands), func(ctx context.Context, i int) error {
		d := bands[i][0].d
		b, err := d.decodedBand(ctx, bands[i][0].band)
		if err != nil {
			return err
		}
		for _, p := range bands[i] {
			copy(p.dst, b[p.firstRow*d.rowBytes:])
		}
		return nil
	})
}

// remoteReads is the number of reads of a remote file that run in parallel.
const remoteReads = 16

// workerCount returns how many bands are read and decoded in parallel. It is the number of cores. A
// remote file may have more workers if their bands fit into a quarter of the cache.
func (d *Dataset) workerCount() int {
	cores := runtime.GOMAXPROCS(0)
	if !store.Remote(d.f.r) {
		return cores
	}
	return max(cores, int(d.bandsThatFit(2*remoteReads)/2))
}

// runParallel calls do for 0 to n-1 in the given number of workers. It returns when all calls have
// returned.
func runParallel(
	ctx context.Context,
	workers, n int,
	do func(ctx context.Context, i int) error,
) error {
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
	for range workers { // not one goroutine per call: chunks may have only a few bytes
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}

// ReadRows fills dst with n rows.
func (d *Dataset) ReadRows(ctx context.Context, row, n int64, dst []byte) error {
	return Read(ctx, []Piece{{d, row, n, dst}})
}

// Past reports whether reads bypass the cache. If so, View allocates memory for each call.
func (d *Dataset) Past() bool { return d.layout.class == layoutContiguous && !d.Keep }

// View returns consecutive rows in memory: row and up to n-1 rows that follow it. The rows are
// shared; the caller must not modify them.
func (d *Dataset) View(ctx context.Context, row, n int64) ([]byte, int64, error) {
	if err := (&Piece{D: d, Row: row, N: min(n, 1)}).checkRange(); err != nil {
		return nil, 0, err
	}
	if n = min(n, d.rows-row); n == 0 || d.rowBytes == 0 {
		return nil, n, nil
	}
	if d.Past() {
		if d.rowBytes > maxRow {
			return nil, 0, robocache.At(
				d.f.limitError(d.addr, "a row", uint64(d.rowBytes), maxRow),
				robocache.Where{"pointer": d.name},
			)
		}
		n = min(n, max(1, maxChunk/d.rowBytes))
		b := make([]byte, n*d.rowBytes)
		return b, n, d.ReadRows(ctx, row, n, b)
	}
	i := row / d.bandRows
	first, have := d.bandSpan(i)
	b, err := d.decodedBand(ctx, i)
	if err != nil {
		return nil, 0, err
	}
	n = min(n, first+have-row)
	return b[(row-first)*d.rowBytes : (row-first+n)*d.rowBytes], n, nil
}

// Warm decodes the bands of n rows in parallel, one per core at a time. It loads at most half of
// the cache budget.
func (d *Dataset) Warm(ctx context.Context, row, n int64) error {
	if !d.Filtered() || n <= 1 {
		return nil
	}
	first := row / d.bandRows
	bands := d.bandsThatFit((row+n-1)/d.bandRows - first + 1)
	return runParallel(ctx, d.workerCount(), int(bands), func(ctx context.Context, i int) error {
		_, err := d.decodedBand(ctx, first+int64(i))
		return err
	})
}

// bandsThatFit returns how many of n bands fit into half of the cache.
func (d *Dataset) bandsThatFit(n int64) int64 {
	return max(min(n, d.f.cache.Budget()/2/max(d.bandRows*d.rowBytes, 1)), 0)
}

// maxAhead limits the number of chunks that are read together.
const maxAhead = 256

// Ahead loads the bands of the given rows if the file is remote. Close chunks are joined into one
// request, and several requests run in parallel. Ahead loads at most half of the cache budget.
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
		bands[:d.bandsThatFit(int64(len(bands)))],
		func(i int64) bool { _, held := d.cachedBand(i); return held },
	)
	refs, across := d.loadChunkIndex(ctx), d.chunksPerBand()
	a := &prefetchedFile{Ranged: d.f.r}
	for n, i := range bands {
		if int64(len(a.spans))+across > maxAhead {
			bands = bands[:n]
			break
		}
		for k := i * across; k < (i+1)*across; k++ {
			// a larger chunk is reported when it is decoded
			ref, ok := refs.findChunk(k)
			if ok && int64(ref.size) <= d.chunkBytes+d.chunkBytes/8+4096 {
				a.spans = append(
					a.spans,
					store.Span{
						Off: d.f.fileOffset(ref.addr, uint64(ref.size), "a chunk"),
						P:   make([]byte, ref.size),
					},
				)
			}
		}
	}
	guard.Check(store.ReadRanges(ctx, d.f.r, a.spans))
	f, c := *d.f, *d
	f.r, c.f = a, &f
	return runParallel(ctx, c.workerCount(), len(bands), func(ctx context.Context, i int) error {
		_, err := c.decodedBand(ctx, bands[i])
		return err
	})
}

// prefetchedFile is a file of which some ranges are already in memory.
type prefetchedFile struct {
	robocache.Ranged
	spans []store.Span
}

func (a *prefetchedFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	for _, s := range a.spans {
		if at := off - s.Off; at >= 0 && at <= int64(len(s.P)-len(p)) {
			copy(p, s.P[at:])
			return nil
		}
	}
	return a.Ranged.ReadAt(ctx, p, off)
}
