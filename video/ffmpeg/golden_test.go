//go:build cgo

package ffmpeg

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.txt and testdata/depth.golden")

// Golden hashes of the RGB of each odd file, and of frames of noise. They hold on x86-64 with AVX2,
// for the arithmetic of swscale 5.1 to 8, and on arm64. If swscale gives other numbers on x86-64
// (without SSSE3), the peers do too, and the test logs it.
func TestGolden(t *testing.T) {
	d := synthetic(64, 64, "yuv420p", 5, false, 1)
	probe := convert(t, d, video.Spec{ChannelsFirst: true})
	d.Close()
	paths, _ := filepath.Glob(filepath.Join("testdata", "odd", "*.mp4"))
	if len(paths) == 0 {
		t.Fatal("no testdata/odd")
	}
	var got bytes.Buffer
	fmt.Fprintf(
		&got,
		"# MD5 of all frames of testdata/odd/NAME, in order: RGB8 as CHW, and the stored planes. "+
			"Rewrite: go test ./video/ffmpeg -run Golden -update\n",
	)
	fmt.Fprintf(&got, "arithmetic %s\n", sum(probe))
	for _, path := range paths {
		f := acquire(t, path)
		p := newPool(t, 0)
		fmt.Fprintf(&got, "%s", filepath.Base(path))
		for _, spec := range []video.Spec{{ChannelsFirst: true}, {Pixel: video.YUVPlanes}} {
			all := images(t, p, f, upTo(f.Index.NumFrames()), spec)
			h := md5.New()
			for k := range f.Index.NumFrames() {
				h.Write(all[k])
			}
			fmt.Fprintf(&got, " %s", hex.EncodeToString(h.Sum(nil)))
		}
		fmt.Fprintln(&got)
	}
	fmt.Fprintf(
		&got,
		"# MD5 of frames of noise as RGB8, CHW, of many sizes, matrices and ranges: of their own "+
			"size, and scaled\n",
	)
	for _, format := range formats {
		own, scaled := md5.New(), md5.New()
		for i, size := range [][2]int{
			{640, 480}, {322, 240}, {84, 84}, {33, 18}, {97, 61}, {7, 5},
		} {
			d := synthetic(size[0], size[1], format, []int{1, 2, 5, 9}[i%4], i%3 == 2, uint32(i))
			own.Write(convert(t, d, video.Spec{ChannelsFirst: true}))
			for _, to := range [][2]int{{224, 224}, {96, 96}, {84, 120}, {53, 31}, {640, 480}} {
				scaled.Write(
					convert(t, d, video.Spec{ChannelsFirst: true, Width: to[0], Height: to[1]}),
				)
			}
			d.Close()
		}
		fmt.Fprintf(&got, "%s %x %x\n", format, own.Sum(nil), scaled.Sum(nil))
	}
	golden := filepath.Join("testdata", "golden.txt")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(want, got.Bytes()) {
		return
	}
	if !bytes.Contains(want, []byte("arithmetic "+sum(probe)+"\n")) {
		t.Skip("swscale's arithmetic on this processor is another: the golden hashes do not apply")
	}
	t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
}

// ffmpeg.F8 on a file: a track rotated by 90 degrees is delivered upright, with width and height
// exchanged.
func TestRotatedTrack(t *testing.T) {
	turned, plain := acquire(t, filepath.Join("testdata", "odd", "rot90.mp4")),
		acquire(t, filepath.Join("testdata", "odd", "w100.mp4"))
	deg := turned.Index.Entries()[0].Rotation
	if deg != 90 && deg != 270 {
		t.Fatalf("rotation %d in the index", deg)
	}
	p := newPool(t, 0)
	a := images(t, p, turned, []int{2}, video.Spec{})[2]
	b := images(t, p, plain, []int{2}, video.Spec{})[2]
	t.Logf("%d degrees clockwise", deg)
	const w, h = 100, 60
	for y := range h {
		for x := range w {
			tx, ty := h-1-y, x
			if deg == 270 {
				tx, ty = y, w-1-x
			}
			if !bytes.Equal(a[3*(ty*h+tx):3*(ty*h+tx)+3], b[3*(y*w+x):3*(y*w+x)+3]) {
				t.Fatalf("pixel (%d,%d)", x, y)
			}
		}
	}
	// Compare with the ffmpeg program's rotation.
	if needed := ffmpegCLIRotated(t); needed != nil && !bytes.Equal(needed, a) {
		t.Error("ffmpeg turns the frame the other way")
	}
}
