package video

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// small returns a stream of 48×34 in seven packets. The first, fourth and seventh are key frames.
func small(t testing.TB, codec Codec) (packets [][]byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "packets", "small."+string(codec)))
	if err != nil {
		t.Fatal(err)
	}
	aud := []byte{0, 0, 0, 1, 9}
	if codec == HEVC {
		aud = []byte{0, 0, 0, 1, 70}
	}
	for len(b) > 0 {
		n := bytes.Index(b[1:], aud) + 1
		if n == 0 {
			n = len(b)
		}
		packets = append(packets, b[:n])
		b = b[n:]
	}
	return packets
}

// whole returns the file of a virtual mp4, read in pieces. packets are its frames.
func whole(f *VirtualMP4, packets [][]byte, piece int) ([]byte, error) {
	b := make([]byte, f.Size())
	for at := 0; at < len(b); at += piece {
		if err := f.ReadAt(
			b[at:min(at+piece, len(b))],
			int64(at),
			func(first, last int, yield func(int, []byte) error) error {
				for k := first; k <= last; k++ {
					if err := yield(k, packets[k]); err != nil {
						return err
					}
				}
				return nil
			},
		); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// video.V14: a virtual mp4 is an mp4 whose index lists the packets, the key frames and the size.
// Reads in pieces yield the same file.
func TestFilmIndex(t *testing.T) {
	for _, codec := range []Codec{H264, HEVC} {
		packets := small(t, codec)
		s, err := NewStream(codec, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range packets {
			if n, err := s.Add(p); err != nil || n != i {
				t.Fatal(codec, i, n, err)
			}
		}
		f, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
		if err != nil {
			t.Fatal(err)
		}
		b, err := whole(f, packets, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []int{1, 100, 999} {
			if other, err := whole(f, packets, piece); err != nil || !bytes.Equal(other, b) {
				t.Fatalf("%s: read in pieces of %d it is another file: %v", codec, piece, err)
			}
		}
		ix, err := ReadIndex(t.Context(), &memory{data: b}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		e := ix.Entries()[0]
		if ix.NumFrames() != 7 || e.Codec != codec || e.Width != 48 || e.Height != 34 ||
			len(e.Extradata) < 20 {
			t.Fatalf("%s: %d frames, %+v", codec, ix.NumFrames(), e)
		}
		for k := range 7 {
			if d := ix.Sample(k); d.Sync != (k%3 == 0) || ix.Governing(k) != k/3*3 {
				t.Errorf("%s: frame %d: %+v", codec, k, d)
			}
		}
		if err := f.ReadAt(make([]byte, 2), f.Size()-1, nil); !errors.Is(err,
			robocache.ErrMalformed) {
			t.Error(err)
		}
		packets[2], packets[3] = packets[3], packets[2]
		if _, err := whole(f, packets, 1<<20); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: packets of other lengths: %v", codec, err)
		}
	}
}

// video.V14: a stream is rejected if parameter sets change without repetition, or if the size
// changes. A missing frame is detected.
func TestFilmParameterSets(t *testing.T) {
	packets := small(t, H264)
	add := func(packets ...[]byte) (*Stream, error) {
		s, _ := NewStream(H264, Limits{})
		for _, p := range packets {
			if _, err := s.Add(p); err != nil {
				return s, err
			}
		}
		_, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
		return s, err
	}
	other := bytes.Clone(packets[3])
	at := bytes.Index(other, []byte{0, 0, 1, 0x68}) // the picture parameter set
	other[at+5] ^= 0x20
	if _, err := add(packets[0], other); err != nil {
		t.Error("each key frame has its own:", err)
	}
	bare := packets[3][bytes.Index(packets[3], []byte{0, 0, 1, 0x65}):]
	if _, err := add(packets[0], other, bare); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error("changed, and not repeated:", err)
	}
	if _, err := add(packets[0], bare); err != nil {
		t.Error("never changed:", err)
	}
	if s, err := add(bare, packets[1]); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(s, err)
	} else if early, cut := s.Absent(); early != 2 || cut != 0 {
		t.Error(early, cut)
	}
	if s, err := add(packets[0], packets[2], packets[3]); err != nil {
		t.Error(err)
	} else if _, cut := s.Absent(); cut != 1 {
		t.Error("a frame that is missing was not seen:", cut)
	}
}

// FuzzStream: for arbitrary packets, memory is proportional, errors are typed, and the virtual mp4
// is a complete mp4.
func FuzzStream(f *testing.F) {
	for _, codec := range []Codec{H264, HEVC} {
		seed := []byte{0}
		if codec == HEVC {
			seed = []byte{1}
		}
		for _, p := range small(f, codec) {
			seed = append(binary.LittleEndian.AppendUint16(seed, uint16(len(p))), p...)
		}
		f.Add(seed)
		f.Add(seed[:len(seed)/2])
	}
	for n, codec := range []Codec{AV1, VP9} {
		var seed []byte
		for _, p := range six(f, codec) {
			seed = append(binary.LittleEndian.AppendUint16(seed, uint16(len(p))), p...)
		}
		f.Add(append([]byte{byte(2 + n)}, seed...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<16 {
			return
		}
		codec := []Codec{H264, HEVC, AV1, VP9}[data[0]%4]
		before := allocated()
		s, err := NewStream(codec, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		typed := func(err error) {
			hostile.Typed(t, err)
		}
		var packets [][]byte
		for rest := data[1:]; len(rest) >= 2; {
			n := min(int(binary.LittleEndian.Uint16(rest)), len(rest)-2)
			p := rest[2 : 2+n]
			rest = rest[2+n:]
			k, err := s.Add(p)
			typed(err)
			if k >= 0 {
				if err != nil || k != len(packets) {
					t.Fatalf("frame %d of %d: %v", k, len(packets), err)
				}
				packets = append(packets, p)
			}
		}
		film, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
		typed(err)
		if got, most := allocated()-before, uint64(200*len(data)+512<<10); got > most {
			t.Fatalf("%d bytes allocated for %d", got, len(data))
		}
		if err != nil {
			return
		}
		b, err := whole(film, packets, 512)
		if err != nil {
			t.Fatal(err)
		}
		ix, err := ReadIndex(t.Context(), &memory{data: b}, Limits{})
		if err != nil || ix.NumFrames() != len(packets) {
			t.Fatalf("a film of %d frames: %v", len(packets), err)
		}
	})
}

// TestNoStartCode: the error for a packet that is not in Annex B form shows its first bytes.
func TestNoStartCode(t *testing.T) {
	s, err := NewStream(H264, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var e *robocache.Error
	if _, err := s.Add([]byte{0, 0, 0, 9, 0x65}); !errors.As(err, &e) || e.Got != "00 00 00 09" {
		t.Error(err)
	}
}
