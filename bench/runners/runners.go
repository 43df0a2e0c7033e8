// Package runners contains the Python runners (package robocache_bench) and starts the processes of
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

// Tools holds the locations of the programs that runners need.
type Tools struct {
	Self       []string // the command robocache-bench
	Product    []string // the command robocache
	Python     string   // an interpreter with the peers installed
	PythonPath string   // folder of the robocache package, if it is not installed
	Dir        string   // folder of the unpacked package robocache_bench
}

// Unpack writes the Python runners to a temporary folder. The caller must call the returned
// function, which removes the folder.
func (t *Tools) Unpack() (done func(), err error) {
	if t.Dir, err = os.MkdirTemp("", "robocache-bench-"); err == nil {
		err = os.CopyFS(t.Dir, scripts)
	}
	return func() { os.RemoveAll(t.Dir) }, robocache.At(err, nil)
}

// Env returns the environment variables of runners. Python searches robocache_bench first, then
// robocache, then the folders of PYTHONPATH and the given ones, which may contain
// a peer.
func (t *Tools) Env(more ...string) []string {
	folders := slices.DeleteFunc(
		append([]string{t.Dir, t.PythonPath, os.Getenv("PYTHONPATH")}, more...),
		func(f string) bool { return f == "" },
	)
	return []string{
		"OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1", "PYTHONSAFEPATH=1",
		"PYTHONPATH=" + strings.Join(folders, string(os.PathListSeparator)),
	}
}

// Script returns the command of the Python runner in file name. The caller appends the job.
func (t *Tools) Script(name string) []string {
	return []string{t.Python, "-m", "robocache_bench." + strings.TrimSuffix(name, ".py")}
}

// Own returns the command of a runner in this program. The caller appends the job.
func (t *Tools) Own(kind string) []string {
	return slices.Concat(t.Self, []string{"run", kind})
}

// Command returns a command in its own process group and a buffer with its stderr. The group ends
// with ctx. The process also ends when this process ends, even if this process is killed.
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

// Output runs a command and returns its stdout. The error contains the last line of stderr.
func Output(ctx context.Context, argv, env []string) ([]byte, error) {
	cmd, errs := Command(ctx, argv, env)
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", cmp.Or(ctx.Err(), err), LastLine(errs.String()))
	}
	return out, err
}

// Lines is a writer that passes each line to Each and keeps the last non-empty line.
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

// Last returns the last non-empty line, including an incomplete one.
func (l *Lines) Last() []byte {
	if rest := bytes.TrimSpace(l.part); len(rest) > 0 {
		return rest
	}
	return l.last
}

// LastLine returns the last line of s, ignoring space at the end.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
