package video

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// hashes returns ffmpeg's digest of every decoded frame, in presentation order.
func hashes(t testing.TB, path string) []string {
	t.Helper()
	out := runTool(
		t,
		"ffmpeg",
		"-v",
		"error",
		"-nostdin",
		"-i",
		path,
		"-map",
		"0:v:0",
		"-fps_mode",
		"passthrough",
		"-f",
		"framemd5",
		"-",
	)
	return digests(string(out))
}

func fileOf(t testing.TB, path string) *File {
	t.Helper()
	m := readFile(t, path)
	ix, err := ReadIndex(t.Context(), m, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &File{Path: filepath.Base(path), Index: ix, Ranged: m}
}

// TestConcatKeepsFrames joins clips of each codec. It compares frames with the sources, and times
// with k/rate (video.V9).
func TestConcatKeepsFrames(t *testing.T) {
	t.Parallel() // most of the work is in other programs
	tool(t, "ffmpeg")
	for name, args := range map[string][]string{
		"h264 with B-frames": {"-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "3", "-g", "12"},
		"mpeg4":              {"-c:v", "mpeg4", "-g", "12"},
		"hevc open GOP": {
			"-c:v",
			"libx265",
			"-g",
			"8",
			"-x265-params",
			"log-level=error:pools=1:frame-threads=1",
		},
		"hevc depth": {
			"-pix_fmt", "gray12le", "-c:v", "libx265", "-g", "2", "-x265-params",
			"log-level=error:pools=1:frame-threads=1:lossless=1",
		},
		"av1": {"-c:v", "libsvtav1", "-g", "2", "-crf", "30", "-preset", "12"},
	} {
		if testing.Short() && name != "h264 with B-frames" {
			continue
		}
		if name == "av1" && !encoderListed(t, "libsvtav1") {
			t.Log("no libsvtav1")
			continue
		}
		var parts []Part
		var want []string
		for i, skip := range []string{"0", "7", "19"} {
			path := clip(
				t,
				"part.mp4",
				append(
					[]string{
						"-vf",
						"trim=start_frame=" + skip + ",setpts=PTS-STARTPTS",
						"-frames:v",
						[]string{"33", "1", "40"}[i],
					},
					args...)...)
			f := fileOf(t, path)
			parts = append(parts, Part{f, 0, f.Index.NumFrames()})
			want = append(want, hashes(t, path)...)
		}
		var out, again bytes.Buffer
		rate := robocache.Rate{Num: 30, Den: 1}
		if err := Concat(t.Context(), &out, parts, rate); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := Concat(t.Context(), &again, parts, rate); err != nil ||
			!bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s: the same parts gave other bytes (%v)", name, err)
		}
		path := filepath.Join(t.TempDir(), "joined.mp4")
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		ix := indexOf(t, path)
		if ix.NumFrames() != len(want) || ix.NumSamples() != len(want) || ix.Timescale() != 15360 {
			t.Errorf(
				"%s: %d frames of %d samples, want %d; timescale %d",
				name,
				ix.NumFrames(),
				ix.NumSamples(),
				len(want),
				ix.Timescale(),
			)
			continue
		}
		for k := range want {
			if ix.PTS(k) != int64(512*k) {
				t.Fatalf("%s: frame %d at %d", name, k, ix.PTS(k))
			}
		}
		if got := hashes(t, path); !slices.Equal(got, want) {
			t.Errorf("%s: frames differ from the sources'", name)
		}
		probed := framesByProbe(t, path)
		for k, p := range probed {
			if p != int64(512*k) {
				t.Errorf("%s: ffprobe has frame %d at %d", name, k, p)
				break
			}
		}
		format := string(
			runTool(
				t,
				"ffprobe",
				"-v",
				"error",
				"-show_entries",
				"format=duration:stream=nb_frames,avg_frame_rate,start_pts",
				"-of",
				"default",
				path,
			),
		)
		for _, s := range []string{
			"nb_frames=74",
			"avg_frame_rate=30/1",
			"start_pts=0",
			"duration=2.466667",
		} {
			if !strings.Contains(format, s) {
				t.Errorf("%s: ffprobe does not say %s:\n%s", name, s, format)
			}
		}
	}
}

// TestConcatRuns joins runs of whole GOPs of a file. Other runs are rejected.
func TestConcatRuns(t *testing.T) {
	t.Parallel() // most of the work is in other programs
	tool(t, "ffmpeg")
	path := clip(
		t,
		"gops.mp4",
		"-c:v",
		"libx264",
		"-pix_fmt",
		"yuv420p",
		"-g",
		"12",
		"-bf",
		"2",
		"-sc_threshold",
		"0",
		"-flags",
		"+cgop",
	)
	f := fileOf(t, path)
	all := hashes(t, path)
	var out bytes.Buffer
	rate := robocache.Rate{Num: 2997, Den: 100}
	if err := Concat(t.Context(), &out, []Part{{f, 24, 48}, {f, 0, 12}, {f, 108, 120}},
		rate); err != nil {
		t.Fatal(err)
	}
	joined := filepath.Join(t.TempDir(), "runs.mp4")
	if err := os.WriteFile(joined, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := hashes(t, joined),
		slices.Concat(all[24:48], all[:12], all[108:]); !slices.Equal(got, want) {
		t.Error("frames differ from the sources'")
	}
	if ix := indexOf(t, joined); ix.Timescale() != 11988 || ix.PTS(47) != 47*400 {
		t.Errorf("timescale %d, last pts %d", ix.Timescale(), ix.PTS(47))
	}
	open := fileOf(
		t,
		clip(
			t,
			"open.mp4",
			"-c:v",
			"libx265",
			"-g",
			"8",
			"-x265-params",
			"log-level=error:pools=1:frame-threads=1",
		),
	)
	other := fileOf(
		t,
		clip(
			t,
			"other.mp4",
			"-c:v",
			"libx264",
			"-pix_fmt",
			"yuv420p",
			"-g",
			"12",
			"-profile:v",
			"baseline",
		),
	)
	var key int // a sync sample of the open-GOP file that is not the first one
	for k := 1; k < open.Index.NumFrames(); k++ {
		if open.Index.Sample(open.Index.DecodeIndex(k)).Sync {
			key = k
			break
		}
	}
	n := open.Index.NumFrames()
	for name, c := range map[string]struct {
		parts []Part
		class error
	}{
		"not at a sync sample": {[]Part{{f, 5, 20}}, robocache.ErrUnsupported},
		"before the GOP's end": {[]Part{{f, 0, 5}}, robocache.ErrUnsupported},
		"another sample entry": {[]Part{{f, 0, 12}, {other, 0, 12}}, robocache.ErrUnsupported},
		"CRA in the middle": {
			[]Part{{open, 0, n}, {open, key, n}},
			robocache.ErrUnsupported,
		},
		"nothing":                  {nil, robocache.ErrMisuse},
		"ordinals beyond the file": {[]Part{{f, 0, 500}}, robocache.ErrMisuse},
	} {
		var out bytes.Buffer
		if err := Concat(t.Context(), &out, c.parts, rate); !errors.Is(err, c.class) ||
			out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, out.Len())
		}
	}
}

// TestConcatTables joins random tables, and reads each sample's bytes and order again.
func TestConcatTables(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		var parts []Part
		var want [][]byte // by frame number
		for range 1 + r.IntN(4) {
			fk := &fake{
				samples: randomTable(r),
				cttsV1:  true,
				entries: [][]byte{entryBox("mp4v", 8, 8)},
			}
			fk.samples[0].shift = 0
			// the first sample is the first frame; times leave a margin for it
			for d := range fk.samples {
				if d > 0 {
					fk.samples[d].shift += 100
				}
			}
			data := fk.bytes()
			for i := len(data) - 600; i < len(data); i++ {
				if i > 0 && !bytes.Contains(data[i:], []byte("mdat")) {
					data[i] = byte(r.Uint32())
				}
			}
			m := &memory{data: data}
			ix, err := ReadIndex(t.Context(), m, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			f := &File{Path: "x", Index: ix, Ranged: m}
			parts = append(parts, Part{f, 0, ix.NumFrames()})
			for k := range ix.NumFrames() {
				s := ix.Sample(ix.DecodeIndex(k))
				want = append(want, data[s.Offset:s.Offset+int64(s.Size)])
			}
		}
		var out bytes.Buffer
		if err := Concat(t.Context(), &out, parts, robocache.Rate{Num: 10, Den: 1}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		ix, err := ReadIndex(t.Context(), &memory{data: out.Bytes()}, Limits{})
		if err != nil || ix.NumFrames() != len(want) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for k := range want {
			s := ix.Sample(ix.DecodeIndex(k))
			if !bytes.Equal(out.Bytes()[s.Offset:s.Offset+int64(s.Size)], want[k]) ||
				ix.PTS(k) != int64(k)*ix.Timescale()/10 ||
				s.DTS > s.PTS {
				t.Fatalf("seed %d: frame %d: %+v", seed, k, s)
			}
		}
	}
}

// failing is a Ranged whose n-th read fails.
type failing struct {
	memory
	left int
}

func (f *failing) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.left--; f.left < 0 {
		return &robocache.Error{Class: robocache.ErrTemporary, Msg: "injected"}
	}
	return f.memory.ReadAt(ctx, p, off)
}

// TestConcatFaults fails each read once. The error is returned with its class and its file.
func TestConcatFaults(t *testing.T) {
	data := (&fake{
		samples:  constant(40, 4),
		perChunk: 7,
		entries:  [][]byte{entryBox("mp4v", 8, 8)},
	}).bytes()
	for n := 0; ; n++ {
		f := &failing{memory: memory{data: data}, left: n}
		ix, err := ReadIndex(t.Context(), f, Limits{})
		if err == nil {
			err = Concat(
				t.Context(),
				&bytes.Buffer{},
				[]Part{{&File{Path: "a.mp4", Index: ix, Ranged: f}, 0, 40}},
				robocache.Rate{Num: 30, Den: 1},
			)
		}
		if err == nil {
			if n < 2 {
				t.Errorf("only %d reads", n)
			}
			return
		}
		if !errors.Is(err, robocache.ErrTemporary) {
			t.Fatalf("read %d: %v", n, err)
		}
	}
}
