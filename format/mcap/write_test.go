package mcap_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/synth"
	"github.com/goatnote-inc/robocache/video"
)

func rowsOf(ep, n int) []robocache.Row {
	out := make([]robocache.Row, n)
	for i := range out {
		out[i] = robocache.Row{Episode: ep, Index: i}
	}
	return out
}

// compact returns the JSON without spaces.
func compact(b json.RawMessage) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return b
	}
	return out.Bytes()
}

// pixels decodes a still image.
func pixels(t *testing.T, ref *robocache.FrameRef, f *robocache.Feature) []byte {
	t.Helper()
	if ref.Missing {
		return nil
	}
	info, err := video.ImageSize(ref)
	if err != nil {
		t.Fatal(err)
	}
	spec := &video.Spec{Pixel: video.RGB8}
	if info.DType == robocache.Uint16 {
		spec.Pixel = video.Gray16
	}
	n, err := video.StillBytes(info, spec)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, n)
	if err := video.DecodeImage(ref, spec, dst); err != nil {
		t.Fatal(f.Key, err)
	}
	return dst
}

// equal compares all content of two datasets.
func equal(t *testing.T, a, b robocache.Dataset, keys []string) {
	t.Helper()
	ctx := context.Background()
	x, y := a.Info(), b.Info()
	if x.Episodes != y.Episodes || x.Frames != y.Frames || x.FPS != y.FPS || x.Robot != y.Robot ||
		x.Clock != y.Clock {
		t.Errorf(
			"%d episodes, %d frames, %v, %q, %q became %d, %d, %v, %q, %q",
			x.Episodes,
			x.Frames,
			x.FPS,
			x.Robot,
			x.Clock,
			y.Episodes,
			y.Frames,
			y.FPS,
			y.Robot,
			y.Clock,
		)
	}
	if !slices.Equal(x.Tasks, y.Tasks) {
		t.Errorf("tasks %v became %v", x.Tasks, y.Tasks)
	}
	for ep := range x.Episodes {
		ea, _ := a.Episode(ctx, ep)
		eb, err := b.Episode(ctx, ep)
		if err != nil || !slices.Equal(ea.Tasks, eb.Tasks) || ea.Length != eb.Length {
			t.Fatalf("episode %d: %+v became %+v (%v)", ep, ea, eb, err)
		}
		ta, _ := a.Text(ctx, "task", rowsOf(ep, a.Len(ep)))
		tb, err := b.Text(ctx, "task", rowsOf(ep, b.Len(ep)))
		if err != nil || !slices.Equal(ta, tb) {
			t.Errorf("episode %d: tasks of rows differ (%v)", ep, err)
		}
		for _, key := range keys {
			f, g := x.Feature(key), y.Feature(key)
			if g == nil {
				t.Fatalf("no %s", key)
			}
			want := *f
			if want.Kind == robocache.KindVideo {
				want.Kind, want.Codec = robocache.KindImage, ""
			}
			want.Names = compact(want.Names)
			if !reflect.DeepEqual(want, *g) && ep == 0 {
				t.Errorf("%+v became %+v", want, *g)
			}
			at, err := a.Times(ctx, ep, key)
			if err != nil {
				t.Fatal(err)
			}
			bt, err := b.Times(ctx, ep, key)
			if err != nil || !slices.Equal(at, bt) {
				t.Fatalf(
					"episode %d %s: %d timestamps became %d (%v)",
					ep,
					key,
					len(at),
					len(bt),
					err,
				)
			}
			rows := rowsOf(ep, len(at))
			switch {
			case f.Ragged():
				da, ca, err := robocache.GatherRagged(ctx, a, key, rows)
				if err != nil {
					t.Fatal(err)
				}
				db, cb, err := robocache.GatherRagged(ctx, b, key, rows)
				if err != nil || !bytes.Equal(da, db) || !slices.Equal(ca, cb) {
					t.Errorf("episode %d %s differs (%v)", ep, key, err)
				}
			case f.Kind == robocache.KindNumeric:
				da, db := make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*f.RowBytes())
				if err := a.Gather(ctx, key, rows, da); err != nil {
					t.Fatal(err)
				}
				if err := b.Gather(ctx, key, rows, db); err != nil || !bytes.Equal(da, db) {
					t.Errorf("episode %d %s differs (%v)", ep, key, err)
				}
				if f.Masked {
					va, vb := make([]uint8, len(rows)), make([]uint8, len(rows))
					if err := robocache.Valid(ctx, a, key, rows, va); err != nil {
						t.Fatal(err)
					}
					if err := robocache.Valid(ctx, b, key, rows, vb); err != nil ||
						!bytes.Equal(va, vb) {
						t.Errorf("episode %d %s: masks differ (%v)", ep, key, err)
					}
				}
			case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
				sa, _ := a.Text(ctx, key, rows)
				sb, err := b.Text(ctx, key, rows)
				if err != nil || !slices.Equal(sa, sb) {
					t.Errorf("episode %d %s differs (%v)", ep, key, err)
				}
			case f.Kind == robocache.KindImage:
				ra, rb := make([]robocache.FrameRef, len(rows)),
					make([]robocache.FrameRef, len(rows))
				if err := a.Frames(ctx, key, rows, ra); err != nil {
					t.Fatal(err)
				}
				if err := b.Frames(ctx, key, rows, rb); err != nil {
					t.Fatal(err)
				}
				for i := range ra {
					if ra[i].Missing != rb[i].Missing ||
						ra[i].Encoded != nil && !bytes.Equal(ra[i].Encoded, rb[i].Encoded) ||
						!bytes.Equal(pixels(t, &ra[i], f), pixels(t, &rb[i], f)) {
						t.Fatalf("episode %d %s: image %d differs", ep, key, i)
					}
				}
			}
		}
	}
}

func keysOf(ds robocache.Dataset) []string {
	var out []string
	for _, f := range ds.Info().Features {
		if !f.Default {
			out = append(out, f.Key)
		}
	}
	return out
}

// TestRoundTrip checks mcap.M6 with streams on separate clocks, point clouds, depth, texts and
// every image encoding.
func TestRoundTrip(t *testing.T) {
	ctx := context.Background()
	for _, codec := range []string{"png", "jpeg", "raw"} {
		for _, options := range []map[string]string{
			nil,
			{"images": "raw", "compression": "none", "chunk": "4096"},
		} {
			src, err := synth.New(synth.Options{
				Episodes: 3,
				Seconds:  1,
				Width:    64,
				Height:   64,
				Cameras:  1,
				Codec:    codec,
				Depth:    true,
				Spread:   0.3,
				Points:   40,
				Rates: map[string]float64{
					"camera": 10,
					"joints": 50,
					"force":  333,
					"cloud":  5,
					"text":   2,
				},
				Jitter:  time.Millisecond,
				Late:    100 * time.Millisecond,
				Dropout: 200 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			dst := filepath.Join(t.TempDir(), "out")
			rep, err := mcap.Write(ctx, src, dst, robocache.WriteOptions{Options: options})
			if err != nil || rep.Episodes != 3 || len(rep.Dropped) > 0 {
				t.Fatal(rep, err)
			}
			got, err := mcap.Open(ctx, dst, robocache.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range got.Info().Findings {
				t.Errorf("%+v", f)
			}
			equal(t, src, got, keysOf(src))
			got.Close()
			if _, err := mcap.Write(ctx, src, dst, robocache.WriteOptions{}); err == nil {
				t.Error("a full destination was written into")
			}
			// one episode as one file
			one := filepath.Join(t.TempDir(), "one.mcap")
			if _,
				err := mcap.Write(ctx, src, one, robocache.WriteOptions{Episodes: []int{2}}); err !=
				nil {
				t.Fatal(err)
			}
			if st, err := os.Stat(one); err != nil || st.IsDir() {
				t.Error("no file", err)
			}
		}
	}
}

// types is a dataset with a stream of every dtype, shape and mask.
type types struct {
	robocache.Dataset
	info robocache.Info
}

func newTypes(base robocache.Dataset) *types {
	d := &types{Dataset: base, info: *base.Info()}
	d.info.Features = nil
	d.info.Tasks = []robocache.Task{{Index: 0, Text: "what no episode does"}}
	for _, k := range slices.Backward(base.Info().Tasks) { // not numbered in the order of their use
		d.info.Tasks = append(
			d.info.Tasks,
			robocache.Task{Index: int64(len(d.info.Tasks)), Text: k.Text},
		)
	}
	for _, dt := range []robocache.DType{
		robocache.Bool,
		robocache.Int8,
		robocache.Uint8,
		robocache.Int16,
		robocache.Uint16,
		robocache.Int32,
		robocache.Uint32,
		robocache.Int64,
		robocache.Uint64,
		robocache.Float16,
		robocache.BFloat16,
		robocache.Float32,
		robocache.Float64,
	} {
		for _, shape := range [][]int{{1}, {7}, {2, 3}, {-1}, {-1, 3}} {
			f := robocache.Feature{
				Key: "x." + dt.String() + "-" + strings.Repeat(
					"d",
					len(shape),
				) + string(
					rune('a'+shape[0]+1),
				),
				Kind:  robocache.KindNumeric,
				DType: dt,
				Shape: shape,
				Clock: base.Info().Clock,
			}
			f.Masked = shape[0] == 7
			d.info.Features = append(d.info.Features, f)
		}
	}
	return d
}

func (d *types) Info() *robocache.Info { return &d.info }
func (d *types) Times(ctx context.Context, ep int, key string) ([]int64, error) {
	return d.Dataset.Times(ctx, ep, "")
}

func (d *types) row(key string, r robocache.Row, n int, bit bool) []byte {
	g := rand.New(rand.NewPCG(uint64(len(key)*1000+r.Index), uint64(r.Episode)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
		if bit {
			b[i] &= 1
		}
	}
	return b
}

func (d *types) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	f := d.info.Feature(key)
	w := f.RowBytes()
	valid := make([]uint8, len(rows))
	_ = d.Valid(ctx, key, rows, valid)
	for i, r := range rows {
		if !f.Masked || valid[i] == 1 {
			copy(dst[i*w:], d.row(key, r, w, f.DType == robocache.Bool))
		}
	}
	return nil
}

func (d *types) Capabilities() *robocache.Capabilities {
	return &robocache.Capabilities{GatherRagged: d.GatherRagged, Valid: d.Valid}
}

func (d *types) GatherRagged(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (data []byte, counts []int, err error) {
	f := d.info.Feature(key)
	for _, r := range rows {
		n := r.Index % 4
		counts = append(counts, n)
		data = append(
			data,
			d.row(key, r, n*f.Elements()*f.DType.Size(), f.DType == robocache.Bool)...)
	}
	return data, counts, nil
}

func (d *types) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) error {
	for i, r := range rows {
		valid[i] = uint8(min(1, r.Index%3))
	}
	return nil
}

// TestTypes checks that every dtype and shape is unchanged after reading, with rows that hold no
// value.
func TestTypes(t *testing.T) {
	ctx := context.Background()
	base, err := synth.New(
		synth.Options{Episodes: 2, Seconds: 1, Width: 64, Height: 64, Cameras: 1},
	)
	if err != nil {
		t.Fatal(err)
	}
	src := newTypes(base)
	dst := t.TempDir()
	rep, err := mcap.Write(ctx, src, dst, robocache.WriteOptions{})
	if err != nil || len(rep.Dropped) > 0 {
		t.Fatal(rep, err)
	}
	got, err := mcap.Open(ctx, dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	equal(t, src, got, keysOf(src))
}

// TestLeRobot checks that a LeRobot dataset is unchanged after reading: rows, timestamps and tasks
// bit for bit, and the decoded images of its video.
func TestLeRobot(t *testing.T) {
	ctx := context.Background()
	src, err := lerobot.Open(ctx, realdata.Path(t, "g1_v30_exact"), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := t.TempDir()
	keys := []string{"observation.state", "action"}
	if _, err := mcap.Write(ctx, src, dst, robocache.WriteOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	got, err := mcap.Open(ctx, dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	equal(t, src, got, keys)
}

// TestReferenceReaders checks that the mcap package with ROS 2 support and rosbags read the same
// schemas, counts and values.
func TestReferenceReaders(t *testing.T) {
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("no Python environment:", err)
	}
	ctx := context.Background()
	src, err := synth.New(synth.Options{
		Episodes: 1, Seconds: 1, Width: 64, Height: 64, Cameras: 1, Points: 40,
		Rates: map[string]float64{"camera": 10, "joints": 50, "force": 333, "cloud": 5, "text": 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	// It has latched topics.
	recorded, err := mcap.Open(
		ctx,
		realdata.Path(t, "mcap_robot/recording_zstd.mcap"),
		robocache.OpenOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer recorded.Close()
	for _, c := range []struct {
		src         robocache.Dataset
		compression string
	}{{src, "zstd"}, {src, "none"}, {recorded, "zstd"}} {
		file := filepath.Join(t.TempDir(), "one.mcap")
		if _, err := mcap.Write(
			ctx,
			c.src,
			file,
			robocache.WriteOptions{Options: map[string]string{"compression": c.compression}},
		); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(python, filepath.Join("testdata", "reference.py"), file).
			CombinedOutput()
		if err != nil {
			if strings.Contains(string(out), "ModuleNotFoundError") {
				t.Skip(string(out))
			}
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out)
	}
}
