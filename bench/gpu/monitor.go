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

// Counter is one figure of a GPU over time.
type Counter struct {
	Key, Is, IsNot string
	// of GPM, Hopper and later; 0: none
	metric uint32
	scale  float64                                        // of its value
	read   func(n *nvml, device uintptr) (float64, int32) // where there is no GPM
}

// Counters are all that is sampled.
var Counters = []Counter{
	{
		Key:   "gpu_util_pct",
		Is:    "share of the driver's last period in which any kernel was resident",
		IsNot: "work: one thread, or a collective that spins, is 100 %",
		read: reader(
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
		read: reader(
			func(n *nvml) func(uintptr, *uint32) int32 { return kindOf(n.pcie, pcieReceive) },
			times[uint32](1024/1e9),
		),
	},
	{
		Key:   "gpu_mem_gb",
		Is:    "memory in use, of all processes",
		IsNot: "what the training needs: torch keeps what it freed",
		read: reader(
			func(n *nvml) func(uintptr, *[3]uint64) int32 { return n.memory },
			func(v [3]uint64) float64 { return float64(v[2]) / 1e9 },
		),
	},
	{
		Key:   "power_w",
		Is:    "the board's power",
		IsNot: "the machine's",
		read: reader(
			func(n *nvml) func(uintptr, *uint32) int32 { return n.power },
			times[uint32](1e-3),
		),
	},
	{
		Key:   "energy_j",
		Is:    "the board's energy since the driver was loaded: its difference counts",
		IsNot: "the machine's",
		read: reader(
			func(n *nvml) func(uintptr, *uint64) int32 { return n.energy },
			times[uint64](1e-3),
		),
	},
	{
		Key:   "sm_clock_mhz",
		Is:    "clock of the multiprocessors",
		IsNot: "constant: runs compare where its medians agree within 2 %",
		read: reader(
			func(n *nvml) func(uintptr, *uint32) int32 { return kindOf(n.clock, smClock) },
			times[uint32](1),
		),
	},
	{
		Key:   "clock_reasons",
		Is:    "bits of what held the clock back (nvmlClocksEventReasons)",
		IsNot: "always a fault: 1 is idle, 4 the power cap",
		read: reader(
			func(n *nvml) func(uintptr, *uint64) int32 { return n.reasons },
			times[uint64](1),
		),
	},
}

// Sample is what the counters of a device showed at a time, by key.
type Sample struct {
	UnixNS int64              `json:"unix_ns"`
	UUID   string             `json:"uuid"`
	Values map[string]float64 `json:"values"`
}

// Monitor samples all devices until Stop.
type Monitor struct {
	Devices map[string]string // names by UUID

	n       *nvml
	watched []*watched
	stop    chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	samples []Sample
	missing map[string]string
}

// Start begins to sample. GPM wants at least 0.1 s between two samples; an interval below is taken
// as that.
func Start(interval time.Duration) (*Monitor, error) {
	n, err := loadNVML()
	if err != nil {
		return nil, err
	}
	return start(n, max(interval, 100*time.Millisecond))
}

// watched is a device, with the two GPM samples that take turns; none where it has no GPM.
type watched struct {
	handle uintptr
	uuid   string
	gpm    []uintptr
}

func start(n *nvml, interval time.Duration) (*Monitor, error) {
	m := &Monitor{
		Devices: map[string]string{},
		n:       n,
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
		d := &watched{}
		if n.byIndex(i, &d.handle) != 0 {
			continue
		}
		d.uuid = text(n.uuid, d.handle)
		m.Devices[d.uuid] = text(n.name, d.handle)
		if n.gpmSupport != nil && n.gpmAlloc != nil && n.gpmSample != nil && n.gpmMetrics != nil {
			support := [2]uint32{1, 0} // version of the structure
			var a, b uintptr
			if n.gpmSupport(d.handle, &support) == 0 && support[1] != 0 && n.gpmAlloc(&a) == 0 &&
				n.gpmAlloc(&b) == 0 &&
				n.gpmSample(d.handle, a) == 0 {
				d.gpm = []uintptr{a, b}
			}
		}
		m.watched = append(m.watched, d)
	}
	m.done.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				for _, d := range m.watched {
					for _, s := range d.gpm {
						n.gpmFree(s)
					}
				}
				return
			case now := <-tick.C:
				for _, d := range m.watched {
					m.look(d, now)
				}
			}
		}
	})
	return m, nil
}

// look takes one sample of a device.
func (m *Monitor) look(d *watched, now time.Time) {
	gpm := m.metrics(d)
	s := Sample{now.UnixNano(), d.uuid, map[string]float64{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range Counters {
		value, code := 0.0, int32(notSupported)
		if v, ok := gpm[c.metric]; ok {
			value, code = v.value*c.scale, v.code
		}
		if code != 0 && c.read != nil {
			value, code = c.read(m.n, d.handle)
		}
		switch {
		case code != 0:
			m.missing[c.Key] = m.n.errorString(code)
		case !math.IsNaN(value) && !math.IsInf(value, 0):
			// GPM divides by what it counted, which may be nothing
			s.Values[c.Key] = value
		}
	}
	m.samples = append(m.samples, s)
}

type gpmValue struct {
	code  int32
	value float64
}

// metrics gives GPM's figures between the last sample and now.
func (m *Monitor) metrics(d *watched) map[uint32]gpmValue {
	if d.gpm == nil || m.n.gpmSample(d.handle, d.gpm[1]) != 0 {
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
	if m.n.gpmMetrics(r) != 0 {
		return nil
	}
	out := map[uint32]gpmValue{}
	for _, x := range r.metrics[:r.number] {
		out[x.id] = gpmValue{x.code, x.value}
	}
	return out
}

// Stop ends sampling. It gives the samples, and of each counter without a figure the reason.
func (m *Monitor) Stop() (samples []Sample, missing map[string]string) {
	close(m.stop)
	m.done.Wait()
	return m.samples, m.missing
}

// Summary are the means of a device's samples between two times, the median of its clock, and
// joules (energy_j) between the first and the last of them, stretched to the whole time. A counter
// without a sample is left out.
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

// Missing says why a summary of a device lacks counters; reasons are Stop's.
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
