package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// trajectories returns the resample operation of the performance goals: 100 → 50 rows of 32
// bfloat16, with different timestamps for each trajectory.
func trajectories(b int) *kernel.FuseOp {
	bf, ns := robocache.BFloat16, robocache.Int64
	return &kernel.FuseOp{
		Series: []kernel.Series{
			{
				Name:   "state",
				Values: kernel.Tensor{DType: bf, Shape: []int{b, 100, 32}},
				Times:  kernel.Tensor{DType: ns, Shape: []int{b, 100}},
			},
		},
		Targets: kernel.Tensor{
			DType: ns,
			Shape: []int{50},
		},
		Out: kernel.Tensor{DType: bf, Shape: []int{b, 50, 32}},
	}
}

// fillTrajectories fills host memory with different trajectories.
func fillTrajectories(values, times []byte, b int) {
	x := uint32(1)
	for i := range b * 100 * 32 {
		x = x*1664525 + 1013904223
		binary.LittleEndian.PutUint16(
			values[i*2:],
			uint16(math.Float32bits(float32(int32(x))/(1<<30))>>16),
		)
	}
	for i := range b {
		for s := range 100 {
			binary.LittleEndian.PutUint64(times[(i*100+s)*8:], uint64(s*10_000_000+i%977*1000))
		}
	}
}

// targets50 returns 50 targets at 50 Hz.
func targets50() []byte {
	b := make([]byte, 50*8)
	for i := range 50 {
		binary.LittleEndian.PutUint64(b[i*8:], uint64(i*20_000_000+3_000_000))
	}
	return b
}

// prepareFuse prepares op; an error ends the test.
func prepareFuse(t *testing.T, d *Device, op *kernel.FuseOp) *Launch {
	t.Helper()
	l, err := d.Prepare(op)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// compareTrajectories compares some of n trajectories with the reference.
func compareTrajectories(values, times, out []byte, n int) error {
	for _, i := range []int{0, 1, n / 3, n - 1} {
		op := trajectories(1)
		op.Series[0].Values.Data, op.Series[0].Times.Data = values[i*6400:(i+
			1)*6400], times[i*800:(i+1)*800]
		op.Targets.Data, op.Out.Data = targets50(), make([]byte, 3200)
		if err := (kernel.Reference{}).Run(op); err != nil {
			return err
		}
		if string(op.Out.Data) != string(out[i*3200:(i+1)*3200]) {
			return fmt.Errorf("trajectory %d is not what the reference gives", i)
		}
	}
	return nil
}
