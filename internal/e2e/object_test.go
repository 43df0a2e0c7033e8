package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/servers"
)

// upload copies a folder, or a file with its companion files, to a store.
func upload(t testing.TB, uri, path string) {
	t.Helper()
	s, err := store.OpenWritable(uri)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(filepath.Dir(path), p)
		if err != nil {
			return err
		}
		return store.Put(t.Context(), s, filepath.ToSlash(name), data)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inS3 starts a server with one bucket, copies the datasets into it, and returns the URI of the
// bucket.
func inS3(t testing.TB, paths ...string) (uri, endpoint string) {
	t.Helper()
	dir, endpoint := servers.S3(t)
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	if err := os.Mkdir(filepath.Join(dir, "lab"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		top, _, _ := strings.Cut(p, "/")
		upload(
			t,
			"s3://lab/"+filepath.ToSlash(filepath.Dir(p)),
			filepath.Join(realdata.Path(t, top), strings.TrimPrefix(p, top)),
		)
	}
	return "s3://lab", endpoint
}

// sets are datasets of every format with a reader.
var sets = []struct {
	path string
	hz   int64
}{
	{small, 0},
	{"g1_v21", 0},
	{"bridge_rlds/bridge_dataset", 0},
	{"robomimic_like/earliest_gzip.hdf5", 0},
	{"aloha_like", 0},
	{"calvin_like", 0},
	{"diffusion_policy_zarr/replay_buffer.zarr", 10},
	{"diffusion_policy_zarr/replay_buffer.zarr.zip", 10},
	{"mcap_robot/recording_zstd.mcap", 0},
	{"mcap_robot/recording_db3", 0},
	{"hdf5_features", 0},
	{"rosbag2/py", 0},
}

// all returns what users request from a dataset: its content, its findings, its statistics, and an
// epoch.
func all(ctx context.Context, t testing.TB, uri string, hz int64) (out []string) {
	t.Helper()
	opt := robocache.OpenOptions{}
	if hz > 0 {
		opt.HZ = robocache.Rate{Num: hz, Den: 1}
	}
	ds, err := robocache.Open(ctx, uri, opt)
	if err != nil {
		return []string{"open: " + err.Error()}
	}
	defer ds.Close()
	text := func(what string, v any, err error) {
		b, _ := json.Marshal(v)
		where, name := robocache.Redact(uri), filepath.Base(robocache.Redact(uri))
		s := strings.ReplaceAll(fmt.Sprintf("%s: %s %v", what, b, err), where, "DATASET")
		out = append(out, strings.ReplaceAll(s, strings.TrimSuffix(where, "/"+name), "FOLDER"))
	}
	report, err := inspect.Dataset(ctx, ds)
	text("inspect", report, err)
	findings, err := diagnose.Run(ctx, ds, robocache.DiagnoseOptions{})
	text("doctor", findings, err)
	st, err := stats.Compute(ctx, ds, stats.Options{})
	text("stats", st, err)
	l := loader.Config{
		Order:   loader.Order{BatchSize: 16, Shuffle: loader.Global, Seed: 3},
		Runtime: loader.Runtime{Threads: 3},
	}
	if manyClocks(ds) {
		ds = gridded(t, ds, robocache.Rate{Num: 50, Den: 1})
	}
	sum, n, err := digest(ctx, ds, l)
	text("loader", fmt.Sprint(sum, " ", n), err)
	return out
}

// Every format gives the same results from a bucket as from disk.
func TestObjectStoreEqualsDisk(t *testing.T) {
	decoders(t)
	paths := make([]string, len(sets))
	for i, s := range sets {
		paths[i] = s.path
	}
	bucket, endpoint := inS3(t, paths...)
	for _, s := range sets {
		t.Run(s.path, func(t *testing.T) {
			top, rest, _ := strings.Cut(s.path, "/")
			want := all(t.Context(), t, filepath.Join(realdata.Path(t, top), rest), s.hz)
			got := all(
				t.Context(),
				t,
				bucket+"/"+s.path+"?region=us-east-1&endpoint="+endpoint,
				s.hz,
			)
			if len(got) != len(want) {
				t.Fatal(got)
			}
			for i := range want {
				if strings.HasPrefix(want[i], "inspect") && filepath.Ext(s.path) == ".zip" {
					continue // inspect counts the members of a remote archive as files
				}
				if got[i] != want[i] {
					at := 0
					for at < min(len(got[i]), len(want[i])) && got[i][at] == want[i][at] {
						at++
					}
					at = max(at-300, 0)
					t.Errorf("s3:   %.900s\ndisk: %.900s", got[i][at:], want[i][at:])
				}
			}
		})
	}
}

// unnamedSource hides the location of a dataset, so that results from different locations can be
// compared. Results contain the name of the source and its checksum.
type unnamedSource struct{ robocache.Dataset }

func (s unnamedSource) Unwrap() robocache.Dataset { return s.Dataset }

func (s unnamedSource) Capabilities() *robocache.Capabilities {
	own := *s.Dataset.Capabilities()
	own.Origin = s.Origin
	return &own
}

func (s unnamedSource) Origin(_ context.Context, episode int) (*robocache.Origin, error) {
	return &robocache.Origin{Dataset: "source", Episode: s.Info().EpisodeIndex(episode)}, nil
}

// A conversion between buckets writes the same bytes as one between folders.
func TestObjectStoreConversions(t *testing.T) {
	decoders(t)
	const path = "robomimic_like/earliest_gzip.hdf5"
	bucket, _ := inS3(t, small, path)
	for format, name := range written() {
		// Each writer gives its data files new, unique names. format/delta tests them in a bucket.
		if format == "delta" {
			continue
		}
		for _, source := range []string{small, path} {
			t.Run(format+" of "+filepath.Base(source), func(t *testing.T) {
				top, rest, _ := strings.Cut(source, "/")
				local := t.TempDir()
				want := wrote(
					t,
					filepath.Join(realdata.Path(t, top), rest),
					format,
					filepath.Join(local, name),
				)
				got := wrote(t, bucket+"/"+source, format, bucket+"/out/"+t.Name()+"/"+name)
				if len(want) == 0 || len(got) != len(want) {
					t.Fatalf("%d files, %d on disk", len(got), len(want))
				}
				for n := range want {
					if !bytes.Equal(got[n], want[n]) {
						t.Errorf("%s:\n%.1500s\non disk:\n%.1500s", n, got[n], want[n])
					}
				}
			})
		}
	}
}

// wrote converts a few episodes and returns the files of the result.
func wrote(t *testing.T, from, format, to string) map[string][]byte {
	t.Helper()
	ds, err := robocache.Open(t.Context(), from, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if _, err := convert.Write(t.Context(), unnamedSource{ds}, format, to,
		convert.Options{WriteOptions: robocache.WriteOptions{Episodes: []int{0, 1}}}); err != nil {
		t.Fatalf("%s: %v", to, err)
	}
	folder, _ := store.Above(to)
	s, err := store.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	list, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range list {
		if out[e.Name], err = store.ReadFile(t.Context(), s, e.Name, 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
