//go:build cgo

package ffmpeg

import (
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

// F7: lerobot's own numbers, code by code.
func TestDepthEqualsLeRobot(t *testing.T) {
	py := os.Getenv("ROBOCACHE_PYTHON")
	if py == "" {
		py = filepath.Join(root(t), ".venv", "bin", "python")
	}
	args := []string{filepath.Join("testdata", "depth.py")}
	for _, d := range depthCodes {
		log := 0
		if d.Log {
			log = 1
		}
		args = append(args, fmt.Sprintf("%v,%v,%v,%d", d.Min, d.Max, d.Shift, log))
	}
	out, err := exec.Command(py, args...).Output()
	if err != nil {
		t.Skipf("no Python with lerobot (ROBOCACHE_PYTHON): %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(depthCodes) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		table, err := depthTable(&depthCodes[i], false)
		if err != nil {
			t.Fatal(err)
		}
		differ := 0
		for q, word := range strings.Fields(line) {
			want, _ := strconv.Atoi(word)
			if table[q] != float32(want) {
				if math.Abs(float64(table[q])-float64(want)) > 1 || differ == 0 {
					t.Logf("%+v: code %d gives %v, lerobot %d", depthCodes[i], q, table[q], want)
				}
				differ++
			}
		}
		if differ > 0 {
			t.Errorf("%+v: %d of 4096 codes differ from lerobot", depthCodes[i], differ)
		}
	}
}

func TestDepthPicture(t *testing.T) {
	d := synthetic(33, 5, "gray12le", 2, false, 11)
	defer d.Close()
	codes := convert(t, d, video.Spec{Pixel: video.Gray16})
	for _, code := range depthCodes {
		table, err := depthTable(&code, false)
		if err != nil {
			t.Fatal(err)
		}
		got := convert(t, d, video.Spec{Pixel: video.DepthMM, Depth: &code, ChannelsFirst: true})
		for i := range len(codes) / 2 {
			q := min(binary.LittleEndian.Uint16(codes[2*i:]), 4095)
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); v != table[q] {
				t.Fatalf("%+v: code %d gives %v, want %v", code, q, v, table[q])
			}
		}
	}
	for _, bad := range []robocache.Depth{{Min: -4, Max: 10, Shift: 3.5, Log: true}, {Min: math.NaN(), Max: 1}, {Min: 0, Max: math.Inf(1)}} {
		if _, err := depthTable(&bad, false); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
}

// The code that a writer makes comes back within its step.
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
		if lo, hi := table[0], table[4095]; math.Abs(float64(lo)-d.Min*1000) > 1 || math.Abs(float64(hi)-min(d.Max*1000, 65535)) > 1 {
			t.Errorf("%+v: ends at %v and %v", d, lo, hi)
		}
	}
}
