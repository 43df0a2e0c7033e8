package video

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

func mustIndex(t testing.TB, f *fake) *Index {
	t.Helper()
	ix, err := ReadIndex(t.Context(), &memory{data: f.bytes()}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

// constant returns n samples of a constant rate, with a sync sample every gop samples.
func constant(n, gop int) []fakeSample {
	s := make([]fakeSample, n)
	for i := range s {
		s[i] = fakeSample{size: uint32(5 + i%7), delta: 512, sync: i%gop == 0}
	}
	return s
}

// openGOP returns the samples that x265 writes with g=2: pts 0(K) 1024(K) 512 2048(K) 1536 …
func openGOP(n int) []fakeSample {
	s := make([]fakeSample, n)
	for d := range s {
		pts := 512 * d
		switch {
		case d == 0:
		case d%2 == 1:
			pts = 512 * (d + 1)
		default:
			pts = 512 * (d - 1)
		}
		s[d] = fakeSample{
			size:  uint32(8 + d%5),
			delta: 512,
			shift: int32(pts - 512*d),
			sync:  d == 0 || d%2 == 1,
		}
	}
	return s
}

// TestEveryFormOfTable writes the same samples in every form of the standard, and reads equal
// indexes (video.V1).
func TestEveryFormOfTable(t *testing.T) {
	base := fake{samples: openGOP(21), cttsV1: true}
	want := mustIndex(t, &base)
	for name, f := range map[string]fake{
		"co64":                {co64: true},
		"stz2 of 4 bits":      {stz2: 4},
		"stz2 of 8 bits":      {stz2: 8},
		"stz2 of 16 bits":     {stz2: 16},
		"moov last":           {moovLast: true},
		"64-bit times":        {lengths64: true},
		"negative in ctts v0": {},
		"one chunk":           {perChunk: 100},
		"a chunk each":        {perChunk: 1},
		"edit of everything":  {edits: []fakeEdit{{duration: 21 * 512}}},
		"edit v1":             {edits: []fakeEdit{{duration: 21 * 512}}, elstV1: true},
		"edit without length": {edits: []fakeEdit{{}}},
		"audio track before": {
			extra: func(b []byte) []byte { return append(b, otherTrack("soun")...) },
		},
	} {
		f.samples, f.cttsV1 = base.samples, name != "negative in ctts v0"
		got := mustIndex(t, &f)
		if got.NumFrames() != 21 {
			t.Errorf("%s: %d frames", name, got.NumFrames())
			continue
		}
		shift := got.Sample(0).Offset - want.Sample(0).Offset
		for k := range 21 {
			a, b := want.Sample(want.DecodeIndex(k)), got.Sample(got.DecodeIndex(k))
			b.Offset -= shift
			if a != b || got.PTS(k) != want.PTS(k) || got.Governing(k) != want.Governing(k) {
				t.Errorf("%s: ordinal %d: %+v, want %+v", name, k, b, a)
			}
		}
	}
}

// otherTrack returns a track that is not video, with misleading tables.
func otherTrack(handler string) []byte {
	f := fake{samples: constant(3, 1)}
	moov := f.moov(0)
	at := slices.Index(moov[8:], 't') // the trak follows the mvhd
	for ; string(moov[at:at+4]) != "trak"; at++ {
	}
	trak := slices.Clone(moov[at-4:])
	return []byte(strings.Replace(string(trak), "vide", handler, 1))
}

func TestFixedSizeAndAllSync(t *testing.T) {
	ix := mustIndex(t, &fake{samples: constant(10, 1), fixed: 9, noStss: true})
	for k := range 10 {
		if s := ix.Sample(k); s.Size != 9 || !s.Sync || ix.Governing(k) != k ||
			ix.PTS(k) != int64(512*k) {
			t.Errorf("ordinal %d: %+v", k, s)
		}
	}
}

func TestGoverningInOpenGOP(t *testing.T) {
	ix := mustIndex(t, &fake{samples: openGOP(9), cttsV1: true})
	var got []int
	for k := range ix.NumFrames() {
		got = append(got, ix.Governing(k))
	}
	// Frame 1 is stored after the sync sample of frame 2, and also depends on frame 0.
	if want := []int{0, 0, 1, 1, 3, 3, 5, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("governing %v, want %v", got, want)
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      fake
		first  int // decode index of ordinal 0
		frames int
		pts    []int64
	}{
		{
			"cut at the start",
			fake{samples: constant(10, 5), edits: []fakeEdit{{duration: 7 * 512, media: 3 * 512}}},
			3,
			7,
			[]int64{0, 512},
		},
		{
			"cut at the end",
			fake{samples: constant(10, 5), edits: []fakeEdit{{duration: 4 * 512, media: 0}}},
			0,
			4,
			[]int64{0, 512},
		},
		{
			"cut at both",
			fake{samples: constant(10, 5), edits: []fakeEdit{{duration: 4 * 512, media: 1024}}},
			2,
			4,
			[]int64{0, 512},
		},
		{
			"delay",
			fake{
				samples: constant(4, 5),
				edits:   []fakeEdit{{duration: 1024, media: -1}, {duration: 2048, media: 0}},
			},
			0,
			4,
			[]int64{1024, 1536},
		},
		{
			"delay alone",
			fake{samples: constant(4, 5), edits: []fakeEdit{{duration: 1024, media: -1}}},
			0,
			4,
			[]int64{1024},
		},
		{
			"two that follow",
			fake{
				samples: constant(8, 4),
				edits:   []fakeEdit{{duration: 1024, media: 0}, {duration: 1024, media: 2048}},
			},
			0,
			4,
			[]int64{0, 512, 1024, 1536},
		},
		{
			"two in other order",
			fake{
				samples: constant(8, 4),
				edits:   []fakeEdit{{duration: 1024, media: 2048}, {duration: 1024, media: 0}},
			},
			4,
			4,
			[]int64{0, 512, 1024, 1536},
		},
		{
			"two that follow, lengths rounded up",
			fake{
				samples:    constant(8, 4),
				movieScale: 100,
				edits:      []fakeEdit{{duration: 7, media: 0}, {duration: 7, media: 1024}},
			},
			0,
			5,
			[]int64{0, 512, 1075, 1587},
		},
		{
			"length in milliseconds, rounded down",
			fake{
				samples:    constant(10, 5),
				movieScale: 1000,
				edits:      []fakeEdit{{duration: 333, media: 0}},
			},
			0,
			10,
			nil,
		},
	} {
		ix := mustIndex(t, &c.f)
		if ix.NumFrames() != c.frames || ix.DecodeIndex(0) != c.first {
			t.Errorf(
				"%s: %d frames from sample %d, want %d from %d",
				c.name,
				ix.NumFrames(),
				ix.DecodeIndex(0),
				c.frames,
				c.first,
			)
		}
		for k, p := range c.pts {
			if ix.PTS(k) != p {
				t.Errorf("%s: pts of %d is %d, want %d", c.name, k, ix.PTS(k), p)
			}
		}
		if ix.NumSamples() != len(c.f.samples) {
			t.Errorf("%s: %d samples", c.name, ix.NumSamples())
		}
	}
}

func TestSampleEntries(t *testing.T) {
	colr := rawBox("colr", append([]byte("nclx"), 0, 1, 0, 1, 0, 1, 0x80)...)
	two := fake{samples: constant(6, 3), entries: [][]byte{
		entryBox("avc1", 64, 48, rawBox("avcC", 1, 2, 3), rawBox("btrt", make([]byte, 12)...)),
		entryBox("hev1", 32, 16, rawBox("hvcC", 9, 9), colr),
	}}
	for i := 3; i < 6; i++ {
		two.samples[i].entry = 1
	}
	ix := mustIndex(t, &two)
	want := []SampleEntry{
		{
			FourCC:    "avc1",
			Codec:     H264,
			Width:     64,
			Height:    48,
			Extradata: []byte{1, 2, 3},
			Primaries: 2,
			Transfer:  2,
			Matrix:    2,
		},
		{
			FourCC:    "hev1",
			Codec:     HEVC,
			Width:     32,
			Height:    16,
			Extradata: []byte{9, 9},
			Primaries: 1,
			Transfer:  1,
			Matrix:    1,
			FullRange: true,
		},
	}
	if !reflect.DeepEqual(ix.Entries(), want) {
		t.Errorf("%+v", ix.Entries())
	}
	if ix.Sample(2).Entry != 0 || ix.Sample(3).Entry != 1 {
		t.Error("the entry does not change at sample 3")
	}
	// esds: long and short lengths, optional fields; the extradata is only the DecoderSpecificInfo.
	esds := []byte{
		0,
		0,
		0,
		0,
		3,
		0x80,
		0x80,
		0x80,
		29,
		0,
		1,
		0xe0,
		0,
		0,
		2,
		'a',
		'b',
		0,
		0,
		4,
		17,
		0x20,
		0x11,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		0,
		5,
		2,
		7,
		8,
	}
	ix = mustIndex(
		t,
		&fake{
			samples: constant(2, 1),
			entries: [][]byte{entryBox("mp4v", 8, 8, rawBox("esds", esds...))},
		},
	)
	if e := ix.Entries()[0]; e.Codec != MPEG4 || !slices.Equal(e.Extradata, []byte{7, 8}) {
		t.Errorf("esds: %+v", e)
	}
	ix = mustIndex(t, &fake{samples: constant(2, 1), entries: [][]byte{entryBox("zzzz", 8, 8)}})
	if e := ix.Entries()[0]; e.Codec != "" || e.FourCC != "zzzz" {
		t.Errorf("unknown: %+v", e)
	}
}

func TestRotation(t *testing.T) {
	for _, degrees := range []int{0, 90, 180, 270} {
		e := &SampleEntry{Width: 64, Height: 48, Rotation: degrees}
		ix := mustIndex(t, &fake{samples: constant(2, 1), matrix: rotationMatrix(e)})
		if got := ix.Entries()[0].Rotation; got != degrees {
			t.Errorf("rotation %d, want %d", got, degrees)
		}
	}
}

// TestRefusals: each error has a class, a box and an offset, and no file yields a shorter list
// (video.V2, video.V6).
func TestRefusals(t *testing.T) {
	lfs := []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
	good := (&fake{samples: constant(10, 5)}).bytes()
	patch := func(kind string, at int, v uint32) []byte {
		b := slices.Clone(good)
		i := strings.Index(string(b), kind)
		be.PutUint32(b[i+4+at:], v)
		return b
	}
	fragment := slices.Concat(
		rawBox("ftyp", []byte("isom")...),
		(&fake{extra: func(b []byte) []byte { return append(b, rawBox("mvex")...) }}).moov(0),
		rawBox("moof"),
	)
	for _, c := range []struct {
		name  string
		data  []byte
		class error
		text  string
	}{
		{"empty", nil, robocache.ErrMalformed, "empty"},
		{"LFS pointer", lfs, robocache.ErrMalformed, "LFS pointer"},
		{"text", []byte("hello world, this is no video"), robocache.ErrMalformed, "no mp4"},
		{"media cut", good[:len(good)-10], robocache.ErrMalformed, "ends after the file"},
		{
			"no moov",
			slices.Concat(rawBox("ftyp", []byte("isom")...), rawBox("mdat", 1, 2, 3)),
			robocache.ErrMalformed,
			"no moov",
		},
		{
			"mdat beyond the end",
			slices.Concat(
				rawBox("ftyp", []byte("isom")...),
				[]byte{0, 1, 0, 0, 'm', 'd', 'a', 't'},
			),
			robocache.ErrMalformed,
			"the file is truncated",
		},
		{"fragmented", fragment, robocache.ErrUnsupported, "fragment"},
		{
			"fragment first",
			slices.Concat(rawBox("ftyp", []byte("isom")...), rawBox("moof")),
			robocache.ErrUnsupported,
			"fragment",
		},
		{"2^32-1 sizes", patch("stsz", 8, 1<<32-1), robocache.ErrMalformed, "declared"},
		{"2^32-1 fixed sizes", patch("stsz", 4, 1<<32-1), robocache.ErrMalformed, "do not fit"},
		{"stts of too many", patch("stts", 8, 11), robocache.ErrMalformed, "more times"},
		{"stts of too few", patch("stts", 8, 9), robocache.ErrMalformed, "times for 9 samples"},
		{"stts back", patch("stts", 12, 1<<32-5), robocache.ErrMalformed, "goes back"},
		{"sync beyond", patch("stss", 12, 11), robocache.ErrMalformed, "sample 11 of 10"},
		{"sync twice", patch("stss", 12, 1), robocache.ErrMalformed, "sample 1 of 10"},
		{"chunk beyond", patch("stco", 8, 1<<31), robocache.ErrMalformed, "ends after the file"},
		{"sample of no bytes", patch("stsz", 12, 0), robocache.ErrMalformed, "no bytes"},
		{
			"entry that is not there",
			patch("stsc", 16, 2),
			robocache.ErrMalformed,
			"sample entry 2 of 1",
		},
		{"timescale 0", patch("mdhd", 12, 0), robocache.ErrMalformed, "timescale"},
		{
			"no video",
			[]byte(strings.Replace(string(good), "vide", "soun", 1)),
			robocache.ErrMalformed,
			"no video track",
		},
		{
			"mirrored",
			(&fake{
				samples: constant(2, 1),
				matrix:  []uint32{0xffff0000, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30},
			}).bytes(),
			robocache.ErrUnsupported,
			"display matrix",
		},
		{
			"repeating edits",
			(&fake{
				samples: constant(8, 4),
				edits:   []fakeEdit{{duration: 2048}, {duration: 2048, media: 1024}},
			}).bytes(),
			robocache.ErrUnsupported,
			"twice",
		},
		{
			"slow motion",
			(&fake{
				samples: constant(8, 4),
				edits:   []fakeEdit{{duration: 4096, rate: 1 << 15}},
			}).bytes(),
			robocache.ErrUnsupported,
			"rate 0.5",
		},
	} {
		ix, err := ReadIndex(t.Context(), &memory{data: c.data}, Limits{})
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (index %v)", c.name, err, ix != nil)
		}
	}
	big := (&fake{samples: constant(40, 5)}).bytes()
	for _, lim := range []Limits{
		{MaxSamples: 39},
		{MaxMoov: 100},
		{MaxPixels: 64*48 - 1},
		{MaxExtradata: 3},
	} {
		if _, err := ReadIndex(t.Context(), &memory{data: big}, lim); !errors.Is(err,
			robocache.ErrResourceLimit) {
			t.Errorf("%+v: %v", lim, err)
		}
	}
}

// TestTruncated: the complete part of a truncated file can be read, and ordinals keep their meaning
// (video.V6).
func TestTruncated(t *testing.T) {
	f := &fake{samples: openGOP(9), cttsV1: true}
	data := f.bytes()
	whole := mustIndex(t, f)
	for cut := len(data); ; cut-- {
		ix, err := ReadIndex(t.Context(), &memory{data: data[:cut]}, Limits{AllowTruncated: true})
		if err != nil {
			if !errors.Is(err, robocache.ErrMalformed) {
				t.Errorf("cut at %d: %v", cut, err)
			}
			break // the moov itself is truncated
		}
		for k := range ix.NumFrames() {
			if ix.DecodeIndex(k) != whole.DecodeIndex(k) || ix.PTS(k) != whole.PTS(k) {
				t.Fatalf("cut at %d: ordinal %d moved", cut, k)
			}
			s := ix.Sample(ix.DecodeIndex(k))
			if k < ix.Whole() && s.Offset+int64(s.Size) > int64(cut) {
				t.Fatalf("cut at %d: frame %d is not whole", cut, k)
			}
		}
		if cut == len(data) && ix.Whole() != 9 || cut < len(data) && ix.Whole() >= 9 {
			t.Fatalf("cut at %d: %d whole frames", cut, ix.Whole())
		}
	}
}

// TestNoPanicAnywhere truncates a small file at every offset, and sets each byte of its header to
// other values (bad-input.md, section 7).
func TestNoPanicAnywhere(t *testing.T) {
	f := &fake{samples: openGOP(7), cttsV1: true, edits: []fakeEdit{{duration: 7 * 512}}}
	for _, f.moovLast = range []bool{false, true} {
		data := f.bytes()
		for cut := range len(data) {
			if ix, err := ReadIndex(t.Context(), &memory{data: data[:cut]}, Limits{}); err == nil {
				t.Errorf("cut at %d of %d: %d frames and no error", cut, len(data), ix.NumFrames())
			}
		}
		for at := range data {
			for _, v := range []byte{0, 255, data[at] + 1, data[at] - 1, data[at] ^ 0x80} {
				b := slices.Clone(data)
				b[at] = v
				ix, err := ReadIndex(t.Context(), &memory{data: b}, Limits{})
				if err == nil {
					exercise(t, ix, int64(len(b)))
				}
			}
		}
	}
}

// exercise calls every method of an index, and checks that samples are inside the file.
func exercise(t testing.TB, ix *Index, size int64) {
	t.Helper()
	all := make([]int, 0, ix.NumFrames())
	for k := range min(ix.NumFrames(), 2000) {
		d := ix.DecodeIndex(k)
		s := ix.Sample(d)
		if s.Offset < 0 || s.Size <= 0 || s.Offset+int64(s.Size) > size {
			t.Fatalf("sample %d: %+v in a file of %d", d, s, size)
		}
		if g := ix.Governing(k); g > d || g < 0 {
			t.Fatalf("ordinal %d: governing %d after %d", k, g, d)
		}
		ix.TimeNS(k)
		all = append(all, k)
	}
	Plan(ix, all)
	ix.MemoryBytes()
}

// TestMemory checks the memory of video.V3 for table shapes of real files.
func TestMemory(t *testing.T) {
	vfr := constant(3000, 30)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range vfr {
		vfr[i].delta = 400 + r.Uint32N(200)
	}
	for name, c := range map[string]struct {
		s    []fakeSample
		most float64
	}{
		"constant rate": {constant(3000, 2), 10.3},
		"open GOP":      {openGOP(3001), 16.3},
		"variable rate": {vfr, 12.5},
	} {
		ix := mustIndex(t, &fake{samples: c.s, cttsV1: true})
		if per := float64(ix.MemoryBytes()-1000) / float64(ix.NumSamples()); per > c.most {
			t.Errorf("%s: %.1f bytes a sample, want at most %.1f", name, per, c.most)
		}
	}
}

func FuzzReadIndex(f *testing.F) {
	for _, s := range []fake{
		{samples: openGOP(5), cttsV1: true},
		{
			samples:  constant(6, 2),
			co64:     true,
			edits:    []fakeEdit{{duration: 512, media: -1}, {duration: 1024, media: 512}},
			moovLast: true,
		},
		{samples: constant(4, 1), stz2: 4, noStss: true, lengths64: true},
		{samples: constant(4, 1), fixed: 3, perChunk: 9},
	} {
		f.Add(s.bytes())
	}
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		for _, lim := range []Limits{{}, {AllowTruncated: true}} {
			before := allocated()
			ix, err := ReadIndex(t.Context(), &memory{data: data}, lim)
			if got, most := allocated()-before, uint64(200*len(data)+256<<10); got > most {
				t.Fatalf("%d bytes allocated for a file of %d", got, len(data))
			}
			hostile.Typed(t, err)
			if err == nil && !lim.AllowTruncated {
				exercise(t, ix, int64(len(data)))
			}
		}
	})
}
