package cuda

// unroll is how many rows a thread of the fast kernels has in flight (UNROLL in src/lanes.cuh).
const unroll = 4

const (
	rowBytes     = 16 // Row
	wideRowBytes = 24 // WideRow
	spanBytes    = 16 // Span
)

// shape chooses threads, tiles and shared memory of a call, and puts into p what the kernel wants to know of them.
func (g *fuseGroup) shape(p *fuseParams, vector int) (block, grid, shared uint32) {
	c := g.f.on.sm()
	threads, tile := 128, int(p.rows)
	streams := int(p.streams)
	if g.kind == fuseAny {
		threads = 256
		tile = min(tile, 32)
		p.work = p.batch * ceil(int64(p.rows), int64(tile)) * int64(streams)
		for tile > 4 && p.work < int64(2*c.processors) {
			tile = (tile + 1) / 2
			p.work = p.batch * ceil(int64(p.rows), int64(tile)) * int64(streams)
		}
	} else {
		vectors := int(p.vectors)
		threads = threadsFor(vectors)
		lanes := max(1, threads/vectors)
		chunk := min(vectors, threads)
		p.chunk, p.chunks = int32(chunk), int32(ceil(int64(vectors), int64(chunk)))
		tile = min(tile, max(2*unroll*lanes, 32), 2048/streams)
		for tile > unroll*lanes && tile > 8 && p.batch*ceil(int64(p.rows), int64(tile))*int64(p.chunks) < int64(2*c.processors) {
			tile = (tile + 1) / 2
		}
		p.work = p.batch * ceil(int64(p.rows), int64(tile)) * int64(p.chunks)
	}
	p.tile, p.tiles = int32(tile), int32(ceil(int64(p.rows), int64(tile)))
	at := spanBytes * streams
	p.plan = int32(at)
	if g.kind == fuseAny {
		at += wideRowBytes * tile
	} else {
		at += rowBytes * tile * streams
	}
	at = (at + 15) &^ 15
	p.pivots = int32(at)
	at += 8 * g.pivots(p, g.kind == fuseAny, tile)
	return uint32(threads), uint32(min(p.work, 1<<30)), uint32(at)
}

// pivots decides how many stamps of each stream lie in shared memory: all where a tile needs a good part of them, else enough that what is left
// of a search is a few steps in one or two cache lines. It gives how many there are in all; alone: one stream at a time.
func (g *fuseGroup) pivots(p *fuseParams, alone bool, tile int) int {
	streams := int(p.streams)
	budget := 24 << 10 / 8
	if !alone {
		budget = max(budget/streams, 64)
	}
	total, most := 0, 0
	for i := range streams {
		x := &p.s[i]
		n := int(x.n)
		if n > 1024 && n/8 > n*tile/int(max(p.rows, 1)) {
			n = max(256, n/16)
		}
		n = max(1, min(n, budget))
		x.pivots, x.most = int32(total), int32(n)
		if alone {
			x.pivots = 0
		}
		total += n
		most = max(most, n)
	}
	if alone {
		return most
	}
	return total
}

// threadsFor is a block's size: a multiple of 32 that rows of so many vectors leave few threads of idle.
func threadsFor(vectors int) int {
	best, most := 128, 0.0
	for n := 128; n <= 512; n += 32 {
		used := float64(n/vectors*vectors) / float64(n)
		if vectors > n {
			rounds := (vectors + n - 1) / n
			used = float64(vectors) / float64(rounds*n)
		}
		if used > most+0.02 {
			best, most = n, used
		}
	}
	return best
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }
