package gpu

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// driver returns an NVML with two devices. Device 1 has all counters; device 2 has no GPM and no
// energy.
func driver() *nvml {
	ticks, looks := uint64(0), 0
	named := func(word string) func(uintptr, *byte, uint32) int32 {
		return func(d uintptr, to *byte, _ uint32) int32 {
			copy(unsafe.Slice(to, 96), word+string(rune('0'+d)))
			return 0
		}
	}
	return &nvml{
		errorString: func(code int32) string {
			return map[int32]string{
				notSupported:   "Not Supported",
				noSuchFunction: "Function Not Found",
			}[code]
		},
		count:   func(n *uint32) int32 { *n = 2; return 0 },
		byIndex: func(i uint32, d *uintptr) int32 { *d = uintptr(i + 1); return 0 },
		uuid:    named("GPU-"), name: named("H"),
		utilization: func(_ uintptr, v *[2]uint32) int32 { v[0] = 50; return 0 },
		memory:      func(_ uintptr, v *[3]uint64) int32 { v[2] = 3e9; return 0 },
		power:       func(_ uintptr, v *uint32) int32 { *v = 250_000; return 0 },
		energy: func(d uintptr, v *uint64) int32 {
			if d == 2 {
				return notSupported
			}
			ticks++
			*v = ticks * 100_000
			return 0
		},
		clock:      func(_ uintptr, kind uint32, v *uint32) int32 { *v = 1980 * kind; return 0 },
		pcie:       func(_ uintptr, kind uint32, v *uint32) int32 { *v = 1e6 * kind; return 0 },
		gpmSupport: func(d uintptr, v *[2]uint32) int32 { v[1] = uint32(2 - d); return 0 },
		gpmAlloc:   func(s *uintptr) int32 { *s = 7; return 0 },
		gpmFree:    func(uintptr) int32 { return 0 },
		gpmSample:  func(_, _ uintptr) int32 { return 0 },
		gpmMetrics: func(r *gpmRequest) int32 {
			for i := range r.metrics[:r.number] {
				if m := &r.metrics[i]; m.id == 5 {
					m.code = notSupported
				} else {
					m.value = float64(m.id) * 10
					if looks++; looks <= 2 && m.id == 3 {
						m.value = math.NaN()
					}
				}
			}
			return 0
		},
	}
}

func TestMonitor(t *testing.T) {
	m, err := startMonitor(driver(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, d := range m.watchedDevices {
			m.sampleDevice(d, time.Unix(int64(i), 0))
		}
	}
	samples, missing := m.Stop()
	one := Summary(samples, "GPU-1", 0, 4e9)
	for key, want := range map[string]float64{
		"gpu_util_pct":     50,
		"sm_util_pct":      20,
		"sm_occupancy_pct": 30,
		"dram_util_pct":    100,
		"pcie_rx_gb_s":     210 * (1 << 20) / 1e9, "power_w": 250, "sm_clock_mhz": 1980,
		// 200 J in the two seconds between the first and the last sample, scaled to four seconds
		"energy_j": 200 * 2, "gpu_mem_gb": 3,
	} {
		if got, ok := one[key]; !ok || got < want*0.999 || got > want*1.001 {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	two := Summary(samples, "GPU-2", 0, 4e9)
	for _, key := range []string{"sm_util_pct", "tensor_util_pct", "energy_j", "clock_reasons"} {
		if v, ok := two[key]; ok {
			t.Errorf("device 2 has no %s, and gave %v", key, v)
		}
		if missing[key] == "" {
			t.Errorf("no reason for %s", key)
		}
	}
	if two["pcie_rx_gb_s"] != 1e6*1024/1e9 {
		t.Errorf("PCIe without GPM: %v", two["pcie_rx_gb_s"])
	}
	if got := Missing(two, samples, "GPU-2", missing); !strings.Contains(got,
		"sm_util_pct: Not Supported") || !strings.Contains(got, "energy_j: Not Supported") ||
		strings.Contains(got, "power_w") {
		t.Error(got)
	}
	if got := Missing(Summary(samples, "GPU-1", 9e9, 9e9), samples, "GPU-1",
		nil); strings.Count(got, ": no sample in the window") != len(Counters) {
		t.Error(got)
	}
	if got := Missing(nil, samples, "GPU-8f3a", missing); got !=
		"NVML shows no device GPU-8f3a: a MIG slice has no counters of its own" {
		t.Error(got)
	}
	if m.Devices["GPU-2"] != "H2" {
		t.Error(m.Devices)
	}
}

// Samples outside the period do not count. The clock is the median, and the reasons of all samples
// are combined.
func TestSummary(t *testing.T) {
	var samples []Sample
	for i, v := range []float64{1000, 10, 30, 20, 1000} {
		samples = append(
			samples,
			Sample{
				int64(i),
				"a",
				map[string]float64{
					"power_w":       v,
					"sm_clock_mhz":  v,
					"clock_reasons": []float64{16, 1, 4, 1, 16}[i],
					"energy_j":      v,
				},
			},
			Sample{int64(i), "b", map[string]float64{"power_w": 7}},
		)
	}
	got := Summary(samples, "a", 1, 3)
	for k, want := range map[string]float64{
		"power_w":       20,
		"sm_clock_mhz":  20,
		"clock_reasons": 5,
		"energy_j":      10,
	} {
		if got[k] != want {
			t.Errorf("%s: %v, want %v", k, got[k], want)
		}
	}
	if one := Summary(samples, "a", 2, 2); one["power_w"] != 30 || len(one) != 3 {
		t.Errorf("of one sample, which has no energy: %v", one)
	}
}

// TestRealDevice reads the counters of a device of this machine.
func TestRealDevice(t *testing.T) {
	m, err := Start(0)
	if err != nil {
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrUnsupported) || e.Hint == "" {
			t.Errorf("%#v", err)
		}
		t.Skip(err)
	}
	time.Sleep(time.Second) // the driver updates its counters at its own interval
	samples, missing := m.Stop()
	for uuid, name := range m.Devices {
		s := Summary(samples, uuid, 0, time.Now().UnixNano())
		t.Log(name, uuid, s, "missing:", missing)
		for _, key := range []string{"gpu_util_pct", "gpu_mem_gb", "power_w", "sm_clock_mhz"} {
			if _, ok := s[key]; !ok {
				t.Errorf("%s: no %s: %s", name, key, missing[key])
			}
		}
	}
}
