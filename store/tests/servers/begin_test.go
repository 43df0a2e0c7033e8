package servers

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestBeginOutlivesThread checks that a server continues when the thread of its caller ends.
func TestBeginOutlivesThread(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	begun := make(chan error)
	var begin func()
	begin = func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if syscall.Gettid() == syscall.Getpid() {
			go begin() // the first thread never ends
			select {}
		}
		begun <- Begin(cmd)
	}
	go begin()
	if err := <-begun; err != nil {
		t.Skip(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Fatal("it was ended: ", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-ended
}
