package nvdec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

// N3, N4: whatever refers to what, a packet's frame is its own, comes in its turn, and at the latest when it is asked for.
func TestFrames(t *testing.T) {
	for n, shown := range []rect32{{right: 64, bottom: 32}, {left: 2, top: 4, right: 61, bottom: 31}, {right: 50, bottom: 30}, {right: 50, bottom: 30}} {
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
				d.Give()
			}
			got := 0
			for ; ; got++ {
				if got == 3 && r.IntN(4) == 0 {
					break // who has what he wants sends the next
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
				if w, h := pic.Size(); w != int(shown.right-shown.left) || h != int(shown.bottom-shown.top) {
					t.Fatal(w, h)
				}
				if r.IntN(3) > 0 {
					expect(t, pic, f, inside[0].id)
					expect(t, pic, f, inside[0].id) // and again
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
			again.b.forget()
			again.free()
		}
		if x, err := d.b.NewDecoder(entry()); err != nil || x != d {
			t.Error("a closed decoder was not kept:", err)
		}
		d.Close()
		d.b.forget()
		if len(f.live) != 0 {
			t.Errorf("not given back: %v", f.live)
		}
		if err := d.Send(unit(1, true), 0); !errors.Is(err, robocache.ErrMisuse) {
			t.Error(err)
		}
	}
}

// Frames that stay on the device: converted there, kept there and converted later, and copied to the host all the same; nothing waits for one of them.
func TestFramesThere(t *testing.T) {
	f := newFake()
	f.format.shown = rect32{left: 4, top: 2, right: 60, bottom: 30}
	d := open(t, f, entry())
	b := d.b
	spec := video.Spec{Pixel: video.RGB8, ChannelsFirst: true}
	info := video.PlaneInfo{Width: 56, Height: 28, Format: video.PlaneFormat("yuv420p"), Matrix: 2}
	if !b.Converts(info, &spec) {
		t.Skip("the host makes no frame by code of its own")
	}
	if b.Converts(info, &video.Spec{Pixel: video.RGBFloat32}) || b.Converts(video.PlaneInfo{Width: 56, Height: 28, Format: info.Format, Rotation: 90}, &spec) {
		t.Error("a kernel for what there is none")
	}
	room := func(n int) []byte {
		m, err := b.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first, kept, second, copied, lifted, third := room(3*56*28), room(info.Bytes()), room(3*56*28), room(3*56*28), room(info.Bytes()), room(3*56*28)
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
		if i%2 == 0 { // the host's own: the frame is mapped for both, or for each
			if err := there.CopyPlanes(planes); err != nil {
				t.Fatal(err)
			}
		}
		if i >= 15 { // nothing waits: the next frame may be mapped by the host, on a stream of its own
			if err := there.ConvertThere(&spec, first); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, err := range []error{there.ConvertThere(&spec, first), there.KeepPlanes(kept), b.ConvertKept(info, one(kept), &spec, one(second)), b.Copy(one(copied), one(second)), there.CopyPlanes(planes),
			b.UploadPlanes(info, lifted, planes), b.ConvertKept(info, one(lifted), &spec, one(third)), b.Wait()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 2 {
			expect(t, pic, f, id)
		}
		for y := range 28 {
			for x := range 56 {
				c := [3]byte{sample(id, 4+x, 2+y), sample(id, 4+x&^1, 32+1+y/2), sample(id, 4+x&^1+1, 32+1+y/2)}
				for k, want := range c {
					for _, m := range [][]byte{first, second, copied, third} {
						if got := f.near(at(m))[(k*28+y)*56+x]; got != want {
							t.Fatalf("frame %d at (%d, %d), %d: %d, not %d", id, x, y, k, got, want)
						}
					}
				}
			}
		}
	}
	if err := b.Clear(first); err != nil || f.near(at(first))[100] != 0 {
		t.Error(err)
	}
	if err := errors.Join(b.Upload(first, bytes.Repeat([]byte{7}, len(first))), b.Wait()); err != nil || f.near(at(first))[100] != 7 {
		t.Error(err)
	}
	if err := b.ConvertKept(info, one(kept), &spec, one(first[:5])); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := b.Copy(nil, nil); err != nil {
		t.Error(err)
	}
	if err := b.Copy([][]byte{first, second}, [][]byte{copied, third[:5]}); !errors.Is(err, robocache.ErrMisuse) {
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

// N7: planes of frames that are kept one after the other come by one launch, before anything reads or overwrites them, and before their memory is given back.
func TestKeptTogether(t *testing.T) {
	f := newFake()
	f.turns = true
	d := open(t, f, entry())
	b := d.b
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
		if got := f.near(at(rgb))[5*64+7]; got != sample(id, 7, 5) {
			t.Fatalf("%d, not of frame %d", got, id)
		}
	}
	// frames sends frames, and keeps each that comes, in the given places.
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
	frames(130, func(k int) int { return k / 2 }) // each place is written twice
	for k := range maxTogether / 2 {
		check(room[k], byte(130+2*k+1))
	}
	frames(150, func(k int) int { return k })
	for _, m := range room { // with copies that are still to be launched
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
	for range 2 { // what was promised is not there, for good
		if err := b.ConvertKept(info, one(room[0]), &spec, one(rgb)); !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "could not copy") {
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

// What is not wanted and nothing refers to is not decoded.
func TestUnwanted(t *testing.T) {
	f := newFake()
	d := open(t, f, entry())
	defer d.Close()
	for i, x := range []struct{ reference, wanted bool }{{true, true}, {true, false}, {false, false}, {false, true}} {
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

// VP9: of a packet with several frames the last is shown; a packet without any shows one that is there.
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
	// Two packets show one frame, whose surface a third wants.
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
}

// Copies to the device from many callers at once: each piece of page-locked memory is used again when its copy is over, not before, and no more of it is
// taken than may be.
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
		if got := f.near(at(m)); got[0] != byte(i) || got[size>>(i%3)-1] != byte(i) {
			t.Errorf("copy %d holds %d and %d", i, got[0], got[size>>(i%3)-1])
		}
		b.Free(m)
	}
	if n := len(b.staging.list); n == 0 || n > maxPieces+4 {
		t.Errorf("%d pieces", n)
	}
	if b.forget(); len(f.live) != 0 {
		t.Errorf("not given back: %v", f.live)
	}
}

// N2
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
		if !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), strings.TrimSpace(what)) || !errors.As(err, &e) || e.Where["device"] != 3 {
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

// A stream that changes its format is not followed: its frames are the CPU's.
func TestFormatChanges(t *testing.T) {
	f := newFake()
	d := open(t, f, entry())
	defer d.Close()
	if err := d.Send(unit(1, true), 0); err != nil {
		t.Fatal(err)
	}
	d.Flush()
	f.format.width = 96
	if err := d.Send(unit(2, true), 1); !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "changes its format") {
		t.Error(err)
	}
}

// N5
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
		if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); !errors.Is(err, robocache.ErrMalformed) {
			t.Error(err)
		}
		d.Close()
	}
}

// N5: a frame with an error is known of when its surface has become another's: what refers to it is wrong too.
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

// N5: where a damaged frame is mapped early, those before it are right, and it is an error itself.
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
	if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); number != 1 || !errors.Is(err, robocache.ErrMalformed) {
		t.Error(number, err)
	}
}

// N7: a frame that was mapped early and that nobody took may still be written when its place is mapped for the host: the fake looks at that.
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

// N6: each call of the driver fails once; the error is the driver's, and nothing is left.
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
				d.(*decoder).b.forget()
			}()
			for i := range 4 { // the first two are mapped before they are given: the last has their surface
				if err := d.Send(unit(byte(40+i), false), int64(100+i)); err != nil {
					return err
				}
				if i == 2 {
					break
				}
			}
			keep, err := d.(*decoder).b.Alloc(1 << 13)
			if err != nil {
				return err
			}
			defer d.(*decoder).b.Free(keep)
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
				if err := pic.(video.PlanarFrame).CopyPlanes(make([]byte, info.Bytes())); err != nil {
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
		if !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "LAUNCH_FAILED") {
			t.Fatalf("call %d: %v", n, err)
		}
	}
}

// N1: a library that is not there, and one that is another.
func TestNoLibrary(t *testing.T) {
	for name, says := range map[string]string{"libno-such-video.so.1": "video library is not there", "libc.so.6": "driver too old"} {
		if _, err := loadFrom([]string{name}); !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// one is a piece alone.
func one(m []byte) [][]byte { return [][]byte{m} }
