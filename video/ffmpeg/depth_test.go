//go:build cgo

package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/video"
)

var depthCodes = []robocache.Depth{
	{Min: 0.01, Max: 10, Shift: 3.5, Log: true},
	{Min: 0.01, Max: 10, Shift: 3.5},
	{Min: 0.1, Max: 4, Shift: 0.5, Log: true},
	{Min: 0, Max: 65.535, Shift: 1, Log: true},
	{Min: 0, Max: 80, Shift: 0},
	{Min: 0.25, Max: 2.5, Shift: 0, Log: true},
}

// ffmpeg.F7: lerobot's numbers in both units. testdata/depth.golden holds the output of
// testdata/depth.py with lerobot 0.6.1; -update writes it again.
func TestDepthEqualsLeRobot(t *testing.T) {
	golden := filepath.Join("testdata", "depth.golden")
	if *update || exhaustive() {
		if out := depthByLeRobot(t); *update {
			if err := os.WriteFile(golden, out, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(out, want) {
			t.Errorf("%v; lerobot says\n%s", err, out)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(want)), "\n")
	if len(lines) != len(depthCodes) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		words := strings.Fields(line)
		if words[0] != depthArgument(depthCodes[i]) {
			t.Fatalf("line %d is of %s, want %s", i, words[0], depthArgument(depthCodes[i]))
		}
		table, err := depthTable(&depthCodes[i], false)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, v := range table {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if sum(b) != words[1] {
			t.Errorf("%+v: the millimetres differ from lerobot's", depthCodes[i])
		}
		if table, err = depthTable(&depthCodes[i], true); err != nil {
			t.Fatal(err)
		}
		for k, word := range words[2:] {
			bits, err := strconv.ParseUint(word, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs := table[45*k], math.Float32frombits(uint32(bits))
			step := float32(0)
			// torch's exp is not the nearest float32 for one code in a hundred
			if depthCodes[i].Log {
				e := theirs + float32(depthCodes[i].Shift)
				step = math.Nextafter32(e, math.MaxFloat32) - e
			}
			if d := ours - theirs; max(d, -d) > step {
				t.Errorf(
					"%+v: code %d gives %v metres, lerobot %v",
					depthCodes[i],
					45*k,
					ours,
					theirs,
				)
			}
		}
	}
}

func depthArgument(d robocache.Depth) string {
	log := 0
	if d.Log {
		log = 1
	}
	return fmt.Sprintf("%v,%v,%v,%d", d.Min, d.Max, d.Shift, log)
}

func depthByLeRobot(t *testing.T) []byte {
	args := []string{filepath.Join("testdata", "depth.py")}
	for _, d := range depthCodes {
		args = append(args, depthArgument(d))
	}
	out, err := exec.Command(python(t), args...).Output()
	if err != nil {
		t.Skipf("no Python with lerobot (ROBOCACHE_PYTHON): %v", err)
	}
	return out
}

func TestDepthFrame(t *testing.T) {
	d := synthetic(33, 5, "gray12le", 2, false, 11)
	defer d.Close()
	codes := convert(t, d, video.Spec{Pixel: video.Gray16})
	for _, code := range depthCodes {
		table, err := depthTable(&code, false)
		if err != nil {
			t.Fatal(err)
		}
		metres, err := depthTable(&code, true)
		if err != nil {
			t.Fatal(err)
		}
		got := convert(t, d, video.Spec{Pixel: video.DepthMM, Depth: &code, ChannelsFirst: true})
		gotM := convert(t, d, video.Spec{Pixel: video.DepthM, Depth: &code})
		for i := range len(codes) / 2 {
			q := min(binary.LittleEndian.Uint16(codes[2*i:]), 4095)
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != table[q] {
				t.Fatalf("%+v: code %d gives %v, want %v", code, q, v, table[q])
			}
			if v := math.Float32frombits(binary.LittleEndian.Uint32(gotM[4*i:])); v != metres[q] {
				t.Fatalf("%+v: code %d gives %v metres, want %v", code, q, v, metres[q])
			}
		}
	}
	for _, bad := range []robocache.Depth{
		{Min: -4, Max: 10, Shift: 3.5, Log: true},
		{Min: math.NaN(), Max: 1},
		{Min: 0, Max: math.Inf(1)},
	} {
		if _, err := depthTable(&bad, false); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
}

// The code that a writer stores is decoded within its step.
func TestDepthRoundTrip(t *testing.T) {
	for _, d := range depthCodes {
		table, err := depthTable(&d, false)
		if err != nil {
			t.Fatal(err)
		}
		for q := 1; q < len(table); q++ {
			if table[q] < table[q-1] {
				t.Fatalf("%+v: not ascending at %d", d, q)
			}
		}
		if lo, hi := table[0], table[4095]; math.Abs(float64(lo)-d.Min*1000) > 1 ||
			math.Abs(float64(hi)-min(d.Max*1000, 65535)) > 1 {
			t.Errorf("%+v: ends at %v and %v", d, lo, hi)
		}
	}
}
