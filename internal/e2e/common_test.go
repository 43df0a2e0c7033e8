package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
	"github.com/goatnote-inc/robocache/video"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg"
)

const (
	small  = "g1_h264_v30_bigdrift" // 1.3 MB, 66 episodes of 19 frames in one mp4
	camera = "observation.images.cam_high"
	mp4    = "videos/observation.images.cam_high/chunk-000/file-000.mp4"
	table  = "data/chunk-000/file-000.parquet"
	eptab  = "meta/episodes/chunk-000/file-000.parquet"
	info   = "meta/info.json"
)

// toLeRobot converts to LeRobot with options of the writer.
func toLeRobot(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt convert.Options,
	options map[string]string,
) (*write.Report, error) {
	opt.Options = options
	r, err := convert.Write(ctx, src, "lerobot", dst, opt)
	if err != nil {
		return nil, err
	}
	return r.Own.(*write.Report), nil
}

// decoders skips the test if frames cannot be decoded.
func decoders(t testing.TB) {
	t.Helper()
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
}

// tree is a dataset in memory: name → bytes. It contains no oracles and licenses.
type tree map[string][]byte

func load(t testing.TB, name string) tree {
	t.Helper()
	root := realdata.Path(t, name)
	out := tree{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if top, _, _ := strings.Cut(rel, "/"); top != "meta" && top != "data" && top != "videos" {
			return nil
		}
		out[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// with returns a copy in which one file has other bytes. nil removes the file.
func (tr tree) with(name string, data []byte) tree {
	out := make(tree, len(tr)+1)
	for k, v := range tr {
		out[k] = v
	}
	if data == nil {
		delete(out, name)
	} else {
		out[name] = data
	}
	return out
}

// edit returns a copy in which text of a file is replaced. The file must contain old.
func (tr tree) edit(t testing.TB, name, old, new string) tree {
	t.Helper()
	if !strings.Contains(string(tr[name]), old) {
		t.Fatalf("%s has no %q", name, old)
	}
	return tr.with(name, []byte(strings.Replace(string(tr[name]), old, new, 1)))
}

// disk writes the tree to a new folder and returns its path.
func (tr tree) disk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range tr {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mem puts the tree into a new memory store and returns its URI.
func (tr tree) mem(t testing.TB) string {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "_")
	m := storetest.NewMem(name)
	t.Cleanup(m.Drop)
	for k, v := range tr {
		m.Put(k, v)
	}
	return "mem://" + name
}

func open(t testing.TB, uri string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), uri, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// digest returns a hash of everything that an epoch delivers, and its number of samples.
func digest(
	ctx context.Context,
	ds robocache.Dataset,
	cfg loader.Config,
) (sum string, samples int, err error) {
	l, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return "", 0, err
	}
	defer l.Close()
	h := sha256.New()
	for {
		b, err := l.Next(ctx)
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), samples, nil
		}
		if err != nil {
			return "", samples, err
		}
		samples += b.Rows
		for _, i := range b.Indices {
			h.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		}
		for i := range b.Tensors {
			io.WriteString(h, b.Tensors[i].Key)
			h.Write(b.Tensors[i].Data)
		}
		for i := range b.Texts {
			for _, s := range b.Texts[i].Values {
				io.WriteString(h, s)
			}
		}
		b.Release()
	}
}

// read reads everything of a dataset except pixels: all rows of all columns, texts, timestamps,
// frame positions, statistics.
func read(ctx context.Context, uri string) error {
	ds, err := robocache.Open(ctx, uri, robocache.OpenOptions{})
	if err != nil {
		return err
	}
	defer ds.Close()
	return readAll(ctx, ds)
}

func readAll(ctx context.Context, ds robocache.Dataset) error {
	for e := range ds.Info().Episodes {
		rows := make([]robocache.Row, ds.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		if _, err := ds.Episode(ctx, e); err != nil {
			return err
		}
		for _, f := range ds.Info().Features {
			var err error
			switch f.Kind {
			case robocache.KindNumeric:
				err = ds.Gather(ctx, f.Key, rows, make([]byte, len(rows)*f.RowBytes()))
			case robocache.KindVideo, robocache.KindImage:
				err = ds.Frames(ctx, f.Key, rows, make([]robocache.FrameRef, len(rows)))
			default:
				_, err = ds.Text(ctx, f.Key, rows)
			}
			if err != nil {
				return err
			}
		}
		if _, err := ds.Text(ctx, "task", rows); err != nil {
			return err
		}
		if _, err := ds.Times(ctx, e, ""); err != nil {
			return err
		}
	}
	_, err := ds.Stats(ctx)
	return err
}

// sound fails the test if err is not of an expected kind: a typed error or the context's error, but
// no recovered panic.
func sound(t testing.TB, err error) {
	t.Helper()
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	var e *robocache.Error
	if !errors.As(err, &e) || e.Class == nil {
		t.Errorf("untyped error: %v", err)
		return
	}
	if errors.Is(err, robocache.ErrInternal) {
		t.Errorf("a panic was recovered: %v", err)
	}
}

// want checks the class of an error and that its message contains words.
func want(t testing.TB, err, class error, words ...string) {
	t.Helper()
	sound(t, err)
	if !errors.Is(err, class) {
		t.Errorf("class %v wanted, got: %v", class, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message does not say %q: %v", w, err)
		}
	}
}

// hangs is longer than any step takes on the slowest machine.
const hangs = 5 * time.Minute

// busy is much more CPU time than any step takes, which is less than a second even under the race
// detector.
const busy = time.Minute

// bounded runs f and fails if it hangs, computes for long, or allocates more than ceiling. Parallel
// tests would also count, so they must not run at the same time.
func bounded(t testing.TB, ceiling uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, used := time.Now(), cpuTime()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangs):
		buf := make([]byte, 1<<20)
		t.Fatalf("hangs: not done after %v\n%s", hangs, buf[:runtime.Stack(buf, true)])
	}
	if took := cpuTime() - used; took > busy {
		t.Errorf("%v of CPU, the ceiling is %v", took, busy)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > ceiling {
		t.Errorf(
			"allocated %d MiB, the ceiling is %d MiB (%v)",
			got>>20,
			ceiling>>20,
			time.Since(begin),
		)
	}
}

// codes counts the findings of a dataset by code, including those found after opening.
func codes(ds robocache.Dataset) map[string]int {
	out := map[string]int{}
	for _, f := range ds.Info().Findings {
		out[f.Code]++
	}
	if n, ok := ds.(interface{ Noticed() []robocache.Finding }); ok {
		for _, f := range n.Noticed() {
			out[f.Code]++
		}
	}
	return out
}

// steadied waits until a count falls to limit or below, and returns the last count.
func steadied(count func() int, limit int) int {
	for start := time.Now(); count() > limit && time.Since(start) < time.Minute; {
		time.Sleep(20 * time.Millisecond)
	}
	return count()
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func numGoroutine() int { return runtime.NumGoroutine() }

// errno5 is the error that a disk reports for a broken sector.
const errno5 = syscall.EIO

// cpuTime returns the CPU time of this process, which does not depend on the load of the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
