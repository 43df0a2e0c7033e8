package transporttest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// process is a Server that is a separate program.
type process struct {
	tb      testing.TB
	uri     string
	command func() *exec.Cmd
	running *exec.Cmd
	orders  io.WriteCloser
}

// startLimit is the maximum time for the start of a process. The Python interpreter and its modules
// are loaded from a disk that other tests use.
const startLimit = 60 * time.Second

// NewProcess returns a Server that starts a program with command. The program writes the line
// "ready" to its standard output once it accepts subscribers. Each line of its standard input is
// the index of a message of the recording, which it publishes. It ends at the end of the input, or
// when Stop kills it. Its standard error is the error output of the test. The program is killed at
// the end of the test.
func NewProcess(tb testing.TB, uri string, command func() *exec.Cmd) Server {
	p := &process{tb: tb, uri: uri, command: command}
	tb.Cleanup(func() { p.Stop() })
	return p
}

func (p *process) URI() string { return p.uri }

func (p *process) Start() error {
	cmd := p.command()
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.orders = cmd, orders
	watchdog := time.AfterFunc(startLimit, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "ready" {
			return nil
		}
	}
	p.Stop()
	return fmt.Errorf("%s ended, or did not write the line ready", cmd.Path)
}

func (p *process) Publish(i int) error {
	_, err := fmt.Fprintln(p.orders, i)
	return err
}

func (p *process) Stop() error {
	if p.running == nil {
		return nil
	}
	p.running.Process.Kill()
	p.running.Wait() // its error is the kill
	p.running = nil
	return nil
}
