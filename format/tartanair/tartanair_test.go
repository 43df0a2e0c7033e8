package tartanair_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/tartanair"
	"github.com/goatnote-inc/robocache/format/tests/formattest"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// npyFile returns an npy file of little-endian numbers.
func npyFile(descr string, shape string, values any) []byte {
	var data bytes.Buffer
	_ = binary.Write(&data, binary.LittleEndian, values)
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	out := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(out, header...), data.Bytes()...)
}

func pngFile(t testing.TB, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// rgba returns an image of four channels that differ from pixel to pixel.
func rgba(seed int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, 16, 12))
	for i := range m.Pix {
		m.Pix[i] = byte(i*7 + seed*31)
	}
	for i := 3; i < len(m.Pix); i += 4 {
		m.Pix[i] = 0x45 // the highest byte of floats in the thousands
	}
	return m
}

const poseLine = "1.5 -2 3e-1 0 0 0.6 0.8\n"

// trajectoryFiles returns the files of a trajectory of V2 with n frames.
func trajectoryFiles(t testing.TB, n int) map[string][]byte {
	t.Helper()
	out := map[string][]byte{"pose_lcam_front.txt": []byte(strings.Repeat(poseLine, n))}
	var cam, imu []float64
	var acc []float64
	for i := range n {
		name := fmt.Sprintf("%06d_lcam_front", i)
		opaque := rgba(i)
		for k := 3; k < len(opaque.Pix); k += 4 {
			opaque.Pix[k] = 255
		}
		out["image_lcam_front/"+name+".png"] = pngFile(t, opaque)
		out["depth_lcam_front/"+name+"_depth.png"] = pngFile(t, rgba(i))
		labels := image.NewGray(image.Rect(0, 0, 16, 12))
		labels.Pix[i] = 9
		out["seg_lcam_front/"+name+"_seg.png"] = pngFile(t, labels)
		cam = append(cam, float64(i)/10)
		for k := range 10 {
			imu = append(imu, float64(i)/10+float64(k)/100)
			acc = append(acc, float64(i), float64(k), 1)
		}
	}
	out["imu/cam_time.npy"] = npyFile("<f8", fmt.Sprintf("(%d,)", n), cam)
	out["imu/imu_time.npy"] = npyFile("<f8", fmt.Sprintf("(%d,)", 10*n), imu)
	out["imu/acc.npy"] = npyFile("<f8", fmt.Sprintf("(%d, 3)", 10*n), acc)
	return out
}

// TestSuite runs the tests that every format must pass.
func TestSuite(t *testing.T) {
	root := t.TempDir()
	for name, n := range map[string]int{"E/Data_easy/P000": 4, "E/Data_hard/P001": 3} {
		for file, content := range trajectoryFiles(t, n) {
			path := filepath.Join(root, name, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	formattest.Run(t, formattest.Fixture{URI: root, Format: "tartanair"})
}

// TestDepthIsTheBytesOfThePixels checks blue, green, red and alpha as a float32 (tartanair.T2).
func TestDepthIsTheBytesOfThePixels(t *testing.T) {
	m := storetest.NewMem("tartandepth")
	defer m.Drop()
	for file, content := range trajectoryFiles(t, 2) {
		m.Put("P000/"+file, content)
	}
	d, err := tartanair.OpenStore(t.Context(), m, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]robocache.FrameRef, 1)
	rows := []robocache.Row{{Index: 1}}
	if err := d.Frames(t.Context(), "observation.depth.lcam_front", rows, out); err != nil {
		t.Fatal(err)
	}
	p := rgba(1).Pix[4*17:]
	want := math.Float32frombits(
		uint32(p[2]) | uint32(p[1])<<8 | uint32(p[0])<<16 | uint32(p[3])<<24,
	)
	got := math.Float32frombits(binary.LittleEndian.Uint32(out[0].Raw.Pix[4*17:]))
	if got != want {
		t.Errorf("depth = %v, want %v", got, want)
	}
}

// FuzzTrajectory reads arbitrary bytes as poses, times, arrays and depth. The result is values or a
// typed error (tartanair.T6).
func FuzzTrajectory(f *testing.F) {
	depth := pngFile(f, rgba(0))
	times := npyFile("<f8", "(2,)", []float64{0, 0.1})
	acc := npyFile("<f4", "(2, 3)", make([]float32, 6))
	f.Add("000000_lcam_front_depth.png", []byte(poseLine+poseLine), times, acc, depth)
	f.Add("000001_left_depth.npy", []byte("\n\n1 2 3\n"), acc, times,
		npyFile("<f2", "(4, 4)", make([]uint16, 16)))
	f.Add("9_x.png", []byte("nan "+poseLine), times[:40], acc[:70], depth[:50])
	f.Fuzz(func(t *testing.T, name string, poses, times, array, frame []byte) {
		if _, err := store.CleanName("P0/depth_lcam_front/" + name); err != nil {
			return
		}
		m := storetest.NewMem("fuzztartan")
		defer m.Drop()
		m.Put("P0/image_lcam_front/000000_lcam_front.png", pngFile(t, rgba(0)))
		m.Put("P0/depth_lcam_front/"+name, frame)
		m.Put("P0/pose_lcam_front.txt", poses)
		m.Put("P0/imu/cam_time.npy", times)
		m.Put("P0/imu/imu_time.npy", times)
		m.Put("P0/imu/acc.npy", array)
		d, err := tartanair.OpenStore(t.Context(), m, robocache.OpenOptions{MemoryBudget: 4 << 20})
		if err != nil {
			hostile.Typed(t, err)
			return
		}
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
		hostile.Typed(t, err)
		for _, x := range found {
			if strings.Contains(x.Message, "internal") {
				t.Errorf("%v", x)
			}
		}
	})
}
