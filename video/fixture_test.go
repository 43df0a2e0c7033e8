package video

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// memory is a Ranged over bytes. It counts reads.
type memory struct {
	data  []byte
	reads atomic.Int64
	bytes atomic.Int64
}

func (m *memory) ReadAt(_ context.Context, p []byte, off int64) error {
	m.reads.Add(1)
	m.bytes.Add(int64(len(p)))
	if off < 0 || off+int64(len(p)) > int64(len(m.data)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "read after the end"}
	}
	copy(p, m.data[off:])
	return nil
}
func (m *memory) Size() int64     { return int64(len(m.data)) }
func (m *memory) Version() string { return "1" }
func (m *memory) Close() error    { return nil }

// dataDir returns the folder of the real test data.
func dataDir(t testing.TB) string {
	t.Helper()
	return realdata.Dir(t)
}

func readFile(t testing.TB, path string) *memory {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &memory{data: b}
}

func indexOf(t testing.TB, path string) *Index {
	t.Helper()
	ix, err := ReadIndex(t.Context(), readFile(t, path), Limits{})
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
	return ix
}

// tool returns the path of a program, or skips the test.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s on this machine", name)
	}
	return path
}

// runTool runs a program and returns its standard output.
func runTool(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, errs.Bytes())
	}
	return out
}

// clip creates a video with ffmpeg from 96×64 moving test frames and returns its path.
func clip(t testing.TB, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	all := append(
		[]string{
			"-v",
			"error",
			"-nostdin",
			"-y",
			"-f",
			"lavfi",
			"-i",
			"testsrc2=size=96x64:rate=30:duration=4",
		},
		args...)
	runTool(t, "ffmpeg", append(all, path)...)
	return path
}

// allocated returns the total number of bytes that the process has allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
