// Package cases makes the small inputs of testdata/cases, which reproduce problems reported by
// users.
package cases

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// Make runs the script testdata/cases/script.py and returns the path of the input, a file or folder
// called name. It skips the test if there is no .venv, or if the script needs a Python module that
// is not installed.
func Make(t *testing.T, script, variant, name string) string {
	t.Helper()
	root := realdata.Root(t)
	python := filepath.Join(root, ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .venv to make the case with: ", err)
	}
	out := filepath.Join(t.TempDir(), name)
	file := filepath.Join(root, "testdata", "cases", script+".py")
	text, err := exec.CommandContext(t.Context(), python, file, out, variant).CombinedOutput()
	if bytes.Contains(text, []byte("ModuleNotFoundError")) {
		t.Skipf("%s needs a module that is not installed: %s", script, text)
	}
	if err != nil {
		t.Fatalf("%s %s: %v: %s", script, variant, err, text)
	}
	return out
}

// emptyInfo is the meta/info.json of a LeRobot set that was created and has no episodes.
const emptyInfo = `{"codebase_version": "v3.0", "robot_type": "arm", "total_episodes": 0, "total_frames": 0, "total_tasks": 0,
"chunks_size": 1000, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200, "fps": 30, "splits": {},
"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
"video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
"features": {
"observation.state": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
"action": {"dtype": "float32", "shape": [2], "names": ["a", "b"]},
"observation.images.top": {"dtype": "video", "shape": [64, 64, 3], "names": ["height", "width", "channels"]},
"timestamp": {"dtype": "float32", "shape": [1], "names": null},
"frame_index": {"dtype": "int64", "shape": [1], "names": null},
"episode_index": {"dtype": "int64", "shape": [1], "names": null},
"index": {"dtype": "int64", "shape": [1], "names": null},
"task_index": {"dtype": "int64", "shape": [1], "names": null}}}`

// EmptySet makes a LeRobot set without episodes, as L08.py does, and returns its folder.
func EmptySet(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "empty")
	if err := os.MkdirAll(filepath.Join(dir, "meta"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta", "info.json"), []byte(emptyInfo),
		0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
