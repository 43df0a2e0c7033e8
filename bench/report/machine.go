package report

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
	m.CPU = Field(ReadText("/proc/cpuinfo"), "model name")
	m.MemoryGB = float64(kilobytes("MemTotal")/100_000) / 10
	m.Kernel = strings.TrimSpace(ReadText("/proc/sys/kernel/osrelease"))
	m.Load1, _, _ = strings.Cut(ReadText("/proc/loadavg"), " ")
	return m
}

func ReadText(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// field is the value of a line "name: value"; "" where there is none.
func Field(text, name string) string {
	for _, line := range strings.Split(text, "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kilobytes is a figure of /proc/meminfo; 0 where the system does not say.
func kilobytes(name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(Field(ReadText("/proc/meminfo"), name), " kB"), 10, 64)
	return n
}

// availableMemory is what could be used without swapping; 0 where the system does not say.
func AvailableMemory() int64 { return kilobytes("MemAvailable") << 10 }
