package submit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store/tests/servers"
)

var built string // the folder of the program

// build builds the program once for all tests.
var build = sync.OnceValues(func() (program string, err error) {
	if built, err = os.MkdirTemp("", "robocache-submit-test"); err != nil {
		return "", err
	}
	program = filepath.Join(built, "robocache")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program,
		"../cmd/robocache").
		CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built) // does nothing for ""
	os.Exit(code)
}

// robo returns a function that runs the program.
func robo(t *testing.T) func(args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the program is built")
	}
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return func(args ...string) string {
		t.Helper()
		if len(args) == 0 {
			return program
		}
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out)
	}
}

// dataset returns the files of a committed dataset by name, without those that name the manifest.
func dataset(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "_") {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || strings.HasPrefix(name, "_") ||
			name == filepath.Join("meta", "conversion.json") {
			return err
		}
		files[name], err = os.ReadFile(path)
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatalf("%v: %d files", err, len(files))
	}
	return files
}

func same(t *testing.T, what string, a, b map[string][]byte) {
	t.Helper()
	for name := range a {
		if !bytes.Equal(a[name], b[name]) || len(a) != len(b) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

// TestRealShards runs the shards of a plan sequentially; two at a time with a SIGTERM and a
// restart; and on Slurm. All results are equal, byte for byte.
func TestRealShards(t *testing.T) {
	call, dir := robo(t), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	call("synth", in("src"), "--codec", "png", "--episodes", "16", "--seconds", "2")
	plan := func(name string) (manifest string) {
		manifest = in(name + ".json")
		call(
			"plan",
			"convert",
			in("src"),
			in(name),
			"--images",
			"images",
			"--shards",
			"8",
			"--manifest",
			manifest,
		)
		return manifest
	}
	call("submit", "local", "--manifest", plan("one"), "-j", "1", "--threads", "1")
	one := dataset(t, in("one"))

	manifest := plan("two")
	c := exec.Command(call(), "submit", "local", "--manifest", manifest, "-j", "2")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var s struct {
		Done, Running int
		Committed     bool
	}
	for end := time.Now().Add(time.Minute); s.Done < 1 && time.Now().Before(end); {
		if err := json.Unmarshal([]byte(call("status", "--manifest", manifest, "--json")),
			&s); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	err := c.Wait()
	if err := json.Unmarshal([]byte(call("status", "--manifest", manifest, "--json")), &s); err !=
		nil {
		t.Fatal(err)
	}
	if s.Done < 8 && (c.ProcessState.ExitCode() != 130 || s.Committed || s.Running != 0 ||
		!strings.Contains(errs.String(), "robocache: interrupted with ")) {
		t.Errorf("interrupted: %v, %+v: %s", err, s, &errs)
	}
	t.Logf("interrupted with %d of 8 shards", s.Done)
	call("submit", "local", "--manifest", manifest, "-j", "2")
	same(t, "two at a time", one, dataset(t, in("two")))

	cl := startCluster(t, 5, smallNodes)
	out := call("submit", "slurm", "--manifest", plan("slurm"), "--out", in("jobs"), "--now")
	if !strings.Contains(out, "submitted: ") {
		t.Error(out)
	}
	cl.drained()
	same(t, "Slurm", one, dataset(t, in("slurm")))
}

// withTorch returns the checkout and its Python, which can import torch and this package.
func withTorch(t *testing.T) (root, python string) {
	t.Helper()
	root, python = realdata.Root(t), realdata.Python(t, "torch")
	if _, err := os.Stat(filepath.Join(root, "python/robocache/_lib/librobocache.so")); err != nil {
		t.Skip("no library for Python ('make lib'): ", err)
	}
	t.Setenv("PYTHONPATH", filepath.Join(root, "python"))
	return root, python
}

// TestTenCommands runs the ten commands of docs/cluster.md on a real S3 server.
func TestTenCommands(t *testing.T) {
	text, err := os.ReadFile("../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## From a bucket to a trained policy"))
	_, text, _ = bytes.Cut(text, []byte("```bash\n"))
	block, _, _ := bytes.Cut(text, []byte("```"))
	commands := strings.Split(strings.TrimSpace(string(block)), "\n")
	if len(commands) != 10 {
		t.Fatalf("%d commands: %q", len(commands), commands)
	}
	root, python := withTorch(t)
	bucket, address := servers.S3(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", address)
	call, dir := robo(t), t.TempDir()
	t.Setenv("PATH", filepath.Dir(call())+":"+filepath.Dir(python)+":"+os.Getenv("PATH"))
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err !=
		nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(bucket, "lab"), 0o755); err != nil {
		t.Fatal(err)
	}
	call(
		"synth",
		filepath.Join(bucket, "lab", "recordings"),
		"--format",
		"mcap",
		"--codec",
		"png",
		"--episodes",
		"6",
		"--seconds",
		"2",
		"--rates",
		"camera=20,joints=100",
	)
	for _, line := range commands {
		begin := time.Now()
		c := exec.Command("sh", "-c", line)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		t.Logf("%.1f s: %s", time.Since(begin).Seconds(), line)
	}
	if s, err := os.Stat(filepath.Join(dir, "policy.pt")); err != nil || s.Size() < 1000 {
		t.Errorf("no policy: %v", err)
	}
}

// TestBenchOnTwoNodes runs robocache-bench load --submit on a real Slurm: the scenario of two nodes
// with one rank each, and one report of both.
func TestBenchOnTwoNodes(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("a set with video needs ffmpeg: ", err)
	}
	call := robo(t)
	dir := t.TempDir()
	call(
		"synth",
		filepath.Join(dir, "set"),
		"--episodes",
		"8",
		"--seconds",
		"1",
		"--cameras",
		"1",
		"--size",
		"96x96",
		"--codec",
		"h264",
	)
	c := startCluster(t, 1001, largeNodes)
	bench := filepath.Join(dir, "robocache-bench")
	if out, err := exec.Command("go", "build", "-C", "../bench", "-ldflags=-s -w", "-o", bench,
		"./cmd/robocache-bench").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Chdir(dir) // for the jobs' logs
	out, err := exec.Command(
		bench,
		"load",
		filepath.Join(dir, "set"),
		"--scenarios",
		"stream_bucket_2node",
		"--submit",
		"--out",
		filepath.Join(dir, "out"),
		"--duration",
		"1s",
		"--workers",
		"1",
		"--batch-size",
		"8",
		"--check-frames",
		"4",
	).
		Output()
	if err != nil {
		t.Fatal(err)
	}
	job, _, _ := strings.Cut(string(out), "\t")
	report := filepath.Join(dir, "out", "stream_bucket_2node", "load.json")
	c.wait(4*time.Minute, "a report", func() bool {
		_, err := os.Stat(report)
		return err == nil || c.out("squeue", "-h") == ""
	})
	b, err := os.ReadFile(report)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "dlbench_stream_bucket_2node-"+job+".out"))
		t.Fatalf("%v: %s\n%s", err, c.out("scontrol", "show", "job", job), log)
	}
	var r struct {
		Results []struct {
			Ranks []struct {
				Rank    int
				World   int   `json:"world_size"`
				Samples int64 `json:"samples_measured"`
			}
		}
	}
	if err := json.Unmarshal(b, &r); err != nil || len(r.Results) != 1 ||
		len(r.Results[0].Ranks) != 2 {
		t.Fatalf("%v: %.2000s", err, b)
	}
	for i, one := range r.Results[0].Ranks {
		if one.Rank != i || one.World != 2 || one.Samples < 64 {
			t.Errorf("%+v", one)
		}
	}
	if on := c.out("scontrol", "show", "job", job); !strings.Contains(on, "NumNodes=2") {
		t.Error(on)
	}
}
