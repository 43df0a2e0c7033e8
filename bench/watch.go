package bench

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watcher follows the memory of a process tree from outside, so that looking costs the runner no CPU. RSS is read twice a second from
// statm; PSS, which makes the kernel walk the pages, only where RSS has grown, or every five seconds.
type watcher struct {
	pid      int
	stop     chan struct{}
	done     sync.WaitGroup
	rss, pss int64 // peaks, bytes
}

func watch(pid int) *watcher {
	w := &watcher{pid: pid, stop: make(chan struct{})}
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
	return w
}

// peaks ends the watch, once, and gives what was seen.
func (w *watcher) peaks() (rss, pss int64) {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
	return w.rss, w.pss
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
			pss += pssOf(p)
		}
		w.pss = max(w.pss, pss)
	}
	w.rss = max(w.rss, rss)
}

// processTree is a process and its descendants.
func processTree(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		dir := "/proc/" + strconv.Itoa(out[i]) + "/task"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, t := range tasks { // a thread has its own children
			b, err := os.ReadFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, f := range strings.Fields(string(b)) {
				if c, err := strconv.Atoi(f); err == nil {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

func statm(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

func pssOf(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "Pss:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}
