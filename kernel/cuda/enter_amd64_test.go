//go:build linux

package cuda

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The passage into C asks, pushes where it must, launches, pops what it pushed, and gives the result of what failed.
func TestPassage(t *testing.T) {
	p := passage{}
	for what, at := range map[string][2]uintptr{
		"context": {unsafe.Offsetof(p.context), 32}, "current": {unsafe.Offsetof(p.current), 40}, "pushed": {unsafe.Offsetof(p.pushed), 48},
		"code": {unsafe.Offsetof(p.code), 52}, "config": {unsafe.Offsetof(p.config), 56}, "function": {unsafe.Offsetof(p.function), 64}, "params": {unsafe.Offsetof(p.params), 72},
	} {
		if at[0] != at[1] {
			t.Errorf("%s lies at %d, not %d", what, at[0], at[1])
		}
	}
	var log []string
	var current uintptr
	result := map[string]int32{}
	note := func(what string, args ...any) uintptr {
		log = append(log, fmt.Sprint(append([]any{what}, args...)...))
		return uintptr(result[what])
	}
	g := &gpu{driver: &driver{}, context: 77}
	g.f.CtxGetCurrent = purego.NewCallback(func(p *uintptr) uintptr { *p = current; return note("get") })
	g.f.CtxPushCurrent_v2 = purego.NewCallback(func(c uintptr) uintptr { return note("push", c) })
	g.f.CtxPopCurrent_v2 = purego.NewCallback(func(p *uintptr) uintptr { *p = 1; return note("pop") })
	g.launchEx = purego.NewCallback(func(c *launchConfig, f uintptr, p *unsafe.Pointer, extra uintptr) uintptr {
		return note("launch", c.gridX, " ", c.blockX, " ", c.shared, " ", c.stream, " ", c.count, " ", f, " ", *(*byte)(*p), " ", extra)
	})
	k := &call{kernel: "k", grid: 3, block: 64, shared: 16, params: []byte{9, 0}, early: true, device: &function{handle: 5, maxThreads: 1024, maxShared: 1000, early: true}}
	run := func(want int32, expect ...string) {
		t.Helper()
		log = nil
		s := new(scratchWords)
		s.param = unsafe.Pointer(unsafe.SliceData(k.params))
		if code := g.put(s, k, k.device.(*function), 4); code != want || !slices.Equal(log, expect) {
			t.Errorf("%d, %q; want %d, %q", code, log, want, expect)
		}
	}
	const launched = "launch3 64 16 4 1 5 9 0"
	current = 77
	run(0, "get", launched)
	current = 0
	run(0, "get", "push77", launched, "pop")
	current = 88
	run(0, "get", "push77", launched, "pop")
	result["launch"] = 700
	run(700, "get", "push77", launched, "pop")
	current = 77
	run(700, "get", launched)
	result["get"] = 3
	run(3, "get")
	delete(result, "get")
	current, result["push"] = 0, 4
	run(4, "get", "push77")
}
