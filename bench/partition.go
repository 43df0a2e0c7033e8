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
	"github.com/goatnote-inc/robocache/shard"
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
	eps := slices.SortedFunc(slices.Values(episodes), func(a, b PartEpisode) int { return cmp.Compare(a.Position, b.Position) })
	group, first := make([]int, len(eps)), map[string]int{} // of an episode: the smallest of those that files join it with
	for i, e := range eps {
		if e.Weight <= 0 {
			return nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "partition", Where: robocache.Where{"episode": e.Position}, Msg: "an episode without frames", Got: fmt.Sprint(e.Weight)}
		}
		group[i] = i
		for _, f := range e.Files {
			k, known := first[f]
			if !known {
				first[f] = i
				continue
			}
			low, high := min(group[k], group[i]), max(group[k], group[i])
			for j := high; j <= i && low < high; j++ {
				if group[j] == high {
					group[j] = low
				}
			}
		}
	}
	var groups [][]int
	at := map[int]int{} // in groups
	for i, g := range group {
		if g == i {
			at[i], groups = len(groups), append(groups, nil)
		}
		groups[at[g]] = append(groups[at[g]], i)
	}
	if len(groups) < bins {
		groups = slices.Collect(slices.Chunk(slices.Concat(groups...), 1))
		slices.SortFunc(groups, slices.Compare[[]int])
	}
	weights := make([]int64, len(groups))
	for g, list := range groups {
		for _, i := range list {
			weights[g] += eps[i].Weight
		}
	}
	p, in := &Parts{Bins: make([][]int, bins), Load: make([]int64, bins), Files: make([][]string, bins)}, map[string]bool{} // files of the bins so far
	for b, list := range shard.LPT(weights, bins) {                                                                         // the weights are above 0 and the groups at least as many as the bins: none stays empty
		var files []string
		for _, g := range list {
			p.Load[b] += weights[g]
			for _, i := range groups[g] {
				p.Bins[b], files = append(p.Bins[b], eps[i].Position), append(files, eps[i].Files...)
			}
		}
		slices.Sort(p.Bins[b])
		slices.Sort(files)
		p.Files[b] = slices.Compact(files)
		for _, f := range p.Files[b] {
			if in[f] {
				p.Cut = append(p.Cut, f)
			}
			in[f] = true
		}
	}
	slices.Sort(p.Cut)
	p.Cut = slices.Compact(p.Cut)
	return p, nil
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
		p.sumBytes(func(f string) int64 {
			defer guard.In("file", f)
			return guard.Must(os.Stat(filepath.Join(folder, f))).Size()
		})
	}
	return p, nil
}

func (p *Parts) sumBytes(size func(file string) int64) {
	p.Bytes = make([]int64, len(p.Bins))
	for b, files := range p.Files {
		for _, f := range files {
			p.Bytes[b] += size(f)
		}
	}
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
