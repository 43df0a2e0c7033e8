package nvdec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// nvdec.N3, nvdec.N4: each packet yields its own frame in order, for any references between frames.
// The planes are correct even if they are requested last.
func TestFrames(t *testing.T) {
	for n, shown := range []rect32{
		{right: 64, bottom: 32},
		{left: 2, top: 4, right: 61, bottom: 31},
		{right: 50, bottom: 30},
		{right: 50, bottom: 30},
	} {
		f := newFake()
		f.format.shown, f.turns = shown, n != 2
		d := open(t, f, entry())
		r := rand.New(rand.NewPCG(3, 4))
		type sent struct {
			id     byte
			number int64
		}
		var inside []sent
		together := 0
		for i := range 400 {
			if i%37 == 0 {
				d.Flush()
				inside = nil
			}
			x := sent{byte(1 + r.IntN(250)), int64(i)}
			f.runs = r.IntN(3)
			if err := d.Send(unit(x.id, r.IntN(2) == 0), x.number); err != nil {
				t.Fatal(err)
			}
			inside = append(inside, x)
			f.runs = r.IntN(3)
			asked := r.IntN(5) == 0
			if asked {
				d.DeliverPending()
			}
			got := 0
			for ; ; got++ {
				if got == 3 && r.IntN(4) == 0 {
					break // like a caller that has its frame and sends the next packet
				}
				pic, number, ok, err := d.Receive()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					if len(inside) > 0 && (asked || got > 0) {
						t.Fatalf("%d frames did not come", len(inside))
					}
					break
				}
				if number != inside[0].number {
					t.Fatalf("frame %d, not %d", number, inside[0].number)
				}
				if w, h := pic.Size(); w != int(shown.right-shown.left) ||
					h != int(shown.bottom-shown.top) {
					t.Fatal(w, h)
				}
				if r.IntN(3) > 0 {
					expect(t, pic, f, inside[0].id)
					expect(t, pic, f, inside[0].id) // a second read returns the same bytes
				}
				inside = inside[1:]
			}
			together = max(together, got)
			if len(inside) >= maxTogether {
				t.Fatalf("%d frames are inside", len(inside))
			}
		}
		if together != maxTogether {
			t.Errorf("at most %d frames came together", together)
		}
		if err := d.Drain(); err != nil {
			t.Error(err)
		}
		d.Close()
		d.Close()
		if again := open(t, f, entry()); again == d {
			t.Error("a decoder of another backend")
		} else {
			again.backend.forget()
			again.releaseAll()
		}
		if x, err := d.backend.NewDecoder(entry()); err != nil || x != d {
			t.Error("a closed decoder was not kept:", err)
		}
		d.Close()
		d.backend.forget()
		if len(f.live) != 0 {
			t.Errorf("not given back: %v", f.live)
		}
		if err := d.Send(unit(1, true), 0); !errors.Is(err, robocache.ErrMisuse) {
			t.Error(err)
		}
	}
}

// A frame that the caller does not want is skipped if no other frame refers to it.
func TestUnwanted(t *testing.T) {
	f := newFake()
	d := open(t, f, entry())
	defer d.Close()
	for i, x := range []struct{ reference, wanted bool }{
		{true, true},
		{true, false},
		{false, false},
		{false, true},
	} {
		send := d.Send
		if !x.wanted {
			send = d.SendUnwanted
		}
		if err := send(unit(byte(10+i), x.reference), int64(i)); err != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := receive(d); ok != x.wanted || err != nil {
			t.Error(i, ok, err)
		}
	}
	if !bytes.Equal(f.decoded, []byte{10, 11, 13}) {
		t.Error(f.decoded)
	}
}

// VP9: of a packet with several frames the last one is displayed. A packet without frames displays
// an earlier frame.
func TestHiddenFrames(t *testing.T) {
	f := newFake()
	f.format.codec = codecVP9
	d := open(t, f, &video.SampleEntry{FourCC: "vp09", Codec: video.VP9, Width: 64, Height: 32})
	defer d.Close()
	for i, x := range []struct {
		packet []byte
		frame  byte
	}{{[]byte{'p', 5, 1}, 5}, {[]byte{'p', 6, 1, 7, 2}, 7}, {[]byte{'s', 6}, 6}} {
		if err := d.Send(x.packet, int64(i)); err != nil {
			t.Fatal(err)
		}
		pic, _, ok, err := receive(d)
		if !ok || err != nil {
			t.Fatal(i, ok, err)
		}
		expect(t, pic, f, x.frame)
	}
	// Two packets display one frame, whose surface a third packet's frame is decoded into.
	for i, packet := range [][]byte{{'p', 8, 2}, {'s', 8}, {'p', 9, 2}} {
		if err := d.Send(packet, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []byte{8, 8, 9} {
		pic, _, ok, err := receive(d)
		if !ok || err != nil {
			t.Fatal(id, ok, err)
		}
		expect(t, pic, f, id)
	}
	d.Flush()
	if _, number, ok, err := receive(d); ok || err != nil {
		t.Error("the end of a stream leaves a frame inside:", number, err)
	}
}

// nvdec.N2: unsupported formats are rejected with the reason.
func TestRefusals(t *testing.T) {
	for what, change := range map[string]func(f *fake){
		"4:2:0":             func(f *fake) { f.format.chroma = 3 },
		"8 bits":            func(f *fake) { f.format.lumaDepth = 2 },
		"interlaced":        func(f *fake) { f.format.progressive = 0 },
		"larger":            func(f *fake) { f.known.maxWidth = 63 },
		"smaller":           func(f *fake) { f.known.minHeight = 33 },
		"cut out":           func(f *fake) { f.format.shown.left = 1 },
		"no engine":         func(f *fake) { f.known.supported = 0 },
		"no engine ":        func(f *fake) { f.known.outputs = 2 },
		"interlaced frames": func(f *fake) { f.format.more = 1 },
	} {
		f := newFake()
		change(f)
		d, err := newBackend(f, 3, "fake").NewDecoder(entry())
		if err == nil {
			err = d.Send(unit(1, true), 0)
			d.Close()
		}
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), strings.TrimSpace(what)) ||
			!errors.As(err, &e) ||
			e.Where["device"] != 3 {
			t.Errorf("%s: %v", what, err)
		}
		if len(f.live) != 0 {
			t.Errorf("%s: not given back: %v", what, f.live)
		}
	}
	b := newBackend(newFake(), 0, "fake")
	for _, c := range []video.Codec{video.AV1, video.MPEG4, ""} {
		if err := b.Supports(c); !errors.Is(err, robocache.ErrUnsupported) || b.Engines(c) != 0 {
			t.Error(c, err)
		}
	}
	if b.Engines(video.HEVC) != 7 {
		t.Error(b.Engines(video.HEVC))
	}
}

// A stream that changes its format is rejected, so its frames are decoded on the CPU.
func TestFormatChanges(t *testing.T) {
	f := newFake()
	d := open(t, f, entry())
	defer d.Close()
	if err := d.Send(unit(1, true), 0); err != nil {
		t.Fatal(err)
	}
	d.Flush()
	f.format.width = 96
	if err := d.Send(unit(2, true), 1); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), "changes its format") {
		t.Error(err)
	}
}

// nvdec.N7: a frame that was mapped early and never read may still be written when its memory is
// mapped for the host. The fake panics in that case.
func TestFramesThatNobodyTook(t *testing.T) {
	f := newFake()
	d := open(t, f, entry())
	defer d.Close()
	for i := range byte(3) {
		if err := d.Send(unit(11+i, false), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	d.Flush()
	for i := range byte(2) {
		if err := d.Send(unit(21+i, false), int64(i)); err != nil {
			t.Fatal(err)
		}
		pic, number, ok, err := receive(d)
		if !ok || err != nil || number != int64(i) {
			t.Fatal(number, ok, err)
		}
		expect(t, pic, f, 21+i)
	}
}

// nvdec.N6: each driver call fails once. The call returns the driver's error, and nothing leaks.
func TestEachCallFails(t *testing.T) {
	for n := 1; ; n++ {
		f := newFake()
		f.failAt = n
		err := func() error {
			d, err := newBackend(f, 0, "fake").NewDecoder(entry())
			if err != nil {
				return err
			}
			defer func() {
				d.Close()
				d.(*decoder).backend.forget()
			}()
			// the first two are mapped before they are received, because the last one reuses their
			// surface
			for i := range 4 {
				if err := d.Send(unit(byte(40+i), false), int64(100+i)); err != nil {
					return err
				}
				if i == 2 {
					break
				}
			}
			keep, err := d.(*decoder).backend.Alloc(1 << 13)
			if err != nil {
				return err
			}
			defer d.(*decoder).backend.Free(keep)
			for range 3 {
				pic, _, ok, err := receive(d.(*decoder))
				if !ok || err != nil {
					return errors.Join(errors.New("no frame"), err)
				}
				if err := pic.(video.DeviceFrame).KeepPlanes(keep); err != nil {
					return err
				}
			}
			for i := range 3 {
				if err := d.Send(unit(byte(i+1), true), int64(i)); err != nil {
					return err
				}
				pic, _, ok, err := receive(d.(*decoder))
				if !ok || err != nil {
					return errors.Join(errors.New("no frame"), err)
				}
				info, _ := pic.(video.PlanarFrame).PlaneInfo()
				if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); err !=
					nil {
					return err
				}
			}
			return nil
		}()
		if len(f.live) != 0 {
			t.Fatalf("call %d: not given back: %v", n, f.live)
		}
		if err == nil {
			if n < 30 {
				t.Errorf("only %d calls were made", n)
			}
			return
		}
		if !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), "LAUNCH_FAILED") {
			t.Fatalf("call %d: %v", n, err)
		}
	}
}

// nvdec.N1: the library is missing, or it is a different library.
func TestNoLibrary(t *testing.T) {
	for name, says := range map[string]string{
		"libno-such-video.so.1": "NVIDIA video library",
		"libc.so.6":             "driver too old",
	} {
		if _, err := loadLibrary([]string{name}); !errors.Is(err, robocache.ErrUnsupported) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
