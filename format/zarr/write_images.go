package zarr

import (
	"context"
	"fmt"
	"runtime"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/video"
)

// prepareImages settles size and type of a camera's pixels by its first image.
func (w *writer) prepareImages(f *robocache.Feature, eps []int) (s *outStream, why string) {
	own := *f
	switch {
	case f.Kind == robocache.KindImage:
		info, ok := w.firstImage(f, eps)
		if !ok {
			return nil, "it has no images"
		}
		own.Height, own.Width, own.Channels, own.DType = info.Height, info.Width, info.Channels, info.DType
		if own.DType == robocache.Uint16 && own.Channels != 1 {
			own.DType = robocache.Uint8
		}
	case video.LibraryOf(w.src) == nil:
		return nil, "the dataset does not give its video files"
	case f.Depth != nil:
		return nil, "depth that is coded in video is not written"
	case f.Height <= 0 || f.Width <= 0:
		return nil, "nothing says the size of its images"
	default:
		own.DType, own.Channels = robocache.Uint8, 3
	}
	own.Shape = []int{own.Height, own.Width, own.Channels}
	s = w.stream(&own, w.name(f.Key))
	s.shape = own.Shape
	s.row = own.Height * own.Width * own.Channels * own.DType.Size()
	s.per = max(1, imageBytes/s.row)
	s.gray = own.Channels == 1 && own.DType == robocache.Uint8
	return s, ""
}

// firstImage looks for an image in the first rows of the episodes.
func (w *writer) firstImage(f *robocache.Feature, eps []int) (info video.StillInfo, ok bool) {
	for _, e := range eps {
		_ = w.bearable(robocache.Where{"stream": f.Key}, func() {
			for _, row := range reader.Rows(e, 0, min(w.src.Len(e), 100)) {
				var ref [1]robocache.FrameRef
				guard.Check(w.src.Frames(w.ctx, f.Key, []robocache.Row{row}, ref[:]))
				if !ref[0].Missing {
					info, ok = guard.Must(video.ImageSize(&ref[0])), true
					return
				}
			}
		})
		if ok {
			break
		}
	}
	return info, ok
}

// copyImages decodes a block of images and appends them.
func (w *writer) copyImages(ctx context.Context, s *outStream, rows []robocache.Row) {
	refs := make([]robocache.FrameRef, len(rows))
	guard.Check(w.src.Frames(ctx, s.f.Key, rows, refs))
	out := make([]byte, len(rows)*s.row)
	spec := &video.Spec{Width: s.f.Width, Height: s.f.Height, Pixel: video.RGB8}
	for i := range refs {
		if refs[i].Missing {
			s.missing++
		}
	}
	guard.Check(video.EachFrame(ctx, video.LibraryOf(w.src), refs, video.Each{Threads: runtime.GOMAXPROCS(0)}, func(at []int, frame video.Frame) error {
		first := out[at[0]*s.row:][:s.row]
		switch {
		case frame == nil && refs[at[0]].Missing:
			return nil
		case frame == nil:
			return robocache.At(s.still(&refs[at[0]], first), robocache.Where{"row": rows[at[0]].Index})
		}
		if err := frame.Convert(spec, first); err != nil {
			return err
		}
		for _, i := range at[1:] {
			copy(out[i*s.row:][:s.row], first)
		}
		return nil
	}))
	w.append(s, out)
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
