package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// PartEpisode is an episode as the partition sees it.
type PartEpisode struct {
	Position int
	Weight   int64    // frames
	Files    []string // video files that it touches; without video its data file
}

// Parts is a partition: the episodes of each bin, ascending.
type Parts struct {
	Bins  [][]int
	Load  []int64    // frames
	Files [][]string // that a bin touches
	Bytes []int64    // of those files, where they are local
	Cut   []string   // files that several bins touch, and would read twice
}

// Partition cuts episodes into bins of about equal weight so that episodes that share a file stay together (LPT over groups). Where
// there are fewer groups than bins, every episode is its own group, and bins share files. It is a function of its arguments alone;
// the heaviest bin is at most (4/3 − 1/(3·bins)) times the best possible one over the same groups.
func Partition(episodes []PartEpisode, bins int) (*Parts, error) {
	if bins < 1 || len(episodes) < bins {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "partition", Msg: "every bin wants an episode", Want: fmt.Sprintf("1 to %d bins", len(episodes)), Got: fmt.Sprint(bins)}
	}
	for _, e := range episodes {
		if e.Weight <= 0 {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "partition", Where: robocache.Where{"episode": e.Position}, Msg: "an episode without frames", Got: fmt.Sprint(e.Weight)}
		}
	}
	eps := slices.Clone(episodes)
	slices.SortFunc(eps, func(a, b PartEpisode) int { return cmp.Compare(a.Position, b.Position) })
	groups := shareFiles(eps)
	if len(groups) < bins {
		groups = groups[:0]
		for i := range eps {
			groups = append(groups, []int{i})
		}
	}
	weight := func(g []int) (n int64) {
		for _, k := range g {
			n += eps[k].Weight
		}
		return n
	}
	slices.SortStableFunc(groups, func(a, b []int) int { return cmp.Compare(weight(b), weight(a)) })
	p := &Parts{Bins: make([][]int, bins), Load: make([]int64, bins), Files: make([][]string, bins)}
	for _, g := range groups {
		// The weights are above 0 and the groups at least as many as the bins: the first bins groups go to empty bins.
		best := slices.Index(p.Load, slices.Min(p.Load))
		p.Load[best] += weight(g)
		for _, k := range g {
			p.Bins[best], p.Files[best] = append(p.Bins[best], eps[k].Position), append(p.Files[best], eps[k].Files...)
		}
	}
	bin := map[string]int{} // the first that touches a file
	for b := range p.Bins {
		slices.Sort(p.Bins[b])
		slices.Sort(p.Files[b])
		p.Files[b] = slices.Compact(p.Files[b])
		for _, f := range p.Files[b] {
			if first, ok := bin[f]; ok && first != b {
				p.Cut = append(p.Cut, f)
			} else {
				bin[f] = b
			}
		}
	}
	slices.Sort(p.Cut)
	p.Cut = slices.Compact(p.Cut)
	return p, nil
}

// shareFiles gives the groups of episodes that are joined by files, each ascending, in the order of their smallest member.
func shareFiles(eps []PartEpisode) (groups [][]int) {
	root, first := make([]int, len(eps)), map[string]int{}
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for i, e := range eps {
		root[i] = i
		for _, f := range e.Files {
			if _, ok := first[f]; !ok {
				first[f] = i
			}
			a, b := find(first[f]), find(i)
			root[max(a, b)] = min(a, b) // the smallest member stays the root
		}
	}
	at := map[int]int{}
	for i := range eps {
		r := find(i)
		if r == i { // the smallest member comes first
			at[r] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[r]] = append(groups[at[r]], i)
	}
	return groups
}

// PartitionDataset is Partition over a dataset's episodes and video files. It reads metadata alone, and the sizes of the files below folder where that is given;
// a file that is cut counts in each of its bins.
func PartitionDataset(ctx context.Context, ds robocache.Dataset, positions []int, bins int, folder string) (_ *Parts, err error) {
	defer guard.Into(&err)
	eps := make([]PartEpisode, len(positions))
	refs := make([]robocache.FrameRef, 1)
	for i, e := range positions {
		eps[i] = PartEpisode{Position: e, Weight: int64(ds.Len(e))}
		for _, key := range (&Workload{Video: "all"}).cameras(ds.Info()) {
			if ds.Len(e) == 0 {
				break // refused by Partition, with its place
			}
			if guard.Check(ds.Frames(ctx, key, []robocache.Row{{Episode: e}}, refs)); refs[0].Path != "" {
				eps[i].Files = append(eps[i].Files, refs[0].Path)
			}
		}
	}
	p := guard.Must(Partition(eps, bins))
	if folder != "" {
		guard.Check(p.sumBytes(func(f string) (int64, error) {
			defer guard.In("file", f)
			return guard.Must(os.Stat(filepath.Join(folder, f))).Size(), nil
		}))
	}
	return p, nil
}

func (p *Parts) sumBytes(size func(file string) (int64, error)) error {
	p.Bytes = make([]int64, len(p.Bins))
	for b, files := range p.Files {
		for _, f := range files {
			n, err := size(f)
			if err != nil {
				return err
			}
			p.Bytes[b] += n
		}
	}
	return nil
}

// String says load, bytes and cut files.
func (p *Parts) String() string {
	s := fmt.Sprintf("partition: %d bins, %d to %d frames", len(p.Bins), slices.Min(p.Load), slices.Max(p.Load))
	if p.Bytes != nil {
		s += fmt.Sprintf(", %d to %d bytes of video", slices.Min(p.Bytes), slices.Max(p.Bytes))
	}
	if len(p.Cut) > 0 {
		s += fmt.Sprintf("; %d files are shared by bins and read more than once: %s", len(p.Cut), strings.Join(p.Cut[:min(len(p.Cut), 3)], ", "))
	}
	return s
}
