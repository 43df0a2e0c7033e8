package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Lines that a runner prints when its window opens and closes.
const (
	lineOpen  = "#open"
	lineClose = "#measured"
)

// usage holds the resources that a process tree has used so far.
type usage struct {
	cpu                    float64 // seconds, user and system
	readBytes, deviceBytes int64   // bytes requested from files and sockets, and bytes read from devices
	sentBytes              int64   // bytes sent by the server
}

// watcher observes a process tree from outside, so that the observation costs the runner no CPU. It
// reads RSS from statm twice a second. Reading PSS makes the kernel walk the pages, so it is read
// only if RSS has grown, and every five seconds. The observation ends when the window closes.
type watcher struct {
	mu               sync.Mutex // lines of the runner arrive on another goroutine
	srv              *loopback.Server
	pid              int
	endWatch         func()           // stops the observation; further calls have no effect
	rssPeak, pssPeak int64            // peaks, bytes
	usageAt          map[string]usage // usage at the lines of the runner; "" is the start of the process
}

// startWatching starts the observation of a process tree.
func (w *watcher) startWatching(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stop := make(chan struct{})
	var done sync.WaitGroup
	w.pid, w.endWatch = pid, sync.OnceFunc(func() { close(stop); done.Wait() })
	w.noteUsage("")
	done.Go(func() {
		for i := 0; ; i++ {
			w.sampleMemory(i)
			select {
			case <-stop:
				w.sampleMemory(0)
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
}

// receiveLine handles a line of the runner's output. It may be called before startWatching.
func (w *watcher) receiveLine(l string) {
	if l != lineOpen && l != lineClose {
		return
	}
	w.mu.Lock()
	w.noteUsage(l)
	w.mu.Unlock()
	if l == lineClose && w.endWatch != nil {
		w.endWatch()
	}
}

// noteUsage saves the current usage under the given line. Caller must hold w.mu.
func (w *watcher) noteUsage(line string) {
	var u usage
	for _, p := range processTree(w.pid) {
		_, rest, _ := strings.Cut(procFile(p, "stat"), ") ")
		if f := strings.Fields(rest); len(f) > 14 {
			for _, t := range f[11:15] { // includes children that have been waited for
				u.cpu += float64(procNumber(t)) / 100 // USER_HZ is 100 on every system
			}
		}
		io := procFile(p, "io")
		u.readBytes, u.deviceBytes = u.readBytes+
			procNumber(report.Field(io, "rchar")), u.deviceBytes+
			procNumber(report.Field(io, "read_bytes"))
	}
	if w.srv != nil {
		u.sentBytes = w.srv.Bytes()
	}
	if w.usageAt == nil {
		w.usageAt = map[string]usage{}
	}
	w.usageAt[line] = u
}

// fillUsage writes the observed figures into o. A runner with a single process may report its own
// CPU time, which is more precise; that figure is kept.
func (w *watcher) fillUsage(o *Outcome) {
	o.RSSPeakMB, o.PSSPeakMB = float64(w.rssPeak)/(1<<20), float64(w.pssPeak)/(1<<20)
	a, b := w.usageAt[lineOpen], w.usageAt[lineClose]
	if _, measured := w.usageAt[lineClose]; !measured {
		return
	}
	if o.CPUSeconds == 0 {
		o.CPUSeconds = b.cpu - a.cpu
	}
	o.BytesRead, o.ServerBytes = b.readBytes-a.readBytes, b.sentBytes-a.sentBytes
	o.DeviceReadBytes = b.deviceBytes - w.usageAt[""].deviceBytes
}

// sampleMemory updates the peaks of RSS and PSS. i counts the samples.
func (w *watcher) sampleMemory(i int) {
	pids := processTree(w.pid)
	var rss, pss int64
	for _, p := range pids {
		rss += residentBytes(p)
	}
	if i%10 == 0 || rss > w.rssPeak+w.rssPeak/50 {
		for _, p := range pids {
			pss += procNumber(strings.TrimSuffix(report.Field(procFile(p, "smaps_rollup"), "Pss"),
				" kB")) << 10
		}
	}
	w.rssPeak, w.pssPeak = max(w.rssPeak, rss), max(w.pssPeak, pss)
}

// procNumber parses an integer from /proc. It returns 0 if there is none.
func procNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// procFile returns the content of a file in /proc/PID.
func procFile(pid int, name string) string {
	return report.ReadText(filepath.Join("/proc", strconv.Itoa(pid), name))
}

// processTree returns a process and its descendants.
func processTree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		// each thread has its own list of children
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(out[i]) + "/task/*/children")
		for _, t := range tasks {
			for _, f := range strings.Fields(report.ReadText(t)) {
				out = append(out, int(procNumber(f)))
			}
		}
	}
	return out
}

// residentBytes returns the RSS of a process.
func residentBytes(pid int) int64 {
	return procNumber(append(strings.Fields(procFile(pid, "statm")), "",
		"")[1]) * int64(os.Getpagesize())
}

// ownDeviceReads returns the bytes that this process has read from devices.
func ownDeviceReads() int64 {
	return procNumber(report.Field(procFile(os.Getpid(), "io"), "read_bytes"))
}

// selfCPU returns the user and system CPU seconds of this process.
func selfCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
