package gpu

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Counter describes one figure of a GPU.
// Is and IsNot describe what the figure means and what it does not mean.
type Counter struct {
	Key, Is, IsNot string
	// id of the GPM metric (Hopper and later); 0 if there is none
	metric uint32
	scale  float64                                        // factor for the GPM value
	read   func(n *nvml, device uintptr) (float64, int32) // reads the figure if GPM has no value
}

// Counters lists all sampled figures.
var Counters = []Counter{
	{
		Key:   "gpu_util_pct",
		Is:    "share of the driver's last period in which any kernel was resident",
		IsNot: "work: one thread, or a collective that spins, is 100 %",
		read: counterReader(
			func(n *nvml) func(uintptr, *[2]uint32) int32 { return n.utilization },
			func(v [2]uint32) float64 { return float64(v[0]) },
		),
	},
	{
		Key:    "sm_util_pct",
		Is:     "multiprocessors with at least one warp",
		IsNot:  "a verdict: small kernels leave some empty also where no data is waited for",
		metric: 2,
		scale:  1,
	},
	{
		Key:    "sm_occupancy_pct",
		Is:     "resident warps ÷ the most there can be",
		IsNot:  "speed: good matrix kernels have few warps",
		metric: 3,
		scale:  1,
	},
	{
		Key:    "tensor_util_pct",
		Is:     "time in which tensor cores worked",
		IsNot:  "all arithmetic: float32 runs elsewhere",
		metric: 5,
		scale:  1,
	},
	{
		Key:    "dram_util_pct",
		Is:     "memory traffic ÷ the most there can be",
		IsNot:  "what the copies from the host take alone",
		metric: 10,
		scale:  1,
	},
	{
		Key:    "pcie_rx_gb_s",
		Is:     "bytes into the GPU over PCIe",
		IsNot:  "batches alone: launches too",
		metric: 21,
		scale:  1 << 20 / 1e9,
		read: counterReader(
			func(n *nvml) func(uintptr, *uint32) int32 { return bindKind(n.pcie, pcieReceive) },
			scaleBy[uint32](1024/1e9),
		),
	},
	{
		Key:   "gpu_mem_gb",
		Is:    "memory in use, of all processes",
		IsNot: "what the training needs: torch keeps what it freed",
		read: counterReader(
			func(n *nvml) func(uintptr, *[3]uint64) int32 { return n.memory },
			func(v [3]uint64) float64 { return float64(v[2]) / 1e9 },
		),
	},
	{
		Key:   "power_w",
		Is:    "the board's power",
		IsNot: "the machine's",
		read: counterReader(
			func(n *nvml) func(uintptr, *uint32) int32 { return n.power },
			scaleBy[uint32](1e-3),
		),
	},
	{
		Key:   "energy_j",
		Is:    "the board's energy since the driver was loaded: its difference counts",
		IsNot: "the machine's",
		read: counterReader(
			func(n *nvml) func(uintptr, *uint64) int32 { return n.energy },
			scaleBy[uint64](1e-3),
		),
	},
	{
		Key:   "sm_clock_mhz",
		Is:    "clock of the multiprocessors",
		IsNot: "constant: runs compare where its medians agree within 2 %",
		read: counterReader(
			func(n *nvml) func(uintptr, *uint32) int32 { return bindKind(n.clock, smClock) },
			scaleBy[uint32](1),
		),
	},
	{
		Key:   "clock_reasons",
		Is:    "bits of what held the clock back (nvmlClocksEventReasons)",
		IsNot: "always a fault: 1 is idle, 4 the power cap",
		read: counterReader(
			func(n *nvml) func(uintptr, *uint64) int32 { return n.reasons },
			scaleBy[uint64](1),
		),
	},
}

// Sample holds the figures of a device at one time, by key.
type Sample struct {
	UnixNS int64              `json:"unix_ns"`
	UUID   string             `json:"uuid"`
	Values map[string]float64 `json:"values"`
}

// Monitor samples all devices until Stop is called.
type Monitor struct {
	Devices map[string]string // names by UUID

	library        *nvml
	watchedDevices []*watchedDevice
	stop           chan struct{}
	done           sync.WaitGroup
	mu             sync.Mutex
	samples        []Sample
	missing        map[string]string
}

// Start starts sampling. GPM needs at least 0.1 s between two samples; a shorter interval is raised
// to 0.1 s.
func Start(interval time.Duration) (*Monitor, error) {
	n, err := loadNVML()
	if err != nil {
		return nil, err
	}
	return startMonitor(n, max(interval, 100*time.Millisecond))
}

// watchedDevice is a device with its two GPM samples, which are used alternately. gpm is nil
// without GPM.
type watchedDevice struct {
	handle uintptr
	uuid   string
	gpm    []uintptr
}

// startMonitor starts the sampling goroutine with a loaded library.
func startMonitor(n *nvml, interval time.Duration) (*Monitor, error) {
	m := &Monitor{
		Devices: map[string]string{},
		library: n,
		stop:    make(chan struct{}),
		missing: map[string]string{},
	}
	var count uint32
	if code := n.count(&count); code != 0 || count == 0 {
		return nil, robocache.Unsupported(
			"GPU monitor",
			nil,
			"NVML finds no device: %s",
			n.errorString(code),
		)
	}
	for i := range count {
		d := &watchedDevice{}
		if n.byIndex(i, &d.handle) != 0 {
			continue
		}
		d.uuid = deviceText(n.uuid, d.handle)
		m.Devices[d.uuid] = deviceText(n.name, d.handle)
		if n.gpmSupport != nil && n.gpmAlloc != nil && n.gpmSample != nil && n.gpmMetrics != nil {
			support := [2]uint32{1, 0} // version of the structure
			var a, b uintptr
			if n.gpmSupport(d.handle, &support) == 0 && support[1] != 0 && n.gpmAlloc(&a) == 0 &&
				n.gpmAlloc(&b) == 0 &&
				n.gpmSample(d.handle, a) == 0 {
				d.gpm = []uintptr{a, b}
			}
		}
		m.watchedDevices = append(m.watchedDevices, d)
	}
	m.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				for _, d := range m.watchedDevices {
					for _, s := range d.gpm {
						n.gpmFree(s)
					}
				}
				return
			case now := <-tick.C:
				for _, d := range m.watchedDevices {
					m.sampleDevice(d, now)
				}
			}
		}
	})
	return m, nil
}

// sampleDevice takes one sample of a device.
func (m *Monitor) sampleDevice(d *watchedDevice, now time.Time) {
	gpm := m.gpmMetrics(d)
	s := Sample{now.UnixNano(), d.uuid, map[string]float64{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range Counters {
		value, code := 0.0, int32(notSupported)
		if v, ok := gpm[c.metric]; ok {
			value, code = v.value*c.scale, v.code
		}
		if code != 0 && c.read != nil {
			value, code = c.read(m.library, d.handle)
		}
		switch {
		case code != 0:
			m.missing[c.Key] = m.library.errorString(code)
		case !math.IsNaN(value) && !math.IsInf(value, 0):
			// GPM divides by a count that may be zero.
			s.Values[c.Key] = value
		}
	}
	m.samples = append(m.samples, s)
}

type gpmValue struct {
	code  int32
	value float64
}

// gpmMetrics returns the GPM figures for the time since the last sample.
func (m *Monitor) gpmMetrics(d *watchedDevice) map[uint32]gpmValue {
	if d.gpm == nil || m.library.gpmSample(d.handle, d.gpm[1]) != 0 {
		return nil
	}
	r := &gpmRequest{version: 1, from: d.gpm[0], to: d.gpm[1]}
	for _, c := range Counters {
		if c.metric != 0 {
			r.metrics[r.number].id = c.metric
			r.number++
		}
	}
	d.gpm[0], d.gpm[1] = d.gpm[1], d.gpm[0]
	if m.library.gpmMetrics(r) != 0 {
		return nil
	}
	out := map[uint32]gpmValue{}
	for _, x := range r.metrics[:r.number] {
		out[x.id] = gpmValue{x.code, x.value}
	}
	return out
}

// Stop ends sampling. It returns the samples and, for each counter without a figure, the reason.
func (m *Monitor) Stop() (samples []Sample, missing map[string]string) {
	close(m.stop)
	m.done.Wait()
	return m.samples, m.missing
}

// Summary returns the mean of each counter of a device between two times. For the clock it returns
// the median, and for clock_reasons the union of the bits. energy_j is the energy between the first
// and the last sample, scaled to the whole time. Counters without samples are left out.
func Summary(samples []Sample, uuid string, from, to int64) map[string]float64 {
	values := map[string][]float64{}
	first, last := int64(-1), int64(-1)
	for _, s := range samples {
		if s.UUID != uuid || s.UnixNS < from || s.UnixNS > to {
			continue
		}
		if first < 0 {
			first = s.UnixNS
		}
		last = s.UnixNS
		for k, v := range s.Values {
			values[k] = append(values[k], v)
		}
	}
	out := map[string]float64{}
	for k, v := range values {
		switch k {
		case "energy_j":
			if last > first {
				out[k] = (v[len(v)-1] - v[0]) * float64(to-from) / float64(last-first)
			}
		case "sm_clock_mhz":
			slices.Sort(v)
			out[k] = v[len(v)/2]
		case "clock_reasons":
			var bits uint64
			for _, x := range v {
				bits |= uint64(x)
			}
			out[k] = float64(bits)
		default:
			var sum float64
			for _, x := range v {
				sum += x
			}
			out[k] = sum / float64(len(v))
		}
	}
	return out
}

// Missing describes why a summary of a device lacks counters. reasons is the second result of Stop.
func Missing(
	summary map[string]float64,
	samples []Sample,
	uuid string,
	reasons map[string]string,
) string {
	if !slices.ContainsFunc(samples, func(s Sample) bool { return s.UUID == uuid }) {
		return "NVML shows no device " + uuid + ": a MIG slice has no counters of its own"
	}
	var out []string
	for _, c := range Counters {
		if _, ok := summary[c.Key]; !ok {
			out = append(out, c.Key+": "+cmp.Or(reasons[c.Key], "no sample in the window"))
		}
	}
	return strings.Join(out, "; ")
}
