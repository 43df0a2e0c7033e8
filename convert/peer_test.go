package convert_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestPeer opens a result with LeRobot and compares its items with the source: values, timestamps,
// tasks, and images decoded from the source by frame number.
func TestPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("starts LeRobot: some 10 s a dataset")
	}
	py := realdata.Python(t, "lerobot", "torchcodec")
	names := sources
	if !exhaustive() {
		names = []string{"gr00t_picknplace_v20"}
		t.Logf("%v of %d sets (ROBOCACHE_EXHAUSTIVE=1: all)", names, len(sources))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := data(t, name)
			src := open(t, from)
			dst := filepath.Join(t.TempDir(), "out")
			if _, err := ToLeRobot(t.Context(), src, dst,
				Options{DataFileBytes: 200_000, VideoFileBytes: 3_000_000}); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(py, filepath.Join("testdata", "peer.py"), dst, from)
			cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "HF_HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-30):], "\n"))
			}
			t.Log(lines[len(lines)-1])
		})
	}
}
