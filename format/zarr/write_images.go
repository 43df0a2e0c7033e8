package zarr

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

type withVideo interface{ Video() *video.Library }

// prepareImages settles size and type of a camera's pixels by its first image.
func (w *writer) prepareImages(f *robocache.Feature, eps []int) (s *outStream, why string, err error) {
	own := *f
	if f.Kind == robocache.KindVideo {
		if _, ok := robocache.As[withVideo](w.src); !ok {
			return nil, "the dataset does not give its video files", nil
		}
		if f.Depth != nil {
			return nil, "depth that is coded in video is not written", nil
		}
		if f.Height <= 0 || f.Width <= 0 {
			return nil, "nothing says the size of its images", nil
		}
		own.DType, own.Channels = robocache.Uint8, 3
	} else {
		info, ok, err := w.firstImage(f, eps)
		if err != nil || !ok {
			return nil, "it has no images", err
		}
		own.Height, own.Width, own.Channels, own.DType = info.Height, info.Width, info.Channels, info.DType
		if own.DType == robocache.Uint16 && own.Channels != 1 {
			own.DType = robocache.Uint8
		}
	}
	own.Shape = []int{own.Height, own.Width, own.Channels}
	s = w.stream(&own, w.name(f.Key))
	s.shape = own.Shape
	s.row = own.Height * own.Width * own.Channels * own.DType.Size()
	s.per = max(1, imageBytes/s.row)
	s.gray = own.Channels == 1 && own.DType == robocache.Uint8
	return s, "", nil
}

// firstImage looks for an image in the first rows of the episodes.
func (w *writer) firstImage(f *robocache.Feature, eps []int) (info video.StillInfo, ok bool, err error) {
	for _, e := range eps {
		for row := range min(w.src.Len(e), 100) {
			var ref [1]robocache.FrameRef
			if err := w.src.Frames(w.ctx, f.Key, []robocache.Row{{Episode: e, Index: row}}, ref[:]); err != nil {
				if w.opt.SkipBad && w.ctx.Err() == nil {
					break
				}
				return info, false, err
			}
			if ref[0].Missing {
				continue
			}
			info, err = video.ImageSize(&ref[0])
			return info, err == nil, err
		}
	}
	return info, false, nil
}

// copyImages decodes a block of images and appends them.
func (w *writer) copyImages(ctx context.Context, s *outStream, rows []robocache.Row) error {
	refs := make([]robocache.FrameRef, len(rows))
	if err := w.src.Frames(ctx, s.f.Key, rows, refs); err != nil {
		return err
	}
	out := make([]byte, len(rows)*s.row)
	byFile := map[string][]int{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range refs {
		switch {
		case refs[i].Missing:
			s.missing++
		case refs[i].Path != "":
			byFile[refs[i].Path] = append(byFile[refs[i].Path], i)
		default:
			g.Go(func() (err error) {
				defer guard.Malformed("zarr image", &err)
				if err := gctx.Err(); err != nil {
					return err
				}
				return robocache.At(s.still(&refs[i], out[i*s.row:(i+1)*s.row]), robocache.Where{"row": rows[i].Index})
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for path, at := range byFile {
		if err := w.decode(ctx, s, path, at, refs, out); err != nil {
			return robocache.At(err, robocache.Where{"file": path})
		}
	}
	return w.append(s, out)
}

// still puts one image's pixels into dst.
func (s *outStream) still(ref *robocache.FrameRef, dst []byte) error {
	info, err := video.ImageSize(ref)
	if err != nil {
		return err
	}
	if info.Height != s.f.Height || info.Width != s.f.Width {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr write", Msg: "an image of another size than the first", Want: fmt.Sprintf("%d×%d", s.f.Height, s.f.Width), Got: fmt.Sprintf("%d×%d", info.Height, info.Width)}
	}
	if r := ref.Raw; r != nil && r.Channels == s.f.Channels && r.DType == s.f.DType && !r.BGR {
		line := r.Width * r.Channels * r.DType.Size()
		stride := r.Stride
		if stride == 0 {
			stride = line
		}
		for y := range r.Height {
			copy(dst[y*line:(y+1)*line], r.Pix[y*stride:])
		}
		return nil
	}
	switch {
	case s.gray:
		rgb := make([]byte, 3*len(dst))
		if err := video.DecodeImage(ref, &video.Spec{Pixel: video.RGB8}, rgb); err != nil {
			return err
		}
		for i := range dst {
			dst[i] = rgb[3*i]
		}
		return nil
	case s.f.Channels == 1 && s.f.DType == robocache.Uint16:
		return video.DecodeImage(ref, &video.Spec{Pixel: video.Gray16}, dst)
	case s.f.Channels == 3 && s.f.DType == robocache.Uint8:
		return video.DecodeImage(ref, &video.Spec{Pixel: video.RGB8}, dst)
	}
	return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr write", Msg: fmt.Sprintf("encoded images of %d channels of %s", s.f.Channels, s.f.DType)}
}

// decode puts images of one video file into out.
func (w *writer) decode(ctx context.Context, s *outStream, path string, at []int, refs []robocache.FrameRef, out []byte) error {
	lib, ok := robocache.As[withVideo](w.src)
	if !ok {
		return &robocache.Error{Class: robocache.ErrUnsupported, Op: "zarr write", Msg: "the dataset does not give its video files"}
	}
	file, err := lib.Video().Acquire(ctx, path)
	if err != nil {
		return err
	}
	defer file.Release()
	pool := video.NewPool(64 << 20)
	defer pool.Close()
	ordinals, wanted := make([]int, len(at)), map[int][]int{}
	for k, i := range at {
		ordinals[k] = refs[i].Ordinal
		wanted[refs[i].Ordinal] = append(wanted[refs[i].Ordinal], i)
	}
	spec := &video.Spec{Width: s.f.Width, Height: s.f.Height, Pixel: video.RGB8}
	for _, g := range video.Plan(file.Index, ordinals) {
		err := pool.Decode(ctx, file, g, func(ordinal int, pic video.Frame) error {
			var first []byte
			for _, i := range wanted[ordinal] {
				dst := out[i*s.row : (i+1)*s.row]
				if first == nil {
					if err := pic.Convert(spec, dst); err != nil {
						return err
					}
					first = dst
				} else {
					copy(dst, first)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
