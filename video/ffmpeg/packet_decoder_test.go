//go:build cgo

package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/video"
)

// pixels returns the planes of a frame, their description, and conversions of the frame.
func pixels(pic video.Frame) (string, error) {
	var out bytes.Buffer
	for _, spec := range []video.Spec{
		{},
		{Width: 80, Height: 60, Pixel: video.RGBFloat32, ChannelsFirst: true},
		{Pixel: video.YUVPlanes},
	} {
		b, err := video.ConvertTo(nil, pic, &spec)
		if err != nil {
			return "", err
		}
		out.Write(b)
	}
	planar := pic.(video.PlanarFrame)
	info, ok := planar.PlaneInfo()
	if !ok {
		return "", errors.New("the planes cannot be stored")
	}
	planes := make([]byte, info.Bytes())
	if err := planar.CopyPlanes(planes); err != nil {
		return "", err
	}
	fmt.Fprint(&out, info)
	out.Write(planes)
	return out.String(), nil
}

// filmPixels returns the pixels of the packets that have a frame in the virtual mp4 of packets. A
// frame is decoded alone, and is absent if that fails. A nil packet is a loss. ok is false if the
// stream is refused.
func filmPixels(
	t testing.TB,
	codec video.Codec,
	packets [][]byte,
) (frames map[int]string, ok bool) {
	t.Helper()
	s, err := video.NewStream(codec, video.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var of []int
	for i, p := range packets {
		if p == nil {
			s.Lost()
			continue
		}
		n, err := s.Add(p)
		if n >= 0 {
			of = append(of, i)
		} else if err != nil && !errors.Is(err, robocache.ErrMalformed) {
			return nil, false
		}
	}
	frames = map[int]string{}
	if len(of) == 0 {
		return frames, true
	}
	f, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
	if err != nil {
		return nil, false
	}
	b := make([]byte, f.Size())
	each := func(first, last int, yield func(int, []byte) error) error {
		for k := first; k <= last; k++ {
			if err := yield(k, packets[of[k]]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := f.ReadAt(b, 0, each); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	file, pool := acquire(t, path), newPool(t, 0)
	for k, i := range of {
		groups := video.Plan(file.Index, []int{k})
		err := pool.Decode(
			t.Context(),
			file,
			nil,
			groups,
			func(_ int, pic video.Frame) (err error) {
				frames[i], err = pixels(pic)
				return err
			},
		)
		hostile.Typed(t, err)
	}
	return frames, true
}

// decodePackets returns the pixels of the packets for which a PacketDecoder emits a frame, and the
// errors by packet. A nil packet is a loss. If prompt is set, a frame must be emitted by the call
// with its packet.
func decodePackets(
	t testing.TB,
	codec video.Codec,
	packets [][]byte,
	prompt bool,
) (map[int]string, map[int]error) {
	t.Helper()
	d, err := video.NewPacketDecoder(codec, video.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	frames, errs := map[int]string{}, map[int]error{}
	var of []int
	last := -1
	emit := func(number int, pic video.Frame) (err error) {
		if number <= last || prompt && number != len(of)-1 {
			t.Fatalf("the frame of packet %d in call %d, behind %d", number, len(of)-1, last)
		}
		last = number
		frames[of[number]], err = pixels(pic)
		return err
	}
	for i, p := range packets {
		if p == nil {
			d.Lost()
			continue
		}
		of = append(of, i)
		if err := d.Decode(p, emit); err != nil {
			hostile.Typed(t, err)
			errs[i] = err
		}
	}
	hostile.Typed(t, d.Flush(emit))
	return frames, errs
}

// checkEqual compares frames of a PacketDecoder with those of the reader.
func checkEqual(t testing.TB, got, want map[int]string) {
	t.Helper()
	for _, i := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[i]; !ok {
			t.Errorf("packet %d has no frame", i)
		} else if got[i] != want[i] {
			t.Errorf("packet %d has another frame than in a recording", i)
		}
	}
	for i := range got {
		if _, ok := want[i]; !ok {
			t.Errorf("packet %d has a frame, but not in a recording", i)
		}
	}
}

// encodedPackets encodes 48 frames with the ffmpeg program.
func encodedPackets(t *testing.T, codec video.Codec, args string) (packets [][]byte) {
	t.Helper()
	if codec == video.H264 || codec == video.HEVC {
		_, packets = elementary(t, codec, args)
		return packets
	}
	needFFmpeg(t)
	words := strings.Fields(args)
	if !strings.Contains(encoders(), " "+words[1]+" ") {
		t.Skipf("this ffmpeg has no %s", words[1])
	}
	input := strings.Fields(
		"-f lavfi -i testsrc2=size=162x122:rate=30,noise=alls=12:allf=t:all_seed=7 -frames:v 48",
	)
	b := ffmpegCLI(t, slices.Concat(input, words, []string{"-f", "ivf", "-"})...)
	for b = b[32:]; len(b) > 12; {
		n := 12 + binary.LittleEndian.Uint32(b)
		packets, b = append(packets, b[12:n]), b[n:]
	}
	if len(packets) != 48 {
		t.Fatalf("%d packets", len(packets))
	}
	return packets
}

// withoutVUI removes the VUI from the sequence parameter set of a baseline H.264 packet, so that
// the stream does not declare its reorder depth.
func withoutVUI(t testing.TB, packet []byte) []byte {
	t.Helper()
	at := bytes.Index(packet, []byte{0, 0, 1, 0x67}) + 4
	if at < 4 {
		return packet
	}
	end := at + bytes.Index(packet[at:], []byte{0, 0, 1})
	var bits []byte
	for _, b := range bytes.ReplaceAll(packet[at:end], []byte{0, 0, 3}, []byte{0, 0}) {
		for k := range 8 {
			bits = append(bits, b>>(7-k)&1)
		}
	}
	pos := 24
	golomb := func() (v int) {
		zeros := 0
		for ; bits[pos] == 0; pos++ {
			zeros++
		}
		for range zeros + 1 {
			v, pos = v<<1|int(bits[pos]), pos+1
		}
		return v - 1
	}
	golomb()
	golomb()
	if golomb() == 0 { // order count type
		golomb()
	}
	golomb()
	pos++
	golomb()
	golomb()
	pos += 3 // whole frames, direct inference, cropping
	if bits[pos-1] == 1 {
		for range 4 {
			golomb()
		}
	}
	if bits[pos] != 1 {
		t.Fatal("the parameter set has no VUI")
	}
	bits = append(bits[:pos], 0, 1)
	sps := make([]byte, (len(bits)+7)/8)
	for k, b := range bits {
		sps[k/8] |= b << (7 - k%8)
	}
	return slices.Concat(packet[:at], sps, packet[end:])
}

const (
	h264Small = "-c:v libx264 -g 12 -bf 0"
	av1Small  = "-c:v libsvtav1 -preset 12 -g 12 -svtav1-params lp=1"
	vp9Small  = "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 12"
)

// video.V16: each packet has the frame that a recording of the packets gives, from the same call.
func TestPacketDecoder(t *testing.T) {
	for _, c := range []struct {
		name, args string
		codec      video.Codec
	}{
		{"h264", h264Small, video.H264},
		{
			"h264, slices",
			"-c:v libx264 -g 24 -tune zerolatency -x264-params slices=4",
			video.H264,
		},
		{"h264, no VUI", "-c:v libx264 -profile:v baseline -g 12", video.H264},
		{"h264, every frame a key", "-c:v libx264 -g 1", video.H264},
		{
			"hevc",
			"-c:v libx265 -x265-params keyint=12:bframes=0:repeat-headers=1" + x265Quiet,
			video.HEVC,
		},
		{
			"hevc, every frame a key",
			"-c:v libx265 -x265-params keyint=1:repeat-headers=1" + x265Quiet,
			video.HEVC,
		},
		{"av1", av1Small, video.AV1},
		{"vp9", vp9Small, video.VP9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			packets := encodedPackets(t, c.codec, c.args)
			if strings.HasSuffix(c.name, "no VUI") {
				for i, p := range packets {
					packets[i] = withoutVUI(t, p)
				}
			}
			check := func(packets [][]byte, frames int) {
				t.Helper()
				want, ok := filmPixels(t, c.codec, packets)
				if !ok || len(want) < frames {
					t.Fatalf("%d frames in a recording, accepted: %v", len(want), ok)
				}
				got, errs := decodePackets(t, c.codec, packets, true)
				checkEqual(t, got, want)
				if len(errs) > 0 {
					t.Error(errs)
				}
			}
			check(packets, 48)
			cut := slices.Clone(packets)
			for _, i := range []int{0, 1, 2, 20, 21, 37} {
				cut[i] = nil
			}
			check(cut, 1)
			if c.name == "h264" || c.name == "hevc" {
				for i := range packets[1:] {
					packets[i+1] = bare(c.codec, packets[i+1])
				}
				check(packets, 48)
			}
		})
	}
}

// TestPacketDecoderDelayed checks that frames have the numbers of their packets if the stream
// declares a reorder depth that it does not use.
func TestPacketDecoderDelayed(t *testing.T) {
	_, packets := elementary(t, video.H264, "-c:v libx264 -g 2 -bf 1")
	want, ok := filmPixels(t, video.H264, packets)
	if !ok || len(want) != 48 {
		t.Fatalf("%d frames in a recording, accepted: %v", len(want), ok)
	}
	got, errs := decodePackets(t, video.H264, packets, false)
	checkEqual(t, got, want)
	if len(errs) > 0 {
		t.Error(errs)
	}
}

// TestPacketDecoderRefuses checks the errors for B-frames, a change of size, changed parameter sets
// and bytes of another kind. After each, decoding continues at the next key frame.
func TestPacketDecoderRefuses(t *testing.T) {
	_, plain := elementary(t, video.H264, h264Small)
	all, _ := filmPixels(t, video.H264, plain)
	after := func(number int) map[int]string {
		m := maps.Clone(all)
		maps.DeleteFunc(
			m,
			func(i int, _ string) bool { return i >= number && i < (number+11)/12*12 },
		)
		return m
	}

	_, reordered := elementary(t, video.H264, "-c:v libx264 -g 12 -bf 3")
	_, errs := decodePackets(t, video.H264, reordered, false)
	for i, err := range errs {
		if !errors.Is(err, robocache.ErrUnsupported) || !strings.Contains(err.Error(), "B frames") {
			t.Errorf("packet %d: %v", i, err)
		}
	}
	if len(errs) == 0 {
		t.Error("B-frames are accepted")
	}

	path := filepath.Join(t.TempDir(), "large.h264")
	ffmpegCLI(
		t,
		append(strings.Fields("-f lavfi -i testsrc2=size=192x144 -frames:v 24 -bf 0 -g 12"),
			"-bsf:v", "h264_metadata=aud=insert", path)...)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var large [][]byte
	for _, p := range bytes.Split(b, []byte{0, 0, 0, 1, 9})[1:] {
		large = append(large, slices.Concat([]byte{0, 0, 0, 1, 9}, p))
	}
	want, _ := filmPixels(t, video.H264, large)
	got, errs := decodePackets(t, video.H264, slices.Concat(plain[:13], large), true)
	shifted := after(13)
	maps.DeleteFunc(shifted, func(i int, _ string) bool { return i > 12 })
	for i := 12; i < 24; i++ {
		shifted[13+i] = want[i]
	}
	checkEqual(t, got, shifted)
	if len(errs) != 1 || !errors.Is(errs[13], robocache.ErrUnsupported) ||
		!strings.Contains(errs[13].Error(), "162×122 to 192×144") {
		t.Error(errs)
	}

	// parameter sets once, in messages without a frame
	end := bytes.Index(large[0], []byte{0, 0, 1, 0x65})
	once := [][]byte{plain[0], bare(video.H264, plain[12]), large[0][:end]}
	once = append(once, large[0][end:], large[1])
	got, errs = decodePackets(t, video.H264, once, true)
	checkEqual(t, got, map[int]string{0: all[0], 1: all[12], 3: want[0], 4: want[1]})
	if len(errs) != 1 || !errors.Is(errs[2], robocache.ErrUnsupported) {
		t.Error(errs)
	}

	junk := slices.Clone(plain)
	junk[15] = []byte("no packet")
	got, errs = decodePackets(t, video.H264, junk, true)
	checkEqual(t, got, after(15))
	if len(errs) != 1 || !errors.Is(errs[15], robocache.ErrMalformed) {
		t.Error(errs)
	}

	if _, err := video.NewPacketDecoder(video.MJPEG, video.Limits{}); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Error(err)
	}
}

// TestPacketDecoderEmitFails checks that an error of emit is returned unchanged.
func TestPacketDecoderEmitFails(t *testing.T) {
	_, packets := elementary(t, video.H264, h264Small)
	d, err := video.NewPacketDecoder(video.H264, video.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	own := errors.New("own")
	var seen []int
	for i, p := range packets {
		err := d.Decode(p, func(number int, _ video.Frame) error {
			seen = append(seen, number)
			if number == 3 {
				return own
			}
			return nil
		})
		if (err == own) != (i == 3) || i != 3 && err != nil {
			t.Fatal(i, err)
		}
	}
	if want := slices.Concat(upToFrom(0, 4), upToFrom(12, 48)); !slices.Equal(seen, want) {
		t.Error(seen)
	}
}

// upToFrom returns the numbers from ≤ i < to.
func upToFrom(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// damagePackets returns packets of which some are changed, cut or lost, as r determines. intact
// reports whether a packet and those before it in its group of 12 are unchanged.
func damagePackets(r *rand.Rand, packets [][]byte) (out [][]byte, intact []bool) {
	out, intact = slices.Clone(packets), make([]bool, len(packets))
	for range 1 + r.IntN(4) {
		i := r.IntN(len(out))
		if len(out[i]) == 0 {
			continue
		}
		out[i] = bytes.Clone(out[i])
		switch r.IntN(5) {
		case 0:
			out[i] = out[i][:r.IntN(len(out[i]))]
		case 1:
			out[i] = nil
		default:
			for range 1 + r.IntN(8) {
				out[i][r.IntN(len(out[i]))] ^= 1 << r.IntN(8)
			}
		}
	}
	for i := range out {
		intact[i] = bytes.Equal(out[i], packets[i]) && (i%12 == 0 || intact[i-1])
	}
	return out, intact
}

// video.V16: with damaged packets, errors are typed, and the same packets have a frame as in a
// recording, except after an error. Pixels of damaged frames are not compared: where libavcodec
// decodes nothing, they are those of an earlier frame in the same memory, also in a recording.
func TestPacketDecoderDamage(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 15
	}
	for codec, args := range map[video.Codec]string{
		video.H264: h264Small,
		video.HEVC: "-c:v libx265 -x265-params keyint=12:min-keyint=12:scenecut=0:bframes=0:" +
			"repeat-headers=1" + x265Quiet,
		video.AV1: av1Small,
		video.VP9: vp9Small,
	} {
		t.Run(string(codec), func(t *testing.T) {
			packets := encodedPackets(t, codec, args)[:24]
			r := rand.New(rand.NewPCG(5, 6))
			failed, refused := 0, 0
			for round := range rounds {
				broken, intact := damagePackets(r, packets)
				got, errs := decodePackets(t, codec, broken, false)
				failed += len(errs)
				want, ok := filmPixels(t, codec, broken)
				if !ok {
					refused++
					continue
				}
				stopped := false // by an error, until the next key frame
				for i, ok := range intact {
					stopped = errs[i] != nil || stopped && i%12 != 0
					if _, has := got[i]; !has && stopped {
						delete(want, i)
					}
					if _, has := want[i]; !ok && has && got[i] != "" {
						got[i] = want[i]
					}
				}
				if checkEqual(t, got, want); t.Failed() {
					t.Fatalf("round %d: %v", round, errs)
				}
			}
			t.Logf("%d errors in %d rounds, %d recordings refused", failed, rounds, refused)
			// packets of VP9 have no checks
			if failed == 0 && codec != video.VP9 && !testing.Short() {
				t.Error("no packet was damaged")
			}
		})
	}
}

// FuzzPacketDecoder: arbitrary packets give typed errors, ascending numbers and bounded memory.
func FuzzPacketDecoder(f *testing.F) {
	codecs := []video.Codec{video.H264, video.HEVC, video.AV1, video.VP9}
	for i, codec := range codecs {
		b, err := os.ReadFile(
			filepath.Join("..", "testdata", "packets", "small."+string(codec)),
		)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte{byte(i)}, b...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<16 {
			return
		}
		codec := codecs[data[0]%4]
		var packets [][]byte
		for rest := data[1:]; len(rest) > 2; {
			n := len(rest) // Annex B packets are split at their delimiters
			if codec == video.AV1 || codec == video.VP9 {
				n = min(2+int(binary.LittleEndian.Uint16(rest)), n)
				packets, rest = append(packets, rest[2:n]), rest[n:]
				continue
			}
			if i := bytes.Index(rest[1:], []byte{0, 0, 0, 1, rest[min(4, n-1)]}); i >= 0 {
				n = i + 1
			}
			packets, rest = append(packets, rest[:n]), rest[n:]
		}
		d, err := video.NewPacketDecoder(codec, video.Limits{MaxPixels: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		last := -1
		emit := func(number int, pic video.Frame) error {
			if number <= last || number >= len(packets) {
				t.Fatalf("packet %d behind %d", number, last)
			}
			last = number
			return nil
		}
		for _, p := range packets {
			hostile.Typed(t, d.Decode(p, emit))
		}
		hostile.Typed(t, d.Flush(emit))
		if n := d.MemoryBytes(); n > 512<<20 {
			t.Fatalf("%d bytes", n)
		}
	})
}

// TestPacketDecoderAllocations checks that packets allocate nothing after the first group.
func TestPacketDecoderAllocations(t *testing.T) {
	for codec, args := range map[video.Codec]string{
		video.H264: h264Small,
		video.AV1:  av1Small,
		video.VP9:  vp9Small,
	} {
		packets := encodedPackets(t, codec, args)
		d, err := video.NewPacketDecoder(codec, video.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		emit := func(int, video.Frame) error { return nil }
		n := testing.AllocsPerRun(5, func() {
			for _, p := range packets {
				if err := d.Decode(p, emit); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n > 0 {
			t.Errorf("%s: %.0f allocations for 48 packets with 4 key frames", codec, n)
		}
	}
}

// BenchmarkPacketDecoder measures the time from a packet to its RGB frame of 640×480.
func BenchmarkPacketDecoder(b *testing.B) {
	needFFmpeg(b)
	path := filepath.Join(b.TempDir(), "a.h264")
	ffmpegCLI(b, append(strings.Fields("-f lavfi -i testsrc2=size=640x480:rate=30 -frames:v 90 "+
		"-c:v libx264 -tune zerolatency -g 30 -bsf:v h264_metadata=aud=insert"), path)...)
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	aud := []byte{0, 0, 0, 1, 9}
	packets := bytes.Split(data, aud)[1:]
	for i, p := range packets {
		packets[i] = slices.Concat(aud, p)
	}
	d, err := video.NewPacketDecoder(video.H264, video.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	rgb := make([]byte, 3*640*480)
	spec := &video.Spec{}
	emit := func(_ int, pic video.Frame) error { return pic.Convert(spec, rgb) }
	var times []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		if err := d.Decode(packets[i%len(packets)], emit); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}
