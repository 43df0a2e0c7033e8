package nvdec

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// Frames on the device are converted, kept and converted later, or copied to the host. No step
// waits for a single frame.
func TestFramesThere(t *testing.T) {
	f := newFake()
	f.format.shown = rect32{left: 4, top: 2, right: 60, bottom: 30}
	d := open(t, f, entry())
	b := d.backend
	spec := video.Spec{Pixel: video.RGB8, ChannelsFirst: true}
	info := video.PlaneInfo{Width: 56, Height: 28, Format: video.PlaneFormat("yuv420p"), Matrix: 2}
	if !b.Converts(info, &spec) {
		t.Skip("the host makes no frame by code of its own")
	}
	if b.Converts(info, &video.Spec{Pixel: video.RGBFloat32}) ||
		b.Converts(video.PlaneInfo{Width: 56, Height: 28, Format: info.Format, Rotation: 90},
			&spec) {
		t.Error("a kernel for what there is none")
	}
	room := func(n int) []byte {
		m, err := b.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first, kept, second, copied, lifted, third := room(3*56*28), room(info.Bytes()), room(3*56*28),
		room(3*56*28), room(info.Bytes()), room(3*56*28)
	for i := range 20 {
		id := byte(1 + 9*i)
		if err := d.Send(unit(id, i%2 == 0), int64(i)); err != nil {
			t.Fatal(err)
		}
		pic, _, ok, err := receive(d)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		there := pic.(video.DeviceFrame)
		if i%3 == 1 {
			expect(t, pic, f, id)
		}
		planes := make([]byte, info.Bytes())
		if i%2 == 0 { // on the host: the frame is mapped once for both, or once for each
			if err := there.CopyPlanes(planes); err != nil {
				t.Fatal(err)
			}
		}
		// without a wait: the host may map the next frame on another stream
		if i >= 15 {
			if err := there.ConvertThere(&spec, first); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, err := range []error{
			there.ConvertThere(&spec, first), there.KeepPlanes(kept),
			b.ConvertKept(info, one(kept), &spec, one(second)),
			b.Copy(one(copied), one(second)), there.CopyPlanes(planes),
			b.UploadPlanes(info, lifted, planes),
			b.ConvertKept(info, one(lifted), &spec, one(third)), b.Wait(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 2 {
			expect(t, pic, f, id)
		}
		for y := range 28 {
			for x := range 56 {
				c := [3]byte{
					sample(id, 4+x, 2+y),
					sample(id, 4+x&^1, 32+1+y/2),
					sample(id, 4+x&^1+1, 32+1+y/2),
				}
				for k, want := range c {
					for _, m := range [][]byte{first, second, copied, third} {
						if got := f.near(deviceAddress(m))[(k*28+y)*56+x]; got != want {
							t.Fatalf("frame %d at (%d, %d), %d: %d, not %d", id, x, y, k, got, want)
						}
					}
				}
			}
		}
	}
	if err := b.Clear(first); err != nil || f.near(deviceAddress(first))[100] != 0 {
		t.Error(err)
	}
	if err := errors.Join(b.Upload(first, bytes.Repeat([]byte{7}, len(first))), b.Wait()); err !=
		nil || f.near(deviceAddress(first))[100] != 7 {
		t.Error(err)
	}
	if err := b.ConvertKept(info, one(kept), &spec, one(first[:5])); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := b.Copy(nil, nil); err != nil {
		t.Error(err)
	}
	if err := b.Copy([][]byte{first, second}, [][]byte{copied, third[:5]}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
	for _, m := range [][]byte{first, kept, second, copied, lifted, third} {
		b.Free(m)
	}
	d.Close()
	b.forget()
	if len(f.live) != 0 {
		t.Errorf("not given back: %v", f.live)
	}
}

// nvdec.N7: planes that are kept one after the other are copied by one launch. The launch precedes
// everything that reads or overwrites them, and the release of their memory.
func TestKeptTogether(t *testing.T) {
	f := newFake()
	f.turns = true
	d := open(t, f, entry())
	b := d.backend
	spec := video.Spec{Pixel: video.RGB8, ChannelsFirst: true}
	info := video.PlaneInfo{Width: 64, Height: 32, Format: video.PlaneFormat("yuv420p"), Matrix: 2}
	if !b.Converts(info, &spec) {
		t.Skip("the host makes no frame by code of its own")
	}
	rgb, _ := b.Alloc(3 * 64 * 32)
	room := make([][]byte, 100)
	for i := range room {
		room[i], _ = b.Alloc(info.Bytes())
	}
	check := func(m []byte, id byte) {
		t.Helper()
		if err := b.ConvertKept(info, one(m), &spec, one(rgb)); err != nil {
			t.Fatal(err)
		}
		if got := f.near(deviceAddress(rgb))[5*64+7]; got != sample(id, 7, 5) {
			t.Fatalf("%d, not of frame %d", got, id)
		}
	}
	// frames sends frames and keeps the planes of each one in its destination.
	kept := map[int]byte{}
	frames := func(first int, to func(k int) int) {
		t.Helper()
		for i := range maxTogether {
			if err := d.Send(unit(byte(first+i), true), int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		for k := range maxTogether {
			pic, _, ok, err := d.Receive()
			if !ok || err != nil {
				t.Fatal(k, ok, err)
			}
			if err := pic.(video.DeviceFrame).KeepPlanes(room[to(k)]); err != nil {
				t.Fatal(err)
			}
			kept[to(k)] = byte(first + k)
		}
	}
	for round := range 10 {
		frames(1+10*round, func(k int) int { return 10*round + k })
	}
	if f.copies != 4 {
		t.Errorf("%d launches of the first 32 frames", f.copies)
	}
	for k, id := range kept {
		check(room[k], id)
	}
	if f.copies != 5 {
		t.Errorf("%d launches of 40 frames", f.copies)
	}
	frames(130, func(k int) int { return k / 2 }) // each destination is written twice
	for k := range maxTogether / 2 {
		check(room[k], byte(130+2*k+1))
	}
	frames(150, func(k int) int { return k })
	for _, m := range room { // while copies are queued
		b.Free(m)
	}
	f.failAt = -1
	room[0], _ = b.Alloc(info.Bytes())
	if err := d.Send(unit(7, true), 0); err != nil {
		t.Fatal(err)
	}
	pic, _, _, _ := receive(d)
	if err := pic.(video.DeviceFrame).KeepPlanes(room[0]); err != nil {
		t.Fatal(err)
	}
	f.failAt = f.calls + 1
	for range 2 { // the error of a launch is permanent
		if err := b.ConvertKept(info, one(room[0]), &spec, one(rgb)); !errors.Is(err,
			robocache.ErrUnsupported) || !strings.Contains(err.Error(), "could not copy") {
			t.Error(err)
		}
	}
	if err := d.Send(unit(8, true), 1); err != nil {
		t.Fatal(err)
	}
	pic, _, _, _ = receive(d)
	if err := pic.(video.DeviceFrame).KeepPlanes(room[0]); err == nil {
		t.Error("copies go on")
	}
	b.Free(room[0])
	b.Free(rgb)
	d.Close()
	b.forget()
	if len(f.live) != 0 {
		t.Errorf("not given back: %v", f.live)
	}
}

// nvdec.N7: frames of several decoders that change between groups are copied by full launches.
func TestKeptOfSeveral(t *testing.T) {
	f := newFake()
	f.turns = true
	decoders := []*decoder{open(t, f, entry())}
	b := decoders[0].backend
	for range 4 {
		d, err := b.NewDecoder(entry())
		if err != nil {
			t.Fatal(err)
		}
		decoders = append(decoders, d.(*decoder))
	}
	info := video.PlaneInfo{Width: 64, Height: 32, Format: video.PlaneFormat("yuv420p"), Matrix: 2}
	var room [][]byte
	for range 5 {
		for _, d := range decoders {
			for i := range maxTogether {
				if err := d.Send(unit(byte(1+len(room)+i), true), int64(i)); err != nil {
					t.Fatal(err)
				}
			}
			for range maxTogether {
				pic, _, ok, err := d.Receive()
				m, _ := b.Alloc(info.Bytes())
				if !ok || err != nil {
					t.Fatal(len(room), ok, err)
				}
				if err := pic.(video.DeviceFrame).KeepPlanes(m); err != nil {
					t.Fatal(err)
				}
				room = append(room, m)
			}
			d.Flush() // start another group of frames
		}
	}
	if f.copies != len(room)/maxQueued {
		t.Errorf("%d launches of %d frames", f.copies, len(room))
	}
	if err := b.Wait(); err != nil {
		t.Error(err)
	}
	for i, m := range room {
		if got := f.near(deviceAddress(m))[5*64+7]; got != sample(byte(1+i), 7, 5) {
			t.Fatalf("%d: %d, not of frame %d", i, got, 1+i)
		}
		b.Free(m)
	}
	rest := decoders[0]
	if err := rest.Send(unit(1, true), 0); err != nil {
		t.Fatal(err)
	}
	pic, _, _, _ := receive(rest)
	m, _ := b.Alloc(info.Bytes())
	if err := pic.(video.DeviceFrame).KeepPlanes(m); err != nil {
		t.Fatal(err)
	}
	for _, d := range decoders {
		d.Close() // with queued work
	}
	b.forget()
	if got := f.near(deviceAddress(m))[5*64+7]; got != sample(1, 7, 5) {
		t.Errorf("%d, not of the frame of a decoder that was closed", got)
	}
	b.Free(m)
	if len(f.live) != 0 {
		t.Errorf("not given back: %v", f.live)
	}
}

// Concurrent copies to the device reuse a page-locked buffer only after its last copy is complete,
// and the pool stays within its limits.
func TestStaging(t *testing.T) {
	f := newFake()
	b := newBackend(f, 0, "fake")
	const size = 40 << 10
	places := make([][]byte, 180)
	for i := range places {
		places[i], _ = b.Alloc(size)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < len(places); i += 4 {
				src := bytes.Repeat([]byte{byte(i)}, size>>(i%3))
				if err := b.Upload(places[i][:len(src)], src); err != nil {
					t.Error(err)
				}
				clear(src)
			}
		})
	}
	wg.Wait()
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, m := range places {
		if got := f.near(deviceAddress(m)); got[0] != byte(i) || got[size>>(i%3)-1] != byte(i) {
			t.Errorf("copy %d holds %d and %d", i, got[0], got[size>>(i%3)-1])
		}
		b.Free(m)
	}
	if n := len(b.staging.idle); n == 0 || n > maxBuffers+4 {
		t.Errorf("%d pieces", n)
	}
	if b.forget(); len(f.live) != 0 {
		t.Errorf("not given back: %v", f.live)
	}
}

// one returns a list with one piece.
func one(m []byte) [][]byte { return [][]byte{m} }
