package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/video"
)

var sources = []string{
	"g1_v21",
	"gr00t_picknplace_v20",
	"g1_v30_drift",
	"g1_v30_exact",
	"g1_h264_v30",
	"g1_h264_v30_bigdrift",
}

// C1, C2: the result equals the source: every numeric row bit by bit, every image packet, every
// task text.
func TestRoundTrip(t *testing.T) {
	for _, name := range sources {
		for _, small := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/small=%v", name, small), func(t *testing.T) {
				t.Parallel()
				src := open(t, data(t, name))
				dst := filepath.Join(t.TempDir(), "out")
				opt := Options{Frames: stats.NoFrames}
				if small {
					opt.DataFileBytes, opt.VideoFileBytes, opt.ChunksSize = 50_000, 1_500_000, 2
				}
				rep, err := ToLeRobot(t.Context(), src, dst, opt)
				if err != nil {
					t.Fatal(err)
				}
				if rep.Encoded != 0 {
					t.Errorf("%d segments were encoded; all of these can be copied", rep.Encoded)
				}
				compare(t, src, open(t, dst), rep)
			})
		}
	}
}

func compare(t *testing.T, src, dst robocache.Dataset, rep *Report) {
	t.Helper()
	for _, f := range dst.Info().Findings {
		if f.Severity == robocache.SeverityInfo {
			continue
		}
		t.Errorf("opening the result finds %v", f)
	}
	if d, ok := dst.(interface {
		Diagnose(context.Context, robocache.DiagnoseOptions) ([]robocache.Finding, error)
	}); ok {
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Severity != robocache.SeverityInfo {
				t.Errorf("doctor finds %+v", f)
			}
		}
	} else {
		t.Error("the result cannot be diagnosed")
	}
	if dst.Info().Version != "v3.0" || dst.Info().Episodes != src.Info().Episodes ||
		dst.Info().Frames != src.Info().Frames {
		t.Fatalf("%+v", dst.Info())
	}
	fps := dst.Info().FPS.Float()
	next := int64(0)
	for e := range src.Info().Episodes {
		n := src.Len(e)
		if dst.Len(e) != n {
			t.Fatalf("episode %d has %d rows, want %d", e, dst.Len(e), n)
		}
		rows := rowsOf(e, n)
		for _, f := range src.Info().Features {
			if f.Default {
				continue
			}
			g := dst.Info().Feature(f.Key)
			if g == nil || g.DType != f.DType ||
				fmt.Sprint(g.Shape) != fmt.Sprint(f.Shape) && f.Kind == robocache.KindNumeric {
				t.Fatalf("%s: %+v became %+v", f.Key, f, g)
			}
			switch f.Kind {
			case robocache.KindNumeric:
				a, b := make([]byte, n*f.RowBytes()), make([]byte, n*f.RowBytes())
				if err := src.Gather(t.Context(), f.Key, rows, a); err != nil {
					t.Fatal(err)
				}
				if err := dst.Gather(t.Context(), f.Key, rows, b); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a, b) {
					t.Errorf("episode %d: %s differs", e, f.Key)
				}
			case robocache.KindVideo:
				samePackets(t, src, dst, f.Key, rows, fps)
			}
		}
		a, err := src.Text(t.Context(), "task", rows)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dst.Text(t.Context(), "task", rows)
		if err != nil {
			t.Fatal(err)
		}
		for k := range a {
			if a[k] != b[k] {
				t.Fatalf("episode %d row %d: task %q became %q", e, k, a[k], b[k])
			}
		}
		for key, want := range map[string]func(k int) int64{
			"index":         func(k int) int64 { return next + int64(k) },
			"frame_index":   func(k int) int64 { return int64(k) },
			"episode_index": func(int) int64 { return int64(e) },
		} {
			raw := make([]byte, 8*n)
			if err := dst.Gather(t.Context(), key, rows, raw); err != nil {
				t.Fatal(err)
			}
			for k := range n {
				if v := int64(binary.LittleEndian.Uint64(raw[8*k:])); v != want(k) {
					t.Fatalf("episode %d row %d: %s is %d, want %d", e, k, key, v, want(k))
				}
			}
		}
		raw := make([]byte, 4*n)
		if err := dst.Gather(t.Context(), "timestamp", rows, raw); err != nil {
			t.Fatal(err)
		}
		for k := range n {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*k:])); v !=
				float32(float64(k)/fps) {
				t.Fatalf("episode %d row %d: timestamp %v", e, k, v)
			}
		}
		if m := rep.Episodes[e]; m.New != e || m.Length != n || m.FromIndex != next {
			t.Errorf("report of episode %d: %+v", e, m)
		}
		next += int64(n)
	}
}

// samePackets compares the encoded bytes of every image and its time on the grid.
func samePackets(
	t *testing.T,
	src, dst robocache.Dataset,
	key string,
	rows []robocache.Row,
	fps float64,
) {
	t.Helper()
	packet := func(ds robocache.Dataset, r robocache.FrameRef) ([]byte, int64) {
		if r.Missing {
			t.Fatal("a row without an image")
		}
		f, err := ds.(video.Source).Video().Acquire(t.Context(), r.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		s := f.Index.Sample(f.Index.DecodeIndex(r.Ordinal))
		b := make([]byte, s.Size)
		if err := f.Ranged.ReadAt(t.Context(), b, s.Offset); err != nil {
			t.Fatal(err)
		}
		return b, f.Index.TimeNS(r.Ordinal)
	}
	a, b := make([]robocache.FrameRef, len(rows)), make([]robocache.FrameRef, len(rows))
	if err := src.Frames(t.Context(), key, rows, a); err != nil {
		t.Fatal(err)
	}
	if err := dst.Frames(t.Context(), key, rows, b); err != nil {
		t.Fatal(err)
	}
	for k := range rows {
		x, _ := packet(src, a[k])
		y, at := packet(dst, b[k])
		if !bytes.Equal(x, y) {
			t.Fatalf("%s episode %d row %d: another image", key, rows[k].Episode, k)
		}
		if want := dst.Info().FPS.Nanos(int64(b[k].Ordinal)); at != want {
			t.Fatalf("%s ordinal %d at %d ns, want %d", key, b[k].Ordinal, at, want)
		}
	}
}

// W2: the same input gives the same bytes.
func TestDeterministic(t *testing.T) {
	src := open(t, data(t, "g1_h264_v30"))
	run := func() map[string]string {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := ToLeRobot(t.Context(), src, dst,
			Options{DataFileBytes: 50_000, VideoFileBytes: 500_000})
		if err != nil {
			t.Fatal(err)
		}
		return tree(t, dst)
	}
	a, b := run(), run()
	if !maps.Equal(a, b) {
		for k := range a {
			if a[k] != b[k] {
				t.Errorf("%s differs between two runs", k)
			}
		}
	}
	if len(a) < 8 {
		t.Errorf("only %d files: the small limits should have made more", len(a))
	}
}
