package cuda

import (
	"testing"
	"unsafe"
)

// TestLayout compares the mirrors of the driver's structs with cuda.h.
func TestLayout(t *testing.T) {
	var c launchConfig
	var a launchAttribute
	for what, is := range map[string][2]uintptr{
		"CUlaunchConfig":             {unsafe.Sizeof(c), 56},
		"CUlaunchConfig.hStream":     {unsafe.Offsetof(c.stream), 32},
		"CUlaunchConfig.attrs":       {unsafe.Offsetof(c.attrs), 40},
		"CUlaunchConfig.numAttrs":    {unsafe.Offsetof(c.count), 48},
		"CUlaunchAttribute":          {unsafe.Sizeof(a), 72},
		"CUlaunchAttribute.value":    {unsafe.Offsetof(a.value), 8},
		"parameters of probe.cu":     {unsafe.Sizeof(probeParams{}), 24},
		"parameters of probe.cu, n":  {unsafe.Offsetof(probeParams{}.n), 8},
		"parameters of probe.cu, op": {unsafe.Offsetof(probeParams{}.add), 16},
	} {
		if is[0] != is[1] {
			t.Errorf("%s: %d, not %d", what, is[0], is[1])
		}
	}
}

// probeParams mirrors ProbeParams of src/probe.cu.
type probeParams struct {
	out    uintptr
	n      int64
	add, _ uint32 // add, and the number of rounds of arithmetic
}

// probe prepares a launch of a kernel of src/probe.cu for n words.
func probe(d *Device, kernel string, p probeParams, block, shared uint32) (*Launch, error) {
	l := &Launch{
		op:       kernel,
		launcher: d.launcher,
		sizes:    []uintptr{4},
		bindings: []binding{{at: 0}},
	}
	l.calls = []call{
		{
			kernel: kernel,
			grid:   uint32((p.n + int64(block) - 1) / int64(block)),
			block:  block,
			shared: shared,
			params: paramsOf(&p),
		},
	}
	return l.finishPrepare()
}
