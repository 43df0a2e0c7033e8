package cuda

import (
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// fuseWay states how the fast kernels read entries.
type fuseWay uint8

const (
	fuseTiles fuseWay = iota // tiles of rows of one entry, directly from memory
	fuseWhole                // whole entries in shared memory; each thread computes columns
	// whole entries in shared memory; each thread computes small rows, which are written through
	// shared memory
	fuseRows
)

// unroll is the number of rows that a thread of the fast kernels has in flight (UNROLL of
// src/lanes.cuh).
const unroll = 4

// fuseChoice overrides the chosen way: "direct", "tiles" or "whole". Tests set it to compare the
// times of the ways.
var fuseChoice string

const (
	rowBytes     = 16 // size of Row
	wideRowBytes = 24 // size of WideRow
	spanBytes    = 16 // size of Span
)

// chooseShape chooses threads, tiles and shared memory of a call, and sets the fields of p that
// depend on them.
func (g *fuseGroup) chooseShape(
	p *fuseParams,
	vector int,
	how fuseWay,
) (block, grid, shared uint32) {
	if how != fuseTiles {
		return g.stagedShape(p, vector, how)
	}
	c := g.f.on.chipInfo()
	threads := 128
	tile := int(p.rows)
	streams := int(p.streams)
	if g.kind == fuseAny {
		// A block computes a tile of one stream. Smaller tiles give enough blocks for the chip.
		threads = 256
		tile = min(tile, 32)
		p.work = p.batch * ceilDiv(int64(p.rows), int64(tile)) * int64(streams)
		for tile > 4 && p.work < int64(2*c.processors) {
			tile = (tile + 1) / 2
			p.work = p.batch * ceilDiv(int64(p.rows), int64(tile)) * int64(streams)
		}
	} else {
		vectors := int(p.vectors)
		// Each thread computes a few rows.
		threads = min(threadsFor(vectors), max(128, (int(p.rows)*vectors/unroll+31)&^31))
		if g.kind == fuseMapped && p.batch > int64(4*c.processors) {
			// These kernels use many registers, so small blocks fill a multiprocessor better.
			// Measured with three streams and B = 4096: 211 µs, and 251 µs with 320 threads.
			threads = min(threads, 160)
		}
		// A row is cut into chunks of columns, one for each block.
		p.chunks = int32(ceilDiv(int64(vectors), int64(threads)))
		p.chunk = int32(ceilDiv(int64(vectors), int64(p.chunks)))
		tile = min(tile, max(g.tileRows(p, threads/int(p.chunk)), 1), 2048/streams)
		blocks := func() int64 {
			return p.batch * ceilDiv(int64(p.rows), int64(tile)) * int64(p.chunks)
		}
		for tile > 2 && blocks() < int64(c.processors) {
			tile = (tile + 1) / 2
		}
		p.work = blocks()
	}
	// Shared memory: spans, plan rows, and pivots.
	p.tile = int32(tile)
	p.tiles = int32(ceilDiv(int64(p.rows), int64(tile)))
	at := spanBytes * streams
	p.plan = int32(at)
	if g.kind == fuseAny {
		at += wideRowBytes * tile
	} else {
		at += rowBytes * tile * streams
	}
	at = align16(at)
	p.pivots = int32(at)
	at += 8 * g.choosePivots(p, g.kind == fuseAny, tile)
	return uint32(threads), uint32(min(p.work, 1<<30)), uint32(at)
}

// tileRows returns the best number of target rows for a block, by measurements on an H200. lanes is
// the number of rows that the threads of a block compute at once. Entries with few rows are not
// divided. Otherwise each thread gets two rounds of work, or more if a tile needs samples of all
// timestamps.
func (g *fuseGroup) tileRows(p *fuseParams, lanes int) int {
	if p.rows <= 64 {
		return int(p.rows)
	}
	if p.hasLongStream() {
		return max(256, 2*unroll*lanes)
	}
	return max(2*unroll*lanes, 32)
}

// manyTimestamps is the number of timestamps above which a tile copies only some of them to shared
// memory.
const manyTimestamps = 1024

// hasLongStream reports whether a stream has more than manyTimestamps.
func (p *fuseParams) hasLongStream() bool {
	for i := range int(p.streams) {
		if p.s[i].n > manyTimestamps {
			return true
		}
	}
	return false
}

// align16 rounds n up to a multiple of 16.
func align16(n int) int { return (n + 15) &^ 15 }

// stagedShape is chooseShape for the kernels that read whole entries. The grid has as many blocks
// as the chip can run at once.
func (g *fuseGroup) stagedShape(
	p *fuseParams,
	vector int,
	how fuseWay,
) (block, grid, shared uint32) {
	c := g.f.on.chipInfo()
	g.layoutShared(p, how, g.bufferCount(p, how))
	threads := 320
	if how == fuseRows {
		// One thread per row. There are more threads if the chip has space for more entries than
		// there are.
		threads = min(max(64, (int(p.rows*p.streams)+31)&^31), 256)
		if p.batch <= int64(2*c.processors) {
			threads = min(max(64, (int(p.rows*p.streams)+31)&^31), 512)
		}
	} else if n := int(p.vectors); n > 0 {
		// Choose the block size that gives the most threads with columns on a multiprocessor,
		// within the limits of registers and shared memory.
		mostBusy := 0
		for t := 160; t <= 512; t += 32 {
			if busy := t / n * n * stagedBlocks(c, stagedBytes(p), t); busy > mostBusy {
				mostBusy, threads = busy, t
			}
		}
	}
	bytes := stagedBytes(p)
	p.work = p.batch
	blocks := int64(max(stagedBlocks(c, bytes, threads), 1) * c.processors)
	return uint32(threads), uint32(min(p.batch, blocks)), uint32(bytes)
}

// stagedBlocks returns how many blocks of a staged kernel fit on a multiprocessor. They are limited
// by shared memory (each block needs 1 KB more), by threads, and by registers (80 per thread).
func stagedBlocks(c chip, bytes, threads int) int {
	return min((c.shared+1024)/(bytes+1024), c.threads/threads, 65536/(80*threads))
}

// layoutShared assigns the shared memory of a staged kernel. First comes the plan with a row of
// zeros, or the result. Then come one or two buffers of targets, timestamps and values.
func (g *fuseGroup) layoutShared(p *fuseParams, how fuseWay, buffers int) {
	at := 16 + 2*spanBytes*int(p.streams)
	if how == fuseWhole {
		p.plan = int32(at)
		at += rowBytes * int(p.rows) * int(p.streams)
		p.zeros = int32(at)
		p.zeroBytes = 0
		for i := range int(p.streams) {
			p.zeroBytes = max(p.zeroBytes, int32(align16(int(p.s[i].row))))
		}
		at += int(p.zeroBytes)
	}
	p.result = int32(at)
	if how == fuseRows {
		at += int(p.rows)*int(p.outRow) + 16
	}
	p.buffer = int32(align16(at))
	p.pivots = int32(align16(8*int(p.rows) + 16))
	timestamps := 0
	for i := range int(p.streams) {
		x := &p.s[i]
		x.pivots = int32(timestamps)
		x.most = max(x.n, 1)
		timestamps += (int(x.n) + 3) &^ 1
	}
	at = int(p.pivots) + 8*timestamps
	for i := range int(p.streams) {
		x := &p.s[i]
		x.staged = int32(at)
		at += align16(int(x.n)*int(x.row) + 16)
	}
	p.bufferBytes = int32(align16(at))
	p.buffers = int32(buffers)
}

// stagedBytes returns the shared memory of a block.
func stagedBytes(p *fuseParams) int { return int(p.buffer + p.buffers*p.bufferBytes) }

// chooseWay chooses how entries are read: fuseTiles, fuseRows or fuseWhole. The last two load whole
// entries into shared memory. Whole entries include samples that no row needs. In return, all
// samples are loaded long before they are used, and none is loaded twice.
func (g *fuseGroup) chooseWay(p *fuseParams) fuseWay {
	c := g.f.on.chipInfo()
	op := g.f.op
	hasDenseTargets := p.targetsRow == 8 && op.Targets.DType != robocache.Float32
	isNanoseconds := op.Clock == kernel.Nanoseconds && hasDenseTargets
	fillsChip := p.batch >= int64(c.processors)/2
	if g.kind == fuseAny || !isNanoseconds || p.rows > 1024 || !fillsChip {
		return fuseTiles
	}
	var in, out int64 // bytes of an entry that are read and written
	for i := g.from; i < g.to; i++ {
		s := &op.Series[i]
		x := &p.s[i-g.from]
		size := int64(s.Values.DType.Size())
		hasDenseTimes := x.timesRow == 8 && s.Times.DType != robocache.Float32
		hasDenseRows := s.Offsets == nil && x.row == int64(x.columns)*size
		isSmall := x.n <= 8192 && int64(x.n)*x.row <= 1<<17
		if !hasDenseTimes || !hasDenseRows || !isSmall {
			return fuseTiles
		}
		in += int64(x.n) * (x.row + 8)
		out += int64(p.rows) * x.row
	}
	isPacked := p.outColumn == int64(op.Out.DType.Size()) &&
		p.outRow == int64(g.f.cols)*p.outColumn
	writesAll := isPacked && g.cols == g.f.cols
	fillsOften := p.batch >= int64(4*c.processors)
	how := fuseTiles
	switch {
	case in > 4*out || !writesAll:
	case g.vector == 1 && p.outRow <= 256*int64(p.streams):
		how = fuseRows
	case g.vector > 1 && g.kind == fuseLean && in < 2*out && fillsOften && g.cols/4 <= 512:
		how = fuseWhole
	}
	switch fuseChoice { // tests only
	case "tiles":
		how = fuseTiles
	case "whole":
		switch {
		case g.vector == 1:
			how = fuseRows
		case g.kind == fuseLean:
			how = fuseWhole
		default:
			how = fuseTiles
		}
	}
	if how == fuseTiles {
		return how
	}
	// Two blocks must fit on a multiprocessor. The layout is computed on a copy of p.
	q := *p
	g.layoutShared(&q, how, 1)
	if stagedBytes(&q) > c.shared/2 {
		return fuseTiles
	}
	return how
}

// bufferCount returns two if several blocks with two buffers fit on a multiprocessor, else one.
// With two buffers, loads start earlier. It computes the size on a copy of p.
func (g *fuseGroup) bufferCount(p *fuseParams, how fuseWay) int {
	q := *p
	g.layoutShared(&q, how, 2)
	room := g.f.on.chipInfo().shared / 3
	if how == fuseWhole {
		room = g.f.on.chipInfo().shared / 2
	}
	if stagedBytes(&q) > room {
		return 1
	}
	return 2
}

// choosePivots chooses how many timestamps of each stream are kept in shared memory (pivots). If a
// tile needs many of them, all are kept. Otherwise enough are kept that the rest of a search takes
// a few steps in one or two cache lines. choosePivots returns the total number. alone means that a
// block handles one stream at a time, so that all streams use the same memory.
func (g *fuseGroup) choosePivots(p *fuseParams, alone bool, tile int) int {
	streams := int(p.streams)
	budget := 24 << 10 / 8 // timestamps in 24 KB
	if !alone {
		budget = max(budget/streams, 64)
	}
	total, most := 0, 0
	for i := range streams {
		x := &p.s[i]
		n := int(x.n)
		if n > manyTimestamps {
			n = 512
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

// threadsFor returns the number of threads of a block for rows of the given number of vectors. It
// tries the multiples of 32 from 128 to 320 and takes the one that leaves the fewest threads idle.
// Sizes far from 256 must be better by 1 percent per 32 threads.
func threadsFor(vectors int) int {
	best, bestScore := 256, 0.0
	for n := 128; n <= 320; n += 32 {
		busy := float64(n/vectors*vectors) / float64(n)
		if vectors > n { // a row takes several rounds
			rounds := (vectors + n - 1) / n
			busy = float64(vectors) / float64(rounds*n)
		}
		if score := busy - 0.02*math.Abs(float64(n-256))/64; score > bestScore {
			best, bestScore = n, score
		}
	}
	return best
}
