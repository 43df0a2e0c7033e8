package ops

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return wallTime()
	}
	return time.Duration(t.Nano())
}
