package e2e

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/video"
)

// others are datasets of other formats than LeRobot, recorded or written by other programs.
var others = []struct {
	path string
	hz   int64 // rate of the grid, or of rows without clock; 0 means that of the dataset
}{
	{"bridge_rlds/bridge_dataset", 0},
	{"robomimic_like/earliest_gzip.hdf5", 0},
	{"aloha_like", 0},
	{"calvin_like", 0},
	{"diffusion_policy_zarr/replay_buffer.zarr", 10},
	{"mcap_robot/recording_zstd.mcap", 50},
}

// opened opens one of others on a single grid.
func opened(t testing.TB, path string, hz int64) robocache.Dataset {
	t.Helper()
	rate := robocache.Rate{}
	if hz > 0 {
		rate = robocache.Rate{Num: hz, Den: 1}
	}
	var opt robocache.OpenOptions
	if strings.Contains(path, "zarr") {
		opt.HZ = rate
	}
	top, rest, _ := strings.Cut(path, "/")
	ds, err := robocache.Open(t.Context(), filepath.Join(realdata.Path(t, top), rest), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	if !manyClocks(ds) {
		return ds
	}
	return gridded(t, ds, rate)
}

// gridded resamples a dataset to a single grid.
func gridded(t testing.TB, ds robocache.Dataset, rate robocache.Rate) robocache.Dataset {
	t.Helper()
	v, err := align.View(t.Context(), ds, align.Config{HZ: rate}, align.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func manyClocks(ds robocache.Dataset) bool {
	return slices.ContainsFunc(
		ds.Info().Features,
		func(f robocache.Feature) bool { return f.Clock != "" },
	)
}

func allRows(ds robocache.Dataset, e int) []robocache.Row {
	rows := make([]robocache.Row, ds.Len(e))
	for i := range rows {
		rows[i] = robocache.Row{Episode: e, Index: i}
	}
	return rows
}

// pixels decodes the still images of rows.
func pixels(
	ctx context.Context,
	ds robocache.Dataset,
	key string,
	rows []robocache.Row,
) ([][]byte, error) {
	refs := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(ctx, key, rows, refs); err != nil {
		return nil, err
	}
	var out [][]byte
	for i := range refs {
		info, err := video.ImageSize(&refs[i])
		if err != nil {
			return nil, err
		}
		spec := &video.Spec{Pixel: video.RGB8}
		if info.DType == robocache.Uint16 {
			spec.Pixel = video.Gray16
		}
		if info.DType == robocache.Float32 {
			spec.Pixel, spec.Depth = video.DepthMM, &robocache.Depth{Unit: "m"}
		}
		n, err := video.StillBytes(info, spec)
		if err != nil {
			return nil, err
		}
		b := make([]byte, n)
		if err := video.DecodeImage(&refs[i], spec, b); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// sameRows compares all streams that a conversion to LeRobot preserves, bit by bit.
func sameRows(t *testing.T, src, out robocache.Dataset, rep *write.Report) {
	t.Helper()
	ctx := t.Context()
	if out.Info().Episodes != src.Info().Episodes || out.Info().Frames != src.Info().Frames {
		t.Fatalf(
			"%d episodes, %d rows; want %d, %d",
			out.Info().Episodes,
			out.Info().Frames,
			src.Info().Episodes,
			src.Info().Frames,
		)
	}
	for _, f := range src.Info().Features {
		name := f.Key
		if to, ok := rep.Renamed[f.Key]; ok {
			name = to
		}
		g := out.Info().Feature(name)
		if slices.Contains(rep.Dropped, f.Key) {
			continue
		}
		if g == nil {
			t.Errorf("%s is neither there nor reported", f.Key)
			continue
		}
		for e := range src.Info().Episodes {
			rows := allRows(src, e)
			var a, b any
			var err1, err2 error
			switch {
			case f.Kind == robocache.KindNumeric:
				x, y := make([]byte, len(rows)*f.RowBytes()), make([]byte, len(rows)*f.RowBytes())
				err1, err2 = src.Gather(ctx, f.Key, rows, x), out.Gather(ctx, name, rows, y)
				a, b = string(x), string(y)
			case f.Kind == robocache.KindImage:
				x, e1 := pixels(ctx, src, f.Key, rows)
				y, e2 := pixels(ctx, out, name, rows)
				a, b, err1, err2 = string(slices.Concat(x...)), string(slices.Concat(y...)), e1, e2
			default:
				x, e1 := src.Text(ctx, f.Key, rows)
				y, e2 := out.Text(ctx, name, rows)
				a, b, err1, err2 = strings.Join(x, "\x00"), strings.Join(y, "\x00"), e1, e2
			}
			if err := errors.Join(err1, err2); err != nil {
				t.Fatalf("%s of episode %d: %v", f.Key, e, err)
			}
			if a != b {
				t.Fatalf("%s of episode %d differs", f.Key, e)
			}
		}
	}
}

// e2e.C7: a dataset of any format converts to LeRobot with all its rows, texts and frames, and
// lerobot opens the result.
func TestOthersToLeRobot(t *testing.T) {
	var roots []string
	for _, o := range others {
		t.Run(o.path, func(t *testing.T) {
			src := opened(t, o.path, o.hz)
			dst := filepath.Join(t.TempDir(), "set")
			rep, err := toLeRobot(t.Context(), src, dst, convert.Options{}, asImages("lerobot"))
			if err != nil {
				t.Fatal(err)
			}
			sameRows(t, src, open(t, dst), rep)
		})
	}
	python := interpreter(t)
	decoders(t)
	if err := video.CanEncode(t.Context(),
		video.EncodeConfig{Width: 64, Height: 64, Rate: robocache.Rate{Num: 30, Den: 1}}); err !=
		nil {
		t.Skip(err)
	}
	want := map[string]robocache.Dataset{}
	for _, o := range others[:3] {
		dst := filepath.Join(t.TempDir(), "set")
		if _, err := toLeRobot(t.Context(), opened(t, o.path, o.hz), dst,
			convert.Options{WriteOptions: robocache.WriteOptions{Episodes: []int{1, 0}}},
			nil); err != nil {
			t.Fatal(err)
		}
		roots = append(roots, dst)
		want[dst] = open(t, dst)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(
		ctx,
		python,
		append([]string{"testdata/open_lerobot.py"}, roots...)...)
	cmd.Env = append(
		os.Environ(),
		"HF_HUB_OFFLINE=1",
		"HF_HOME="+t.TempDir(),
		"TOKENIZERS_PARALLELISM=false",
	)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		t.Fatalf("lerobot: %v", err)
	}
	seen := 0
	for line := range strings.Lines(string(said)) {
		var r struct {
			Root           string
			Rows, Episodes int
			Cameras, Tasks []string
			Sums           map[string][]float64
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		ds := want[r.Root]
		seen++
		if int64(r.Rows) != ds.Info().Frames || r.Episodes != 2 || len(r.Cameras) == 0 {
			t.Errorf("%+v", r)
		}
		// The action of the first row must be the same in lerobot and here.
		f := ds.Info().Feature("action")
		b := make([]byte, f.RowBytes())
		if err := ds.Gather(t.Context(), "action", []robocache.Row{{}}, b); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for k := range f.Elements() {
			if f.DType == robocache.Float64 {
				sum += math.Float64frombits(binary.LittleEndian.Uint64(b[8*k:]))
			} else {
				sum += float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:])))
			}
		}
		if got := r.Sums["action"]; len(got) == 0 || math.Abs(got[0]-sum) > 1e-4*(1+math.Abs(sum)) {
			t.Errorf("%s: action %v, want %v", r.Root, got, sum)
		}
	}
	if seen != len(roots) {
		t.Errorf("lerobot opened %d of %d: %s", seen, len(roots), said)
	}
}

// interpreter returns the interpreter in .venv, or skips the test.
func interpreter(t testing.TB) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join("..", "..", ".venv", "bin", "python"))
	if err == nil {
		_, err = os.Stat(p)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no .venv in the repository")
	}
	if exec.Command(p, "-c", "import lerobot").Run() != nil {
		t.Skip("the interpreter has no lerobot")
	}
	return p
}
