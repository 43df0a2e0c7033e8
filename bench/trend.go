package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"
)

// look is what a process holds between two rounds, when everything is closed.
type look struct {
	at         float64 // s
	rss        float64 // MiB
	heap       float64 // MiB, of it what the Go runtime holds
	fds        int
	goroutines int
}

// looks are of a process whose work is closed between them: what it still holds must not grow.
type looks []look

// sample looks at this process. Goroutines that are on their way out get a moment.
func (t *looks) sample(at time.Duration) {
	base := 1 << 30
	for _, l := range *t {
		base = min(base, l.goroutines)
	}
	for i := 0; i < 50 && runtime.NumGoroutine() > base; i++ {
		time.Sleep(2 * time.Millisecond)
	}
	debug.FreeOSMemory() // what the collector has not given back yet is no leak
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*t = append(*t, look{at.Seconds(), float64(statm(os.Getpid())) / (1 << 20), float64(m.Sys-m.HeapReleased) / (1 << 20), openFiles(), runtime.NumGoroutine()})
}

func openFiles() (n int) {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, e := range names {
		// Sockets of http connections that idle are the transport's, and bounded by it.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func (t looks) now() string {
	l := t[len(t)-1]
	return fmt.Sprintf("RSS %.0f MiB (Go %.0f), %d files, %d goroutines", l.rss, l.heap, l.fds, l.goroutines)
}

// Trend is how what a process holds went on, over the rounds after the first third, which warm it up.
type Trend struct {
	Looks             int     `json:"looks"`
	RSSStartMiB       float64 `json:"rss_start_mib"` // median of the middle third
	RSSEndMiB         float64 `json:"rss_end_mib"`   // median of the last third
	RSSSlopeMiBPerMin float64 `json:"rss_slope_mib_per_min"`
	FilesStart        int     `json:"files_start"`
	FilesEnd          int     `json:"files_end"`
	GoroutinesStart   int     `json:"goroutines_start"`
	GoroutinesEnd     int     `json:"goroutines_end"`
}

func (t looks) trend() Trend {
	n := len(t)
	if n < 6 {
		return Trend{Looks: n}
	}
	median := func(part looks, of func(look) float64) float64 {
		var s report.Spread
		for _, l := range part {
			s.Add(of(l))
		}
		return s.Median
	}
	rss := func(l look) float64 { return l.rss }
	files := func(l look) float64 { return float64(l.fds) }
	goroutines := func(l look) float64 { return float64(l.goroutines) }
	a, b := t[n/3:2*n/3], t[2*n/3:]
	return Trend{n, median(a, rss), median(b, rss), 60 * t[n/3:].slope(), int(median(a, files)), int(median(b, files)), int(median(a, goroutines)), int(median(b, goroutines))}
}

// slope is the least-squares line's, MiB a second.
func (t looks) slope() float64 {
	var mx, my, sxy, sxx float64
	for _, l := range t {
		mx, my = mx+l.at/float64(len(t)), my+l.rss/float64(len(t))
	}
	for _, l := range t {
		sxy, sxx = sxy+(l.at-mx)*(l.rss-my), sxx+(l.at-mx)*(l.at-mx)
	}
	return sxy / max(sxx, 1e-12)
}

// grown says what grew; "" where nothing did. Both the slope and the step between the thirds must show it: a single high look
// at the end is no trend.
func (r Trend) grown() string {
	switch {
	case r.Looks < 6:
		return fmt.Sprintf("only %d rounds: too few to see a trend", r.Looks)
	case r.RSSEndMiB-r.RSSStartMiB > 12+0.05*r.RSSStartMiB && r.RSSSlopeMiBPerMin > 0:
		return fmt.Sprintf("memory grows: %.0f MiB, then %.0f MiB between rounds (%.2f MiB a minute)", r.RSSStartMiB, r.RSSEndMiB, r.RSSSlopeMiBPerMin)
	case r.FilesEnd > r.FilesStart+1:
		return fmt.Sprintf("open files grow: %d, then %d between rounds", r.FilesStart, r.FilesEnd)
	case r.GoroutinesEnd > r.GoroutinesStart+2:
		return fmt.Sprintf("goroutines grow: %d, then %d between rounds", r.GoroutinesStart, r.GoroutinesEnd)
	}
	return ""
}
