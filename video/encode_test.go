package video

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
)

// pic draws test frame k as RGB.
func pic(w, h, k int) []byte {
	b := make([]byte, 3*w*h)
	for y := range h {
		for x := range w {
			p := b[3*(y*w+x):]
			p[0], p[1], p[2] = byte(40+2*x+k), byte(60+3*y), byte(200-x-y)
		}
	}
	return b
}

func encodeAll(t testing.TB, cfg EncodeConfig, frames [][]byte) (string, error) {
	t.Helper()
	// the path has a leading dash and a pattern, which must be taken literally
	path := filepath.Join(t.TempDir(), "-out %d.mp4")
	e, err := NewEncoder(t.Context(), path, cfg)
	if err != nil {
		return path, err
	}
	for _, f := range frames {
		if err := e.Write(f); err != nil {
			return path, err
		}
	}
	return path, e.Close()
}

// TestEncode: every frame is decoded again at its time, with its colors. The same input produces
// the same bytes (video.V10).
func TestEncode(t *testing.T) {
	t.Parallel() // most of the work is in other programs
	tool(t, "ffmpeg")
	for name, c := range map[string]struct {
		cfg   EncodeConfig
		codec Codec
		most  float64 // maximum mean difference, in levels
	}{
		"av1": {EncodeConfig{Width: 96, Height: 64}, AV1, 6},
		"h264": {
			EncodeConfig{Codec: H264, Width: 96, Height: 64, GOP: 8, CRF: 10},
			H264,
			4,
		},
		"h264 odd size": {
			EncodeConfig{Codec: H264, Width: 37, Height: 21, CRF: 10, Preset: "veryfast"},
			H264,
			4,
		},
		"hevc": {
			EncodeConfig{Codec: HEVC, Width: 96, Height: 64, GOP: 4, CRF: 10, Preset: "ultrafast"},
			HEVC,
			4,
		},
		"h264, 29.97 Hz": {
			EncodeConfig{
				Codec:  H264,
				Width:  96,
				Height: 64,
				Rate:   robocache.Rate{Num: 30000, Den: 1001},
			},
			H264,
			8,
		},
		"h264, 12.5 Hz": {
			EncodeConfig{Codec: H264, Width: 96, Height: 64, Rate: robocache.Rate{Num: 25, Den: 2}},
			H264,
			8,
		},
	} {
		if testing.Short() && name != "h264" {
			continue
		}
		if c.cfg.Rate.Zero() {
			c.cfg.Rate = robocache.Rate{Num: 30, Den: 1}
		}
		if err := CanEncode(t.Context(), c.cfg); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		var frames [][]byte
		for k := range 11 {
			frames = append(frames, pic(c.cfg.Width, c.cfg.Height, k))
		}
		path, err := encodeAll(t, c.cfg, frames)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ix := indexOf(t, path)
		e := ix.Entries()[0]
		if e.Codec != c.codec || e.Width != c.cfg.Width || e.Height != c.cfg.Height ||
			e.FullRange ||
			e.Matrix != 2 && e.Matrix != 6 {
			t.Errorf("%s: %+v", name, e)
		}
		for k := range frames {
			if gop := max(c.cfg.GOP, 2); (k%gop == 0) != ix.Sample(ix.DecodeIndex(k)).Sync {
				t.Errorf("%s: frame %d: sync is %v", name, k, k%gop != 0)
			}
		}
		raw := runTool(
			t,
			"ffmpeg",
			"-v",
			"error",
			"-nostdin",
			"-i",
			"file:"+path,
			"-f",
			"rawvideo",
			"-pix_fmt",
			"rgb24",
			"-",
		)
		sum := 0.0
		for i, v := range bytes.Join(frames, nil) {
			d := int(v) - int(raw[i])
			sum += float64(max(d, -d))
		}
		if mean := sum / float64(len(raw)); mean > c.most {
			t.Errorf("%s: %.1f levels off on average", name, mean)
		}
		again, err := encodeAll(t, c.cfg, frames)
		a, _ := os.ReadFile(path)
		b, _ := os.ReadFile(again)
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the same frames gave other bytes (%v)", name, err)
		}
		for _, s := range []string{"Lavf", "x264 - core", "x265 (build"} {
			if bytes.Contains(a, []byte(s)) {
				t.Errorf("%s: the file names its maker: %s", name, s)
			}
		}
		f := fileOf(t, path)
		if _, err := planJoin(t.Context(), []Part{{f, 0, 11}, {f, 0, 11}}, c.cfg.Rate); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEncodeDepth: 12-bit codes are unchanged after decoding.
func TestEncodeDepth(t *testing.T) {
	cfg := EncodeConfig{Width: 64, Height: 48, Rate: robocache.Rate{Num: 30, Den: 1}, Gray12: true}
	if err := CanEncode(t.Context(), cfg); err != nil {
		t.Skip(err)
	}
	var frames [][]byte
	for k := range 7 {
		b := make([]byte, cfg.FrameBytes())
		for i := range 64 * 48 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16((i*37+k*501)%4096))
		}
		frames = append(frames, b)
	}
	path, err := encodeAll(t, cfg, frames)
	if err != nil {
		t.Fatal(err)
	}
	raw := runTool(
		t,
		"ffmpeg",
		"-v",
		"error",
		"-nostdin",
		"-i",
		"file:"+path,
		"-f",
		"rawvideo",
		"-pix_fmt",
		"gray12le",
		"-",
	)
	if !bytes.Equal(raw, bytes.Join(frames, nil)) {
		t.Error("depth codes differ")
	}
}

func TestEncodeRefusals(t *testing.T) {
	rate := robocache.Rate{Num: 30, Den: 1}
	for name, c := range map[string]struct {
		cfg   EncodeConfig
		class error
	}{
		"no ffmpeg": {
			EncodeConfig{Width: 64, Height: 64, Rate: rate, FFmpeg: "no-such-ffmpeg"},
			robocache.ErrUnsupported,
		},
		"no codec": {
			EncodeConfig{Codec: "theora", Width: 64, Height: 64, Rate: rate},
			robocache.ErrUnsupported,
		},
		"small av1": {EncodeConfig{Width: 32, Height: 32, Rate: rate}, robocache.ErrUnsupported},
		"no rate":   {EncodeConfig{Width: 64, Height: 64}, robocache.ErrMisuse},
		"no size":   {EncodeConfig{Rate: rate}, robocache.ErrMisuse},
		"option smell": {
			EncodeConfig{Codec: H264, Width: 64, Height: 64, Rate: rate, Preset: "fast:x=1"},
			robocache.ErrMisuse,
		},
	} {
		_, err := NewEncoder(t.Context(), filepath.Join(t.TempDir(), "x.mp4"), c.cfg)
		var e *robocache.Error
		if !errors.Is(err, c.class) ||
			errors.As(err, &e) && errors.Is(err, robocache.ErrUnsupported) && e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	program := filepath.Join(t.TempDir(), "ffmpeg")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho ' V..... libx264 x'\n"), 0o755); err !=
		nil {
		t.Fatal(err)
	}
	if err := CanEncode(t.Context(),
		EncodeConfig{Width: 64, Height: 64, Rate: rate, FFmpeg: program}); !errors.Is(err,
		robocache.ErrUnsupported) || !strings.Contains(err.Error(), "libsvtav1") {
		t.Errorf("an ffmpeg without libsvtav1: %v", err)
	}
}

// TestEncodeLeavesNothing: no file and no process remains after a cancellation, an abort, a wrong
// input or an unusable path.
func TestEncodeLeavesNothing(t *testing.T) {
	cfg := EncodeConfig{Codec: H264, Width: 64, Height: 48, Rate: robocache.Rate{Num: 30, Den: 1}}
	if err := CanEncode(t.Context(), cfg); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "x.mp4")
	gone := func(name string) {
		t.Helper()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is still there (%v)", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := NewEncoder(ctx, path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for k := 0; err == nil; k++ {
		if k == 50 {
			cancel()
		}
		err = e.Write(pic(64, 48, k))
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	gone("cancelled")

	if e, err = NewEncoder(t.Context(), path, cfg); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(make([]byte, 5)); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("a short frame: %v", err)
	}
	e.Abort()
	gone("aborted")

	if e, err = NewEncoder(t.Context(), path, cfg); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("no frame: %v", err)
	}
	gone("empty")

	if e, err = NewEncoder(t.Context(), filepath.Join(t.TempDir(), "none", "x.mp4"), cfg); err !=
		nil {
		t.Fatal(err)
	}
	for k := 0; err == nil && k < 100; k++ {
		err = e.Write(pic(64, 48, k))
	}
	if err == nil {
		err = e.Close()
	}
	if !errors.Is(err, robocache.ErrNotFound) {
		t.Errorf("no such folder: %v", err)
	}
}

// TestEncoderIsNoRealTime: no thread of the encoder has real-time priority, and Behind sets a nice
// value. As root, libsvtav1 requests SCHED_FIFO.
func TestEncoderIsNoRealTime(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: real-time priority is not given")
	}
	cfg := EncodeConfig{Width: 64, Height: 64, Rate: robocache.Rate{Num: 30, Den: 1}, Behind: true}
	if err := CanEncode(t.Context(), cfg); err != nil {
		t.Skip(err)
	}
	e, err := NewEncoder(t.Context(), filepath.Join(t.TempDir(), "x.mp4"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Abort()
	for k := range 64 { // the pipe holds five frames, so the encoder has started
		if err := e.Write(pic(64, 64, k)); err != nil {
			t.Fatal(err)
		}
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", e.cmd.Process.Pid))
	if err != nil || len(threads) < 10 {
		t.Fatal(len(threads), "threads", err)
	}
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range threads {
		id, _ := strconv.Atoi(filepath.Base(name))
		if a, err := unix.SchedGetAttr(id, 0); err == nil &&
			(a.Policy != own.Policy || a.Nice != min(19, own.Nice+10)) {
			t.Fatalf(
				"a thread of the encoder has policy %d, nice %d; this one %d, %d",
				a.Policy,
				a.Nice,
				own.Policy,
				own.Nice,
			)
		}
	}
}
