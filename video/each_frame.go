package video

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Source is a dataset with video files.
type Source interface {
	// Video returns the dataset's open files. The dataset closes them.
	Video() *Library
}

// LibraryOf returns the video files of a dataset, also if another dataset wraps it (robocache.As).
// It returns nil if there are none.
func LibraryOf(ds robocache.Dataset) *Library {
	if s, ok := robocache.As[Source](ds); ok {
		return s.Video()
	}
	return nil
}

// Each holds the options of EachFrame.
type Each struct {
	Pool *Pool // nil: a new pool for this call
	// if above 1, fn is called concurrently from up to Threads goroutines, in any order
	Threads int
}

// EachFrame decodes the frames that refs name. fn receives the positions in refs that show a frame,
// and the frame, which is valid during the call. The frame is nil for a position without video (a
// still image or a missing one).
//
// Calls are in the order of refs, unless Each.Threads is above 1. Consecutive positions of one file
// with non-decreasing frame numbers are decoded in one run. A frame that a run shows twice is
// decoded once. lib may be nil if refs name no video file.
func EachFrame(
	ctx context.Context,
	lib *Library,
	refs []robocache.FrameRef,
	each Each,
	fn func(at []int, pic Frame) error,
) error {
	if each.Pool == nil {
		each.Pool = NewPool(0)
		defer each.Pool.Close()
	}
	remaining := make([]int, len(refs)) // positions in refs, in the order of the calls
	for i := range remaining {
		remaining[i] = i
	}
	path := func(i int) string { // "" for a position without video
		if refs[i].Missing {
			return ""
		}
		return refs[i].Path
	}
	if each.Threads > 1 {
		slices.SortStableFunc(remaining, func(i, j int) int {
			return cmp.Or(
				cmp.Compare(path(i), path(j)),
				cmp.Compare(refs[i].Ordinal, refs[j].Ordinal),
			)
		})
	}
	for len(remaining) > 0 {
		file := path(remaining[0])
		// continues reports whether the next position belongs to the run of the previous one.
		continues := func(previous, next int) bool {
			isAscending := refs[next].Ordinal >= refs[previous].Ordinal
			return path(next) == file && (file == "" || isAscending)
		}
		n := 1
		for n < len(remaining) && continues(remaining[n-1], remaining[n]) {
			n++
		}
		run := remaining[:n]
		remaining = remaining[n:]
		if file == "" {
			err := each.runParts(ctx, n, func(ctx context.Context, from, to int) error {
				for k := from; k < to; k++ {
					if err := ctx.Err(); err != nil {
						return err
					}
					if err := fn(run[k:k+1], nil); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			continue
		}
		if lib == nil {
			return robocache.Unsupported(
				opDecode,
				robocache.Where{"file": file},
				"the dataset does not provide its video files",
			)
		}
		if err := each.decodeRun(ctx, lib, refs, run, fn); err != nil {
			return robocache.At(err, robocache.Where{"file": file})
		}
	}
	return nil
}

// decodeRun decodes the frames at positions at. They belong to one file, and their frame numbers do
// not decrease.
func (each *Each) decodeRun(
	ctx context.Context,
	lib *Library,
	refs []robocache.FrameRef,
	at []int,
	fn func(at []int, pic Frame) error,
) error {
	file, err := lib.Acquire(ctx, refs[at[0]].Path)
	if err != nil {
		return err
	}
	defer file.Release()
	ordinals := make([]int, len(at))
	for k, i := range at {
		ordinals[k] = refs[i].Ordinal
	}
	groups := Plan(file.Index, ordinals)
	next := 0 // position of the next call, if calls are ordered
	return each.runParts(ctx, len(groups), func(ctx context.Context, from, to int) error {
		return each.Pool.Decode(
			ctx,
			file,
			nil,
			groups[from:to],
			func(ordinal int, pic Frame) error {
				k, _ := slices.BinarySearch(ordinals, ordinal)
				end := k
				for end < len(at) && ordinals[end] == ordinal {
					end++
				}
				if each.Threads <= 1 {
					if k != next {
						return robocache.Malformed(
							opDecode,
							robocache.Where{"frame": ordinal},
							"the decoder delivered a frame out of order",
						)
					}
					next = end
				}
				return fn(at[k:end], pic)
			},
		)
	})
}

// runParts calls do for [0, n): once, or concurrently with equal parts if there are several
// threads.
func (each *Each) runParts(
	ctx context.Context,
	n int,
	do func(ctx context.Context, from, to int) error,
) error {
	if each.Threads <= 1 {
		return do(ctx, 0, n)
	}
	g, ctx := errgroup.WithContext(ctx)
	workers := min(each.Threads, n)
	for w := range workers {
		g.Go(func() (err error) {
			defer crash.Recover(opDecode, &err)
			return do(ctx, w*n/workers, (w+1)*n/workers)
		})
	}
	return g.Wait()
}

// ConvertTo converts a frame into buf, which is enlarged if necessary, and returns the result.
func ConvertTo(buf []byte, pic Frame, spec *Spec) ([]byte, error) {
	n, err := pic.Bytes(spec)
	if err != nil {
		return buf, err
	}
	buf = slices.Grow(buf[:0], n)[:n]
	return buf, pic.Convert(spec, buf)
}
