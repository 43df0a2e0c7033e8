package build

import (
	"fmt"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Compiler is an open libnvrtc: it compiles CUDA C where the library is. The product itself does
// not need it.
type Compiler struct{ library uintptr }

// FindCompiler looks for libnvrtc in the places given: files, patterns, or names that the loader
// knows. The first that opens is taken.
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

func (c *Compiler) call(name string, args ...uintptr) error {
	f, err := purego.Dlsym(c.library, name)
	if err != nil {
		return err
	}
	if r, _, _ := purego.SyscallN(f, args...); int32(r) != 0 {
		return fmt.Errorf("%s: result %d", name, int32(r))
	}
	return nil
}

func text(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// ptr is an address for NVRTC. Pinned, what it points to lies on the heap: a stack may move before
// the library is called, which then writes into memory of others.
func ptr[T any](pin *runtime.Pinner, p *T) uintptr {
	pin.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

// Version is NVRTC's version.
func (c *Compiler) Version() (string, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	v := new([2]int32)
	err := c.call("nvrtcVersion", ptr(&pin, &v[0]), ptr(&pin, &v[1]))
	return fmt.Sprintf("%d.%d", v[0], v[1]), err
}

// Compile makes PTX for compute_N, machine code for sm_N: options say which. Headers are files that
// the source includes, by name.
func (c *Compiler) Compile(
	name, source string,
	headers map[string]string,
	options []string,
	ptx bool,
) ([]byte, error) {
	var texts, names, opts []*byte
	for n, h := range headers {
		names, texts = append(names, text(n)), append(texts, text(h))
	}
	for _, o := range options {
		opts = append(opts, text(o))
	}
	texts, names, opts = append(texts, nil), append(names, nil), append(opts, nil)
	var pin runtime.Pinner
	defer pin.Unpin()
	program, src, file := new(uintptr), text(source), text(name)
	if err := c.call(
		"nvrtcCreateProgram",
		ptr(&pin, program),
		ptr(&pin, src),
		ptr(&pin, file),
		uintptr(len(names)-1),
		ptr(&pin, &texts[0]),
		ptr(&pin, &names[0]),
	); err != nil {
		return nil, err
	}
	defer func() { _ = c.call("nvrtcDestroyProgram", ptr(&pin, program)) }()
	err := c.call("nvrtcCompileProgram", *program, uintptr(len(opts)-1), ptr(&pin, &opts[0]))
	runtime.KeepAlive([]any{texts, names, opts, src, file})
	if err != nil {
		log, _ := c.get(*program, "nvrtcGetProgramLog")
		return nil, fmt.Errorf("%s: %w\n%s", name, err, log)
	}
	if ptx {
		return c.get(*program, "nvrtcGetPTX")
	}
	return c.get(*program, "nvrtcGetCUBIN")
}

func (c *Compiler) get(program uintptr, what string) ([]byte, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	n := new(uintptr)
	if err := c.call(what+"Size", program, ptr(&pin, n)); err != nil {
		return nil, err
	}
	b := make([]byte, *n+1)
	if err := c.call(what, program, ptr(&pin, &b[0])); err != nil {
		return nil, err
	}
	return b[:*n], nil
}
