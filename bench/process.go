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

// The lines that a runner writes when its window opens and closes.
const (
	lineOpen  = "#open"
	lineClose = "#measured"
)

// usage is what a process tree has used so far.
type usage struct {
	cpu          float64 // seconds, user and system
	read, device int64   // bytes asked of files and sockets, and those that devices gave
	sent         int64   // of the server
}

// watcher follows a process tree from outside, so that looking costs the runner no CPU. RSS is read
// twice a second from statm; PSS, which makes the kernel walk the pages, only where RSS has grown,
// or every five seconds; until the window closes.
type watcher struct {
	mu       sync.Mutex // the runner's lines come on a goroutine of their own
	srv      *loopback.Server
	pid      int
	end      func()           // of the watch; a second time it does nothing
	rss, pss int64            // peaks, bytes
	at       map[string]usage // at the runner's lines; "": when the process started
}

func (w *watcher) start(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stop := make(chan struct{})
	var done sync.WaitGroup
	w.pid, w.end = pid, sync.OnceFunc(func() { close(stop); done.Wait() })
	w.note("")
	done.Go(func() {
		for i := 0; ; i++ {
			w.look(i)
			select {
			case <-stop:
				w.look(0)
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
}

// line is a line that the runner wrote. One may come before start has been called.
func (w *watcher) line(l string) {
	if l != lineOpen && l != lineClose {
		return
	}
	w.mu.Lock()
	w.note(l)
	w.mu.Unlock()
	if l == lineClose && w.end != nil {
		w.end()
	}
}

func (w *watcher) note(line string) {
	var u usage
	for _, p := range processTree(w.pid) {
		_, rest, _ := strings.Cut(proc(p, "stat"), ") ")
		if f := strings.Fields(rest); len(f) > 14 {
			for _, t := range f[11:15] { // with the children that it has waited for
				u.cpu += float64(number(t)) / 100 // USER_HZ, the same on every system
			}
		}
		io := proc(p, "io")
		u.read, u.device = u.read+number(report.Field(io, "rchar")), u.device+
			number(report.Field(io, "read_bytes"))
	}
	if w.srv != nil {
		u.sent = w.srv.Bytes()
	}
	if w.at == nil {
		w.at = map[string]usage{}
	}
	w.at[line] = u
}

// into writes what was seen into the outcome. A runner of one process may say itself, to the
// microsecond, what CPU it used.
func (w *watcher) into(o *Outcome) {
	o.RSSPeakMB, o.PSSPeakMB = float64(w.rss)/(1<<20), float64(w.pss)/(1<<20)
	a, b := w.at[lineOpen], w.at[lineClose]
	if _, measured := w.at[lineClose]; !measured {
		return
	}
	if o.CPUSeconds == 0 {
		o.CPUSeconds = b.cpu - a.cpu
	}
	o.BytesRead, o.DeviceReadBytes, o.ServerBytes = b.read-a.read, b.device-w.at[""].device, b.sent-a.sent
}

func (w *watcher) look(i int) {
	pids := processTree(w.pid)
	var rss, pss int64
	for _, p := range pids {
		rss += statm(p)
	}
	if i%10 == 0 || rss > w.rss+w.rss/50 {
		for _, p := range pids {
			pss += number(strings.TrimSuffix(report.Field(proc(p, "smaps_rollup"), "Pss"),
				" kB")) << 10
		}
	}
	w.rss, w.pss = max(w.rss, rss), max(w.pss, pss)
}

// number is an integer of /proc; 0 where it says none.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func proc(pid int, name string) string {
	return report.ReadText(filepath.Join("/proc", strconv.Itoa(pid), name))
}

// processTree is a process and its descendants.
func processTree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		// a thread has its own
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(out[i]) + "/task/*/children")
		for _, t := range tasks {
			for _, f := range strings.Fields(report.ReadText(t)) {
				out = append(out, int(number(f)))
			}
		}
	}
	return out
}

// statm is the RSS of a process in bytes.
func statm(pid int) int64 {
	return number(append(strings.Fields(proc(pid, "statm")), "", "")[1]) * int64(os.Getpagesize())
}

// ownDeviceReads are the bytes that devices gave to this process.
func ownDeviceReads() int64 { return number(report.Field(proc(os.Getpid(), "io"), "read_bytes")) }

// selfCPU is the user + system seconds of this process.
func selfCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
