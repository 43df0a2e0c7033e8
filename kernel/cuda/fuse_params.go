package cuda

import (
	"encoding/binary"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// The structs mirror those of src/fuse.cuh, which documents the fields. The order and the sizes
// must be equal (fuse_test.go).

// fuseExtra mirrors Extra.
type fuseExtra struct {
	a, b, entries, plane                  int32
	norm, unit, clip, augment             uint8
	clipLo, clipHi                        float32
	noise, dropout, scaleLo, scaleHi      float32
	key0, key1                            uint32
	tame                                  uint8
	_                                     [3]uint8
	per                                   int32
	quats, quatCount                      int32
	column, outColumn, before, after      int64
	period, lo                            float64
	samples                               int64
	kindRow, leftRow, rightRow, weightRow int64
	validRow                              int64
}

const (
	streamLengths = 1 << iota // StreamFlags of src/fuse.cuh
	streamOffsets
	streamTimesF64
	streamTimesF32
	streamBrief
)

// fuseHead and streamHead are the addresses at the start of Fuse and Direct, and of Stream and
// DirectStream.
type (
	fuseHead   struct{ targets, out, valid, counts, table uintptr }
	streamHead struct{ values, times, rows uintptr }
)

// fuseStream mirrors Stream.
type fuseStream struct {
	streamHead
	samples                                 uintptr
	entry, row, timesEntry, timesRow        int64
	maxGap, out, rowsStep                   int64
	n, columns, vector, pivots, most, extra int32
	dtype, mode, edge, flags                uint8
	staged                                  int32
}

// maxStreams is the maximal number of streams in one launch.
const maxStreams = 32

// fuseParams mirrors Fuse.
type fuseParams struct {
	fuseHead
	batch, targetsEntry, targetsRow   int64
	outEntry, outRow, outColumn       int64
	validEntry, validRow, validStream int64
	epsilon                           float64
	work                              int64
	rows, streams, tile, tiles        int32
	vectors, chunk, chunks            int32
	plan, pivots, result              int32
	buffer, bufferBytes, buffers      int32
	zeros, zeroBytes, _               int32
	timeType, clock, outType, ragged  uint8
	first                             int32
	s                                 [maxStreams]fuseStream
}

// paramTable holds the data of an operation that is too large or too rare for parameters: Extras,
// statistics, and channels of quaternions.
type paramTable struct{ b []byte }

// padTo appends zeros up to a multiple of n bytes.
func (t *paramTable) padTo(n int) {
	for len(t.b)%n != 0 {
		t.b = append(t.b, 0)
	}
}

// appendFloats appends numbers and returns their offset in the table.
func (t *paramTable) appendFloats(v []float32) int32 {
	t.padTo(16)
	at := len(t.b)
	for _, x := range v {
		t.b = binary.LittleEndian.AppendUint32(t.b, math.Float32bits(x))
	}
	return int32(at)
}

// appendExtra appends the rare settings of a stream. column is the stride of its values in bytes.
// It returns the offset in the table.
func (t *paramTable) appendExtra(rule *kernel.Rule, e *kernel.Epilogue, column int) int32 {
	x := fuseExtra{
		plane:     int32(max(e.Plane, 1)),
		entries:   1,
		column:    int64(column),
		before:    rule.Before,
		after:     rule.After,
		quatCount: -1,
	}
	x.period = rule.Period
	x.lo = 0
	if x.period == 0 {
		x.period = 2 * math.Pi
	}
	x.lo = -x.period / 2
	if rule.Lo != nil {
		x.lo = *rule.Lo
	}
	if e.Unit {
		x.unit = 1
	}
	if n := e.Norm; n != nil {
		x.norm = 1 + uint8(n.Kind)
		x.entries = int32(max(len(n.A), 1))
		x.a, x.b = t.appendFloats(n.A), t.appendFloats(n.B)
		x.tame = 1
		for _, b := range n.B {
			if m := math.Abs(float64(b)); m != 0 && !(m >= 0x1p-60 && m <= 0x1p60) {
				x.tame = 0
			}
		}
	}
	if e.Clip != nil {
		x.clip, x.clipLo, x.clipHi = 1, e.Clip[0], e.Clip[1]
	}
	if a := e.Augment; a != nil {
		x.augment = 1
		x.noise = a.Noise
		x.dropout = a.Dropout
		x.scaleLo, x.scaleHi = a.ScaleLo, a.ScaleHi
		key := a.Key()
		x.key0, x.key1 = key[0], key[1]
		if a.Samples != nil {
			x.samples = int64(a.Samples.Step(0) * 8)
		}
	}
	if rule.Quats != nil {
		t.padTo(16)
		x.quats, x.quatCount = int32(len(t.b)), int32(len(rule.Quats))
		for _, q := range rule.Quats {
			for _, c := range q {
				t.b = binary.LittleEndian.AppendUint32(t.b, uint32(c))
			}
		}
	}
	t.padTo(16)
	at := len(t.b)
	t.b = append(t.b, paramsOf(&x)...)
	return int32(at)
}

// hasEpilogue reports whether the epilogue changes values.
func hasEpilogue(e *kernel.Epilogue) bool {
	return e.Unit || e.Norm != nil || e.Clip != nil || e.Augment != nil
}

// fastKernels reports which fast kernels support a stream with values of type from and results of
// type to. lean needs equal types and no epilogue; mapped supports an epilogue and casts.
func fastKernels(
	rule *kernel.Rule,
	e *kernel.Epilogue,
	from, to robocache.DType,
) (lean, mapped bool) {
	if rule.Mode > kernel.Next || e.Augment != nil {
		return false, false
	}
	isSmallFloat := func(d robocache.DType) bool {
		return d == robocache.Float32 || d == robocache.Float16 || d == robocache.BFloat16
	}
	lean = from == to && isSmallFloat(from) && !hasEpilogue(e)
	mapped = isSmallFloat(to) && (isSmallFloat(from) || from == robocache.Uint8)
	return lean, mapped
}
