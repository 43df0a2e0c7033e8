// Package runners has the Python runners of bench, and starts the processes of all.
package runners

import (
	"embed"
	"os"
	"path/filepath"
	"strings"

	"github.com/goatnote-inc/robocache"
)

//go:embed *.py
var scripts embed.FS

// Tools says where the runners' programs are.
type Tools struct {
	Self       string // this robocache
	Python     string // an interpreter with the peers
	PythonPath string // a folder with our package, when it is not installed
	Dir        string // the unpacked scripts
}

// Unpack writes the Python runners to a temporary folder; the caller calls the function returned to remove it.
func (t *Tools) Unpack() (func(), error) {
	dir, err := os.MkdirTemp("", "robocache-bench-")
	if err != nil {
		return nil, robocache.At(err, nil)
	}
	t.Dir = dir
	entries, err := scripts.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := scripts.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o644); err != nil {
			return nil, robocache.At(err, nil)
		}
	}
	return func() { os.RemoveAll(dir) }, nil
}

func (t *Tools) Env() []string {
	env := []string{"OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1"}
	if t.PythonPath != "" {
		// Ours first; a peer that stands in a folder of its own (open3d) stays to be found.
		env = append(env, "PYTHONPATH="+strings.TrimSuffix(t.PythonPath+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), string(os.PathListSeparator)))
	}
	return env
}

// Script is a Python runner; its job is to follow.
func (t *Tools) Script(name string) []string { return []string{t.Python, filepath.Join(t.Dir, name)} }

// Own is a runner of this program; its job is to follow.
func (t *Tools) Own(kind string) []string { return []string{t.Self, "bench", "run", kind} }
