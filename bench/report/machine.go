package report

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Machine describes the machine on which figures were measured.
type Machine struct {
	Time     time.Time `json:"time"`
	CPU      string    `json:"cpu"`
	Cores    int       `json:"cores"`
	MemoryGB float64   `json:"memory_gb"`
	Kernel   string    `json:"kernel"`
	Load1    string    `json:"load_1min"`
	Go       string    `json:"go"`
	Revision string    `json:"revision"` // of this program, set by the caller
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine(revision string) Machine {
	load, _, _ := strings.Cut(ReadText("/proc/loadavg"), " ")
	return Machine{
		Time: time.Now().
			UTC().
			Truncate(time.Second),
		CPU:      Field(ReadText("/proc/cpuinfo"), "model name"),
		Cores:    runtime.NumCPU(),
		MemoryGB: float64(Kilobytes("MemTotal")/100_000) / 10,
		Kernel: strings.TrimSpace(
			ReadText("/proc/sys/kernel/osrelease"),
		),
		Load1:    load,
		Go:       runtime.Version(),
		Revision: revision,
	}
}

// About returns sentences that describe where figures were measured, and with which versions.
func About(command string, m Machine, device string, versions map[string]string) []string {
	v := []string{m.Go}
	for _, k := range slices.Sorted(maps.Keys(versions)) {
		v = append(v, k+" "+versions[k])
	}
	return []string{
		fmt.Sprintf(
			"`%s` on %s: %s, %d cores, %.1f GB, kernel %s%s, load %s at the start, revision %s.",
			command,
			m.Time.Format("2006-01-02 15:04 MST"),
			m.CPU,
			m.Cores,
			m.MemoryGB,
			m.Kernel,
			device,
			m.Load1,
			m.Revision,
		),
		"Versions: " + strings.Join(v, ", ") + ".",
	}
}

// ReadText returns the content of a file in /proc or /sys, or "" on error.
func ReadText(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// Field returns the value of a line "name: value", or "".
func Field(text, name string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Kilobytes returns a figure of /proc/meminfo, or 0.
func Kilobytes(name string) int64 {
	n, _ := strconv.ParseInt(
		strings.TrimSuffix(Field(ReadText("/proc/meminfo"), name), " kB"),
		10,
		64,
	)
	return n
}
