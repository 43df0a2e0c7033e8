package convert_test

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

// photographed is a dataset whose images are replaced by JPEGs of a real camera.
type photographed struct {
	robocache.Dataset
	images [][]byte
}

func (p *photographed) Frames(
	_ context.Context,
	_ string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	for i, r := range rows {
		out[i] = robocache.FrameRef{Encoded: p.images[(7*r.Episode+r.Index)%len(p.images)]}
	}
	return nil
}

// photographs returns images of g1_v30_exact, 640×480, as JPEG of quality 90 (43 kB each).
func photographs(b *testing.B, src robocache.Dataset) (out [][]byte) {
	const key = "observation.images.cam_high"
	for e := range 5 {
		refs := make([]robocache.FrameRef, 12)
		rows := rowsOf(e, 12*9)
		for i := range refs {
			rows[i].Index = 9 * i
		}
		if err := src.Frames(b.Context(), key, rows[:len(refs)], refs); err != nil {
			b.Fatal(err)
		}
		err := video.EachFrame(
			b.Context(),
			video.LibraryOf(src),
			refs,
			video.Each{},
			func(_ []int, pic video.Frame) error {
				rgb, err := video.ConvertTo(nil, pic, &video.Spec{Pixel: video.RGB8})
				if err != nil {
					return err
				}
				m := image.NewRGBA(image.Rect(0, 0, 640, 480))
				for i, j := 0, 0; i < len(rgb); i, j = i+3, j+4 {
					m.Pix[j], m.Pix[j+1], m.Pix[j+2], m.Pix[j+3] = rgb[i], rgb[i+1], rgb[i+2], 255
				}
				var w bytes.Buffer
				err = jpeg.Encode(&w, m, &jpeg.Options{Quality: 90})
				out = append(out, w.Bytes())
				return err
			},
		)
		if err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// BenchmarkToRows converts to LeRobot without encoding, with exact statistics. MB are those of the
// source. "photos" has 640×480 JPEGs of a real camera that are copied, 12 s per episode. "small"
// has 256×256 drawings of 5 kB. "g1" has 26 joints and 26 commands per row, "rows" 2 and 2. For
// photos a lower bound is measured too: decoding the images that the statistics need and copying
// the bytes once, on one core.
//
// go test ./convert -run - -bench ToRows -benchtime 3x
func BenchmarkToRows(b *testing.B) {
	g1 := open(b, data(b, "g1_v30_exact"))
	var many []int
	for i := range 400 {
		many = append(many, i%5)
	}
	images := photographs(b, g1)
	for _, c := range []struct {
		name string
		made robocache.Dataset
		opt  Options
		to   []string
	}{
		{
			"photos",
			&photographed{
				synthetic(b, synth.Options{
					Episodes: 12,
					Seconds:  12,
					Spread:   0.5,
					Width:    640,
					Height:   480,
					Cameras:  1,
					Codec:    "jpeg",
				}),
				images,
			},
			Options{},
			[]string{"rlds", "mcap"},
		},
		{
			"small",
			synthetic(b, synth.Options{
				Episodes: 16,
				Seconds:  4,
				Spread:   0.5,
				Width:    256,
				Height:   256,
				Cameras:  2,
				Codec:    "jpeg",
			}),
			Options{},
			[]string{"rlds", "mcap"},
		},
		{
			"g1",
			g1,
			Options{Episodes: many, Keys: []string{"observation.state", "action"}},
			[]string{"rlds", "mcap", "robomimic"},
		},
		{
			"rows",
			synthetic(b, synth.Options{Episodes: 400, Seconds: 10, Spread: 0.5, Cameras: -1}),
			Options{},
			[]string{"rlds", "mcap", "robomimic"},
		},
	} {
		for _, format := range c.to {
			b.Run(c.name+"/"+format, func(b *testing.B) {
				from := filepath.Join(b.TempDir(), "src."+format)
				if _, err := Write(b.Context(), c.made, format, from, c.opt, nil); err != nil {
					b.Skip(err)
				}
				var size int64
				_ = filepath.Walk(from, func(_ string, i os.FileInfo, err error) error {
					if err == nil && !i.IsDir() {
						size += i.Size()
					}
					return nil
				})
				src, err := robocache.Open(b.Context(), from)
				if err != nil {
					b.Fatal(err)
				}
				defer src.Close()
				b.SetBytes(size)
				var cpu, floor float64
				for b.Loop() {
					if c.name == "photos" {
						b.StopTimer() // the lower bound is not part of the conversion
						_, f := measured(func() { decodeAlone(b, src, images) })
						floor += f
						b.StartTimer()
					}
					_, used := measured(func() {
						_, err := ToLeRobot(b.Context(), src, filepath.Join(b.TempDir(), "out"),
							Options{Images: "images", FPS: src.Info().FPS})
						if err != nil {
							b.Fatal(err)
						}
					})
					cpu += used
				}
				b.ReportMetric(cpu/float64(b.N), "cpu-s/op")
				b.ReportMetric(float64(size)/1e6*float64(b.N)/cpu, "MB/cpu-s")
				if floor > 0 {
					b.ReportMetric(100*floor/cpu, "%floor-cpu")
				}
			})
		}
	}
}

// decodeAlone decodes as many images as the statistics of a dataset need, and copies all images
// once.
func decodeAlone(b *testing.B, src robocache.Dataset, images [][]byte) {
	var buf, kept []byte
	for e := range src.Info().Episodes {
		n := src.Len(e)
		for _, k := range stats.SampleFrames(n) {
			var err error
			buf, err = stats.Still(&robocache.FrameRef{Encoded: images[(7*e+k)%len(images)]},
				&video.Spec{Pixel: video.RGB8}, buf)
			if err != nil {
				b.Fatal(err)
			}
		}
		for k := range n {
			p := images[(7*e+k)%len(images)]
			kept = append(slices.Grow(kept[:0], len(p)), p...)
		}
	}
}
