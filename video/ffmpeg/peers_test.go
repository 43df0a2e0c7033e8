//go:build cgo

package ffmpeg

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/video"
)

// python returns the interpreter of the peers. The test is skipped without one.
func python(t testing.TB) string {
	t.Helper()
	py := os.Getenv("ROBOCACHE_PYTHON")
	if py == "" {
		py = filepath.Join(root(t), ".venv", "bin", "python")
	}
	if _, err := exec.LookPath(py); err != nil {
		t.Skipf("no Python with av and torchcodec (ROBOCACHE_PYTHON): %v", err)
	}
	return py
}

// peerCount returns the number of frames of a file that are compared with the peers. Color
// conversion is the same in each frame.
func peerCount(t testing.TB, usual int) int {
	if exhaustive() {
		return 1 << 30
	}
	t.Logf("the first %d frames of each file (ROBOCACHE_EXHAUSTIVE=1: all)", usual)
	return usual
}

// peerSums returns the hashes of PyAV and torchcodec for the first count frames of each file.
func peerSums(t testing.TB, py string, count int, paths []string) map[string][2][]string {
	t.Helper()
	cmd := exec.Command(
		py,
		append([]string{filepath.Join("testdata", "peers.py"), strconv.Itoa(count)}, paths...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 {
		t.Skip("no Python with av and torchcodec (ROBOCACHE_PYTHON)")
	}
	if err != nil {
		t.Fatalf("peers.py: %v\n%s", err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Logf("peers.py: %s", stderr.String())
	}
	sums := map[string][2][]string{}
	at := ""
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		if path, ok := strings.CutPrefix(s.Text(), "== "); ok {
			at = path
			continue
		}
		two := strings.Fields(s.Text())
		both := sums[at]
		for i := range both {
			if two[i] != "-" {
				both[i] = append(both[i], two[i])
			}
		}
		sums[at] = both
	}
	return sums
}

var peerNames = [2]string{"PyAV", "torchcodec"}

// comparePeers decodes a file to RGB and compares it with the peers. It returns the number of
// different frames for each.
func comparePeers(
	t *testing.T,
	path string,
	count int,
	sums [2][]string,
) (differ [2]int, have [2]bool) {
	t.Helper()
	f := acquire(t, path)
	n := min(f.Index.NumFrames(), count)
	p := newPool(t, 0)
	hwc := images(t, p, f, upTo(n), video.Spec{Pixel: video.RGB8})
	for i, want := range sums {
		if len(want) == 0 {
			continue
		}
		have[i] = true
		if len(want) != n {
			t.Errorf("%s: %s gives %d frames, want %d", path, peerNames[i], len(want), n)
			continue
		}
		for k := range n {
			if sum(hwc[k]) != want[k] {
				differ[i]++
			}
		}
	}
	return differ, have
}

// ffmpeg.F1 on the real datasets: bit-identical to both peers.
func TestPeersOnRealVideo(t *testing.T) {
	t.Parallel() // two thirds of the time are Python's imports
	dir := dataDir(t)
	py := python(t)
	if testing.Short() {
		t.Skip("short")
	}
	var paths []string
	for _, pattern := range []string{"g1_*/videos/*/*/*.mp4", "gr00t_*/videos/*/*/*.mp4"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		// one file per dataset: the others are from the same encoder
		smallest := map[string]string{}
		size := map[string]int64{}
		for _, path := range found {
			rel, _ := filepath.Rel(dir, path)
			set := strings.SplitN(rel, string(filepath.Separator), 2)[0]
			if st, err := os.Stat(path); err == nil &&
				(smallest[set] == "" || st.Size() < size[set]) {
				smallest[set], size[set] = path, st.Size()
			}
		}
		for _, path := range smallest {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		t.Skipf("no LeRobot videos below %s", dir)
	}
	count := peerCount(t, 30)
	for path, sums := range peerSums(t, py, count, paths) {
		differ, have := comparePeers(t, path, count, sums)
		for i := range differ {
			if !have[i] {
				t.Errorf("%s: %s gave nothing", path, peerNames[i])
			}
			if differ[i] > 0 {
				t.Errorf("%s: %d frames differ from %s", path, differ[i], peerNames[i])
			}
		}
	}
}
