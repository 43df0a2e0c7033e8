//go:build cgo

package ffmpeg

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// A stream may change its size without a new sample entry. Each frame is delivered at its own size,
// or is rejected if the destination has another size. A size in a header beyond the limit is not
// allocated (ffmpeg.F3, ffmpeg.F4).
func TestSizeChangesInsideTheStream(t *testing.T) {
	data, err := os.ReadFile("testdata/odd/mjpeg.mp4")
	if err != nil {
		t.Fatal(err)
	}
	m := &memoryFile{data: data}
	f := fileOf(t, m)
	plain := images(t, newPool(t, 0), f, upTo(f.Index.NumFrames()), video.Spec{})
	entry := f.Index.Entries()[0]

	var small bytes.Buffer
	gray := image.NewGray(image.Rect(0, 0, 102, 30))
	for i := range gray.Pix {
		gray.Pix[i] = 200
	}
	if err := jpeg.Encode(&small, gray, &jpeg.Options{Quality: 30}); err != nil {
		t.Fatal(err)
	}
	s := f.Index.Sample(2)
	if small.Len() > s.Size {
		t.Fatalf("%d bytes for a sample of %d", small.Len(), s.Size)
	}
	clear(data[s.Offset : s.Offset+int64(s.Size)])
	copy(data[s.Offset:], small.Bytes())

	p := newPool(t, 0)
	got := map[int][]byte{}
	err = p.Decode(
		context.Background(),
		f,
		nil,
		video.Plan(f.Index, upTo(f.Index.NumFrames())),
		func(k int, pic video.Frame) error {
			w, h := pic.Size()
			if k != 2 {
				if w != entry.Width || h != entry.Height {
					t.Errorf("frame %d is %d×%d", k, w, h)
				}
			} else if w != 102 || h != 30 {
				t.Errorf("the changed frame is %d×%d", w, h)
			}
			buf := make([]byte, 3*entry.Width*entry.Height)
			if k == 2 {
				if err := pic.Convert(&video.Spec{}, buf); !errors.Is(err, robocache.ErrMisuse) {
					t.Errorf("a destination of the entry's size: %v", err)
				}
				scaled := video.Spec{Width: entry.Width, Height: entry.Height, ChannelsFirst: true}
				if err := pic.Convert(&scaled, buf); err != nil || bytes.IndexByte(buf, 0) >= 0 {
					t.Errorf("scaled to the entry's size: %v", err)
				}
				buf = make([]byte, 3*w*h)
			}
			got[k] = buf
			return pic.Convert(&video.Spec{}, buf)
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range plain {
		if k != 2 && !bytes.Equal(got[k], want) {
			t.Errorf("frame %d has other pixels", k)
		}
	}
	for i, v := range got[2] {
		if v < 198 || v > 202 {
			t.Fatalf("byte %d of the changed frame is %d", i, v)
		}
	}

	// The header of another frame claims 32000 × 32000.
	s = f.Index.Sample(4)
	packet := data[s.Offset : s.Offset+int64(s.Size)]
	at := bytes.Index(packet, []byte{0xff, 0xc0})
	if at < 0 {
		t.Fatal("no frame header")
	}
	copy(packet[at+5:], []byte{0x7d, 0, 0x7d, 0})
	err = p.Decode(
		context.Background(),
		f,
		nil,
		[]video.Group{video.Plan(f.Index, []int{4})[0]},
		func(int, video.Frame) error { return nil },
	)
	if !errors.Is(err, robocache.ErrMalformed) && !errors.Is(err, robocache.ErrResourceLimit) {
		t.Errorf("a gigapixel: %v", err)
	}
	if again := images(t, p, f, []int{3}, video.Spec{})[3]; !bytes.Equal(again, plain[3]) {
		t.Error("the next frame has other pixels")
	}
}
