package zarr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestUMI checks zarr.A2 on UMI's layout as zarr-python and imagecodecs write and read it. Lossy
// images may differ by 1 (video/jpegxl X1).
func TestUMI(t *testing.T) {
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if out, err := exec.Command(python, "-c",
		"import zarr, imagecodecs; assert imagecodecs.JPEGXL.available").CombinedOutput(); err !=
		nil {
		t.Skipf("no zarr or imagecodecs in .venv: %v %s", err, out)
	}
	dir := t.TempDir()
	cmd := exec.Command(python, "testdata/umi.py", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var sums map[string]string
	if err := json.Unmarshal(out, &sums); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"umi.zarr", "umi.zarr.zip"} {
		d := openTree(t, filepath.Join(dir, name))
		for array, want := range sums {
			a := d.arrays[array]
			if a == nil || a.err != nil {
				t.Fatal(array, a)
			}
			if b := all(t, d, a); array != "data/camera1_rgb" && sum(b) != want {
				t.Errorf("%s: %s differs", name, array)
			}
		}
		lossless, lossy := all(t, d, d.arrays["data/camera0_rgb"]),
			all(t, d, d.arrays["data/camera1_rgb"])
		var off int
		for i := range lossy {
			e := int(lossy[i]) - int(lossless[i])
			off += e * e
		}
		if mse := float64(off) / float64(len(lossy)); mse == 0 || mse > 60 {
			t.Error("lossy images: mean square error", mse)
		}
	}
	s := open(t, filepath.Join(dir, "umi.zarr.zip"), ten)
	if s.Info().Episodes != 2 || s.Len(1) != 14 || len(s.Info().Findings) != 0 {
		t.Errorf("%+v", s.Info())
	}
	out2 := make([]robocache.FrameRef, 2)
	if err := s.Frames(t.Context(), "observation.camera0_rgb",
		[]robocache.Row{{Episode: 1, Index: 13}, {Episode: 0, Index: 0}}, out2); err != nil {
		t.Fatal(err)
	}
	whole := all(t, s.tree, s.arrays["data/camera0_rgb"])
	if n := 64 * 80 * 3; !bytes.Equal(out2[0].Raw.Pix, whole[22*n:]) ||
		!bytes.Equal(out2[1].Raw.Pix, whole[:n]) {
		t.Error("images of other rows")
	}
}

// TestJPEGXL reads chunks of JPEG XL without Python, and malformed ones.
func TestJPEGXL(t *testing.T) {
	stream, err := os.ReadFile("../../video/jpegxl/testdata/lossless.jxl")
	if err != nil {
		t.Fatal(err)
	}
	meta := func(shape, chunks, dtype string) string {
		return fmt.Sprintf(
			`{"zarr_format":2,"shape":%s,"chunks":%s,"dtype":"%s","compressor":{"id":"imagecodecs_jpegxl","lossless":true},"fill_value":7,"order":"C","filters":null}`,
			shape,
			chunks,
			dtype,
		)
	}
	d, err := OpenStore(t.Context(), mem(map[string]string{
		".zgroup":       `{"zarr_format":2}`,
		"good/.zarray":  meta("[3,48,64,3]", "[1,48,64,3]", "|u1"),
		"good/0.0.0.0":  string(stream),
		"good/2.0.0.0":  string(stream[:len(stream)-9]),
		"size/.zarray":  meta("[3,48,48,3]", "[1,48,48,3]", "|u1"),
		"size/0.0.0.0":  string(stream),
		"float/.zarray": meta("[3,48,64,3]", "[1,48,64,3]", "<f4"),
		"float/0.0.0.0": string(stream),
	}), ten)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := make([]robocache.FrameRef, 2)
	if err := d.Frames(t.Context(), "good", []robocache.Row{{Index: 0}, {Index: 1}}, out); err !=
		nil {
		t.Fatal(err)
	}
	if p := out[1].Raw.Pix; p[0] != 7 || p[len(p)-1] != 7 || bytes.Equal(out[0].Raw.Pix, p) {
		t.Error("an absent chunk is not the fill value")
	}
	for key, want := range map[string]struct {
		row   int
		class error
	}{
		"good":  {2, robocache.ErrMalformed},
		"size":  {0, robocache.ErrMalformed},
		"float": {0, robocache.ErrUnsupported},
	} {
		rows := []robocache.Row{{Index: want.row}}
		err := d.Frames(t.Context(), key, rows, out[:1])
		if key == "float" {
			err = d.Gather(t.Context(), key, rows, make([]byte, 48*64*3*4))
		}
		if !errors.Is(err, want.class) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
