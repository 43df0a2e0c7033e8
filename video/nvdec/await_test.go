package nvdec

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// nvdec.N5: a frame that the engine decoded with an error is reported as an error.
func TestDamage(t *testing.T) {
	for _, status := range []int32{8, 9} {
		f := newFake()
		f.status_ = status
		d := open(t, f, entry())
		if err := d.Send(unit(1, true), 0); err != nil {
			t.Fatal(err)
		}
		pic, _, _, _ := receive(d)
		info, _ := pic.(video.PlanarFrame).PlaneInfo()
		if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Error(err)
		}
		d.Close()
	}
}

// nvdec.N5: the error of a frame is detected before its surface is reused. Frames that refer to it
// fail too.
func TestDamageOfReferences(t *testing.T) {
	for _, between := range []int{0, 1, 5, 40} {
		f := newFake()
		f.damaged = 77
		d := open(t, f, entry())
		err := d.SendUnwanted(unit(77, true), 0)
		for i := 0; err == nil && i < between; i++ {
			f.runs = i % 3
			err = d.SendUnwanted(unit(byte(1+i), true), int64(1+i))
		}
		if err == nil {
			err = d.Send(unit(60, false), 50)
		}
		if err == nil {
			pic, _, _, _ := receive(d)
			info, _ := pic.(video.PlanarFrame).PlaneInfo()
			err = pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes()))
		}
		if !errors.Is(err, robocache.ErrMalformed) || !strings.Contains(err.Error(), "status 8") {
			t.Errorf("%d frames between: %v", between, err)
		}
		d.Close()
	}
}

// nvdec.N5: if a damaged frame is mapped early, the frames before it are correct and it fails
// itself.
func TestDamageInside(t *testing.T) {
	f := newFake()
	f.damaged = 12
	d := open(t, f, entry())
	defer d.Close()
	for i := range byte(3) {
		if err := d.Send(unit(11+i, false), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	pic, _, _, _ := receive(d)
	expect(t, pic, f, 11)
	pic, number, _, _ := receive(d)
	info, _ := pic.(video.PlanarFrame).PlaneInfo()
	if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); number != 1 ||
		!errors.Is(err, robocache.ErrMalformed) {
		t.Error(number, err)
	}
}
