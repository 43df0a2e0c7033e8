package video

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// startProgram starts cmd without the right to real-time priority. As root, libsvtav1 would give
// its threads the highest priority (SCHED_FIFO 99), which ignores nice values and blocks other
// processes of a busy machine. If behind is set, the program gets a higher nice value.
func startProgram(cmd *exec.Cmd, behind bool) error {
	started := make(chan error)
	go func() {
		// The thread is never unlocked. It ends with the goroutine, because it has lost a
		// capability that the program should not inherit.
		runtime.LockOSThread()
		dropNiceCapability()
		if priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil && behind {
			nice := 20 - priority // the system call returns 20 - nice
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(19, nice+10))
		}
		started <- cmd.Start()
	}()
	return <-started
}

// dropNiceCapability removes CAP_SYS_NICE, the right to real-time priority, from the calling thread
// and from the programs that it starts. Errors are ignored: a thread that may not drop the
// capability does not have it.
func dropNiceCapability() {
	_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_NICE, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if unix.Capget(&header, &caps[0]) != nil {
		return
	}
	for _, set := range []*uint32{&caps[0].Effective, &caps[0].Permitted, &caps[0].Inheritable} {
		*set &^= 1 << unix.CAP_SYS_NICE
	}
	_ = unix.Capset(&header, &caps[0])
}
