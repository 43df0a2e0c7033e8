package diff

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sort"

	"github.com/zeebo/xxh3"

	"github.com/goatnote-inc/robocache"
)

// rowRun pairs n rows of A, from row a on, with rows of B, from row b on.
type rowRun struct{ a, b, n int }

// rowRuns are runs in ascending order of both rows.
type rowRuns []rowRun

// count returns the number of paired rows.
func (r rowRuns) count() (n int) {
	for _, run := range r {
		n += run.n
	}
	return n
}

// identity pairs rows by their numbers.
func identity(lengthA, lengthB int) rowRuns {
	if n := min(lengthA, lengthB); n > 0 {
		return rowRuns{{0, 0, n}}
	}
	return nil
}

// alignRows pairs the rows of an episode of A with those of its match in B, by the hashes of their
// values. Rows between equal ones are paired in order: they changed.
func alignRows(a, b []uint64) rowRuns {
	if len(a) == len(b) {
		equal := 0
		for i := range a {
			if a[i] == b[i] {
				equal++
			}
		}
		if 2*equal >= len(a) {
			return identity(len(a), len(b))
		}
	}
	anchors := findAnchors(a, b)
	if len(anchors) == 0 {
		return identity(len(a), len(b))
	}
	var out rowRuns
	atA, atB := 0, 0
	for _, run := range anchors {
		out = out.pairGap(atA, run.a, atB, run.b, atA == 0 && atB == 0)
		out = append(out, run)
		atA, atB = run.a+run.n, run.b+run.n
	}
	return out.pairGap(atA, len(a), atB, len(b), false).joined()
}

// pairGap pairs the rows between two anchors: the last ones at the head of the episode, else the
// first ones.
func (r rowRuns) pairGap(fromA, toA, fromB, toB int, isHead bool) rowRuns {
	n := min(toA-fromA, toB-fromB)
	if n <= 0 {
		return r
	}
	if isHead {
		fromA, fromB = toA-n, toB-n
	}
	return append(r, rowRun{fromA, fromB, n})
}

// joined joins adjacent runs.
func (r rowRuns) joined() (out rowRuns) {
	for _, run := range r {
		last := len(out) - 1
		if last >= 0 && out[last].a+out[last].n == run.a && out[last].b+out[last].n == run.b {
			out[last].n += run.n
			continue
		}
		out = append(out, run)
	}
	return out
}

// findAnchors returns runs of equal rows: the rows that occur once in both lists, in a common
// order, extended by their equal neighbors.
func findAnchors(a, b []uint64) rowRuns {
	type position struct{ row, count int }
	inB := map[uint64]position{}
	for i, h := range b {
		inB[h] = position{i, inB[h].count + 1}
	}
	countA := map[uint64]int{}
	for _, h := range a {
		countA[h]++
	}
	var unique []pair
	for i, h := range a {
		if p := inB[h]; countA[h] == 1 && p.count == 1 {
			unique = append(unique, pair{i, p.row})
		}
	}
	var out rowRuns
	endA, endB := 0, 0
	for _, p := range longestAscending(unique) {
		if p.a < endA || p.b < endB {
			continue
		}
		run := rowRun{p.a, p.b, 1}
		for run.a > endA && run.b > endB && a[run.a-1] == b[run.b-1] {
			run.a, run.b, run.n = run.a-1, run.b-1, run.n+1
		}
		for run.a+run.n < len(a) && run.b+run.n < len(b) && a[run.a+run.n] == b[run.b+run.n] {
			run.n++
		}
		endA, endB = run.a+run.n, run.b+run.n
		out = append(out, run)
	}
	return out
}

// longestAscending returns a longest subsequence of pairs, which ascend in a, that ascends in b.
func longestAscending(pairs []pair) []pair {
	// ends holds, by length-1, the pair with the least b that ends such a sequence
	ends := []int{}
	before := make([]int, len(pairs)) // the previous pair of the best sequence that ends here
	for i, p := range pairs {
		k := sort.Search(len(ends), func(k int) bool { return pairs[ends[k]].b >= p.b })
		before[i] = -1
		if k > 0 {
			before[i] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, i)
		} else {
			ends[k] = i
		}
	}
	var out []pair
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = before[i] {
			out = append(out, pairs[i])
		}
	}
	slices.Reverse(out)
	return out
}

// countRows counts the rows that no run pairs.
func (r rowRuns) countRows(lengthA, lengthB int) RowCounts {
	counts := RowCounts{A: lengthA, B: lengthB}
	if len(r) == 0 {
		counts.RemovedTail, counts.AddedTail = lengthA, lengthB
		return counts
	}
	counts.RemovedHead, counts.AddedHead = r[0].a, r[0].b
	for i := 1; i < len(r); i++ {
		counts.RemovedMiddle += r[i].a - r[i-1].a - r[i-1].n
		counts.AddedMiddle += r[i].b - r[i-1].b - r[i-1].n
	}
	last := r[len(r)-1]
	counts.RemovedTail = lengthA - last.a - last.n
	counts.AddedTail = lengthB - last.b - last.n
	return counts
}

// alignPair pairs the rows of a matched episode by the values of the streams that share the most
// rows.
func (c *comparison) alignPair(ctx context.Context, p pair) (rowRuns, error) {
	lengthA, lengthB := c.a.ds.Len(p.a), c.b.ds.Len(p.b)
	type ranked struct {
		x     sharedStream
		score int
	}
	var all []ranked
	for _, x := range c.shared {
		if x.a.Clock != "" || x.b.Clock != "" || x.a.isText() ||
			robocache.Lacks(c.a.ds, p.a, x.a.Key) || robocache.Lacks(c.b.ds, p.b, x.b.Key) {
			continue
		}
		if c.signaturesA[p.a].streams[x.inA] == c.signaturesB[p.b].streams[x.inB] {
			return identity(lengthA, lengthB), nil // a whole stream has the same rows
		}
		a, err := c.a.rowHashes(ctx, x.a, p.a, lengthA)
		if err != nil {
			return nil, err
		}
		b, err := c.b.rowHashes(ctx, x.b, p.b, lengthB)
		if err != nil {
			return nil, err
		}
		if score := countCommon(a, b); score > 0 {
			all = append(all, ranked{x, score})
		}
	}
	slices.SortStableFunc(all, func(x, y ranked) int { return cmp.Compare(y.score, x.score) })
	var a, b []uint64
	for i, x := range all {
		if i > 0 && 2*x.score < all[0].score {
			break
		}
		hashesA, err := c.a.rowHashes(ctx, x.x.a, p.a, lengthA)
		if err != nil {
			return nil, err
		}
		hashesB, err := c.b.rowHashes(ctx, x.x.b, p.b, lengthB)
		if err != nil {
			return nil, err
		}
		a, b = mixHashes(a, hashesA), mixHashes(b, hashesB)
	}
	if a == nil || b == nil {
		return identity(lengthA, lengthB), nil
	}
	return alignRows(a, b), nil
}

// countCommon returns the number of distinct hashes that both lists have.
func countCommon(a, b []uint64) (n int) {
	seen := make(map[uint64]bool, len(a))
	for _, h := range a {
		seen[h] = true
	}
	for _, h := range b {
		if seen[h] {
			seen[h] = false
			n++
		}
	}
	return n
}

// mixHashes combines the hashes of rows with those of another stream.
func mixHashes(all, more []uint64) []uint64 {
	if all == nil {
		return more
	}
	var b [16]byte
	for i := range all {
		binary.LittleEndian.PutUint64(b[:], all[i])
		binary.LittleEndian.PutUint64(b[8:], more[i])
		all[i] = xxh3.Hash(b[:])
	}
	return all
}
