package cuda

import (
	"testing"
	"unsafe"

	"github.com/goatnote-inc/robocache/kernel/tests/sweep"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// TestFuseLayout compares the structs of src/fuse.cuh with their mirrors.
func TestFuseLayout(t *testing.T) {
	var x fuseExtra
	var s fuseStream
	var p fuseParams
	for what, is := range map[string][2]uintptr{
		"Extra": {
			unsafe.Sizeof(x),
			168,
		}, "Extra.key0": {
			unsafe.Offsetof(x.key0),
			44,
		}, "Extra.column": {
			unsafe.Offsetof(x.column),
			72,
		}, "Extra.samples": {unsafe.Offsetof(x.samples), 120},
		"Stream": {
			unsafe.Sizeof(s),
			120,
		}, "Stream.n": {
			unsafe.Offsetof(s.n),
			88,
		}, "Stream.staged": {unsafe.Offsetof(s.staged), 116},
		"Fuse": {
			unsafe.Sizeof(p),
			4040,
		}, "Fuse.work": {
			unsafe.Offsetof(p.work),
			120,
		}, "Fuse.timeType": {
			unsafe.Offsetof(p.timeType),
			192,
		}, "Fuse.s": {unsafe.Offsetof(p.s), 200},
		"Part": {
			unsafe.Sizeof(applyPart{}),
			128,
		}, "Apply": {
			unsafe.Sizeof(applyParams{}),
			3872,
		}, "Apply.s": {
			unsafe.Offsetof(applyParams{}.s),
			32,
		}, "Grad": {unsafe.Sizeof(gradParams{}), 208},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d, not %d", what, is[0], is[1])
		}
	}
}

// TestFuseSweepOnSimulator compares random operations with the reference, without the direct
// kernels.
func TestFuseSweepOnSimulator(t *testing.T) {
	limitDirect(t, 0)
	d := simulator(t, sim.Options{Seed: 1}, "fuse", "any", "apply", "grad")
	h := &Hosted{d: d}
	fails, total := 0, 0
	for seed := range uint64(400) {
		ran, failures := sweep.Ops(kernel.Reference{}, h, seed, 1)
		total += ran
		for _, err := range failures {
			t.Error(err)
			fails++
		}
		if seed == 399 {
			t.Log(total)
		}
		if fails > 10 {
			return
		}
	}
}
