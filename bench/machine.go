package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Machine records where figures were taken.
type Machine struct {
	Time     time.Time `json:"time"`
	CPU      string    `json:"cpu"`
	Cores    int       `json:"cores"`
	MemoryGB float64   `json:"memory_gb"`
	Kernel   string    `json:"kernel"`
	Load1    string    `json:"load_1min"`
	Go       string    `json:"go"`
	Revision string    `json:"revision"` // of this program; the caller knows it
}

// ThisMachine reads the record from the running system.
func ThisMachine() Machine {
	m := Machine{Time: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version()}
	m.CPU = field(read("/proc/cpuinfo"), "model name")
	m.MemoryGB = float64(kilobytes("MemTotal")/100_000) / 10
	m.Kernel = strings.TrimSpace(read("/proc/sys/kernel/osrelease"))
	m.Load1, _, _ = strings.Cut(read("/proc/loadavg"), " ")
	return m
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// kilobytes is a figure of /proc/meminfo; 0 where the system does not say.
func kilobytes(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(field(read("/proc/meminfo"), name), " kB"), 10, 64)
	return n
}

// availableMemory is what could be used without swapping; 0 where the system does not say.
func availableMemory() int64 { return kilobytes("MemAvailable") << 10 }
