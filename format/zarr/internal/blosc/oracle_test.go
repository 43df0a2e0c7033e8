package blosc

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// script writes buffers with every codec, shuffle, type size and length with c-blosc: u32 raw size,
// raw, u32 packed size, packed.
const script = `
import sys, struct, numpy as np
from numcodecs import Blosc, blosc
blosc.set_nthreads(1)
rng = np.random.default_rng(7)
out = sys.stdout.buffer
for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
    for shuffle in (0, 1, 2):
        for dt in ("u1", "i2", "f4", "f8", "S3", "S16", "S17"):
            for n in (1, 7, 8, 100, 129, 1000, 4096, 70001):
                for bs in (0, 4096):
                    a = np.cumsum(rng.integers(0, 3, n))
                    x = a.astype(dt) if dt[0] != "S" else np.array([str(v) for v in a], dtype=dt)
                    raw = x.tobytes()
                    p = Blosc(cname=cname, clevel=5, shuffle=shuffle, blocksize=bs).encode(x)
                    out.write(struct.pack("<I", len(raw)) + raw + struct.pack("<I", len(p)) + p)
`

// python runs a script in the test environment. It skips the test if there is no interpreter.
func python(t testing.TB, script string) []byte {
	t.Helper()
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with numcodecs: ", err)
	}
	cmd := exec.Command(py, "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Skipf("numcodecs does not run: %v\n%s", err, stderr.Bytes())
	}
	return b
}

// TestAgainstCBlosc checks blosc.B1.
func TestAgainstCBlosc(t *testing.T) {
	b := python(t, script)
	take := func() []byte {
		n := binary.LittleEndian.Uint32(b)
		out := b[4 : 4+n]
		b = b[4+n:]
		return out
	}
	n := 0
	for ; len(b) > 0; n++ {
		raw, packed := take(), take()
		got, err := Decode(packed, int64(len(raw)))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("buffer %d, %d bytes, head % x: %v", n, len(raw), packed[:16], err)
		}
	}
	if n != 5*3*7*8*2 {
		t.Errorf("%d buffers", n)
	}
}
