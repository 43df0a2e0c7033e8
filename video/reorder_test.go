package video

import (
	"slices"
	"testing"
)

// reordering is a scripted decoder that records its reorder hints.
type reordering struct {
	*scriptedDecoder
	hints *[]int
}

func (r reordering) Reorder(images int) { *r.hints = append(*r.hints, images) }

type reorderingBackend struct {
	scripted
	hints []int
}

func (b *reorderingBackend) NewDecoder(e *SampleEntry) (Decoder, error) {
	d, err := b.scripted.NewDecoder(e)
	return reordering{d.(*scriptedDecoder), &b.hints}, err
}

// A decoder receives the reorder depth from the index. A stream may not carry it, and its first
// frames would be out of order.
func TestReorderHint(t *testing.T) {
	for _, c := range []struct {
		shifts []int32 // composition offsets in frames, in decode order
		want   int
	}{
		{[]int32{0, 0, 0, 0, 0}, 0},
		{[]int32{1, 2, 0, 2, 0}, 1}, // I P b P b
		{[]int32{2, 0, 1}, 1},       // a frame before the sync sample
		{[]int32{2, 5, 2, 0, 1}, 2}, // a pyramid: I P B b b
	} {
		fk := &fake{}
		for i, s := range c.shifts {
			fk.samples = append(
				fk.samples,
				fakeSample{size: 4, delta: 10, shift: 10 * s, sync: i == 0},
			)
		}
		ix := mustIndex(t, fk)
		b := &reorderingBackend{}
		b.show = func(key int64) int64 { return ix.Sample(int(key)).PTS }
		withScripted(t, &b.scripted)
		RegisterBackend(b)
		f := &File{Path: "b.mp4", Index: ix, Ranged: &memory{data: fk.bytes()}}
		all := make([]int, ix.NumFrames())
		for k := range all {
			all[k] = k
		}
		if got, err := delivered(t, NewPool(0), f, all...); err != nil || len(got) != len(all) {
			t.Fatalf("%v, %v", got, err)
		}
		if !slices.Equal(b.hints, []int{c.want}) {
			t.Errorf("%v: hints %v, want %d", c.shifts, b.hints, c.want)
		}
	}
}
