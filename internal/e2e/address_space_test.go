package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
)

// addressSpaceSets are datasets of every format.
var addressSpaceSets = []string{
	"rosbag2/py",
	"rosbag2/cpp",
	"mcap_robot/recording_zstd.mcap",
	"mcap_robot/recording_db3",
	"g1_h264_v30",
	"g1_h264_v30_bigdrift",
	"g1_v21",
	"g1_v30_drift",
	"g1_v30_exact",
	"gr00t_picknplace_v20",
	"bridge_rlds",
	"robomimic_like/latest_gzip_shuffle.hdf5",
	"aloha_like",
	"hdf5_features/latest.hdf5",
	"calvin_like",
	"diffusion_policy_zarr/replay_buffer.zarr",
	"diffusion_policy_zarr/replay_buffer.zarr.zip",
	"pointclouds/kitti",
	"pointclouds/nuscenes",
}

// limited returns a command that runs with 4 GiB of address space, a limit that batch systems set.
func limited(ctx context.Context, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(
		ctx,
		"sh",
		append([]string{"-c", `ulimit -v 4194304; exec "$@"`, "sh", program}, args...)...)
}

// setPath returns the path of a dataset of addressSpaceSets.
func setPath(t *testing.T, set string) string {
	t.Helper()
	folder, rest, _ := strings.Cut(set, "/")
	return filepath.Join(realdata.Path(t, folder), rest)
}

// TestAddressSpace inspects datasets in a process with 4 GiB of address space. The output must
// equal that of a process without a limit.
func TestAddressSpace(t *testing.T) {
	program := filepath.Join(t.TempDir(), "robocache")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./cmd/robocache")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, set := range addressSpaceSets {
		t.Run(set, func(t *testing.T) {
			path := setPath(t, set)
			want, err := exec.Command(program, "inspect", "--json", path).Output()
			if err != nil {
				t.Fatal(err)
			}
			got, err := limited(t.Context(), program, "inspect", "--json", path).Output()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		})
	}
}

// loadSome writes a digest of the first batches of a Loader over each dataset, or its error.
func loadSome(ctx context.Context, w io.Writer, paths []string) {
	for _, path := range paths {
		digest, n, err := batchesDigest(ctx, path)
		fmt.Fprintf(w, "SET %s: %d batches, %x, %v\n", path, n, digest, err)
	}
}

func batchesDigest(ctx context.Context, path string) (digest []byte, batches int, err error) {
	ds, err := robocache.Open(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	defer ds.Close()
	cfg := loader.Config{Order: loader.Order{BatchSize: 4, Shuffle: loader.Global, Seed: 1}}
	// Streams of other clocks need windows, and some numbers are NaN by design.
	for _, f := range ds.Info().Features {
		if f.Clock == ds.Info().Features[0].Clock && !f.Default {
			cfg.Windows.Keys = append(cfg.Windows.Keys, f.Key)
		}
	}
	cfg.OnNaN = loader.NaNAllow
	if f := ds.Info().Features[0]; f.Clock != "" {
		cfg.Windows.Anchor = f.Key
	}
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return nil, 0, err
	}
	defer l.Close()
	h := sha256.New()
	for ; batches < 3; batches++ {
		b, err := l.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, batches, err
		}
		for _, key := range cfg.Windows.Keys {
			if x := b.Tensor(key); x != nil {
				_, _ = h.Write(x.Data)
			}
		}
		b.Release()
	}
	return h.Sum(nil), batches, nil
}

// TestAddressSpaceOfLoader loads batches in a process with 4 GiB of address space. They must equal
// those of a process without a limit.
func TestAddressSpaceOfLoader(t *testing.T) {
	decoders(t)
	const list = "ROBOCACHE_TEST_ADDRESS_SPACE"
	if paths := os.Getenv(list); paths != "" {
		loadSome(t.Context(), os.Stdout, filepath.SplitList(paths))
		return
	}
	var paths []string
	for _, set := range addressSpaceSets {
		paths = append(paths, setPath(t, set))
	}
	run := func(c *exec.Cmd) (lines []string) {
		c.Env = append(os.Environ(), list+"="+strings.Join(paths, string(filepath.ListSeparator)))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %.3000s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "SET ") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	want := run(
		exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAddressSpaceOfLoader$"),
	)
	got := run(limited(t.Context(), os.Args[0], "-test.run=^TestAddressSpaceOfLoader$"))
	loaded := 0
	for i, line := range want {
		if strings.HasSuffix(line, "<nil>\n") {
			loaded++
		} else {
			t.Log(line)
		}
		if i >= len(got) || got[i] != line {
			t.Errorf("got %v, want %s", got[min(i, len(got)):min(i+1, len(got))], line)
		}
	}
	if loaded < len(paths)-3 {
		t.Errorf("%d of %d datasets were loaded", loaded, len(paths))
	}
}
