package video

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestPlanGolden reads sample tables and requests as text, and compares the plans. The format of
// testdata/plan/*.txt is:
//
// samples        lines "pts [K] [eN]" in decode order: K is a sync sample, eN sample entry N
// plan: a b c    a request; the lines after it are the plan, one group per line
func TestPlanGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/plan/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		var f fake
		var ix *Index
		pts := int32(0)
		for line := range strings.Lines(string(old)) {
			line = strings.TrimSpace(line)
			request, isPlan := strings.CutPrefix(line, "plan:")
			switch {
			case isPlan:
				if ix == nil {
					f.cttsV1 = true
					f.entries = [][]byte{entryBox("avc1", 8, 8), entryBox("avc1", 16, 16)}
					ix = mustIndex(t, &f)
				}
				fmt.Fprintf(&out, "%s\n", line)
				for _, g := range Plan(ix, numbers(t, request)) {
					fmt.Fprintf(&out, "  send %d..%d keep %v\n", g.Start, g.End, g.Ordinals)
				}
			case strings.HasPrefix(line, "send"):
			case line == "" || strings.HasPrefix(line, "#"):
				fmt.Fprintf(&out, "%s\n", line)
			default:
				fmt.Fprintf(&out, "%s\n", line)
				fields := strings.Fields(line)
				pts = int32(parseInt(t, fields[0]))
				s := fakeSample{size: 9, delta: 1, shift: pts - int32(len(f.samples))}
				for _, x := range fields[1:] {
					s.sync = s.sync || x == "K"
					if x == "e1" {
						s.entry = 1
					}
				}
				f.samples = append(f.samples, s)
			}
		}
		if bytes.Equal(out.Bytes(), old) {
			continue
		}
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf("%s differs (run with -update, and review the diff):\n%s", path, out.Bytes())
	}
}

func numbers(t testing.TB, s string) (v []int) {
	for _, x := range strings.Fields(s) {
		v = append(v, int(parseInt(t, x)))
	}
	return v
}

// randomTable returns a table with sync samples and reordered frames, in closed and open GOPs.
func randomTable(r *rand.Rand) []fakeSample {
	n := 1 + r.IntN(60)
	reorder := 1 + r.IntN(5)
	pts := make([]int, n)
	for i := range pts {
		pts[i] = i
	}
	for i := 0; i < n; i += reorder {
		part := pts[i:min(i+reorder, n)]
		r.Shuffle(len(part), func(a, b int) { part[a], part[b] = part[b], part[a] })
	}
	s := make([]fakeSample, n)
	for d := range s {
		s[d] = fakeSample{
			size:  1 + r.Uint32N(20),
			delta: 10,
			shift: int32(10 * (pts[d] - d)),
			sync:  d == 0 || r.IntN(6) == 0,
		}
	}
	return s
}

// TestPlanProperties checks video.V5 on random tables: every ordinal once, ascending, no packet
// twice, enough packets, and the same plan for any order of the request.
func TestPlanProperties(t *testing.T) {
	var p Planner
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := &fake{samples: randomTable(r), cttsV1: true}
		if r.IntN(3) == 0 {
			from := r.IntN(len(f.samples))
			f.edits = []fakeEdit{
				{duration: uint64(10 * (1 + r.IntN(len(f.samples)))), media: int64(10 * from)},
			}
		}
		ix := mustIndex(t, f)
		if ix.NumFrames() == 0 {
			continue
		}
		var want []int
		for range 1 + r.IntN(20) {
			want = append(want, r.IntN(ix.NumFrames()))
		}
		groups := p.Plan(ix, want)
		again := slices.Clone(want)
		r.Shuffle(len(again), func(a, b int) { again[a], again[b] = again[b], again[a] })
		if x := Plan(ix, again); fmt.Sprint(x) != fmt.Sprint(groups) {
			t.Fatalf(
				"seed %d: the plan depends on the order of the request:\n%v\n%v",
				seed,
				groups,
				x,
			)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		var got []int
		end := -1
		for _, g := range groups {
			if g.Start <= end {
				t.Fatalf("seed %d: packet %d is sent twice: %v", seed, g.Start, groups)
			}
			end = g.End
			if !slices.IsSorted(g.Ordinals) || g.Cost() != g.End-g.Start+1 {
				t.Fatalf("seed %d: %+v", seed, g)
			}
			last := 0
			for _, k := range g.Ordinals {
				d := ix.DecodeIndex(k)
				last = max(last, d)
				if gov := ix.Governing(k); gov < g.Start || d > g.End {
					t.Fatalf(
						"seed %d: ordinal %d (decode index %d, governing %d) is not in %+v",
						seed,
						k,
						d,
						gov,
						g,
					)
				}
			}
			if last != g.End {
				t.Fatalf("seed %d: %+v sends more than its last frame %d", seed, g, last)
			}
			got = append(got, g.Ordinals...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: planned %v, asked %v", seed, got, want)
		}
	}
}

// TestGoverningByDefinition compares Governing with a literal implementation of video.V4.
func TestGoverningByDefinition(t *testing.T) {
	for seed := range uint64(500) {
		ix := mustIndex(
			t,
			&fake{samples: randomTable(rand.New(rand.NewPCG(seed, 3))), cttsV1: true},
		)
		for k := range ix.NumFrames() {
			d := ix.DecodeIndex(k)
			want, fallback := -1, 0
			for i := 0; i <= d; i++ {
				if s := ix.Sample(i); s.Sync {
					fallback = i
					if s.PTS <= ix.Sample(d).PTS {
						want = i
					}
				}
			}
			if want < 0 {
				want = fallback
			}
			if got := ix.Governing(k); got != want {
				t.Fatalf("seed %d: ordinal %d: governing %d, want %d", seed, k, got, want)
			}
		}
	}
}

// TestPlanOutside: an ordinal outside the file yields a group without packets, never another frame.
func TestPlanOutside(t *testing.T) {
	ix := mustIndex(t, &fake{samples: constant(10, 5)})
	got := Plan(ix, []int{12, 3, -1, 12})
	if len(got) != 2 || !slices.Equal(got[1].Ordinals, []int{-1, 12}) || got[1].Cost() != 0 ||
		got[0].End != 3 {
		t.Errorf("%+v", got)
	}
	if got := Plan(ix, nil); len(got) != 0 {
		t.Errorf("empty request: %+v", got)
	}
}

// TestPlannerDoesNotAllocate: a planner does not allocate after a batch of the same size.
func TestPlannerDoesNotAllocate(t *testing.T) {
	ix := mustIndex(t, &fake{samples: openGOP(2001), cttsV1: true})
	batch := randomBatch(ix, 256)
	var p Planner
	p.Plan(ix, batch)
	if n := testing.AllocsPerRun(20, func() { p.Plan(ix, batch) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func randomBatch(ix *Index, n int) []int {
	r := rand.New(rand.NewPCG(5, 5))
	b := make([]int, n)
	for i := range b {
		b[i] = r.IntN(ix.NumFrames())
	}
	return b
}

func BenchmarkPlan(b *testing.B) {
	ix := mustIndex(b, &fake{samples: openGOP(20001), cttsV1: true})
	for _, n := range []int{32, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			batch := randomBatch(ix, n)
			var p Planner
			b.ReportAllocs()
			for b.Loop() {
				p.Plan(ix, batch)
			}
		})
	}
}

func BenchmarkReadIndex(b *testing.B) {
	for _, n := range []int{1500, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := &memory{data: (&fake{samples: openGOP(n), cttsV1: true}).bytes()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadIndex(b.Context(), m, Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
