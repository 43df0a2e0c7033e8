package video

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts the program without the right to real-time priority: as root libsvtav1 gives its
// threads the highest (SCHED_FIFO 99), which holds up all others of a busy machine, and for which
// no nice value counts. behind: where nothing else wants the processor.
func start(cmd *exec.Cmd, behind bool) error {
	started := make(chan error)
	go func() {
		// and never unlocked: what is taken from this thread goes to the program, and ends with the
		// goroutine
		runtime.LockOSThread()
		dropNice()
		// 20 - nice
		if kernel, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil && behind {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(19, 20-kernel+10))
		}
		started <- cmd.Start()
	}()
	return <-started
}

// dropNice takes CAP_SYS_NICE from the calling thread, and from what it starts. Who may not do that
// does not have the right either.
func dropNice() {
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
