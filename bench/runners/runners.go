// Package runners has the Python runners (the package robocache_bench) and starts the processes of
// all runners.
package runners

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

//go:embed robocache_bench/*.py
var scripts embed.FS

// Tools says where the runners' programs are.
type Tools struct {
	Self       []string // the program robocache-bench
	Product    []string // the program robocache
	Python     string   // an interpreter with the peers
	PythonPath string   // a folder with our package, when it is not installed
	Dir        string   // the folder with the unpacked package robocache_bench
}

// Unpack writes the Python runners to a temporary folder; the caller calls the function returned to
// remove it.
func (t *Tools) Unpack() (done func(), err error) {
	if t.Dir, err = os.MkdirTemp("", "robocache-bench-"); err == nil {
		err = os.CopyFS(t.Dir, scripts)
	}
	return func() { os.RemoveAll(t.Dir) }, robocache.At(err, nil)
}

// Env returns the variables of runners. Their Python finds robocache_bench first, then robocache;
// the folders of the environment follow, which may hold a peer.
func (t *Tools) Env() []string {
	folders := slices.DeleteFunc(
		[]string{t.Dir, t.PythonPath, os.Getenv("PYTHONPATH")},
		func(f string) bool { return f == "" },
	)
	return []string{
		"OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHONSAFEPATH=1",
		"PYTHONPATH=" + strings.Join(folders, string(os.PathListSeparator)),
	}
}

// Script returns the command of a Python runner, named as its file. The caller appends the job.
func (t *Tools) Script(name string) []string {
	return []string{t.Python, "-m", "robocache_bench." + strings.TrimSuffix(name, ".py")}
}

// Own returns the command of a runner of this program. The caller appends the job.
func (t *Tools) Own(kind string) []string {
	return slices.Concat(t.Self, []string{"run", kind})
}

// Command is a runner in a process group of its own, which ends with ctx and with this process,
// also where that is killed; what it says on stderr is kept.
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
