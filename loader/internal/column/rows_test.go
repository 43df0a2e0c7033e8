package column

import "testing"

// TestSnapToTimestamp checks that a time 1 ns from a timestamp becomes the timestamp and other
// times stay, at any start of the search.
func TestSnapToTimestamp(t *testing.T) {
	timestamps := []int64{10, 20, 21}
	for in, want := range map[int64]int64{
		0:  0,
		9:  10,
		10: 10,
		11: 10,
		12: 12,
		19: 20,
		20: 20,
		21: 21,
		22: 21,
		23: 23,
	} {
		for from := 0; from == 0 || from <= 3 && timestamps[from-1] < in; from++ {
			if got, _ := snapToTimestamp(in, timestamps, from); got != want {
				t.Errorf("%d from %d: %d, want %d", in, from, got, want)
			}
		}
	}
	if got, _ := snapToTimestamp(5, nil, 0); got != 5 {
		t.Error("without timestamps")
	}
	long := make([]int64, 1000)
	for i := range long {
		long[i] = int64(i) * 100
	}
	for _, in := range []int64{1501, 1599, 1701, 77_199, 99_901} {
		got, at := snapToTimestamp(in, long, 0)
		if got%100 != 0 || max(got-in, in-got) != 1 || at < len(long) && long[at] < got {
			t.Errorf("%d: %d, %d", in, got, at)
		}
	}
}
