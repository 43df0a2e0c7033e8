package runners

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A started process ends with the process that started it. This also holds if the parent is killed
// and the child writes nothing that could break a pipe.
func TestCommandEndsWithAKilledParent(t *testing.T) {
	if os.Getenv("ROBOCACHE_TEST_PARENT") != "" {
		cmd, _ := Command(t.Context(), []string{"sleep", "60"}, nil)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pid", cmd.Process.Pid)
		_ = cmd.Wait()
		return
	}
	parent := exec.Command(os.Args[0], "-test.run=TestCommandEndsWithAKilledParent")
	parent.Env = append(os.Environ(), "ROBOCACHE_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, ok := strings.CutPrefix(strings.TrimSpace(line), "pid ")
	if err != nil || !ok {
		t.Fatal(line, err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	for end := time.Now().Add(
		5 * time.Second,
	); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err != nil ||
			bytes.Contains(stat, []byte(") Z ")) {
			return
		}
	}
	t.Error("it goes on: ", pid)
}
