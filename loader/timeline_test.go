package loader

import (
	"bytes"
	"testing"

	"github.com/goatnote-inc/robocache"
)

func TestTimeline(t *testing.T) {
	f := newFake(11, 5) // 10 Hz: 1.0 s and 0.4 s
	hz := robocache.Rate{Num: 20, Den: 1}
	m, err := NewMap(bg, f, Config{Hz: &hz, Keys: []string{"observation.state", "cam", "count", "label"}, Deltas: deltas("observation.state", []float64{-0.075, 0, 0.05})})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Len() != 21+9 {
		t.Fatalf("%d samples", m.Len())
	}
	b, err := m.Items(bg, []int64{0, 5, 20, 21, 5})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	v := floats32(b.Tensor("observation.state").Data)
	mask := b.Tensor("observation.state_is_pad").Data
	// Sample 5 is t = 0.25 s: rows 1.75, 2.5, 3.0.
	for s, want := range map[int][]float32{0: {0, 0, 0.5}, 1: {1.75, 2.5, 3}, 2: {9.25, 10, 10}, 3: {1000, 1000, 1000.5}, 4: {1.75, 2.5, 3}} {
		for k, x := range want {
			if v[(s*3+k)*3] != x {
				t.Errorf("sample %d step %d is %v, expected %v", s, k, v[(s*3+k)*3], x)
			}
		}
	}
	if want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}; !bytes.Equal(mask, want) {
		t.Errorf("mask %v, expected %v", mask, want)
	}
	if c := view[int16](b.Tensor("count").Data); c[1] != 2 || c[2] != 10 {
		t.Errorf("count %v", c)
	}
	if l := b.Text("label"); l[1] != `"label 0 2"` {
		t.Errorf("label %v", l)
	}
	want := make([]byte, 3*fakeW*fakeH)
	fillPicture(want, "v0.mp4", 2) // t = 0.25 s lies between rows 2 and 3: a tie takes the earlier
	if got := b.Tensor("cam").Data[len(want) : 2*len(want)]; !bytes.Equal(got, want) {
		t.Error("the picture of sample 5 is not that of row 2")
	}
	if p := b.Tensor("cam_is_pad"); len(p.Shape) != 1 || p.Data[1] != 0 {
		t.Errorf("cam_is_pad %v", p)
	}
	// The same through a Loader.
	l := mustLoader(t, f, Config{Hz: &hz, BatchSize: 7, Shuffle: Global, Threads: 3, Keys: []string{"observation.state", "cam"}})
	if got, _ := epochOf(t, nil, l); len(got) != 30 {
		t.Errorf("%d samples", len(got))
	}
}
