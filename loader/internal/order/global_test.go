package order

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// newOrder is the order of one epoch of n samples without shards.
func newOrder(mode Shuffle, seed, epoch, n int64) *Order {
	if mode == FileOrder {
		return &Order{fileOrder(n)}
	}
	return &Order{newPermutation(seed, epoch, n)}
}

// loader.L2: a bijection at every size, small ones included.
func TestOrderIsABijection(t *testing.T) {
	for n := int64(0); n < 300; n++ {
		checkBijection(t, newOrder(Global, 7, n%5, n), n)
	}
	for _, n := range []int64{1000, 4095, 4096, 4097, 65_537, 1_000_003} {
		checkBijection(t, newOrder(Global, -3, 2, n), n)
	}
}

func checkBijection(t *testing.T, o *Order, n int64) {
	t.Helper()
	seen := make([]bool, n)
	for p := range n {
		s := o.At(p)
		if s < 0 || s >= n || seen[s] {
			t.Fatalf("n=%d: position %d gives %d, out of range or a second time", n, p, s)
		}
		seen[s] = true
	}
}

func TestOrderHuge(t *testing.T) {
	const n = int64(1) << 50
	o := newOrder(Global, 1, 0, n)
	seen := map[int64]bool{}
	for p := range int64(10_000) {
		s := o.At(n - 1 - p*12345)
		if s < 0 || s >= n || seen[s] {
			t.Fatalf("position %d gives %d", p, s)
		}
		seen[s] = true
	}
}

func TestOrderDependsOnSeedAndEpoch(t *testing.T) {
	const n = 5000
	base := newOrder(Global, 1, 0, n)
	again := newOrder(Global, 1, 0, n)
	for _, other := range []*Order{
		newOrder(Global, 2, 0, n),
		newOrder(Global, 1, 1, n),
		newOrder(Global, 0, 1, n),
		newOrder(Global, 1, 2, n),
	} {
		same := 0
		for p := range int64(n) {
			if base.At(p) != again.At(p) {
				t.Fatal("the same seed and epoch gave another order")
			}
			if base.At(p) == other.At(p) {
				same++
			}
		}
		if same > 12 { // expected 1
			t.Errorf("%d of %d places equal in another seed or epoch", same, n)
		}
	}
	for p := range int64(n) {
		if newOrder(FileOrder, 1, 0, n).At(p) != p {
			t.Fatal("file order is not the identity")
		}
	}
}

// Displacement, first-order and serial uniformity: chi-square over coarse cells.
func TestOrderIsUniform(t *testing.T) {
	const n, cells = 40_000, 40
	for seed := range int64(5) {
		o := newOrder(Global, seed, 0, n)
		var first, serial [cells][cells]float64
		prev := o.At(n - 1)
		for p := range int64(n) {
			s := o.At(p)
			first[p*cells/n][s*cells/n]++
			serial[prev*cells/n][s*cells/n]++
			prev = s
		}
		for name, table := range map[string]*[cells][cells]float64{
			"place → sample": &first,
			"sample → next":  &serial,
		} {
			want := float64(n) / cells / cells
			chi := 0.0
			for i := range cells {
				for j := range cells {
					d := table[i][j] - want
					chi += d * d / want
				}
			}
			df := float64((cells - 1) * (cells - 1))
			if z := (chi - df) / math.Sqrt(2*df); z > 5 || z < -5 {
				t.Errorf(
					"seed %d, %s: chi-square %.0f for %.0f degrees of freedom (z %.1f)",
					seed,
					name,
					chi,
					df,
					z,
				)
			}
		}
	}
}

// distinct share and neighbour share against their ideals.
func TestOrderRandomness(t *testing.T) {
	lengths := lengthsFor(3, 512, 50, 399)
	tab := tableOf(t, lengths)
	n := tab.Samples()
	const b = 64
	o := newOrder(Global, 42, 3, n)
	distinct, batches, neighbours := 0, 0, 0
	prev := -1
	seen := map[int]bool{}
	for p := range n {
		r, _ := tab.Row(o.At(p))
		if r.Episode == prev {
			neighbours++
		}
		prev = r.Episode
		seen[r.Episode] = true
		if (p+1)%b == 0 {
			distinct += len(seen)
			batches++
			clear(seen)
		}
	}
	ideal, same := 0.0, 0.0
	for _, l := range lengths {
		miss := 1.0
		for k := range b {
			miss *= float64(n-int64(l)-int64(k)) / float64(n-int64(k))
		}
		ideal += 1 - miss
		same += float64(l) * float64(l-1)
	}
	ideal /= b
	same /= float64(n) * float64(n-1)
	share := float64(distinct) / float64(batches) / b
	neighbour := float64(neighbours) / float64(n-1)
	t.Logf(
		"distinct share %.4f (ideal %.4f), neighbour share %.5f (ideal %.5f)",
		share,
		ideal,
		neighbour,
		same,
	)
	if r := share / ideal; r < 0.95 || r > 1.05 {
		t.Errorf("distinct share is %.3f of the ideal", r)
	}
	if sd := math.Sqrt(same / float64(n)); math.Abs(neighbour-same) > 5*sd {
		t.Errorf("neighbour share %.5f, ideal %.5f ± %.5f", neighbour, same, sd)
	}
}

func tableOf(t testing.TB, lengths []int) *Table {
	tab, err := NewTable(
		len(lengths),
		Selection{},
		nil,
		func(e int) (int, int64, error) { return lengths[e], 0, nil },
		false,
	)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func TestTable(t *testing.T) {
	lengths := []int{3, 0, 2, 5}
	tab := tableOf(t, lengths)
	k := int64(0)
	for e, n := range lengths {
		for i := range n {
			if r, _ := tab.Row(k); r.Episode != e || r.Index != i {
				t.Fatalf("sample %d is %v, expected episode %d row %d", k, r, e, i)
			}
			k++
		}
	}
	sel, err := NewTable(
		4,
		Selection{Positions: []int{3, 0, 3}, First: 1, Last: 2},
		nil,
		func(e int) (int, int64, error) { return lengths[e], 0, nil },
		false,
	)
	if err != nil {
		t.Fatal(err)
	}
	if sel.Samples() != 2 || len(sel.Emptied) != 1 || sel.Emptied[0] != 0 {
		t.Fatalf("samples %d, emptied %v", sel.Samples(), sel.Emptied)
	}
	if r, _ := sel.Row(0); r.Episode != 3 || r.Index != 1 {
		t.Fatalf("first sample %v", r)
	}
}

// Windows cost the same at 10^4 and 10^7 frames.
func BenchmarkTableRow(b *testing.B) {
	for _, episodes := range []int{100, 100_000} {
		lengths := make([]int, episodes)
		for i := range lengths {
			lengths[i] = 100
		}
		tab := tableOf(b, lengths)
		o := newOrder(Global, 1, 0, tab.Samples())
		b.Run(fmt.Sprint(tab.Samples()), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				tab.Row(o.At(int64(i) % tab.Samples()))
			}
		})
	}
}

func lengthsFor(seed uint64, n, least, most int) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		out[i] = least + rng.IntN(most-least+1)
	}
	return out
}
