package video

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// six returns six packets of 64×64 as samples of a file. The first and the fourth are key frames.
func six(t testing.TB, codec Codec) (packets [][]byte) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "packets", "small."+string(codec)))
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 2 {
		n := int(binary.LittleEndian.Uint16(b))
		packets, b = append(packets, b[2:2+n]), b[2+n:]
	}
	return packets
}

// video.V14, video.V15: packets of each codec form a virtual mp4, and its samples yield the packets
// again.
func TestElementary(t *testing.T) {
	for _, codec := range []Codec{H264, HEVC, AV1, VP9} {
		var packets [][]byte
		if codec == AV1 || codec == VP9 {
			packets = six(t, codec)
		} else {
			packets = small(t, codec)
		}
		s, err := NewStream(codec, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range packets {
			if n, err := s.Add(p); n != i || err != nil {
				t.Fatal(codec, i, n, err)
			}
		}
		s.SetColour(&Colour{Primaries: 1, Transfer: 13, Matrix: 1, FullRange: true})
		film, err := s.MP4(robocache.Rate{Num: 30, Den: 1})
		if err != nil {
			t.Fatal(codec, err)
		}
		b, err := whole(film, packets, 100)
		if err != nil {
			t.Fatal(codec, err)
		}
		ix, err := ReadIndex(t.Context(), &memory{data: b}, Limits{})
		if err != nil {
			t.Fatal(codec, err)
		}
		e := &ix.Entries()[0]
		w, h := s.Size()
		if ix.NumFrames() != len(packets) || e.Codec != codec || e.Width != w || e.Height != h ||
			e.Matrix != 1 ||
			e.Transfer != 13 ||
			!e.FullRange {
			t.Errorf("%s: %d frames, %+v", codec, ix.NumFrames(), e)
		}
		form, err := NewElementary(e)
		if err != nil {
			t.Fatal(codec, err)
		}
		again, _ := NewStream(codec, Limits{})
		for k := range packets {
			d := ix.Sample(k)
			if d.Sync != (k%3 == 0) {
				t.Errorf("%s: frame %d: %+v", codec, k, d)
			}
			p, err := form.Packet(nil, b[d.Offset:d.Offset+int64(d.Size)], d.Sync)
			if err != nil {
				t.Fatal(codec, err)
			}
			if (codec == AV1 || codec == VP9) && !bytes.Equal(p, packets[k]) {
				t.Errorf("%s: packet %d is another", codec, k)
			}
			if n, err := again.Add(p); n != k || err != nil {
				t.Error(codec, k, n, err)
			}
		}
		if other, err := again.MP4(robocache.Rate{Num: 30, Den: 1}); err != nil ||
			other.Size() != film.Size()-int64(len(film.Head())-len(other.Head())) {
			t.Errorf("%s: the samples grew: %v", codec, err)
		}
	}
}

// video.V15: a key frame without parameter sets gets those of the file, after a delimiter. An OBU
// without a size field gets one.
func TestElementaryHeads(t *testing.T) {
	x, err := NewElementary(
		&SampleEntry{
			Codec:     H264,
			Extradata: []byte{1, 66, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 9, 1, 0, 2, 0x68, 8},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	aud, idr, sps := []byte{
		0,
		0,
		0,
		2,
		9,
		16,
	}, []byte{
		0,
		0,
		0,
		2,
		0x65,
		7,
	}, []byte{
		0,
		0,
		0,
		2,
		0x67,
		9,
	}
	sets := "\x00\x00\x00\x01\x67\x09\x00\x00\x00\x01\x68\x08"
	for name, c := range map[string]struct {
		sample []byte
		key    bool
		want   string
	}{
		"key": {
			append(bytes.Clone(aud), idr...),
			true,
			"\x00\x00\x00\x01\x09\x10" + sets + "\x00\x00\x00\x01\x65\x07",
		},
		"its own": {
			append(bytes.Clone(sps), idr...),
			true,
			"\x00\x00\x00\x01\x67\x09\x00\x00\x00\x01\x65\x07",
		},
		"no key":    {idr, false, "\x00\x00\x00\x01\x65\x07"},
		"key alone": {idr, true, sets + "\x00\x00\x00\x01\x65\x07"},
	} {
		if got, err := x.Packet(nil, c.sample, c.key); err != nil || string(got) != c.want {
			t.Errorf("%s: % x, want % x: %v", name, got, c.want, err)
		}
	}
	if _, err := x.Packet(nil, []byte{0, 0, 0, 9, 1}, false); !errors.Is(err,
		robocache.ErrMalformed) {
		t.Error(err)
	}
	seq := []byte{obuSequence<<3 | 2, 1, 0xaa}
	x, err = NewElementary(
		&SampleEntry{Codec: AV1, Extradata: append([]byte{0x81, 0, 0, 0}, seq...)},
	)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := x.Packet(nil, []byte{obuFrame << 3, 5, 6, 7}, true); err != nil ||
		string(got) != "\x12\x00\x0a\x01\xaa\x32\x03\x05\x06\x07" {
		t.Errorf("% x %v", got, err)
	}
	for codec, c := range map[Codec][]byte{
		H264:  {1, 66, 0, 10, 0xff, 0xe1, 0, 9},
		HEVC:  make([]byte, 22),
		AV1:   {1},
		MPEG4: nil,
	} {
		if _, err := NewElementary(&SampleEntry{Codec: codec, Extradata: c}); err == nil {
			t.Errorf("%s: no error", codec)
		}
	}
}
