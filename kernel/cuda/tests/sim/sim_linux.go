package sim

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
)

//go:embed host/sim.h
var header string

//go:embed host/sim.cpp
var scheduler string

//go:embed host/ptx.h
var twins string

// Options are the settings of a Machine.
type Options struct {
	Checked bool   // sim.S5; about ten times slower
	Seed    uint64 // sim.S2
	Flags   []string
}

// Machine is a set of compiled sources and the memory of their kernels.
type Machine struct {
	options Options
	kernels map[string]kernelEntry
	libs    []library

	mu      sync.Mutex
	buffers map[uintptr]mapping
	// Ordered means that the kernels of the next launches order their blocks themselves, so races
	// between blocks are not reported (sim.S5).
	Ordered bool
}

// kernelEntry is the function of a kernel and the library that contains it.
type kernelEntry struct {
	f   uintptr
	lib library
}

// library holds the addresses of the scheduler's functions sim_launch and sim_buffer in one object.
type library struct{ launch, buffer uintptr }

// mapping is the memory of one Alloc: all its pages, and the size that was requested.
type mapping struct {
	pages []byte
	n     int
}

// schedulerLock serializes launches, because the scheduler handles signals of the whole process
// while it runs.
var schedulerLock sync.Mutex

// New compiles sources of a folder ("fuse" is fuse.cu). A source that did not change is compiled
// only once. If g++ is missing, the error is Unsupported.
func New(dir string, sources []string, o Options) (*Machine, error) {
	m := &Machine{options: o, kernels: map[string]kernelEntry{}, buffers: map[uintptr]mapping{}}
	if _, err := exec.LookPath("g++"); err != nil {
		return nil, robocache.Unsupported("simulator", nil, "needs g++").WithCause(err)
	}
	var all errgroup.Group
	all.SetLimit(runtime.NumCPU())
	files, kernels := make([]string, len(sources)), make([][]string, len(sources))
	for i, s := range sources {
		all.Go(func() (err error) {
			files[i], kernels[i], err = compile(dir, s, o)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for i := range sources {
		if err := m.loadObject(files[i], kernels[i]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// loadObject loads a compiled source and finds its kernels.
func (m *Machine) loadObject(file string, kernels []string) error {
	h, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return robocache.Unsupported("simulator", nil, "").WithCause(err)
	}
	var lib library
	for name, to := range map[string]*uintptr{
		"sim_launch": &lib.launch,
		"sim_buffer": &lib.buffer,
	} {
		if *to, err = purego.Dlsym(h, name); err != nil {
			return err
		}
	}
	for _, k := range kernels {
		f, err := purego.Dlsym(h, "sim_kernel_"+k)
		if err != nil {
			return err
		}
		m.kernels[k] = kernelEntry{f, lib}
	}
	m.libs = append(m.libs, lib)
	return nil
}

var (
	dynamicShared = regexp.MustCompile(
		`extern\s+__shared__\s+((?:__attribute__\s*\(\(aligned\(\d+\)\)\)\s*)?)([\w \t]+?)\s*\b(\w+)\s*\[\s*\]\s*;`,
	)
	entryPoint = regexp.MustCompile(`extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(`)
)

// compile compiles a source to a shared object. It preprocesses the source, changes CUDA keywords
// to C++, and appends a function with a fixed signature for each kernel. The object is kept in a
// temporary folder from run to run; its name contains a hash of everything that it depends on.
func compile(dir, source string, o Options) (file string, kernels []string, err error) {
	cache := filepath.Join(os.TempDir(), fmt.Sprintf("robocache-sim-%d", os.Getuid()))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", nil, err
	}
	work, err := os.MkdirTemp(cache, "build")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, text := range map[string]string{
		"sim.h":   header,
		"sim.cpp": scheduler,
		"ptx.h":   twins,
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	run := func(args ...string) ([]byte, error) {
		var out, complaint bytes.Buffer
		c := exec.Command("g++", args...)
		c.Dir, c.Stdout, c.Stderr = work, &out, &complaint
		if err := c.Run(); err != nil {
			return nil, robocache.Malformed(
				"simulator",
				robocache.Where{"source": source},
				"g++ %s\n%s",
				strings.Join(args, " "),
				complaint.String(),
			).
				WithCause(err)
		}
		return out.Bytes(), nil
	}
	from, err := filepath.Abs(filepath.Join(dir, source+".cu"))
	if err != nil {
		return "", nil, err
	}
	text, err := run("-E", "-x", "c++", "-std=c++17", "-w", "-I.", "-include", "sim.h", from)
	if err != nil {
		return "", nil, err
	}
	text = dynamicShared.ReplaceAll(text, []byte("$2 *$3 = ($2 *)sim_dynamic();"))
	for _, k := range entryPoint.FindAllSubmatch(text, -1) {
		kernels = append(kernels, string(k[1]))
	}
	text = bytes.ReplaceAll(text, []byte("__global__"), nil)
	text = bytes.ReplaceAll(text, []byte("__shared__"), []byte("static"))
	text = append(
		text,
		"\ntemplate <class P> static inline void sim_call(void (*f)(P), const void *p) { "+
			"f(*(const P *)p); }\n"...)
	for _, k := range kernels {
		text = append(
			text,
			fmt.Sprintf(
				"extern \"C\" void sim_kernel_%s(const void *p) { sim_call(%s, p); }\n",
				k,
				k,
			)...)
	}
	flags := append(
		[]string{
			"-O1",
			"-std=c++17",
			"-fPIC",
			"-w",
			"-fno-strict-aliasing",
			"-ffp-contract=off",
			"-fno-threadsafe-statics",
			"-fno-exceptions",
			"-fno-stack-protector",
			"-fvisibility=default",
		},
		o.Flags...)
	if runtime.GOARCH == "amd64" {
		// fma as one instruction; the result is exact with and without it
		flags = append(flags, "-mfma", "-mf16c")
	}
	check := []string{}
	if o.Checked {
		check = []string{
			"-fsanitize=thread",
			"-fsanitize=alignment",
			"-fsanitize-undefined-trap-on-error",
		}
	}
	hash := sha256.New()
	fmt.Fprintln(hash, flags, check, len(text), scheduler)
	hash.Write(text)
	file = filepath.Join(cache, source+"-"+hex.EncodeToString(hash.Sum(nil))[:24]+".so")
	if _, err := os.Stat(file); err == nil {
		return file, kernels, nil
	}
	if err := os.WriteFile(filepath.Join(work, "kernels.ii"), text, 0o600); err != nil {
		return "", nil, err
	}
	if _, err := run(append(append(append([]string{}, flags...), check...), "-c", "kernels.ii",
		"-o", "kernels.o")...); err != nil {
		return "", nil, err
	}
	// All sources share one scheduler object.
	hash.Reset()
	fmt.Fprintln(hash, flags, scheduler, header)
	object := filepath.Join(cache, "scheduler-"+hex.EncodeToString(hash.Sum(nil))[:24]+".o")
	if _, err := os.Stat(object); err != nil {
		if _, err := run(append(append([]string{}, flags...), "-O2", "-c", "sim.cpp", "-o",
			"sim.o")...); err != nil {
			return "", nil, err
		}
		if err := os.Rename(filepath.Join(work, "sim.o"), object); err != nil {
			return "", nil, err
		}
	}
	if _,
		err := run("-shared", "-Wl,-Bsymbolic", "-o", "out.so", "kernels.o", object, "-lm"); err !=
		nil {
		return "", nil, err
	}
	return file, kernels, os.Rename(filepath.Join(work, "out.so"), file)
}

// Has reports whether the machine has a kernel.
func (m *Machine) Has(kernel string) bool { _, ok := m.kernels[kernel]; return ok }

// Launch runs a grid until it is finished.
func (m *Machine) Launch(kernel string, grid, block, shared uint32, params []byte) error {
	k, ok := m.kernels[kernel]
	if !ok {
		return robocache.Unsupported("simulator", nil, "no kernel %s", kernel)
	}
	var flags uintptr
	if m.options.Checked {
		flags |= 1
	}
	if m.Ordered {
		flags |= 2
	}
	// The parameters are copied, as a launch does, with space for the alignment of the struct.
	p := make([]uint64, len(params)/8+3)
	at := unsafe.Pointer(&p[0])
	if uintptr(at)%16 != 0 {
		at = unsafe.Pointer(&p[1])
	}
	copy(unsafe.Slice((*byte)(at), len(params)), params)
	schedulerLock.Lock()
	defer schedulerLock.Unlock()
	text, _, _ := purego.SyscallN(
		k.lib.launch,
		k.f,
		uintptr(grid),
		uintptr(block),
		uintptr(shared),
		uintptr(at),
		uintptr(m.options.Seed),
		flags,
	)
	runtime.KeepAlive(p)
	if text != 0 {
		return robocache.Malformed(
			"simulator",
			robocache.Where{"kernel": kernel},
			"%s",
			goText(text),
		)
	}
	return nil
}

// goText returns the text at p, which ends at a zero byte, limited to 1024 bytes.
func goText(p uintptr) string {
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for n < 1024 && *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}

// Alloc returns n bytes and their address. The memory ends, aligned to align, at a page that cannot
// be touched. With before set, it starts at such a page.
func (m *Machine) Alloc(n, align int, before bool) (uintptr, []byte, error) {
	const page = 4096
	size := (n + align - 1) / align * align
	body := (size + page - 1) / page * page
	pages, err := syscall.Mmap(
		-1,
		0,
		body+2*page,
		syscall.PROT_NONE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE,
	)
	if err != nil {
		return 0, nil, robocache.ResourceLimit("simulator", nil, "memory").
			Expected("", fmt.Sprint(n)).WithCause(err)
	}
	if body > 0 {
		if err := syscall.Mprotect(pages[page:page+body],
			syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
			return 0, nil, err
		}
	}
	at := page
	if !before {
		at = page + body - size
	}
	b := pages[at : at+n : at+n]
	// New memory has random contents, so a kernel cannot rely on zeros.
	x := m.options.Seed*2862933555777941757 + 3037000493
	for i := range min(n, 1<<20) { // limited, because filling large memory takes minutes
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(pages))) + uintptr(at)
	m.mu.Lock()
	m.buffers[addr] = mapping{pages, n}
	m.mu.Unlock()
	m.registerBuffer(addr, n)
	return addr, b, nil
}

// registerBuffer tells the schedulers that n bytes at addr are memory of the kernels. n = 0 removes
// them.
func (m *Machine) registerBuffer(addr uintptr, n int) {
	schedulerLock.Lock()
	defer schedulerLock.Unlock()
	for _, l := range m.libs {
		purego.SyscallN(l.buffer, addr, uintptr(n))
	}
}

// Free frees memory of Alloc, which cannot be touched afterwards.
func (m *Machine) Free(addr uintptr) {
	m.mu.Lock()
	b, ok := m.buffers[addr]
	delete(m.buffers, addr)
	m.mu.Unlock()
	if ok {
		m.registerBuffer(addr, 0)
		_ = syscall.Munmap(b.pages)
	}
}

// Owns reports whether an address lies in memory of Alloc.
func (m *Machine) Owns(addr uintptr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, b := range m.buffers {
		if addr >= at && addr < at+uintptr(b.n) {
			return true
		}
	}
	return false
}

// Bytes returns memory of Alloc as a slice.
func (m *Machine) Bytes(addr uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}
