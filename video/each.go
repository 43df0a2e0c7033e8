package video

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Source is a dataset that has video files.
type Source interface {
	// Video holds the dataset's open files. It is closed with the dataset.
	Video() *Library
}

// LibraryOf gives the video files of a dataset, or of what it was put over (robocache.As); nil
// where there are none.
func LibraryOf(ds robocache.Dataset) *Library {
	if s, ok := robocache.As[Source](ds); ok {
		return s.Video()
	}
	return nil
}

// Each says how EachFrame decodes.
type Each struct {
	Pool    *Pool // nil: one for this call
	Threads int   // above 1, fn is called from up to so many goroutines, in no order
}

// EachFrame decodes the frames that refs name. fn gets the positions in refs that show a frame and
// the frame, which is valid during the call. For a position that shows no video (a still image, or
// none) the frame is nil.
//
// The calls come in the order of refs, unless Each.Threads allows any. Positions that follow each
// other in one file, with frame numbers that do not go back, are decoded in one run, a frame that
// is shown twice once. lib may be nil where refs name no video file.
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
	at := make([]int, len(refs))
	for i := range at {
		at[i] = i
	}
	path := func(i int) string {
		if refs[i].Missing {
			return ""
		}
		return refs[i].Path
	}
	if each.Threads > 1 {
		slices.SortStableFunc(at, func(i, j int) int {
			return cmp.Or(
				cmp.Compare(path(i), path(j)),
				cmp.Compare(refs[i].Ordinal, refs[j].Ordinal),
			)
		})
	}
	for len(at) > 0 {
		file, n := path(at[0]), 1
		for n < len(at) && path(at[n]) == file && (file == "" || refs[at[n]].Ordinal >= refs[at[n-1]].Ordinal) {
			n++
		}
		run := at[:n]
		at = at[n:]
		if file == "" {
			err := each.parts(ctx, n, func(ctx context.Context, from, to int) error {
				return func() error {
					for k := from; k < to; k++ {
						if err := ctx.Err(); err != nil {
							return err
						}
						if err := fn(run[k:k+1], nil); err != nil {
							return err
						}
					}
					return nil
				}()
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
				"the dataset does not give its video files",
			)
		}
		if err := each.run(ctx, lib, refs, run, fn); err != nil {
			return robocache.At(err, robocache.Where{"file": file})
		}
	}
	return nil
}

// run decodes the frames at some positions, which are of one file and do not go back.
func (each *Each) run(
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
	next := 0 // what has been shown, where there is an order
	return each.parts(ctx, len(groups), func(ctx context.Context, from, to int) error {
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
							"a frame came out of order",
						)
					}
					next = end
				}
				return fn(at[k:end], pic)
			},
		)
	})
}

// parts does n pieces of work: in order, or as so many equal parts at once as there are threads.
func (each *Each) parts(
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

// ConvertTo converts a frame into buf, which is made larger where it must.
func ConvertTo(buf []byte, pic Frame, spec *Spec) ([]byte, error) {
	n, err := pic.Bytes(spec)
	if err != nil {
		return buf, err
	}
	buf = slices.Grow(buf[:0], n)[:n]
	return buf, pic.Convert(spec, buf)
}
