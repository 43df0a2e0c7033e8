package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/loader"
)

// box finds a box by its path and returns the offsets of its first payload byte and of its end.
// Each step selects the first box with that name.
func box(t testing.TB, data []byte, path string) (from, to int) {
	t.Helper()
	from, to = 0, len(data)
	for name := range strings.SplitSeq(path, "/") {
		at, found := from, false
		for at+8 <= to {
			size := int(binary.BigEndian.Uint32(data[at:]))
			if size < 8 || at+size > to {
				break
			}
			if string(data[at+4:at+8]) == name {
				from, to, found = at+8, at+size, true
				break
			}
			at += size
		}
		if !found {
			t.Fatalf("no box %s in %s", name, path)
		}
	}
	return from, to
}

const stbl = "moov/trak/mdia/minf/stbl/"

// e2e.C3: mp4 tables with absurd values give a typed error that names the file and the box, or only
// right frames. Memory stays small.
func TestBadBoxes(t *testing.T) {
	decoders(t)
	base := load(t, small)
	cfg := loader.Config{
		Order:   loader.Order{Episodes: []int{0, 33, 65}},
		Windows: loader.Windows{Keys: []string{camera}},
		Runtime: loader.Runtime{Deadline: 15},
	}
	truth, _, err := digest(t.Context(), open(t, base.mem(t)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	mal := robocache.ErrMalformed
	u32 := func(path string, at int, v uint32) func(t *testing.T, b []byte) []byte {
		return func(t *testing.T, b []byte) []byte {
			from, to := box(t, b, path)
			if from+at+4 > to {
				t.Fatal("outside the box")
			}
			binary.BigEndian.PutUint32(b[from+at:], v)
			return b
		}
	}
	size := func(path string, v uint32) func(t *testing.T, b []byte) []byte {
		return u32WithHead(path, v)
	}
	for _, c := range []struct {
		name  string
		alter func(t *testing.T, b []byte) []byte
		outcome
	}{
		{"stsz count 2^32-1", u32(stbl+"stsz", 8, 1<<32-1), outcome{mal, "stsz", ""}},
		{"stsz fixed size, count 2^32-1", func(t *testing.T, b []byte) []byte {
			return u32(stbl+"stsz", 8, 1<<32-1)(t, u32(stbl+"stsz", 4, 1)(t, b))
		}, outcome{nil, "", "any"}},
		{"stsz first size 2^31", u32(stbl+"stsz", 12, 1<<31), outcome{mal, "", ""}},
		{"stsz size 0", u32(stbl+"stsz", 12, 0), outcome{nil, "", "any"}},
		{"stco offset beyond", u32(stbl+"stco", 8, 1<<32-1), outcome{mal, "stco", ""}},
		{"stco count 2^32-1", u32(stbl+"stco", 4, 1<<32-1), outcome{mal, "stco", ""}},
		{"stco count 0", u32(stbl+"stco", 4, 0), outcome{mal, "", ""}},
		{"stsc count 2^32-1", u32(stbl+"stsc", 4, 1<<32-1), outcome{mal, "stsc", ""}},
		{"stsc samples a chunk 2^32-1", u32(stbl+"stsc", 12, 1<<32-1), outcome{nil, "", "any"}},
		{"stsc chunk 0", u32(stbl+"stsc", 8, 0), outcome{mal, "stsc", ""}},
		{"stsc description 9", u32(stbl+"stsc", 16, 9), outcome{mal, "stsc", ""}},
		{"stts count 2^32-1", u32(stbl+"stts", 4, 1<<32-1), outcome{mal, "stts", ""}},
		{"stts samples 2^32-1", u32(stbl+"stts", 8, 1<<32-1), outcome{mal, "stts", ""}},
		{"stss count 2^32-1", u32(stbl+"stss", 4, 1<<32-1), outcome{mal, "stss", ""}},
		{"stss sample 2^32-1", u32(stbl+"stss", 8, 1<<32-1), outcome{mal, "stss", ""}},
		{"stss sample 0", u32(stbl+"stss", 8, 0), outcome{mal, "stss", ""}},
		{"stsd count 0", u32(stbl+"stsd", 4, 0), outcome{mal, "stsd", ""}},
		{"stsd count 2^32-1", u32(stbl+"stsd", 4, 1<<32-1), outcome{mal, "stsd", ""}},
		{"timescale 0", u32("moov/trak/mdia/mdhd", 12, 0), outcome{mal, "mdhd", ""}},
		{"no video", func(t *testing.T, b []byte) []byte {
			from, _ := box(t, b, "moov/trak/mdia/hdlr")
			copy(b[from+8:], "soun")
			return b
		}, outcome{nil, "", "any"}},
		{"moov of 4 GiB", size("moov", 1<<32-1), outcome{mal, "", ""}},
		{"moov of 0", size("moov", 0), outcome{nil, "", "any"}},
		{"moov of 7", size("moov", 7), outcome{mal, "", ""}},
		{"trak longer than moov", size("moov/trak", 1<<30), outcome{mal, "", ""}},
		{"64-bit size 2^60", func(t *testing.T, b []byte) []byte {
			head := []byte("\x00\x00\x00\x01free\x10\x00\x00\x00\x00\x00\x00\x00")
			return append(head, b...)
		}, outcome{mal, "", ""}},
		{"64-bit size 2^64-1", func(t *testing.T, b []byte) []byte {
			return append([]byte("\x00\x00\x00\x01free\xff\xff\xff\xff\xff\xff\xff\xff"), b...)
		}, outcome{mal, "", ""}},
		{"10^5 empty boxes before", func(t *testing.T, b []byte) []byte {
			return append(bytes.Repeat([]byte("\x00\x00\x00\x08free"), 100_000), b...)
		}, outcome{nil, "", "any"}},
		{"boxes nested 10^5 deep", func(t *testing.T, b []byte) []byte {
			var nest []byte
			const n = 100_000
			for i := range n {
				nest = binary.BigEndian.AppendUint32(nest, uint32(8*(n-i)))
				nest = append(nest, "moov"...)
			}
			return nest
		}, outcome{nil, "", "any"}},
		{"width 65535 x 65535", func(t *testing.T, b []byte) []byte {
			from, _ := box(t, b, stbl+"stsd")
			// width and height of the first sample entry
			binary.BigEndian.PutUint32(b[from+8+8+24:], 1<<32-1)
			return b
		}, outcome{nil, "", "any"}},
		{"codec of no one", func(t *testing.T, b []byte) []byte {
			from, _ := box(t, b, stbl+"stsd")
			copy(b[from+8+4:], "xyzw")
			return b
		}, outcome{robocache.ErrUnsupported, "xyzw", ""}},
		{"samples of noise", func(t *testing.T, b []byte) []byte {
			from, to := box(t, b, "mdat")
			for i := from; i < to; i++ {
				b[i] = byte(i*i>>3 + i)
			}
			return b
		}, outcome{mal, "frame |episode", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.alter(t, bytes.Clone(base[mp4]))
			uri := base.with(mp4, b).mem(t)
			var err error
			sum := ""
			bounded(t, 128<<20, func() {
				var ds robocache.Dataset
				if ds, err = robocache.Open(t.Context(), uri, robocache.OpenOptions{}); err != nil {
					return
				}
				defer ds.Close()
				if err = readEpisodes(t.Context(), ds, 0, 65); err == nil {
					sum, _, err = digest(t.Context(), ds, cfg)
				}
			})
			sound(t, err)
			switch {
			case c.codes == "any":
				if err == nil && sum != truth {
					t.Error("other frames without an error")
				}
			case err == nil:
				t.Error("no error")
			default:
				want(t, err, c.class, append(strings.Split(c.words, "|"), mp4)...)
			}
		})
	}
}

func u32WithHead(path string, v uint32) func(t *testing.T, b []byte) []byte {
	return func(t *testing.T, b []byte) []byte {
		from, _ := box(t, b, path)
		binary.BigEndian.PutUint32(b[from-8:], v)
		return b
	}
}

// e2e.C3: if the video of an episode has fewer frames than rows, the episode fails at its first
// row, or is skipped and counted. The same holds here for a video with more frames: its timestamps
// begin one frame after 0, so a lookup by time would give each row its neighbor's frame. No wrong
// frame is delivered.
func TestVideoOfAnotherLength(t *testing.T) {
	decoders(t)
	base := load(t, "gr00t_picknplace_v20")
	const dir, key = "videos/chunk-000/observation.images.ego_view/episode_", "observation.images.ego_view"
	// Episode 3 has 412 rows and episode 4 has 328. Each gets the other's file.
	tr := base.with(dir+"000003.mp4", base[dir+"000004.mp4"]).
		with(dir+"000004.mp4", base[dir+"000003.mp4"])
	ds := open(t, tr.mem(t))
	rows := func(e int, k ...int) (out []robocache.Row) {
		for _, i := range k {
			out = append(out, robocache.Row{Episode: e, Index: i})
		}
		return out
	}
	for e, words := range map[int][]string{
		3: {"episode 3", "328 frames for 412 rows"},
		4: {"episode 4", "412 frames for 328 rows", "one frame after 0"},
	} {
		for _, k := range []int{0, 1, ds.Len(e) - 1} {
			want(
				t,
				ds.Frames(t.Context(), key, rows(e, k), make([]robocache.FrameRef, 1)),
				robocache.ErrMalformed,
				append(words, key)...)
		}
	}
	if n := codes(ds)["frame-count"]; n != 2 {
		t.Errorf("%d findings, %v", n, codes(ds))
	}
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 64, Episodes: []int{2, 3, 4}},
		Windows: loader.Windows{Keys: []string{key, "index"}},
	}
	_, _, err := digest(t.Context(), ds, cfg)
	want(t, err, robocache.ErrMalformed, "episode 3", key)
	l := listed(t, ds, cfg, 2)
	if len(l.bad) != 2 || l.bad[0].Episode != 3 || l.bad[1].Episode != 4 {
		t.Errorf("skipped: %+v", l.bad)
	}
	if l.of[2] != ds.Len(2) || l.of[3] != 0 || l.of[4] != 0 {
		t.Errorf("samples of each episode: %v", l.of)
	}
}

// tally is the result of an epoch with on_bad_episode=skip.
type tally struct {
	of  map[int]int // episode → number of samples
	bad []loader.BadEpisode
}

func listed(t testing.TB, ds robocache.Dataset, cfg loader.Config, bad int) tally {
	t.Helper()
	cfg.OnBadEpisode = "skip"
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Error(err)
		return tally{}
	}
	defer l.Close()
	out := tally{of: map[int]int{}}
	for {
		b, err := l.Next(t.Context())
		if err != nil {
			if err.Error() != "EOF" {
				t.Error("skip:", err)
			}
			break
		}
		rows, err := l.Rows(b.Indices)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			out.of[r.Episode]++
		}
		b.Release()
	}
	out.bad = l.State().BadEpisodes
	if len(out.bad) != bad {
		t.Errorf("%d bad episodes wanted, listed: %+v", bad, out.bad)
	}
	return out
}

// e2e.C3: the mp4 of some episodes is missing, an LFS pointer, truncated, empty or noise. These
// episodes fail or are skipped, and the others are delivered.
func TestSomeVideosBad(t *testing.T) {
	decoders(t)
	base := load(t, "g1_h264_v30")
	const key = "observation.images.cam_high_flip"
	const name = "videos/" + key + "/chunk-000/file-001.mp4" // episodes 2 to 4
	cut := base[name][:len(base[name])*2/3]
	cfg := loader.Config{
		Order:   loader.Order{BatchSize: 64, Shuffle: loader.Global, Seed: 3},
		Windows: loader.Windows{Keys: []string{key}},
		Runtime: loader.Runtime{Prefetch: 4},
	}
	good := cfg
	good.Episodes = []int{0, 1}
	truth, _, err := digest(t.Context(), open(t, base.mem(t)), good)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		data  []byte
		class error
		words string
		bad   int
	}{
		"missing":     {nil, robocache.ErrNotFound, name, 3},
		"LFS pointer": {[]byte(lfs), robocache.ErrMalformed, name + "|LFS", 3},
		"zero bytes":  {[]byte{}, robocache.ErrMalformed, name, 3},
		"noise":       {bytes.Repeat([]byte("noise"), 9999), robocache.ErrMalformed, name, 3},
		"text": {
			[]byte("<html><body>404 Not Found</body></html>"),
			robocache.ErrMalformed,
			name,
			3,
		},
		"cut":        {cut, robocache.ErrMalformed, name, 3},
		"fragmented": {fragmented, robocache.ErrUnsupported, name + "|fragmented", 3},
	} {
		t.Run(what, func(t *testing.T) {
			ds := open(t, base.with(name, c.data).mem(t))
			_, _, err := digest(t.Context(), ds, cfg)
			want(t, err, c.class, append(strings.Split(c.words, "|"), "episode", key)...)
			sum, _, err := digest(t.Context(), ds, good)
			if err != nil || sum != truth {
				t.Errorf("the other episodes: %v", err)
			}
			l := listed(t, ds, cfg, c.bad)
			for e := range 5 {
				if n := l.of[e]; e < 2 && n != ds.Len(e) || e >= 2 && n != 0 {
					t.Errorf("episode %d: %d samples of %d", e, n, ds.Len(e))
				}
			}
			found, err := ds.(*lerobot.Dataset).Diagnose(t.Context(), robocache.DiagnoseOptions{})
			if err != nil {
				t.Fatal("doctor:", err)
			}
			named := false
			for _, f := range found {
				if f.Severity == robocache.SeverityError &&
					strings.Contains(fmt.Sprint(f.Where, f.Message), "file-001.mp4") {
					named = true
				}
			}
			if !named {
				t.Errorf("doctor does not name the file: %+v", found)
			}
		})
	}
	// a packet of noise in the middle affects only its episode
	t.Run("one bad packet", func(t *testing.T) {
		b := bytes.Clone(base[name])
		from, to := box(t, b, "mdat")
		mid := (from + to) / 2
		for i := mid; i < mid+3000; i++ {
			b[i] = byte(i * 31)
		}
		ds := open(t, base.with(name, b).mem(t))
		_, _, err := digest(t.Context(), ds, cfg)
		sound(t, err)
		if err != nil && !errors.Is(err, robocache.ErrMalformed) {
			t.Error(err)
		}
		t.Log(err)
	})
}

// fragmented is a minimal fragmented mp4: a moov without samples that announces fragments, and a
// moof.
var fragmented = func() []byte {
	b := func(name string, payload ...[]byte) []byte {
		body := bytes.Join(payload, nil)
		return append(
			append(binary.BigEndian.AppendUint32(nil, uint32(8+len(body))), name...),
			body...)
	}
	zeros := func(n int) []byte { return make([]byte, n) }
	mdhd := zeros(24)
	binary.BigEndian.PutUint32(mdhd[12:], 15360)
	hdlr := append(zeros(8), "vide\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	entry := b(
		"avc1",
		zeros(24),
		[]byte{1, 64, 0, 240},
		zeros(50),
		b("avcC", []byte{1, 100, 0, 20, 255, 224, 0}),
	)
	stbl := b(
		"stbl",
		b("stsd", []byte{0, 0, 0, 0, 0, 0, 0, 1}, entry),
		b("stts", zeros(8)),
		b("stsc", zeros(8)),
		b("stsz", zeros(12)),
		b("stco", zeros(8)),
	)
	trak := b(
		"trak",
		b("tkhd", zeros(84)),
		b("mdia", b("mdhd", mdhd), b("hdlr", hdlr), b("minf", stbl)),
	)
	moov := b("moov", b("mvhd", zeros(100)), trak, b("mvex", b("trex", zeros(24))))
	return bytes.Join(
		[][]byte{
			b("ftyp", []byte("isom\x00\x00\x02\x00isomiso2avc1mp41")),
			moov,
			b("moof", b("mfhd", zeros(8))),
			b("mdat", zeros(64)),
		},
		nil,
	)
}()
