//go:build linux

package cuda

import "unsafe"

// passage is the argument of passageC: the functions that it calls, and theirs. Offsets stand in enter_amd64.s.
type passage struct {
	getCurrent, push, pop, launch uintptr // 0, 8, 16, 24
	context, current              uintptr // 32, 40
	pushed, code                  int32   // 48, 52
	config                        *launchConfig
	function                      uintptr
	params                        *unsafe.Pointer
}

var passageABI0 uintptr

// The way that purego goes; it is what makes cgocall work without cgo, too.
//
//go:linkname cgocall runtime.cgocall
func cgocall(f uintptr, argument unsafe.Pointer) int32

// oneLaunch goes into C once, where asking for the context, launching and leaving by themselves take two to four times.
func (g *gpu) oneLaunch(s *scratchWords, function uintptr) int32 {
	p := &s.passage
	*p = passage{getCurrent: g.f.CtxGetCurrent, push: g.f.CtxPushCurrent_v2, pop: g.f.CtxPopCurrent_v2, launch: g.launchEx,
		context: g.context, config: &s.launch, function: function, params: &s.param}
	cgocall(passageABI0, unsafe.Pointer(p))
	return p.code
}

const hasOneLaunch = true
