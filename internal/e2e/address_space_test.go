package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestAddressSpace reads recordings in a process with 4 GiB of address space, as batch systems set
// it. The result must equal the result without a limit.
func TestAddressSpace(t *testing.T) {
	program := filepath.Join(t.TempDir(), "robocache")
	build := exec.Command("go", "build", "-o", program, "./cmd/robocache")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, set := range []string{"rosbag2/py", "rosbag2/cpp"} {
		t.Run(set, func(t *testing.T) {
			path := realdata.Path(t, set)
			want, err := exec.Command(program, "inspect", "--json", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			limited := exec.Command("sh", "-c", `ulimit -v 4194304; exec "$@"`, "sh", program, "inspect", "--json", path)
			got, err := limited.Output()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		})
	}
}
