package synth

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// onDisk writes a dataset with video, or skips if no encoder is installed.
func onDisk(t *testing.T, opt Options) (string, robocache.Dataset) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "set")
	if _, err := Write(context.Background(), dir, opt); errors.Is(err, robocache.ErrUnsupported) {
		t.Skip("no video encoder: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	ds, err := robocache.Open(context.Background(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ds.Close() })
	return dir, ds
}

// decodeAll decodes every image of a video file with the ffmpeg program, which shares no code with
// our reader.
func decodeAll(t *testing.T, file string, width, height int) [][]byte {
	t.Helper()
	out, err := exec.Command(
		"ffmpeg",
		"-v",
		"error",
		"-i",
		file,
		"-fps_mode",
		"passthrough",
		"-f",
		"rawvideo",
		"-pix_fmt",
		"rgb24",
		"-",
	).
		Output()
	if err != nil {
		t.Skip("ffmpeg cannot decode: ", err)
	}
	var frames [][]byte
	for n := width * height * 3; len(out) >= n; out = out[n:] {
		frames = append(frames, out[:n])
	}
	return frames
}

// TestCodeSurvivesCoding covers synth.S3: after lossy coding, each row's image (file and ordinal,
// as our reader names it) shows the row's code.
func TestCodeSurvivesCoding(t *testing.T) {
	for _, opt := range []Options{
		{},
		{Codec: "h264", Episodes: 2, Width: 96, Height: 64, Cameras: 1},
		{Codec: "hevc", Episodes: 1, Seconds: 0.5, Cameras: 1, Width: 320, Height: 240},
	} {
		t.Run(opt.Codec, func(t *testing.T) {
			dir, ds := onDisk(t, opt)
			if f := ds.Info().Findings; len(f) != 0 {
				t.Errorf("findings: %v", f)
			}
			o, _, err := opt.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			for c := range o.Cameras {
				decoded := map[string][][]byte{}
				for e := range o.Episodes {
					rows := make([]robocache.Row, ds.Len(e))
					for i := range rows {
						rows[i] = robocache.Row{Episode: e, Index: i}
					}
					refs := make([]robocache.FrameRef, len(rows))
					if err := ds.Frames(context.Background(), cameraKey(c), rows, refs); err !=
						nil {
						t.Fatal(err)
					}
					for i, r := range refs {
						if decoded[r.Path] == nil {
							decoded[r.Path] = decodeAll(
								t,
								filepath.Join(dir, filepath.FromSlash(r.Path)),
								o.Width,
								o.Height,
							)
						}
						if r.Ordinal >= len(decoded[r.Path]) {
							t.Fatalf(
								"%s has %d images, row %d of episode %d wants %d",
								r.Path,
								len(decoded[r.Path]),
								i,
								e,
								r.Ordinal,
							)
						}
						if ge, gr,
							ok := ReadCode(decoded[r.Path][r.Ordinal], o.Width, o.Height); !ok ||
							ge != e || gr != i {
							t.Fatalf("episode %d row %d shows %d, %d, %v", e, i, ge, gr, ok)
						}
					}
				}
			}
		})
	}
}

// TestVideoSameBytes covers synth.S1 with video: the encoder is deterministic too.
func TestVideoSameBytes(t *testing.T) {
	opt := Options{Episodes: 2, Seconds: 0.5, Cameras: 1, Seed: 3}
	a, _ := onDisk(t, opt)
	b, _ := onDisk(t, opt)
	err := filepath.WalkDir(a, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(a, path)
		x, _ := os.ReadFile(path)
		y, err := os.ReadFile(filepath.Join(b, rel))
		if string(x) != string(y) {
			t.Errorf("%s differs", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLeRobotReadsIt opens the dataset with LeRobot and reads the bar codes of the images that it
// returns.
func TestLeRobotReadsIt(t *testing.T) {
	t.Parallel() // it waits for Python most of the time
	python := interpreter()
	if python == "" {
		t.Skip("no .venv with lerobot in the repository")
	}
	if exec.Command(python, "-c", "import lerobot").Run() != nil {
		t.Skip("the interpreter has no lerobot")
	}
	dir, _ := onDisk(
		t,
		Options{Rates: map[string]float64{"joints": 100, "force": 333}, Jitter: time.Millisecond},
	)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "testdata/check_lerobot.py", dir)
	cmd.Env = append(
		os.Environ(),
		"HF_HUB_OFFLINE=1",
		"HF_HOME="+t.TempDir(),
		"TOKENIZERS_PARALLELISM=false",
	)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok 240") {
		t.Errorf("%v: %s", err, out)
	}
}

// interpreter returns the .venv of the module's root.
func interpreter() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			p := filepath.Join(dir, ".venv", "bin", "python")
			if _, serr := os.Stat(p); serr == nil {
				return p
			}
			return ""
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
