package diff

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// numbersFrom returns n consecutive hashes from first on.
func numbersFrom(first, n int) (out []uint64) {
	for i := range n {
		out = append(out, uint64(first+i))
	}
	return out
}

func TestAlignRows(t *testing.T) {
	all := numbersFrom(100, 50)
	changed := slices.Clone(all)
	changed[7], changed[8] = 1, 2
	for name, c := range map[string]struct {
		a, b []uint64
		want RowCounts
		runs int
	}{
		"equal":       {all, all, RowCounts{A: 50, B: 50}, 1},
		"all changed": {all, numbersFrom(900, 50), RowCounts{A: 50, B: 50}, 1},
		"head":        {all, all[10:], RowCounts{A: 50, B: 40, RemovedHead: 10}, 1},
		"tail":        {all, all[:45], RowCounts{A: 50, B: 45, RemovedTail: 5}, 1},
		"added tail":  {all[:45], all, RowCounts{A: 45, B: 50, AddedTail: 5}, 1},
		"middle": {
			all, slices.Concat(all[:20], all[26:]),
			RowCounts{A: 50, B: 44, RemovedMiddle: 6},
			2,
		},
		"inserted": {
			all, slices.Concat(all[:20], numbersFrom(900, 3), all[20:]),
			RowCounts{A: 50, B: 53, AddedMiddle: 3},
			2,
		},
		"changed and cut": {changed, all[5:], RowCounts{A: 50, B: 45, RemovedHead: 5}, 1},
		"changed at the cut": {
			all, slices.Concat(numbersFrom(900, 2), all[12:]),
			RowCounts{A: 50, B: 40, RemovedHead: 10},
			1,
		},
		"nothing left": {all, nil, RowCounts{A: 50, RemovedTail: 50}, 0},
		"idle rows": {
			slices.Concat(slices.Repeat([]uint64{5}, 9), all),
			slices.Concat(slices.Repeat([]uint64{5}, 4), all),
			RowCounts{A: 59, B: 54, RemovedHead: 5},
			1,
		},
	} {
		runs := alignRows(c.a, c.b)
		if got := runs.countRows(len(c.a), len(c.b)); got != c.want || len(runs) != c.runs {
			t.Errorf("%s: %+v in %v, want %+v", name, got, runs, c.want)
		}
	}
}

// Runs pair every row at most once, in ascending order, for any input.
func FuzzAlignRows(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, []byte{2, 3})
	f.Add([]byte{1, 1, 1, 2}, []byte{2, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, x, y []byte) {
		widen := func(b []byte) (out []uint64) {
			for _, v := range b {
				out = append(out, uint64(v))
			}
			return out
		}
		a, b := widen(x), widen(y)
		endA, endB := 0, 0
		for _, run := range alignRows(a, b) {
			if run.n <= 0 || run.a < endA || run.b < endB {
				t.Fatalf("run %v after %d, %d", run, endA, endB)
			}
			endA, endB = run.a+run.n, run.b+run.n
		}
		if endA > len(a) || endB > len(b) {
			t.Fatalf("rows %d of %d, %d of %d", endA, len(a), endB, len(b))
		}
	})
}

func TestLongestAscending(t *testing.T) {
	var pairs []pair
	for a, b := range []int{7, 1, 8, 2, 3, 0, 9} {
		pairs = append(pairs, pair{a, b})
	}
	want := []pair{{1, 1}, {3, 2}, {4, 3}, {6, 9}}
	if got := longestAscending(pairs); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// 100,000 episodes that all differ are matched by their rows, in any order.
func TestManyCandidates(t *testing.T) {
	const n = 100_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	a, b := make([]sketch, n), make([]sketch, n)
	for i := range n {
		rows := numbersFrom(1000*i+1000, leastRows)
		a[i].rows = append([]uint64{7}, rows...) // hash 7 is in all episodes
		b[order[i]].rows = append([]uint64{7, uint64(1000*i + 2)}, rows[1:]...)
	}
	m := &matching{restA: allPositions(n), restB: allPositions(n)}
	m.takeCandidates(findCandidates(a, b, leastRows, func(i, j int) int64 { return 0 }))
	if len(m.pairs) != n || len(m.restA)+len(m.restB) > 0 {
		t.Fatalf("%d pairs", len(m.pairs))
	}
	for _, p := range m.pairs {
		if order[p.a] != p.b {
			t.Fatalf("episode %d is %d, want %d", p.a, p.b, order[p.a])
		}
	}
}
