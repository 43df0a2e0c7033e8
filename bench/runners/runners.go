// Package runners has the Python runners of bench, and starts the processes of all.
package runners

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

//go:embed *.py
var scripts embed.FS

// Tools says where the runners' programs are.
type Tools struct {
	Self       []string // this robocache
	Python     string   // an interpreter with the peers
	PythonPath string   // a folder with our package, when it is not installed
	Dir        string   // the unpacked scripts
}

// Unpack writes the Python runners to a temporary folder; the caller calls the function returned to remove it.
func (t *Tools) Unpack() (done func(), err error) {
	if t.Dir, err = os.MkdirTemp("", "robocache-bench-"); err == nil {
		err = os.CopyFS(t.Dir, scripts)
	}
	return func() { os.RemoveAll(t.Dir) }, robocache.At(err, nil)
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
func (t *Tools) Own(kind string) []string {
	return slices.Concat(t.Self, []string{"bench", "run", kind})
}

// Command is a runner in a process group of its own, which ends with ctx and with this process, also where that is killed; what it says on stderr is kept.
func Command(ctx context.Context, argv, env []string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	return cmd, errs
}

// Output runs a command, and gives what it wrote; what it said last on stderr is in the error.
func Output(ctx context.Context, argv, env []string) ([]byte, error) {
	cmd, errs := Command(ctx, argv, env)
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", cmp.Or(ctx.Err(), err), LastLine(errs.String()))
	}
	return out, err
}

// Lines shows each line that is written to it, and keeps the last that is not empty.
type Lines struct {
	Each func(string)
	part []byte
	last []byte
}

func (l *Lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for i := 0; i >= 0; {
		var line []byte
		if i = bytes.IndexByte(l.part, '\n'); i >= 0 {
			line, l.part = bytes.TrimSpace(l.part[:i]), l.part[i+1:]
		}
		if len(line) > 0 {
			l.last = bytes.Clone(line)
			l.Each(string(line))
		}
	}
	return len(p), nil
}

// Last is the last line, whole or not.
func (l *Lines) Last() []byte {
	if rest := bytes.TrimSpace(l.part); len(rest) > 0 {
		return rest
	}
	return l.last
}

func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
