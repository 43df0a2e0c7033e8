package cuda

import (
	"fmt"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache/kernel/cuda/images"
	"github.com/goatnote-inc/robocache/kernel/cuda/tests/build"
)

// ROBOCACHE_CUDA_SRC=folder compiles the sources of that folder with the libnvrtc of this machine,
// instead of using the images. This is for developing kernels on a GPU machine. Only tests support
// it; the product does not compile. ROBOCACHE_CUDA_OPTIONS adds one option for the compiler.
func init() {
	dir := os.Getenv("ROBOCACHE_CUDA_SRC")
	if dir == "" {
		return
	}
	imageOverride = func(source string, c chip) ([]byte, error) {
		compiler, err := build.FindCompiler(
			"libnvrtc.so.13",
			"libnvrtc.so.12",
			"/opt/torch/.venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.1?",
			"/usr/local/cuda*/lib64/libnvrtc.so",
		)
		if err != nil {
			return nil, err
		}
		s, err := build.Read(dir, source)
		if err != nil {
			return nil, err
		}
		var more []string
		if o := os.Getenv("ROBOCACHE_CUDA_OPTIONS"); o != "" {
			more = append(more, o)
		}
		return s.Compile(compiler, images.Entry{Arch: c.major*10 + c.minor}, more...)
	}
}

// TestOverride compiles a kernel from ROBOCACHE_CUDA_SRC for the device.
func TestOverride(t *testing.T) {
	if imageOverride == nil {
		t.Skip("ROBOCACHE_CUDA_SRC is not set")
	}
	d := device(t)
	b, err := imageOverride("probe", d.launcher.chipInfo())
	fmt.Println(len(b), "bytes of machine code from", os.Getenv("ROBOCACHE_CUDA_SRC"))
	if err != nil {
		t.Fatal(err)
	}
}
