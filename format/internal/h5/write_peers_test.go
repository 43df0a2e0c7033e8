package h5

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestWritePeers prints megabytes of pixels per CPU second for our writer and h5py in turn
// (ROBOCACHE_PEERS=1). It writes 256 images of 96×128, one chunk each.
func TestWritePeers(t *testing.T) {
	if os.Getenv("ROBOCACHE_PEERS") == "" {
		t.Skip("a measurement: ROBOCACHE_PEERS=1")
	}
	const n, h, w = 256, 96, 128
	pixels := make([]byte, n*h*w*3)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range pixels {
		pixels[i] = byte(i/3%w + i/(3*w) + rng.IntN(4))
	}
	dir := t.TempDir()
	raw := filepath.Join(dir, "pixels")
	if err := os.WriteFile(raw, pixels, 0o600); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	for _, level := range []int{0, 1, 4} {
		ours, peer := 1e9, 1e9
		for range 3 {
			before := cpu(t)
			writePixels(
				t,
				filepath.Join(dir, "ours.h5"),
				pixels,
				Spec{
					DType:     robocache.Uint8,
					Shape:     []int64{n, h, w, 3},
					ChunkRows: 1,
					Deflate:   level,
				},
			)
			ours = min(ours, cpu(t)-before)
			code := fmt.Sprintf(`import h5py, numpy as np, time
a = np.fromfile(%q, np.uint8).reshape(%d, %d, %d, 3)
t = time.process_time()
with h5py.File(%q, "w") as f:
    f.create_dataset("image", data=a, chunks=(1, %d, %d, 3), **({"compression": "gzip", "compression_opts": %d} if %d else {}))
print(time.process_time() - t)`, raw, n, h, w, filepath.Join(dir, "peer.h5"), h, w, level, level)
			out, err := exec.Command(python, "-c", code).Output()
			if err != nil {
				t.Skipf("no h5py in .venv: %v", err)
			}
			s, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
			if err != nil {
				t.Fatal(err)
			}
			peer = min(peer, s)
		}
		size := func(name string) int64 {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		mb := float64(len(pixels)) / 1e6
		t.Logf(
			"gzip %d: ours %4.0f MB/s, %d bytes; h5py %4.0f MB/s, %d bytes (%.1f×)",
			level,
			mb/ours,
			size("ours.h5"),
			mb/peer,
			size("peer.h5"),
			peer/ours,
		)
	}
}

func writePixels(t *testing.T, path string, pixels []byte, spec Spec) {
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	f := NewWriter(out)
	d, err := f.Root().Dataset("image", spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{d.Write(pixels), d.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func cpu(t *testing.T) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Skip(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
