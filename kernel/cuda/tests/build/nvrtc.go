package build

import (
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Compiler is an open libnvrtc, which compiles CUDA C. The product itself does not need it.
type Compiler struct{ library uintptr }

// FindCompiler opens libnvrtc in the first place that has it. A place is a file, a pattern, or a
// name that the loader resolves.
func FindCompiler(places ...string) (*Compiler, error) {
	var last error
	for _, p := range places {
		names, _ := filepath.Glob(p)
		if len(names) == 0 {
			names = []string{p}
		}
		for _, n := range names {
			h, err := purego.Dlopen(n, purego.RTLD_NOW|purego.RTLD_LOCAL)
			if err == nil {
				return &Compiler{h}, nil
			}
			last = err
		}
	}
	return nil, fmt.Errorf("no libnvrtc: %w", last)
}

// callNVRTC calls a function of NVRTC and returns an error if its result is not 0.
func (c *Compiler) callNVRTC(name string, args ...uintptr) error {
	f, err := purego.Dlsym(c.library, name)
	if err != nil {
		return err
	}
	if r, _, _ := purego.SyscallN(f, args...); int32(r) != 0 {
		return fmt.Errorf("%s: result %d", name, int32(r))
	}
	return nil
}

// cString returns the first byte of s with a zero byte at the end.
func cString(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// ptr returns an address for NVRTC. Pinning forces the value onto the heap. A value on the stack
// could move before the library is called, and the library would write to the old address.
func ptr[T any](pin *runtime.Pinner, p *T) uintptr {
	pin.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

// Version returns the version of NVRTC.
func (c *Compiler) Version() (string, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	v := new([2]int32)
	err := c.callNVRTC("nvrtcVersion", ptr(&pin, &v[0]), ptr(&pin, &v[1]))
	return fmt.Sprintf("%d.%d", v[0], v[1]), err
}

// Compile compiles a source to PTX for compute_N, or to machine code for sm_N, depending on
// options. headers are the files that the source includes, by name.
func (c *Compiler) Compile(
	name, source string,
	headers map[string]string,
	options []string,
	ptx bool,
) ([]byte, error) {
	var texts, names, opts []*byte
	for n, h := range headers {
		names, texts = append(names, cString(n)), append(texts, cString(h))
	}
	for _, o := range options {
		opts = append(opts, cString(o))
	}
	texts, names, opts = append(texts, nil), append(names, nil), append(opts, nil)
	var pin runtime.Pinner
	defer pin.Unpin()
	program, src, file := new(uintptr), cString(source), cString(name)
	if err := c.callNVRTC("nvrtcCreateProgram", ptr(&pin, program), ptr(&pin, src), ptr(&pin, file),
		uintptr(len(names)-1), ptr(&pin, &texts[0]), ptr(&pin, &names[0])); err != nil {
		return nil, err
	}
	defer func() { _ = c.callNVRTC("nvrtcDestroyProgram", ptr(&pin, program)) }()
	err := c.callNVRTC("nvrtcCompileProgram", *program, uintptr(len(opts)-1), ptr(&pin, &opts[0]))
	runtime.KeepAlive([]any{texts, names, opts, src, file})
	if err != nil {
		log, _ := c.readResult(*program, "nvrtcGetProgramLog")
		return nil, fmt.Errorf("%s: %w\n%s", name, err, log)
	}
	if ptx {
		return c.readResult(*program, "nvrtcGetPTX")
	}
	return c.readResult(*program, "nvrtcGetCUBIN")
}

// readResult returns a result of a program. It calls the function what of NVRTC, which reads the
// result, and before it the function with the suffix Size.
func (c *Compiler) readResult(program uintptr, what string) ([]byte, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	n := new(uintptr)
	if err := c.callNVRTC(what+"Size", program, ptr(&pin, n)); err != nil {
		return nil, err
	}
	b := make([]byte, *n+1)
	if err := c.callNVRTC(what, program, ptr(&pin, &b[0])); err != nil {
		return nil, err
	}
	return b[:*n], nil
}
