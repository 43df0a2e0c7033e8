package e2e

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"
)

// evict removes the files of a folder from the page cache.
func evict(t testing.TB, path string) {
	t.Helper()
	err := filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		f.Sync()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// slow implements the part of S3 that reading needs, over a folder. It uses little CPU, whereas a
// real server with a proxy would use more than the loader. Each response comes after 5 ms, or
// ROBOCACHE_RATE_LATENCY.
type slow struct {
	url                            string
	requests, bytes, now, mostOnce atomic.Int64
}

func newSlow(t testing.TB, dir string) *slow {
	s := &slow{}
	latency, err := time.ParseDuration(cmp.Or(os.Getenv("ROBOCACHE_RATE_LATENCY"), "5ms"))
	if err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir(dir))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/-/counts" {
			fmt.Fprintln(w, s.requests.Load(), s.bytes.Load(), s.mostOnce.Swap(0))
			return
		}
		s.requests.Add(1)
		for n := s.now.Add(1); ; {
			if most := s.mostOnce.Load(); n <= most || s.mostOnce.CompareAndSwap(most, n) {
				break
			}
		}
		defer s.now.Add(-1)
		time.Sleep(latency)
		q := r.URL.Query()
		if !q.Has("list-type") {
			path := filepath.Join(dir, filepath.FromSlash(r.URL.Path))
			if i, err := os.Stat(path); err != nil || i.IsDir() {
				w.WriteHeader(404)
				return
			} else {
				w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, i.Size(), i.ModTime().UnixNano()))
			}
			files.ServeHTTP(&meter{w, &s.bytes}, r)
			return
		}
		type object struct {
			Key, ETag string
			Size      int64
		}
		type folder struct{ Prefix string }
		var out struct {
			XMLName        xml.Name `xml:"ListBucketResult"`
			Contents       []object
			CommonPrefixes []folder
		}
		root := filepath.Join(dir, strings.Trim(r.URL.Path, "/"))
		prefix := q.Get("prefix")
		filepath.WalkDir(
			filepath.Join(root, prefix),
			func(p string, e fs.DirEntry, err error) error {
				key := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
				switch {
				case err != nil:
					return nil
				case e.IsDir() && q.Get("delimiter") != "" && len(key) > len(prefix):
					out.CommonPrefixes = append(out.CommonPrefixes, folder{key + "/"})
					return fs.SkipDir
				case !e.IsDir():
					i, _ := e.Info()
					out.Contents = append(
						out.Contents,
						object{
							key,
							fmt.Sprintf(`"%x-%x"`, i.Size(), i.ModTime().UnixNano()),
							i.Size(),
						},
					)
				}
				return nil
			},
		)
		xml.NewEncoder(&meter{w, &s.bytes}).Encode(out)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// apart starts a slow server in a separate process, on the cores in ROBOCACHE_RATE_CPUS (taskset
// -c), so that its cost is not measured.
func apart(t *testing.T, dir string) (counts func() (requests, bytes, mostOnce int64), url string) {
	args := []string{os.Args[0], "-test.run=^TestObjectStoreRate$"}
	if cpus := os.Getenv("ROBOCACHE_RATE_CPUS"); cpus != "" {
		args = append([]string{"taskset", "-c", cpus}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "ROBOCACHE_RATE_SERVE="+dir)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if _, err := fmt.Fscanln(out, &url); err != nil {
		t.Fatal(err)
	}
	return func() (requests, bytes, mostOnce int64) {
		resp, err := http.Get(url + "/-/counts")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		fmt.Fscanln(resp.Body, &requests, &bytes, &mostOnce)
		return
	}, url
}

// TestObjectStoreRate compares an epoch over s3 at 5 ms per request with one of cold local files,
// interleaved, and then two with a cache directory. ROBOCACHE_RATE=10 enables it and sets the
// number of episodes.
func TestObjectStoreRate(t *testing.T) {
	episodes, _ := strconv.Atoi(os.Getenv("ROBOCACHE_RATE"))
	if episodes == 0 {
		t.Skip("a measurement: ROBOCACHE_RATE=10 (episodes)")
	}
	decoders(t)
	servers.Credentials(t)
	if dir := os.Getenv("ROBOCACHE_RATE_SERVE"); dir != "" { // the process of the server
		s := newSlow(t, dir)
		fmt.Println(s.url)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	root := t.TempDir()
	counts, url := apart(t, root)
	rates := map[string]float64{"camera": 30, "joints": 30, "force": 30}
	small := synth.Options{
		Episodes: episodes, Seconds: 10, Width: 320, Height: 240, Cameras: 1, Rates: rates, Seed: 1,
	}
	four := small // several cameras of a usual size
	four.Width, four.Height, four.Cameras, four.Codec = 640, 480, 4, "av1"
	for title, of := range map[string]struct {
		format, name string
		options      synth.Options
	}{
		"lerobot":      {"lerobot", "set", small},
		"lerobot-four": {"lerobot", "set", four},
		"rlds":         {"rlds", "set", small},
		"mcap":         {"mcap", "set", small},
		"zarr":         {"zarr", "set.zarr", small},
		"robomimic":    {"robomimic", "set.hdf5", small},
	} {
		t.Run(title, func(t *testing.T) {
			format, options := of.format, of.options
			local := filepath.Join(root, "lab", title, of.name)
			options.Format = format
			if _, err := synth.Write(t.Context(), local, options); err != nil {
				t.Fatal(err)
			}
			for _, order := range []loader.Shuffle{loader.Global, loader.Pool} {
				epoch := func(uri, cache string) float64 {
					opt := robocache.OpenOptions{}
					if f, _ := robocache.FormatNamed(format); !f.Stamped {
						opt.HZ = robocache.Rate{Num: 30, Den: 1}
					}
					var before syscall.Rusage
					syscall.Getrusage(syscall.RUSAGE_SELF, &before)
					requests, bytes, _ := counts()
					ds, err := robocache.Open(t.Context(), uri, opt)
					if err != nil {
						t.Fatal(err)
					}
					defer ds.Close()
					if manyClocks(ds) {
						ds = gridded(t, ds, robocache.Rate{Num: 30, Den: 1})
					}
					opened, _, _ := counts()
					opened -= requests
					begin := time.Now()
					_, n, err := digest(
						t.Context(),
						ds,
						loader.Config{
							Order:        loader.Order{BatchSize: 32, Shuffle: order, Seed: 3},
							Runtime:      loader.Runtime{Threads: runtime.NumCPU(), Prefetch: 4},
							CacheOptions: loader.CacheOptions{Cache: cache},
						},
					)
					if err != nil {
						t.Fatal(err)
					}
					took := time.Since(begin)
					var used syscall.Rusage
					syscall.Getrusage(syscall.RUSAGE_SELF, &used)
					cpu := time.Duration(
						used.Utime.Nano() +
							used.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano(),
					)
					line := fmt.Sprintf(
						"%-9s %-6s %5d samples %7.0f/s, %.2f CPU s",
						title,
						order,
						n,
						float64(n)/took.Seconds(),
						cpu.Seconds(),
					)
					if uri != local {
						now, sent, atOnce := counts()
						line += fmt.Sprintf(
							", %d requests (%d to open, %d at once), %.0f bytes a sample",
							now-requests,
							opened,
							atOnce,
							float64(sent-bytes)/float64(n),
						)
					}
					t.Log(line)
					return float64(n) / took.Seconds()
				}
				remote := "s3://lab/" + title + "/" + of.name + "?endpoint=" + url
				var sum float64
				const times = 3
				for range times {
					evict(t, local)
					l := epoch(local, "")
					sum += epoch(remote, "") / l
				}
				t.Logf("%-9s %-6s %.2f of local cold", title, order, sum/times)
				cache := t.TempDir()
				epoch(remote, cache)
				epoch(remote, cache)
			}
		})
	}
}
