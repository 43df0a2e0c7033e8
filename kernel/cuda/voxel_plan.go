package cuda

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// voxelPlan states which kernels compute an operation, how its grid and points are divided, and the
// layout of scratch.
type voxelPlan struct {
	params voxelParams
	steps  []voxelStep
	bytes  int // size of scratch
}

// voxelStep is one launch of a voxelPlan.
type voxelStep struct {
	kernel              string
	grid, block, shared uint32
	early               bool
	onlyScratch         bool // the kernel accesses no tensor but scratch
}

// voxelAlign is the alignment of scratch and of the areas in it.
const voxelAlign = 256

// Sizes that the kernels are written for. The other sizes were chosen by measurements on an H200
// (docs/PERFORMANCE.md).
const (
	cellShift  = 11 // a bucket whose cells are counted has 2^11 cells with features,
	countShift = 13 // and 2^13 without features
	// maximal number of buckets in an entry's grid, limited by the table of a tile
	maxBuckets = 2048
)

// ceilDiv returns a/b, rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// log2Ceil returns the smallest n with 2^n ≥ x.
func log2Ceil(x int64) int { return bits.Len64(uint64(max(x, 1) - 1)) }

// planVoxels chooses the kernels for op. Counts and occupancies of large grids use atomics in
// global memory (voxel_hit). All other results use two kernels: tiles of points are sorted by
// bucket, then each bucket of cells is computed in shared memory.
func (d *Device) planVoxels(op *kernel.VoxelOp) (*voxelPlan, error) {
	l, err := op.Layout()
	if err != nil {
		return nil, err
	}
	plan := &voxelPlan{}
	p := &plan.params
	p.setLayout(op, l)
	points := int64(l.Rows) // of all entries
	if p.entries != offsetEntries {
		points *= int64(l.Batch)
	}
	chip := d.launcher.chipInfo()
	clear := voxelStep{kernel: "voxel_clear", grid: uint32(chip.processors * 4), block: 512}
	switch {
	case l.Batch == 0: // only the statistics are cleared
		clear.grid = 1
		plan.steps = []voxelStep{clear}
		plan.bytes = voxelHead + voxelAlign
		return plan, nil
	case !op.Mode.Featured() && p.sparse == 0 && !plan.countsInBuckets(points):
		// Points are counted with atomics in global memory. Bits are first counted as words.
		p.tile = 10
		plan.cutTiles(points)
		hit := voxelStep{kernel: "voxel_hit", grid: p.tiles, block: 256, early: true}
		plan.steps = []voxelStep{clear, hit}
		plan.bytes = voxelHead + voxelAlign
		if p.bit != 0 {
			p.words = voxelAlign
			plan.bytes = int(voxelAlign*2 + ceilDiv(l.Total, 128)*16)
			plan.steps = append(
				plan.steps,
				voxelStep{kernel: "voxel_bits", grid: clear.grid, block: clear.block},
			)
		}
		if err := plan.checkLimits(points); err != nil {
			return nil, err
		}
		return plan, nil
	}
	plan.planBuckets(op, points, chip)
	// The kernels of planBuckets write every cell of a dense result. If buckets are lists, they
	// write occupied cells only, so the result is cleared first. FailOutside needs an initialized
	// first field of scratch.
	if p.list != 0 && p.sparse == 0 && p.columns > 0 {
		plan.steps = append([]voxelStep{clear}, plan.steps...)
	} else if op.Outside == kernel.FailOutside {
		plan.steps = append(
			[]voxelStep{{kernel: "voxel_clear", grid: 1, block: 32, onlyScratch: true}},
			plan.steps...)
	}
	if err := plan.checkLimits(points); err != nil {
		return nil, err
	}
	return plan, nil
}

// countsInBuckets reports whether points are counted by buckets in shared memory. Grids with too
// many cells use atomics in global memory instead.
func (v *voxelPlan) countsInBuckets(points int64) bool {
	p := &v.params
	if p.cells > maxBuckets/2<<countShift {
		return false
	}
	return p.bit == 0 || p.batch == 1 || p.cells%8 == 0 // each byte of bits must be in one bucket
}

// cutTiles computes the number of tiles of 2^tile points. A tile has points of one entry only.
func (v *voxelPlan) cutTiles(points int64) {
	p := &v.params
	tiles := points>>p.tile + p.batch
	if p.entries != offsetEntries {
		entry := ceilDiv(p.rowsIn, 1<<p.tile)
		p.entryTiles = uint32(min(entry, math.MaxUint32))
		tiles = entry * p.batch
	}
	p.tiles = uint32(min(tiles, math.MaxUint32))
}

// planBuckets plans the two kernels of src/voxel.cuh: first tiles, then buckets.
func (v *voxelPlan) planBuckets(op *kernel.VoxelOp, points int64, chip chip) {
	p := &v.params
	counts := !op.Mode.Featured() && p.sparse == 0
	rounds, threads := 4, 1024 // a block handles rounds × threads points
	if points > 1<<20 {
		rounds, threads = 16, 512
	}
	if counts {
		threads /= 2 // a tile has many points per bucket, so tiles can be small
	}
	for rounds == 4 && threads > 128 && max(p.rowsIn, 1) <= int64(rounds*threads/2) {
		threads /= 2 // small entries
	}
	p.tile = uint32(bits.Len(uint(rounds*threads)) - 1)
	v.cutTiles(points)

	widest := cellShift
	if counts {
		widest = countShift
	}
	shift := p.bucketShift(counts, widest, points)
	p.shift = uint32(shift)
	p.buckets = uint32(ceilDiv(p.cells, 1<<shift))
	p.pitch = (p.buckets + 2) &^ 1 // buckets+1 numbers, rounded up to an even number
	p.list = flag(shift > widest && !counts)
	p.huge = flag(p.list != 0 && uint32(shift)+p.tile > 32)
	if p.huge != 0 {
		p.quick = 0
	}
	v.assignAreas(points)

	// The first kernel sorts the points of each tile by bucket.
	tile := voxelStep{
		kernel: fmt.Sprintf("voxel_tile_%d", rounds),
		grid:   max(p.tiles, 1),
		block:  uint32(threads),
		shared: uint32(256 + 4*threads*rounds + 4*(int(p.buckets)+3)&^3),
	}
	// The second kernel computes the cells of each bucket.
	second := voxelStep{
		kernel: "voxel_count",
		grid:   uint32(min(p.batch*int64(p.buckets), math.MaxUint32)),
		block:  uint32(min(max(1<<shift/8, 128), 1024)),
		shared: uint32(4 * max(1<<shift, 4)),
		early:  true,
	}
	p.log = 2
	if !counts {
		second.kernel = addKernel(op.Mode)
		second.block = 256
		second.shared = p.addShared(points, chip)
		p.log = 1
	}
	v.steps = []voxelStep{tile, second}
}

// bucketShift returns the logarithm of the number of cells in a bucket. counts means that points
// are counted without features. widest is the logarithm of the most cells that a block can count in
// shared memory.
func (p *voxelParams) bucketShift(counts bool, widest int, points int64) int {
	// Start with 1024 buckets per entry, or 256 for counts.
	shift := log2Ceil(ceilDiv(p.cells, 1024))
	if counts {
		shift = log2Ceil(ceilDiv(p.cells, 256))
	}
	isSparse := p.sparse != 0 && p.rowsIn < p.cells/64 // few points are sorted, not counted
	hasTooMany := shift > widest && p.cells>>widest > maxBuckets
	switch {
	case isSparse || hasTooMany:
		// The points of a bucket are listed and sorted. Aim at 256 points per bucket.
		perBucket := bits.Len64(uint64(min(max(p.rowsIn/256, 1), 1024)))
		shift = max(log2Ceil(p.cells)-perBucket+1, widest+1)
	case shift > widest:
		shift = widest // as many cells as can be counted
	default:
		for shift < widest && p.batch<<max(log2Ceil(p.cells)-shift, 0) > 1<<12 {
			// with many entries, limit the number of blocks to a few times the capacity of the chip
			shift++
		}
	}
	canHalve := shift <= widest && shift > 8 && p.cells>>shift <= maxBuckets/2
	if !counts && canHalve && points>>11 > p.batch*p.cells>>shift {
		shift-- // with many points per bucket, use more blocks
	}
	if counts {
		shift = max(shift, 3) // whole bytes of bits
	}
	return shift
}

// addKernel returns the kernel that combines the points of a bucket.
func addKernel(mode kernel.VoxelMode) string {
	switch mode {
	case kernel.Maximum, kernel.Minimum:
		return "voxel_extreme"
	case kernel.FirstPoint:
		return "voxel_pick"
	}
	return "voxel_add"
}

// addShared sets p.room, the space for the points of a bucket in bytes, and returns the shared
// memory of a block.
func (p *voxelParams) addShared(points int64, chip chip) uint32 {
	cells := 0
	perPoint := int64(voxelListed * 3 / 2)
	if p.list == 0 {
		cells = max(1<<p.shift, 8)
		perPoint = 2 * voxelOrdered // twice the average of a bucket
	}
	// The average space of a bucket, limited by what several blocks on a multiprocessor can have.
	space := max(perPoint*points/max(p.batch*int64(p.buckets), 1), 1024)
	space = min(space, 64<<10, int64(chip.shared-16<<10))
	p.room = uint32(space) &^ 15
	return uint32(6*cells) + p.room // a cell has a uint32 and a uint16
}

// assignAreas assigns the areas of scratch and sets its size. Each area starts at a multiple of
// voxelAlign.
func (v *voxelPlan) assignAreas(points int64) {
	p := &v.params
	at := int64(voxelHead)
	area := func(bytes int64) int64 {
		at = (at + voxelAlign - 1) &^ (voxelAlign - 1)
		from := at
		at += bytes
		return from
	}
	const uint16Bytes, uint32Bytes, uint64Bytes = 2, 4, 8
	wordCount := int64(p.tiles) << p.tile
	p.words = area(wordCount * uint32Bytes)
	p.table = area(int64(p.tiles) * int64(p.pitch) * uint16Bytes)
	p.places = area(int64(p.tiles) * 3 * uint32Bytes)
	if p.sparse != 0 {
		p.state = area(p.batch * int64(p.buckets) * uint64Bytes)
	}
	if p.columns > 0 || p.sparse != 0 {
		p.arena = area(points * voxelListed)
	}
	v.bytes = int(at + voxelAlign)
}

// checkLimits rejects sizes that the kernels' integer types cannot hold.
func (v *voxelPlan) checkLimits(points int64) error {
	p := &v.params
	tooMany := func(what string, got, most int64) error {
		return robocache.Unsupported("voxelize", nil, "kernel/cuda: too many %s", what).
			Expected(fmt.Sprintf("at most %d", most), fmt.Sprint(got)).WithHint("split the batch")
	}
	switch {
	case int64(p.tiles) > math.MaxInt32 || points>>p.tile > math.MaxInt32:
		return tooMany("points", points, math.MaxInt32<<p.tile)
	case p.rowsIn >= math.MaxUint32 && (p.columns > 0 || p.sparse != 0):
		return tooMany("points of an entry", p.rowsIn, math.MaxUint32-1)
	case p.batch*int64(max(p.buckets, 1)) > math.MaxInt32:
		return tooMany("entries", p.batch, math.MaxInt32/int64(max(p.buckets, 1)))
	}
	return nil
}
