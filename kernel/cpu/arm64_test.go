//go:build linux && amd64 && !purego

package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestArm64 runs the vectors, and the kernels at the ends of memory, on arm64 by qemu. The whole suite there is a matter of releases: make test-arm64.
func TestArm64(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil || testing.Short() {
		t.Skip("no qemu-aarch64-static (make qemu), or a short run")
	}
	bin := filepath.Join(t.TempDir(), "cpu.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", bin, ".")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	if out, err := exec.Command(qemu, bin, "-test.short", "-test.run", "^(TestConform|TestLayout|TestRowsEndWhereTheyEnd|FuzzLerp)$").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
