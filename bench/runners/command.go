package runners

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command is a runner in a process group of its own, which ends with ctx; what it says on stderr is kept.
func Command(ctx context.Context, argv, env []string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	errs := &bytes.Buffer{}
	cmd.Stderr = errs
	return cmd, errs
}

// lines cuts what is written to it into lines, and keeps the last that is not empty.
type Lines struct {
	Each func(string)
	part []byte
	kept []byte
}

func (l *Lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		i := bytes.IndexByte(l.part, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := bytes.TrimSpace(l.part[:i])
		if len(line) > 0 {
			l.kept = append(l.kept[:0], line...)
			if l.Each != nil {
				l.Each(string(line))
			}
		}
		l.part = l.part[i+1:]
	}
}

func (l *Lines) Last() []byte {
	if rest := bytes.TrimSpace(l.part); len(rest) > 0 {
		return rest
	}
	return l.kept
}

func LastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
