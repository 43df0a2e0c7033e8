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
	m.CPU = procField("/proc/cpuinfo", "model name")
	kb := strings.Fields(procField("/proc/meminfo", "MemTotal"))
	if len(kb) > 0 {
		var n float64
		for _, c := range kb[0] {
			n = n*10 + float64(c-'0')
		}
		m.MemoryGB = float64(int(n/1e5)) / 10
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load1, _, _ = strings.Cut(string(b), " ")
	}
	return m
}

func procField(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// availableMemory is what could be used without swapping; 0 where the system does not say.
func availableMemory() int64 {
	f := strings.Fields(procField("/proc/meminfo", "MemAvailable"))
	if len(f) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(f[0], 10, 64)
	return kb << 10
}
