package diagnose

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// described is a dataset that has only a schema.
type described struct {
	robocache.Dataset
	info robocache.Info
}

func (d *described) Info() *robocache.Info { return &d.info }

// TestNotFinitePlace checks the location of the first NaN: index of the episode, row, element and
// name of the channel.
func TestNotFinitePlace(t *testing.T) {
	raw := func(values ...float64) (b []byte) {
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	nan, inf := math.NaN(), math.Inf(-1)
	for name, c := range map[string]struct {
		shape  []int
		names  string
		counts []int
		raw    []byte
		want   string
	}{
		"named": {[]int{2}, `["x","gripper"]`, nil, raw(1, 1, 1, nan, nan, 1), "row 5, index " +
			"1: 2 values are NaN or infinite; the first is element 1 (gripper): NaN"},
		"unnamed": {[]int{3}, "", nil, raw(1, 1, 1, 1, 1, 1, 1, 1, inf), "row 6, index 2: 1 " +
			"values are NaN or infinite; the first is element 2: -Inf"},
		"ragged": {[]int{-1, 2}, "", []int{1, 0, 2}, raw(1, 1, 1, 1, 1, nan), "row 6, index 3: " +
			"1 values are NaN or infinite; the first is element 3: NaN"},
	} {
		d := &described{info: robocache.Info{Episodes: 2}}
		d.info.NumberEpisodes([]int64{3, 7})
		x := &examination{ds: d}
		f := &robocache.Feature{
			Key:   "q",
			Kind:  robocache.KindNumeric,
			DType: robocache.Float64,
			Shape: c.shape,
			Names: json.RawMessage(c.names),
		}
		x.countNotFinite(f, robocache.RowsOf(1, 4, 3), c.counts, c.raw)
		x.addSummaries()
		if len(x.findings) != 1 {
			t.Fatalf("%s: %v", name, x.findings)
		}
		got := fmt.Sprintf("%s: %s", x.findings[0].Where, x.findings[0].Message)
		if want := "episode 7, stream q, " + c.want; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
