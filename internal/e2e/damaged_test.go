package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// firstError reads an epoch until an error occurs.
func firstError(t *testing.T, dir string) error {
	t.Helper()
	ds, err := robocache.Open(t.Context(), dir)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = ds.Close() })
	l, err := loader.New(t.Context(), ds, loader.Config{Order: loader.Order{BatchSize: 16}})
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		b, err := l.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		b.Release()
	}
}

// copySet copies a LeRobot set and returns its folder and its first video.
func copySet(t *testing.T, name string) (dir, video string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "set")
	if err := os.CopyFS(dir, os.DirFS(realdata.Path(t, name))); err != nil {
		t.Fatal(err)
	}
	videos, err := filepath.Glob(filepath.Join(dir, "videos", "*", "chunk-000", "file-000.mp4"))
	if err != nil || len(videos) == 0 {
		t.Fatal(videos, err)
	}
	return dir, videos[0]
}

// The error of a Loader for a damaged video names the command that finds all damage of the dataset.
func TestDamagedVideoHint(t *testing.T) {
	decoders(t)
	for name, damage := range map[string]func(b []byte) []byte{
		"packets": func(b []byte) []byte {
			for i := len(b) / 3; i < 2*len(b)/3; i++ {
				b[i] = byte(i * 7)
			}
			return b
		},
		"cut":   func(b []byte) []byte { return b[:len(b)*2/3] },
		"empty": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir, video := copySet(t, "g1_h264_v30")
			b, err := os.ReadFile(video)
			if err == nil {
				err = os.WriteFile(video, damage(b), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = firstError(t, dir)
			var e *robocache.Error
			if want := "'robocache doctor --decode " + dir + "'"; !errors.As(err, &e) ||
				!strings.Contains(e.Hint, want) {
				t.Errorf("hint without %s: %v", want, err)
			}
			if strings.Count(err.Error(), "doctor") > 1 {
				t.Errorf("doctor is named twice: %v", err)
			}
		})
	}
}

// The error and the finding report that the frames of a video are PNG files.
func TestVideoOfPNGIsNamed(t *testing.T) {
	decoders(t)
	program, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("no ffmpeg program: ", err)
	}
	dir, video := copySet(t, "g1_h264_v30")
	coded := filepath.Join(t.TempDir(), "png.mp4")
	if out, err := exec.Command(
		program,
		"-nostdin",
		"-v",
		"error",
		"-i",
		video,
		"-map",
		"0:v:0",
		"-c:v",
		"png",
		coded,
	).
		CombinedOutput(); err != nil {
		t.Skipf("the program ffmpeg does not write PNG into mp4: %v: %s", err, out)
	}
	if err := os.Rename(coded, video); err != nil {
		t.Fatal(err)
	}
	if err := firstError(t, dir); !errors.Is(err, robocache.ErrUnsupported) ||
		!strings.Contains(err.Error(), `found "png"`) {
		t.Errorf("error: %v", err)
	}
	ds := open(t, dir)
	findings, err := diagnose.Run(t.Context(), ds, robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range findings {
		if f.Code == "codec-unsupported" &&
			strings.HasPrefix(f.Message, "the file is coded as png: ") &&
			f.Hint != "" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d findings of the codec: %+v", found, findings)
	}
}

// Errors of a damaged recording contain the index of the episode, not its position.
func TestRecordingErrorsNameTheIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bags")
	if err := os.CopyFS(dir, os.DirFS(realdata.Path(t, "rosbag2"))); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db3" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) < 1<<15 {
			return err
		}
		return os.WriteFile(path, b[:len(b)*2/3], 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	ds := open(t, dir)
	indices := make([]int64, ds.Info().Episodes)
	for i := range indices {
		indices[i] = int64(100 + i)
	}
	ds.Info().NumberEpisodes(indices)
	failed := 0
	for episode := range indices {
		for _, f := range ds.Info().Features {
			_, err := ds.Times(t.Context(), episode, f.Key)
			var e *robocache.Error
			if errors.As(err, &e) && e.Where["episode"] != nil {
				if failed++; e.Where["episode"] != indices[episode] {
					t.Fatalf("episode %d: %v", indices[episode], err)
				}
			}
		}
	}
	if failed == 0 {
		t.Error("no damage was met")
	}
}
