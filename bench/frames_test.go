package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/internal/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// deliveredFrames saves the frames of a small run, like a runner.
func deliveredFrames(t *testing.T, w Workload) []deliveredFrame {
	t.Helper()
	ds, err := robocache.Open(t.Context(), w.URI, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	cfg, err := w.loaderConfig(ds.Info())
	if err != nil {
		t.Fatal(err)
	}
	ld, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ld.Close()
	w.FramesOut = filepath.Join(t.TempDir(), "frames")
	if err := writeDelivered(t.Context(), &engineSource{loader: ld}, discardOrder, w,
		w.selectedCameras(ds.Info())); err != nil {
		t.Fatal(err)
	}
	got, err := readDelivered(w.FramesOut)
	if err != nil || len(got) != w.CheckFrames {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	return got
}

// Right frames pass and neighboring frames do not, both single and from windows.
func TestCheckFrames(t *testing.T) {
	if _, err := exec.LookPath("ffprobe"); err != nil {
		t.Skip("no ffmpeg programs: ", err)
	}
	path := realdata.Path(t, "g1_h264_v30")
	ds, err := robocache.Open(t.Context(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	for name, w := range map[string]Workload{"bytes": {}, "windows": {Window: 4}} {
		w.URI, w.BatchSize, w.Workers, w.Video, w.CheckFrames = path, 8, 2, "one", 12
		images := deliveredFrames(t, w)
		r, c := Runner{
			reference:     &reference{dataset: ds, localRoot: path},
			isTimedWindow: true,
		}, Outcome{}
		if err := r.checkFrames(t.Context(), images, &c); err != nil || !c.Compared ||
			c.WrongFrames != 0 || c.FramesChecked < 6 || c.Note != "" {
			t.Fatalf("%s: %+v %v", name, c, err)
		}
		sure := c.FramesChecked
		for i := range images { // pretend that the neighbor was delivered
			if images[i].Row++; images[i].Row+images[i].Offset >= ds.Len(images[i].Episode) {
				images[i].Row -= 2
			}
		}
		c = Outcome{}
		if err := r.checkFrames(t.Context(), images, &c); err != nil || c.WrongFrames < sure ||
			len(c.WrongWhere) == 0 {
			t.Errorf("%s: frames of the next row: %+v %v", name, c, err)
		}
	}
}

func TestDeliveredIsRead(t *testing.T) {
	p := filepath.Join(t.TempDir(), "f")
	var b bytes.Buffer
	line, _ := json.Marshal(frameHeader{Key: "k", Shape: []int{1, 1, 2}, DType: "uint8"})
	b.Write(append(line, '\n'))
	b.Write([]byte{128, 255})
	if err := os.WriteFile(p, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readDelivered(p)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].data, []byte{128, 255}) {
		t.Fatal(got, err)
	}
	if err := os.WriteFile(p, b.Bytes()[:b.Len()-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readDelivered(p); err == nil {
		t.Error("half a frame was read")
	}
	if got, err := readDelivered(p + "none"); err != nil || got != nil {
		t.Error(got, err)
	}
	if most, mean := pixelDistance([]byte{1, 200}, []byte{4, 190}); most != 10 || mean != 6.5 {
		t.Error(most, mean)
	}
	if most, _ := pixelDistance([]byte{1}, []byte{1, 2}); most != 256 {
		t.Error(most)
	}
}

// Evicted files are read from a device; cached files are not.
func TestPageCache(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a", "sub/b"} {
		p := filepath.Join(dir, n)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, size, err := filesBelow(dir)
	if err != nil || len(files) != 2 || size != 2<<20 {
		t.Fatal(files, size, err)
	}
	if err := warmPages(files); err != nil {
		t.Fatal(err)
	}
	read := func() int64 {
		before := ownDeviceReads()
		if err := warmPages(files); err != nil {
			t.Fatal(err)
		}
		return ownDeviceReads() - before
	}
	if n := read(); n != 0 {
		t.Errorf("after reading: %d bytes came from a device", n)
	}
	if err := evictPages(files); err != nil {
		t.Fatal(err)
	}
	if n := read(); n < 2<<20 {
		t.Skipf(
			"%d bytes came from a device: the files lie in memory (tmpfs), or this system does "+
				"not count",
			n,
		)
	}
}

// The watcher includes the memory of child processes.
func TestWatcher(t *testing.T) {
	cmd := exec.CommandContext(context.Background(), "sh", "-c", "sleep 0.3 & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &watcher{}
	w.startWatching(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	w.endWatch()
	rss, pss := w.rssPeak, w.pssPeak
	w.endWatch() // a second call does nothing
	if residentBytes(os.Getpid()) == 0 {
		t.Skip("no /proc")
	}
	if rss == 0 || pss == 0 || pss > rss {
		t.Errorf("RSS %d, PSS %d", rss, pss)
	}
}
