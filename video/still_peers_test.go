package video

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache/internal/inflate"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video/turbojpeg"
)

// TestStillPeers prints MB/s of decoded bytes per CPU second for this package, the standard library
// and Python (with ROBOCACHE_PEERS=1).
func TestStillPeers(t *testing.T) {
	if os.Getenv("ROBOCACHE_PEERS") == "" {
		t.Skip("a measurement: ROBOCACHE_PEERS=1")
	}
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	cmd := exec.Command(python, "testdata/peers/still.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no PIL in .venv: %v", err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }()
	answers := bufio.NewScanner(out)

	const w, h = 640, 480
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	rng := rand.New(rand.NewPCG(3, 4))
	rgb := make([]byte, 3*w*h)
	for i := range w * h {
		x, y := i%w, i/w
		v := [3]int{x/3 + y/5, x / 4, y/2 + x*y/900}
		for c := range 3 {
			rgb[3*i+c] = byte(v[c] + rng.IntN(5))
			m.Pix[4*i+c] = rgb[3*i+c]
		}
		m.Pix[4*i+3] = 255
	}
	var jpg, pngs, packed bytes.Buffer
	if err := jpeg.Encode(&jpg, m, &jpeg.Options{Quality: 90}); err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(&pngs, m); err != nil {
		t.Fatal(err)
	}
	z, err := zlib.NewWriterLevel(&packed, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(rgb); err != nil {
		t.Fatal(err)
	}
	z.Close()
	dst := make([]byte, len(rgb))
	still := func(b []byte) func() error {
		return func() error { return DecodeStill(b, &Spec{}, dst) }
	}
	decoded := func(b []byte, format string) func() error {
		return func() error {
			img, err := decodeImage(b, StillInfo{Format: format, Width: w, Height: h})
			if err == nil {
				packRGB(img, dst)
			}
			return err
		}
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name      string
		data      []byte
		ours, std func() error
	}{
		{"still.jpg", jpg.Bytes(), still(jpg.Bytes()), decoded(jpg.Bytes(), "jpeg")},
		{"still.png", pngs.Bytes(), still(pngs.Bytes()), decoded(pngs.Bytes(), "png")},
		{"chunk.zlib", packed.Bytes(), func() error {
			return inflate.Zlib(dst, packed.Bytes())
		}, func() error {
			r, err := zlib.NewReader(bytes.NewReader(packed.Bytes()))
			if err == nil {
				_, err = io.ReadFull(r, dst)
			}
			return err
		}},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		const times, rounds = 30, 5
		var ours, std, py []float64
		for range rounds {
			ours = append(ours, cpuOf(t, times, c.ours))
			std = append(std, cpuOf(t, times, c.std))
			fmt.Fprintln(in, path, times)
			if !answers.Scan() {
				t.Skip("no PIL in .venv")
			}
			s, err := strconv.ParseFloat(strings.TrimSpace(answers.Text()), 64)
			if err != nil {
				t.Fatal(err)
			}
			py = append(py, s)
		}
		mb := float64(len(rgb)) / 1e6
		o, s, p := middle(ours), middle(std), middle(py)
		t.Logf(
			"%-10s ours %4.0f MB/s, standard library %4.0f (%.1f×), Python %4.0f (%.2f×)   "+
				"libjpeg-turbo %v, libdeflate %v",
			c.name,
			mb/o,
			mb/s,
			s/o,
			mb/p,
			p/o,
			turbojpeg.Native(),
			inflate.Native(),
		)
	}
}

func middle(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }

// cpuOf returns the CPU seconds of a call.
func cpuOf(t *testing.T, times int, f func() error) float64 {
	used := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Skip(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	before := used()
	for range times {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	return (used() - before) / float64(times)
}
