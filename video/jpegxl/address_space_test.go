package jpegxl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestAddressSpace decodes an image in a process with 4 GiB of address space. The values are the
// same as without a limit.
func TestAddressSpace(t *testing.T) {
	const asChild = "ROBOCACHE_TEST_ADDRESS_SPACE"
	values := make([]byte, 48*64*3)
	if err := Decode(t.Context(), values, file(t, "lossy.jxl"), 1); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(asChild) != "" {
		fmt.Printf("values %x\n", values)
		return
	}
	child := exec.Command(
		"sh",
		"-c",
		`ulimit -v 4194304; exec "$@"`,
		"sh",
		os.Args[0],
		"-test.run=^TestAddressSpace$",
	)
	child.Env = append(os.Environ(), asChild+"=1")
	out, err := child.CombinedOutput()
	if err != nil || !bytes.Contains(out, fmt.Appendf(nil, "values %x\n", values)) {
		t.Errorf("%v: %.2000s", err, out)
	}
}

// TestLackOfAddressSpace checks that a decoder that cannot be mapped is a resource limit without a
// stack, and that any other refusal is unsupported.
func TestLackOfAddressSpace(t *testing.T) {
	err := startError(fmt.Errorf("mmap: %w", os.NewSyscallError("mmap", syscall.ENOMEM)))
	if !errors.Is(err, robocache.ErrResourceLimit) || robocache.Bad(err) ||
		strings.Contains(err.Error(), "goroutine") {
		t.Errorf("no address space: %v", err)
	}
	if err := startError(os.NewSyscallError("mmap", syscall.EPERM)); !errors.Is(err,
		robocache.ErrUnsupported) {
		t.Errorf("no executable memory: %v", err)
	}
}
