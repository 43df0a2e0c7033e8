// Package cases makes the small inputs of testdata/cases, which reproduce problems reported by
// users.
package cases

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	text, err := runScript(python, file, out, variant)
	if strings.Contains(text, "ModuleNotFoundError") {
		t.Skipf("%s needs a module that is not installed: %s", script, text)
	}
	if err != nil || text != "" {
		t.Fatalf("%s %s: %v: %s", script, variant, err, text)
	}
	return out
}

// scriptRunner runs the scripts that its input names, one JSON list of arguments per line. For each
// it writes the error as a JSON string, which is empty for success.
const scriptRunner = `
import json, os, runpy, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    sys.argv, error = json.loads(line), ""
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), file=answers, flush=True)
`

// runner is the Python process that runs all scripts of a test program. A process for each would
// spend 0.7 s of CPU time on imports. It ends with the test program, which closes its input.
var runner struct {
	sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// runScript runs a script in the runner and returns its traceback, if it fails.
func runScript(python string, args ...string) (text string, err error) {
	runner.Lock()
	defer runner.Unlock()
	if runner.in == nil {
		cmd := exec.Command(python, "-c", scriptRunner)
		in, err := cmd.StdinPipe()
		if err != nil {
			return "", err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return "", err
		}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		runner.in, runner.out = in, bufio.NewReader(out)
	}
	line, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	if _, err := runner.in.Write(append(line, '\n')); err != nil {
		return "", err
	}
	answer, err := runner.out.ReadBytes('\n')
	if err != nil {
		return "", err
	}
	return text, json.Unmarshal(answer, &text)
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
