//go:build linux && amd64 && !purego

package cpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestArm64 runs the parts with arm64 instructions under qemu: the vectors, the kernels at the ends
// of memory, and shuffled bytes. make test-arm64 runs the whole suite before a release.
func TestArm64(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil || testing.Short() {
		t.Skip("no qemu-aarch64-static (make qemu), or a short run")
	}
	for folder, tests := range map[string]string{
		".":                              "TestConform|TestLayout|TestSlerpBits|TestRowsEndWhereTheyEnd|FuzzLerp",
		"../../format/internal/elements": "TestUnshuffle",
	} {
		bin := filepath.Join(t.TempDir(), "arm64.test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-o", bin, folder)
		build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go test -c %s: %v\n%s", folder, err, out)
		}
		if out, err := exec.Command(qemu, bin, "-test.short", "-test.run", "^("+tests+")$").
			CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", folder, err, out)
		}
	}
}
