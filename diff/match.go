package diff

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// pair is a matched episode: its positions in A and in B.
type pair struct{ a, b int }

// matching holds the matched episodes and those that are not matched yet, in ascending order.
type matching struct {
	pairs        []pair // sorted by a at the end
	restA, restB []int
}

// allPositions returns 0 to n-1.
func allPositions(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// joinKey identifies an episode in a join.
type joinKey struct {
	content, tasks digest
	index          int64
}

// joins are the joins of equal episodes, from the strictest on.
var joins = []func(sig *signature, index int64) joinKey{
	func(sig *signature, index int64) joinKey { return joinKey{sig.content, sig.tasks, index} },
	func(sig *signature, index int64) joinKey { return joinKey{content: sig.content, index: index} },
	func(sig *signature, _ int64) joinKey { return joinKey{content: sig.content, tasks: sig.tasks} },
	func(sig *signature, _ int64) joinKey { return joinKey{content: sig.content} },
}

// join pairs the episodes with equal keys, in their order.
func (m *matching) join(keyA, keyB func(episode int) (joinKey, bool)) {
	waiting := map[joinKey][]int{}
	for _, b := range m.restB {
		if key, ok := keyB(b); ok {
			waiting[key] = append(waiting[key], b)
		}
	}
	taken := map[int]bool{}
	m.restA = slices.DeleteFunc(m.restA, func(a int) bool {
		key, ok := keyA(a)
		if list := waiting[key]; ok && len(list) > 0 {
			m.pairs = append(m.pairs, pair{a, list[0]})
			taken[list[0]], waiting[key] = true, list[1:]
			return true
		}
		return false
	})
	m.restB = slices.DeleteFunc(m.restB, func(b int) bool { return taken[b] })
}

// matchEqual pairs the episodes with equal content.
func (m *matching) matchEqual(c *comparison) {
	for _, keyOf := range joins {
		of := func(sigs []signature, info *robocache.Info) func(int) (joinKey, bool) {
			return func(e int) (joinKey, bool) { return keyOf(&sigs[e], info.EpisodeIndex(e)), true }
		}
		m.join(of(c.signaturesA, c.a.ds.Info()), of(c.signaturesB, c.b.ds.Info()))
	}
}

// matchNumbers pairs episodes with one number and one length. It is the last resort, for episodes
// all of whose values changed.
func (m *matching) matchNumbers(a, b *side) {
	of := func(s *side) func(int) (joinKey, bool) {
		return func(e int) (joinKey, bool) {
			key := joinKey{index: s.ds.Info().EpisodeIndex(e)}
			n := s.ds.Len(e)
			for i := range 8 {
				key.content[i] = byte(n >> (8 * i))
			}
			return key, n > 0
		}
	}
	m.join(of(a), of(b))
}

// candidate is a possible match: positions in restA and restB, and the hashes that both have.
type candidate struct {
	a, b, votes int
	distance    int64 // of the episodes' numbers
}

const (
	// maxEpisodesOfHash is the number of episodes of one dataset from which a hash identifies none.
	maxEpisodesOfHash = 2
	minVotes          = 2
	minShare          = 0.1 // least share of the smaller sketch
	maxCandidates     = 8   // of an episode
)

// matchNear pairs episodes that share most streams or rows.
func (m *matching) matchNear(ctx context.Context, c *comparison) error {
	if len(m.restA) == 0 || len(m.restB) == 0 {
		return nil
	}
	keep := sketchRows(len(m.restA)+len(m.restB), len(c.a.streams)+len(c.b.streams))
	c.expect(len(m.restA) + len(m.restB))
	read := func(s *side, episodes []int) ([]sketch, error) {
		out := make([]sketch, len(episodes))
		return out, c.eachOf(ctx, len(episodes), func(ctx context.Context, i int) (err error) {
			out[i], err = s.sketch(ctx, episodes[i], keep)
			return err
		})
	}
	a, err := read(c.a, m.restA)
	if err != nil {
		return err
	}
	b, err := read(c.b, m.restB)
	if err != nil {
		return err
	}
	m.takeCandidates(findCandidates(a, b, keep, func(i, j int) int64 {
		d := c.a.ds.Info().EpisodeIndex(m.restA[i]) - c.b.ds.Info().EpisodeIndex(m.restB[j])
		return max(d, -d)
	}))
	return nil
}

// findCandidates returns the likely matches of two lists of sketches, the best first. A stream
// votes as often as all of its rows.
func findCandidates(
	a, b []sketch, keep int, distance func(i, j int) int64,
) (found []candidate) {
	postings := func(all []sketch) map[uint64][]int32 {
		out := map[uint64][]int32{}
		for i := range all {
			for _, hashes := range [][]uint64{all[i].streams, all[i].rows} {
				for _, h := range hashes {
					if len(out[h]) <= maxEpisodesOfHash {
						out[h] = append(out[h], int32(i))
					}
				}
			}
		}
		return out
	}
	ofA, ofB := postings(a), postings(b)
	size := func(s *sketch) int { return len(s.rows) + keep*len(s.streams) }
	for i := range a {
		votes := map[int32]int{}
		count := func(hashes []uint64, weight int) {
			for _, h := range hashes {
				if len(ofA[h]) > maxEpisodesOfHash || len(ofB[h]) > maxEpisodesOfHash {
					continue
				}
				for _, j := range ofB[h] {
					votes[j] += weight
				}
			}
		}
		count(a[i].streams, keep)
		count(a[i].rows, 1)
		var own []candidate
		for j, n := range votes {
			least := math.Ceil(minShare * float64(min(size(&a[i]), size(&b[j]))))
			if n >= max(minVotes, int(least)) {
				own = append(own, candidate{i, int(j), n, distance(i, int(j))})
			}
		}
		slices.SortFunc(own, compareCandidates)
		found = append(found, own[:min(maxCandidates, len(own))]...)
	}
	slices.SortFunc(found, compareCandidates)
	return found
}

// compareCandidates orders candidates by votes, then by distance and position.
func compareCandidates(x, y candidate) int {
	return cmp.Or(
		cmp.Compare(y.votes, x.votes),
		cmp.Compare(x.distance, y.distance),
		cmp.Compare(x.a, y.a),
		cmp.Compare(x.b, y.b),
	)
}

// takeCandidates pairs the candidates whose episodes are both free, in their order.
func (m *matching) takeCandidates(found []candidate) {
	takenA, takenB := map[int]bool{}, map[int]bool{}
	for _, x := range found {
		a, b := m.restA[x.a], m.restB[x.b]
		if !takenA[a] && !takenB[b] {
			takenA[a], takenB[b] = true, true
			m.pairs = append(m.pairs, pair{a, b})
		}
	}
	m.restA = slices.DeleteFunc(m.restA, func(e int) bool { return takenA[e] })
	m.restB = slices.DeleteFunc(m.restB, func(e int) bool { return takenB[e] })
}
