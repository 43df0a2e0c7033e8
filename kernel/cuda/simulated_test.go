//go:build linux

package cuda

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/sim"
)

// simulated is the launcher of tests. It runs kernels on the host.
type simulated struct {
	m       *sim.Machine
	chip    chip
	capture bool // result of isCapturing
	before  bool // memory starts, instead of ends, at the page that cannot be touched
	align   int
}

// simulator returns a device that runs the kernels of some sources of src on the host ("fuse" is
// fuse.cu). Without g++ the test is skipped.
func simulator(t testing.TB, o sim.Options, sources ...string) *Device {
	t.Helper()
	m, err := sim.New("src", sources, o)
	if errors.Is(err, robocache.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	// An H200 with fewer multiprocessors, so that a small grid fills it.
	return &Device{
		launcher: &simulated{
			m: m,
			chip: chip{
				processors: 4,
				major:      9,
				minor:      0,
				shared:     227 << 10,
				l2:         50 << 20,
				threads:    2048,
			},
			align: 16,
		},
	}
}

func (s *simulated) launchCall(k *call, _ uintptr) error {
	return s.m.Launch(k.kernel, k.grid, k.block, k.shared, k.params)
}

func (s *simulated) prepareKernel(k *call) error {
	if !s.m.Has(k.kernel) {
		return &robocache.Error{
			Class: robocache.ErrUnsupported,
			Op:    "simulator",
			Msg:   "no image has kernel " + k.kernel,
		}
	}
	return nil
}

func (s *simulated) waitStream(uintptr) error { return nil }
func (s *simulated) isCapturing(uintptr) bool { return s.capture }
func (s *simulated) chipInfo() chip           { return s.chip }
func (s *simulated) freeMemory(addr uintptr)  { s.m.Free(addr) }
func (s *simulated) allocMemory(n int) (uintptr, error) {
	addr, _, err := s.m.Alloc(n, s.align, s.before)
	return addr, err
}

func (s *simulated) checkOwner(addr uintptr) error {
	if s.m.Owns(addr) {
		return nil
	}
	return &robocache.Error{
		Class: robocache.ErrMisuse,
		Op:    "simulator",
		Msg:   "must be on the same device",
	}
}

func (s *simulated) uploadBytes(b []byte) (uintptr, error) {
	addr, to, err := s.m.Alloc(len(b), 16, false)
	copy(to, b)
	return addr, err
}

func (s *simulated) newStream() (uintptr, error) { return 1, nil }
func (s *simulated) freeStream(uintptr)          {}

func (s *simulated) clearMemory(addr uintptr, n int, _ uintptr) error {
	clear(s.m.Bytes(addr, n))
	return nil
}

func (s *simulated) copyIn(to uintptr, b []byte, _ uintptr) error {
	copy(s.m.Bytes(to, len(b)), b)
	return nil
}

func (s *simulated) copyOut(b []byte, from uintptr, _ uintptr) error {
	copy(b, s.m.Bytes(from, len(b)))
	return nil
}
