//go:build linux && amd64 && !purego

package cpu

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzBracket checks the search, in assembly and in plain Go.
func FuzzBracket(f *testing.F) {
	for _, s := range []uint64{1, 2, 3, 4, 5} {
		f.Add(s, int64(1000), int64(1<<40), int64(0))
	}
	f.Add(uint64(6), int64(1), int64(1), int64(1<<61))
	f.Add(uint64(7), int64(1<<50), int64(1<<52-1), int64(-1<<62+1))
	f.Fuzz(func(t *testing.T, seed uint64, step, gap, start int64) {
		if !hasVectors || step <= 0 || step > 1<<54 || gap <= 0 || gap > maxSpan ||
			!inRange(start) {
			t.Skip("out of the function's range")
		}
		r := rand.New(rand.NewPCG(seed, 4))
		s := []int64{start}
		for range 3 + r.IntN(60) {
			next := s[len(s)-1] + r.Int64N(2*step)*int64(r.IntN(4))
			if !inRange(next) {
				break
			}
			s = append(s, next)
		}
		if len(s) < 4 || s[0] == s[len(s)-1] {
			t.Skip("too few")
		}
		targets := make([]int64, 1+r.IntN(40))
		for i := range targets {
			targets[i] = s[r.IntN(len(s))] + r.Int64N(2*step) - step/2
			if r.IntN(30) == 0 {
				targets[i] = int64(r.Uint64())
			}
		}
		if r.IntN(3) > 0 {
			slices.Sort(targets)
		}
		n := len(targets)
		left, right, weight := make([]int32, n), make([]int32, n), make([]float64, n)
		a := searchArgs{
			timestamps: &s[0],
			last:       len(s) - 1,
			targets:    &targets[0],
			rows:       n,
			left:       &left[0],
			right:      &right[0],
			weight:     &weight[0],
			maxGap:     gap,
			start:      s[0],
			rate:       float64(len(s)-1) / float64(s[len(s)-1]-s[0]),
		}
		for name, find := range map[string]func(*searchArgs) int{
			"bracket":  bracket,
			"find":     findIntervals,
			"plain Go": func(a *searchArgs) int { return bracketGo(a, 0) },
		} {
			for i := range find(&a) {
				k := left[i]
				lo, hi := s[k], s[right[i]]
				if right[i] != k+1 || targets[i] < lo || targets[i] >= hi || hi-lo > gap ||
					weight[i] != float64(targets[i]-lo)/float64(hi-lo) {
					t.Fatalf(
						"%s: row %d: t %d in [%d, %d), weight %v",
						name,
						i,
						targets[i],
						lo,
						hi,
						weight[i],
					)
				}
			}
		}
	})
}

// TestGenerated checks that the committed assembly equals the generator's output.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	for _, args := range [][]string{{"mod", "download"}, {"run", ".", "-dir", dir}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = "gen"
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			if args[0] == "mod" {
				t.Skipf("the generator's modules are not to be had here: %s", out)
			}
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	for _, name := range []string{
		"kernels_amd64.s",
		"kernels_amd64.go",
		"kernels_arm64.s",
		"kernels_arm64.go",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The first line that avo writes names the command and its folder, so it differs.
		_, made, _ := strings.Cut(string(got), "\n")
		if _, rest, _ := strings.Cut(string(want), "\n"); made == "" || rest != made {
			t.Errorf("%s is not what kernel/cpu/gen writes: run go generate ./kernel/cpu", name)
		}
	}
}
