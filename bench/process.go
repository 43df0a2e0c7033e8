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
	cpu           float64 // seconds, user and system
	read, device  int64   // bytes asked of files and sockets, and those that devices gave
	sent, answers int64   // of the server
}

// watcher follows a process tree from outside, so that looking costs the runner no CPU. RSS is read twice a second from statm; PSS, which makes
// the kernel walk the pages, only where RSS has grown, or every five seconds; until the window closes.
type watcher struct {
	mu          sync.Mutex // the runner's lines come on a goroutine of their own
	srv         *loopback.Server
	pid         int
	stop        chan struct{}
	done        sync.WaitGroup
	rss, pss    int64 // peaks, bytes
	begin       usage // when the process started
	open, close usage
	measured    bool
}

func watch(pid int) *watcher {
	w := &watcher{}
	w.start(pid)
	return w
}

func (w *watcher) start(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pid, w.stop = pid, make(chan struct{})
	w.begin = w.now()
	w.done.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			w.look(i)
			select {
			case <-w.stop:
				w.look(0)
				return
			case <-tick.C:
			}
		}
	})
}

// end ends the watch; a second time it does nothing.
func (w *watcher) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}

// line is a line that the runner wrote. One may come before start has been called.
func (w *watcher) line(l string) {
	switch l {
	case lineOpen:
		w.mu.Lock()
		w.open = w.now()
		w.mu.Unlock()
	case lineClose:
		w.mu.Lock()
		w.close, w.measured = w.now(), true
		w.mu.Unlock()
		w.end()
	}
}

func (w *watcher) now() usage {
	u := treeUsage(w.pid)
	if w.srv != nil {
		u.sent, u.answers = w.srv.Bytes(), w.srv.Requests()
	}
	return u
}

// into writes what was seen into the outcome. A runner of one process may say itself, to the microsecond, what CPU it used.
func (w *watcher) into(o *Outcome) {
	o.RSSPeakMB, o.PSSPeakMB = float64(w.rss)/(1<<20), float64(w.pss)/(1<<20)
	if !w.measured {
		return
	}
	if o.CPUSeconds == 0 {
		o.CPUSeconds = w.close.cpu - w.open.cpu
	}
	o.BytesRead, o.DeviceReadBytes = w.close.read-w.open.read, w.close.device-w.begin.device
	o.Seen = Seen{ServerBytes: w.close.sent - w.open.sent, ServerRequests: w.close.answers - w.open.answers}
}

func (w *watcher) look(i int) {
	pids := processTree(w.pid)
	var rss int64
	for _, p := range pids {
		rss += statm(p)
	}
	if i%10 == 0 || rss > w.rss+w.rss/50 {
		var pss int64
		for _, p := range pids {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(report.Field(proc(p, "smaps_rollup"), "Pss"), " kB"), 10, 64)
			pss += kb << 10
		}
		w.pss = max(w.pss, pss)
	}
	w.rss = max(w.rss, rss)
}

func proc(pid int, name string) string {
	return report.ReadText(filepath.Join("/proc", strconv.Itoa(pid), name))
}

// processTree is a process and its descendants.
func processTree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(out[i]) + "/task/*/children") // a thread has its own
		for _, t := range tasks {
			for _, f := range strings.Fields(report.ReadText(t)) {
				if c, err := strconv.Atoi(f); err == nil {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// treeUsage adds up what the processes used, with the children that they have waited for.
func treeUsage(pid int) usage {
	var u usage
	for _, p := range processTree(pid) {
		_, rest, _ := strings.Cut(proc(p, "stat"), ") ")
		if f := strings.Fields(rest); len(f) > 14 {
			for _, t := range f[11:15] {
				n, _ := strconv.ParseFloat(t, 64)
				u.cpu += n / 100 // USER_HZ, the same on every system
			}
		}
		io := proc(p, "io")
		read, _ := strconv.ParseInt(report.Field(io, "rchar"), 10, 64)
		device, _ := strconv.ParseInt(report.Field(io, "read_bytes"), 10, 64)
		u.read, u.device = u.read+read, u.device+device
	}
	return u
}

// statm is the RSS of a process in bytes.
func statm(pid int) int64 {
	f := strings.Fields(proc(pid, "statm"))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// ownDeviceReads are the bytes that devices gave to this process.
func ownDeviceReads() int64 {
	n, _ := strconv.ParseInt(report.Field(proc(os.Getpid(), "io"), "read_bytes"), 10, 64)
	return n
}

// selfCPU is the user + system seconds of this process.
func selfCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
