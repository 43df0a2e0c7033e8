package video

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type probeFile struct {
	Packets  int     `json:"packets"`
	Decoded  int     `json:"decoded_frames"`
	Codec    string  `json:"codec"`
	Width    int     `json:"width"`
	Height   int     `json:"height"`
	TimeBase string  `json:"time_base"`
	First    []int64 `json:"pts_first"`
	Last     int64   `json:"pts_last"`
	Keys     []int   `json:"first_key_ordinals"`
	NumKeys  int     `json:"keyframes"`
}

// TestRealFiles compares every mp4 of the test data with ffprobe's output (video.V1, video.V2).
func TestRealFiles(t *testing.T) {
	root := dataDir(t)
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".mp4") {
			return err
		}
		set, rel, _ := strings.Cut(
			strings.TrimPrefix(path, root+string(filepath.Separator)),
			string(filepath.Separator),
		)
		oracle := filepath.Join(root, set, "oracle")
		flat := strings.TrimSuffix(
			strings.ReplaceAll(rel, string(filepath.Separator), "__"),
			".mp4",
		)
		names := []string{
			flat + ".mp4.probe.json",
			strings.ReplaceAll(strings.TrimPrefix(flat, "videos__"), "__", "_") + ".probe.json",
		}
		parts := strings.Split(rel, string(filepath.Separator)) // v2.x: videos/chunk/key/episode
		names = append(
			names,
			parts[len(parts)-2]+"_"+strings.TrimSuffix(parts[len(parts)-1], ".mp4")+".probe.json",
		)
		var want probeFile
		found := false
		for _, n := range names {
			b, err := os.ReadFile(filepath.Join(oracle, n))
			if err != nil {
				continue
			}
			if err := json.Unmarshal(b, &want); err != nil {
				return err
			}
			found = true
			names[0] = n
		}
		if !found {
			t.Logf("%s: no probe oracle", rel)
			return nil
		}
		seen++
		m := readFile(t, path)
		ix, err := ReadIndex(t.Context(), m, Limits{})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		if ix.NumFrames() != want.Decoded || ix.NumSamples() != want.Packets {
			t.Errorf(
				"%s: %d frames, %d samples; want %d, %d",
				rel,
				ix.NumFrames(),
				ix.NumSamples(),
				want.Decoded,
				want.Packets,
			)
			return nil
		}
		if m.bytes.Load() > int64(want.Packets*64+40<<10) {
			t.Errorf("%s: %d bytes read for %d samples", rel, m.bytes.Load(), want.Packets)
		}
		for k, p := range want.First {
			if ix.PTS(k) != p {
				t.Errorf("%s: pts of %d is %d, want %d", rel, k, ix.PTS(k), p)
			}
		}
		if got := ix.PTS(ix.NumFrames() - 1); got != want.Last {
			t.Errorf("%s: last pts %d, want %d", rel, got, want.Last)
		}
		var keys []int
		for k := range ix.NumFrames() {
			if ix.Sample(ix.DecodeIndex(k)).Sync {
				keys = append(keys, k)
			}
		}
		if len(keys) != want.NumKeys {
			t.Errorf("%s: %d sync samples, want %d", rel, len(keys), want.NumKeys)
		}
		for i, k := range want.Keys {
			if i < len(keys) && keys[i] != k {
				t.Errorf("%s: sync frame %d is ordinal %d, want %d", rel, i, keys[i], k)
			}
		}
		e := ix.Entries()[0]
		if string(e.Codec) != want.Codec || e.Width != want.Width || e.Height != want.Height {
			t.Errorf(
				"%s: %s %d×%d, want %s %d×%d",
				rel,
				e.Codec,
				e.Width,
				e.Height,
				want.Codec,
				want.Width,
				want.Height,
			)
		}
		if per := float64(ix.MemoryBytes()-1024) / float64(ix.NumSamples()); per > 15 {
			t.Errorf("%s: %.1f bytes a frame", rel, per)
		}
		comparePTS(
			t,
			ix,
			filepath.Join(oracle, strings.TrimSuffix(names[0], ".probe.json")+".framemd5"),
		)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Skip("no mp4 with an oracle in the test data")
	}
	t.Logf("%d files", seen)
}

// comparePTS compares times with a framemd5, whose time base may be coarser.
func comparePTS(t *testing.T, ix *Index, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	var num, den int64
	k := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		line := s.Text()
		if after, ok := strings.CutPrefix(line, "#tb 0: "); ok {
			num, den = parseFraction(t, after)
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		pts := parseInt(t, strings.Split(line, ",")[2])
		want := float64(pts) * float64(num) / float64(den)
		if got := float64(ix.TimeNS(k)) / 1e9; math.Abs(got-want) > 0.5*float64(num)/float64(den) {
			t.Errorf("%s: frame %d at %.6f s, want %.6f", filepath.Base(path), k, got, want)
			return
		}
		k++
	}
	if k != ix.NumFrames() {
		t.Errorf("%s: %d frames, oracle %d", filepath.Base(path), ix.NumFrames(), k)
	}
}

// TestDatasetOrdinals checks frames.json: the time of each ordinal equals the oracle's (video.V1).
func TestDatasetOrdinals(t *testing.T) {
	root := dataDir(t)
	paths, _ := filepath.Glob(filepath.Join(root, "*", "oracle", "frames.json"))
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var frames []struct {
			File    string  `json:"file"`
			Ordinal int     `json:"ordinal"`
			Seconds float64 `json:"pts_seconds"`
		}
		if err := json.Unmarshal(b, &frames); err != nil {
			t.Logf("%s: %v", p, err)
			continue
		}
		open := map[string]*Index{}
		for _, f := range frames {
			ix := open[f.File]
			if ix == nil {
				ix = indexOf(t, filepath.Join(filepath.Dir(filepath.Dir(p)), f.File))
				open[f.File] = ix
			}
			if got := float64(ix.TimeNS(f.Ordinal)) / 1e9; math.Abs(got-f.Seconds) > 1e-6 {
				t.Errorf("%s ordinal %d: %.9f s, want %.9f", f.File, f.Ordinal, got, f.Seconds)
			}
		}
		t.Logf(
			"%s: %d frames of %d files",
			filepath.Base(filepath.Dir(filepath.Dir(p))),
			len(frames),
			len(open),
		)
	}
}

func parseInt(t testing.TB, s string) int64 {
	t.Helper()
	var v int64
	if err := json.Unmarshal([]byte(strings.TrimSpace(s)), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func parseFraction(t testing.TB, s string) (num, den int64) {
	a, b, _ := strings.Cut(s, "/")
	return parseInt(t, a), parseInt(t, b)
}
