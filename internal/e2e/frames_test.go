package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
)

type hash = [sha256.Size]byte

// sequence decodes a whole file in order with the ffmpeg program and returns the hash of each
// frame, channels first. It uses the usual conversion (bilinear). Frames are identified only by
// counting.
func sequence(t testing.TB, path string) []hash {
	t.Helper()
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("no ffmpeg program to compare with: ", err)
	}
	probe, err := exec.Command(
		"ffprobe",
		"-v",
		"error",
		"-select_streams",
		"v:0",
		"-show_entries",
		"stream=width,height",
		"-of",
		"csv=p=0",
		path,
	).
		Output()
	if err != nil {
		t.Skip("no ffprobe program: ", err)
	}
	var w, h int
	if _, err := fmt.Sscanf(string(probe), "%d,%d", &w, &h); err != nil {
		t.Fatalf("ffprobe says %q", probe)
	}
	cmd := exec.Command(
		program,
		"-nostdin",
		"-v",
		"error",
		"-threads",
		"1",
		"-i",
		path,
		"-map",
		"0:v:0",
		"-fps_mode",
		"passthrough",
		"-sws_flags",
		"bilinear",
		"-pix_fmt",
		"rgb24",
		"-f",
		"rawvideo",
		"-",
	)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var sums []hash
	packed, planar := make([]byte, 3*w*h), make([]byte, 3*w*h)
	for {
		if _, err := io.ReadFull(out, packed); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n := w * h
		r, g, b := planar[:n], planar[n:2*n], planar[2*n:]
		for i := range n {
			r[i], g[i], b[i] = packed[3*i], packed[3*i+1], packed[3*i+2]
		}
		sums = append(sums, sha256.Sum256(planar))
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return sums
}

// place is the position of the frame of a row.
type place struct {
	file    string
	ordinal int
}

// places returns the position of the frame of each row. It is known from the oracle of the data
// (v3.0), or because each file is one episode (v2).
func places(t testing.TB, name string, ds robocache.Dataset) map[string]map[robocache.Row]place {
	t.Helper()
	out := map[string]map[robocache.Row]place{}
	put := func(key string, r robocache.Row, p place) {
		if out[key] == nil {
			out[key] = map[robocache.Row]place{}
		}
		out[key][r] = p
	}
	raw, err := os.ReadFile(filepath.Join(realdata.Path(t, name), "oracle", "frames.json"))
	if err == nil {
		var list []struct {
			Episode, Frame, Ordinal int
			Key                     string `json:"video_key"`
			File                    string
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		// The oracle lists some rows of each episode. The frames between them are counted.
		for _, f := range list {
			for k := range ds.Len(f.Episode) {
				r, p := robocache.Row{
					Episode: f.Episode,
					Index:   k,
				}, place{
					f.File,
					f.Ordinal - f.Frame + k,
				}
				if old, ok := out[f.Key][r]; ok && old != p {
					t.Fatalf("the oracle contradicts itself: %v at %v and at %v", r, old, p)
				}
				put(f.Key, r, p)
			}
		}
		return out
	}
	for _, f := range ds.Info().Features {
		if f.Kind != robocache.KindVideo {
			continue
		}
		for e := range ds.Info().Episodes {
			for k := range ds.Len(e) {
				put(
					f.Key,
					robocache.Row{Episode: e, Index: k},
					place{fmt.Sprintf("videos/chunk-000/%s/episode_%06d.mp4", f.Key, e), k},
				)
			}
		}
	}
	return out
}

// e2e.C4: 2,000 random single frames and 200 random windows of 8 (over all sets) are right, in any
// order and with any number of threads.
func TestRightFrames(t *testing.T) {
	decoders(t)
	for _, c := range []struct {
		name             string
		singles, windows int
	}{
		{"g1_h264_v30_bigdrift", 1400, 140},
		{"g1_h264_v30", 300, 30},
		{"gr00t_picknplace_v20", 150, 15},
		{"g1_v30_exact", 150, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := realdata.Path(t, c.name)
			ds := open(t, dir)
			where := places(t, c.name, ds)
			oracle := map[string][]hash{}
			for _, rows := range where {
				for _, p := range rows {
					oracle[p.file] = nil
				}
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			for file := range oracle {
				wg.Go(func() {
					sums := sequence(t, filepath.Join(dir, file))
					mu.Lock()
					defer mu.Unlock()
					oracle[file] = sums
				})
			}
			wg.Wait()
			singles, windows := c.singles, c.windows
			if testing.Short() {
				singles, windows = singles/10, windows/10
			}
			rng := rand.New(rand.NewPCG(11, uint64(len(c.name))))
			for turn, threads := range []int{1, 2, 8} {
				checkFrames(t, ds, threads, rng, where, oracle, singles/3+min(turn, singles%3), 1)
				checkFrames(t, ds, threads, rng, where, oracle, windows/3+min(turn, windows%3), 8)
			}
		})
	}
}

// checkFrames requests n random samples with windows of the given number of steps, in calls of 1 to
// 40 samples.
func checkFrames(
	t *testing.T,
	ds robocache.Dataset,
	threads int,
	rng *rand.Rand,
	where map[string]map[robocache.Row]place,
	oracle map[string][]hash,
	n, steps int,
) {
	t.Helper()
	cfg := loader.Config{Runtime: loader.Runtime{Threads: threads}}
	fps := ds.Info().FPS.Float()
	offsets := make([]int, steps)
	seconds := make([]float64, steps)
	for i := 1; i < steps; i++ { // forward and backward, near and far, with repeats
		offsets[i] = rng.IntN(60) - 30
		seconds[i] = float64(offsets[i]) / fps
	}
	for key := range where {
		cfg.Keys = append(cfg.Keys, key)
		if steps > 1 {
			cfg.Deltas = append(cfg.Deltas, loader.Delta{Key: key, Offsets: seconds})
		}
	}
	m, err := loader.NewMap(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for n > 0 {
		indices := make([]int64, min(n, 1+rng.IntN(40/steps+1)))
		n -= len(indices)
		for i := range indices {
			indices[i] = rng.Int64N(m.Len())
		}
		b, err := m.Items(t.Context(), indices)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := m.Rows(indices)
		if err != nil {
			t.Fatal(err)
		}
		for key, of := range where {
			pixels := b.Tensor(key)
			one := len(pixels.Data) / (len(indices) * steps)
			var pads []byte
			if p := b.Tensor(key + "_is_pad"); p != nil {
				pads = p.Data
			}
			for i, row := range rows {
				for k, off := range offsets {
					at := row
					at.Index = min(max(row.Index+off, 0), ds.Len(row.Episode)-1)
					p := of[at]
					sums := oracle[p.file]
					if p.ordinal >= len(sums) {
						t.Fatalf(
							"%s has %d frames, the oracle says %d",
							p.file,
							len(sums),
							p.ordinal,
						)
					}
					s := i*steps + k
					if sha256.Sum256(pixels.Data[s*one:(s+1)*one]) != sums[p.ordinal] {
						t.Fatalf(
							"%s of episode %d row %d (offset %d, %d threads) is not frame %d of %s",
							key,
							row.Episode,
							row.Index,
							off,
							threads,
							p.ordinal,
							p.file,
						)
					}
					if outside := at.Index != row.Index+off; steps > 1 &&
						(pads[s] != 0) != outside {
						t.Fatalf(
							"%s_is_pad of episode %d row %d offset %d is %d",
							key,
							row.Episode,
							row.Index,
							off,
							pads[s],
						)
					}
				}
			}
		}
		b.Release()
	}
}

// e2e.C4: synth draws its episode and row into each frame, and a loader must deliver the matching
// frames. This still holds after a conversion, and after another encoding.
func TestRoundTripShowsItsRows(t *testing.T) {
	decoders(t)
	if err := video.CanEncode(t.Context(), video.EncodeConfig{
		Codec: "h264", Width: 128,
		Height: 96, Rate: robocache.Rate{Num: 30, Den: 1},
	}); err != nil {
		t.Skip(err)
	}
	made := filepath.Join(t.TempDir(), "made")
	rep := writeSynth(t, made)
	copied, encoded := filepath.Join(t.TempDir(), "copied"), filepath.Join(t.TempDir(), "encoded")
	converted(t, made, copied, nil)
	converted(t, copied, encoded, []int{2, 0, 1})
	for dir, order := range map[string][]int{
		made:    {0, 1, 2},
		copied:  {0, 1, 2},
		encoded: {2, 0, 1},
	} {
		ds := open(t, dir)
		l, err := loader.New(
			t.Context(),
			ds,
			loader.Config{Order: loader.Order{BatchSize: 16, Shuffle: loader.Global, Seed: 3}},
		)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			b, err := l.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, err := l.Rows(b.Indices)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range ds.Info().Features {
				if f.Kind != robocache.KindVideo {
					continue
				}
				x := b.Tensor(f.Key)
				h, w := f.Height, f.Width
				for i, row := range rows {
					n++
					e, r, ok := codeOf(x.Data[i*3*h*w:(i+1)*3*h*w], w, h)
					if !ok || e != order[row.Episode] || r != row.Index {
						t.Fatalf(
							"%s: %s of episode %d row %d shows episode %d row %d (%v)",
							filepath.Base(dir),
							f.Key,
							row.Episode,
							row.Index,
							e,
							r,
							ok,
						)
					}
				}
			}
			b.Release()
		}
		l.Close()
		if int64(n) != 2*rep {
			t.Errorf("%s: %d frames, %d wanted", dir, n, 2*rep)
		}
		wantClean(t, ds)
	}
	a, _ := os.ReadFile(filepath.Join(made, table))
	b, _ := os.ReadFile(filepath.Join(copied, table))
	if len(a) == 0 || !bytes.Equal(a, b) {
		t.Log("the copied table has other bytes than synth's (both are right)")
	}
}
