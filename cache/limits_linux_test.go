package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

func init() {
	roles["full"] = roleFull
	roles["readonly"] = roleReadOnly
	roles["fsize"] = roleFileSize
	roles["sealsize"] = roleSealSize
	roles["files"] = roleFiles
	roles["resident"] = roleResident
}

// inNamespace runs a role in a namespace that allows mounts.
func inNamespace(t *testing.T, role string) {
	t.Helper()
	c := command(t, role, t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{
			{ContainerID: 0, HostID: os.Getuid(), Size: 1},
		}
	}
	runRole(t, c)
}

func runRole(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "cannot mount") || errors.Is(err, syscall.EPERM) {
		t.Skipf("no mounts here: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if len(out) > 0 {
		t.Logf("%s", out)
	}
}

func mount(dir, options string, flags uintptr) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	return nil
}

// TestFullFileSystem checks that a small file system, such as a /dev/shm of 24 MB, makes the cache
// smaller (cache.C9). If other files fill the file system, writing stops with one typed error, and
// reads continue.
func TestFullFileSystem(t *testing.T) { inNamespace(t, "full") }

func roleFull(args []string) error {
	root := args[0]
	if err := mount(root, "size=24m", 0); err != nil {
		return err
	}
	dir := filepath.Join(root, "cache")
	d, err := Open(dir, Options{Budget: 1 << 30})
	if err != nil {
		return err
	}
	if s := d.Stats(); s.Limit > 24<<20 || s.Limit < 16<<20 {
		return fmt.Errorf("limit %d on a file system of 24 MB", s.Limit)
	}
	n := 0
	for ; n < 2000; n++ {
		if err := d.Put(key(n), value(n)); err != nil {
			return fmt.Errorf("put %d, alone on the file system: %w", n, err)
		}
	}
	if s := d.Stats(); s.Evicted == 0 || s.Stopped != "" {
		return fmt.Errorf("%+v", s)
	}
	// other files fill the rest
	filler, err := os.Create(filepath.Join(root, "filler"))
	if err != nil {
		return err
	}
	fill := func() error {
		for {
			if _, err := filler.Write(make([]byte, 4096)); err != nil {
				if errors.Is(err, syscall.ENOSPC) {
					return nil
				}
				return err
			}
		}
	}
	if err := fill(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	failed := make(chan error, 600)
	for g := range 6 {
		wg.Go(func() {
			for i := range 100 {
				if err := d.Put(key(n+g*100+i), value(n+g*100+i)); err != nil {
					failed <- err
				}
			}
		})
	}
	wg.Wait()
	n += 600
	close(failed)
	errs := 0
	for err := range failed {
		errs++
		if !errors.Is(err, robocache.ErrResourceLimit) ||
			!strings.Contains(err.Error(), "with Cache") {
			return fmt.Errorf("untyped: %w", err)
		}
		fmt.Println("as wanted:", err)
	}
	s := d.Stats()
	if errs != 1 || s.Stopped == "" || s.Declined == 0 || d.Accepts() || d.Err() == nil {
		return fmt.Errorf("%d errors, %+v", errs, s)
	}
	hits := 0
	for i := range n {
		if e, ok := d.Get(key(i)); ok {
			if string(e.Data) != string(value(i)) {
				return fmt.Errorf("entry %d: wrong bytes", i)
			}
			e.Release()
			hits++
		}
	}
	if hits < 100 {
		return fmt.Errorf("%d hits after the disk was full", hits)
	}
	d.Close()
	if err := fill(); err != nil { // the shard that could not be sealed was removed
		return err
	}
	if _, err := Open(dir, Options{Budget: 1 << 30}); !errors.Is(err, robocache.ErrResourceLimit) ||
		!strings.Contains(err.Error(), "hint") {
		return fmt.Errorf("open on a full disk: %w", err)
	} else {
		fmt.Println("as wanted:", err)
	}
	// once there is space again, sealed entries can be read
	filler.Close()
	if err := os.Remove(filler.Name()); err != nil {
		return err
	}
	if d, err = Open(dir, Options{Budget: 1 << 30}); err != nil {
		return err
	}
	for i := range n {
		if e, ok := d.Get(key(i)); ok {
			if string(e.Data) != string(value(i)) {
				return fmt.Errorf("entry %d: wrong bytes", i)
			}
			e.Release()
		}
	}
	if s := d.Stats(); s.Hits == 0 || s.BadEntries > 0 {
		return fmt.Errorf("%+v", s)
	}
	return d.Close()
}

// TestReadOnly checks a directory that cannot be written (cache.C9).
func TestReadOnly(t *testing.T) { inNamespace(t, "readonly") }

func roleReadOnly(args []string) error {
	root := args[0]
	if err := mount(root, "size=24m", 0); err != nil {
		return err
	}
	dir := filepath.Join(root, "cache")
	d, err := Open(dir, Options{Budget: 16 << 20})
	if err != nil {
		return err
	}
	if err := errors.Join(d.Put(key(1), value(1)), d.Close()); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", root, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY,
		""); err != nil {
		return fmt.Errorf("cannot mount: %w", err)
	}
	for _, dir := range []string{dir, filepath.Join(root, "new")} {
		_, err := Open(dir, Options{Budget: 16 << 20})
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "with Cache") {
			return fmt.Errorf("%s: %w", dir, err)
		}
		fmt.Println("as wanted:", err)
	}
	l, err := List(dir)
	if err != nil || l.Entries != 1 {
		return fmt.Errorf("list: %+v, %w", l, err)
	}
	if _, err := Verify(context.Background(), dir, VerifyOptions{}); err != nil {
		return err
	}
	return nil
}

// TestFileSizeLimit checks RLIMIT_FSIZE (cache.C9). A write beyond the limit would raise a signal.
func TestFileSizeLimit(t *testing.T) { runRole(t, command(t, "fsize", t.TempDir())) }

// TestSealLimit checks that the next Put reports, once, that a shard could not be sealed in the
// background (cache.C9).
func TestSealLimit(t *testing.T) { runRole(t, command(t, "sealsize", t.TempDir())) }

func roleSealSize(args []string) error {
	d, err := Open(args[0], Options{Budget: 64 << 20})
	if err != nil {
		return err
	}
	if err := d.Put(key(0), value(0)); err != nil {
		return err
	}
	err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: ^uint64(0)})
	if err != nil {
		return err
	}
	d.rollMu.Lock()
	d.retireCurrent()
	d.rollMu.Unlock()
	// the next Put reports the error even if sealing has more to do
	for start := time.Now(); d.Err() == nil; runtime.Gosched() {
		if time.Since(start) > time.Minute {
			return errors.New("never told")
		}
	}
	err = d.Put(key(1), value(1))
	if !errors.Is(err, robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "ulimit -f") {
		return fmt.Errorf("the Put after it: %w", err)
	}
	if err := d.Put(key(2), value(2)); err != nil {
		return fmt.Errorf("the second Put after it: %w", err)
	}
	return nil
}

func roleFileSize(args []string) error {
	limit := func(n uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: ^uint64(0)})
	}
	if err := limit(1500 << 10); err != nil {
		return err
	}
	d, err := Open(args[0], Options{Budget: 64 << 20})
	if err != nil {
		return err
	}
	for i := range 200 {
		if err := d.Put(key(i), value(i)); err != nil {
			return err
		}
	}
	if s := d.Stats(); s.Puts != 200 || s.Shards < 4 {
		return fmt.Errorf("%+v", s)
	}
	if err := limit(1 << 10); err != nil {
		return err
	}
	errs := 0
	for i := 200; i < 400; i++ {
		if err := d.Put(key(i), value(i)); err != nil {
			errs++
			if !errors.Is(err, robocache.ErrResourceLimit) ||
				!strings.Contains(err.Error(), "ulimit -f") {
				return err
			}
		}
	}
	if hits := d.Stats().Puts; errs != 1 || hits < 200 {
		return fmt.Errorf("%d errors, %d puts", errs, hits)
	}
	d.Close()
	_, err = Open(args[0], Options{})
	if !errors.Is(err, robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "ulimit -f") {
		return fmt.Errorf("open: %w", err)
	}
	return nil
}

// TestOpenFileLimit checks the limit of open files at Open and later, and the number of files that
// the cache keeps open (cache.C9, cache.C12).
func TestOpenFileLimit(t *testing.T) { runRole(t, command(t, "files", t.TempDir())) }

func roleFiles(args []string) error {
	r, w, err := os.Pipe() // the first pipe also opens Go's own two files
	if err != nil {
		return err
	}
	r.Close()
	w.Close()
	before, err := openFiles()
	if err != nil {
		return err
	}
	d, err := Open(args[0], Options{Budget: 64 << 20, ShardBytes: 1 << 20})
	if err != nil {
		return err
	}
	const n = 400
	for i := range n {
		if err := d.Put(key(i), value(i)); err != nil {
			return err
		}
	}
	if err := d.Flush(); err != nil {
		return err
	}
	if err := d.Put(key(n), value(n)); err != nil {
		return err
	}
	held, err := openFiles()
	if err != nil || d.Stats().Shards < 10 || held-before > 4 {
		return fmt.Errorf("%d files held for %d shards, %w", held-before, d.Stats().Shards, err)
	}
	limit := func(n int) error {
		return syscall.Setrlimit(
			syscall.RLIMIT_NOFILE,
			&syscall.Rlimit{Cur: uint64(n), Max: 1 << 10},
		)
	}
	if err := limit(3); err != nil { // no new files
		return err
	}
	errs := 0
	for i := n + 1; i < 2*n; i++ {
		if err := d.Put(key(i), value(i)); err != nil {
			errs++
			if !errors.Is(err, robocache.ErrResourceLimit) ||
				!strings.Contains(err.Error(), "ulimit -n") {
				return err
			}
		}
	}
	for i := range n {
		e, ok := d.Get(key(i))
		if !ok || string(e.Data) != string(value(i)) {
			return fmt.Errorf("entry %d: %v", i, ok)
		}
		e.Release()
	}
	if s := d.Stats(); errs != 1 || s.Stopped == "" {
		return fmt.Errorf("%d errors, %+v", errs, s)
	}
	_, err = Open(args[0], Options{})
	if !errors.Is(err, robocache.ErrResourceLimit) || !strings.Contains(err.Error(), "ulimit -n") {
		return fmt.Errorf("open: %w", err)
	}
	if err := limit(1 << 10); err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	if after, err := openFiles(); err != nil || after != before {
		return fmt.Errorf("%d files after Close, %d before Open, %w", after, before, err)
	}
	return nil
}

func openFiles() (int, error) {
	names, err := os.ReadDir("/proc/self/fd")
	return len(names), err
}

// TestTruncatedWhileMapped checks that a file that shrinks while it is mapped is a miss and does
// not raise SIGBUS.
func TestTruncatedWhileMapped(t *testing.T) {
	for _, touched := range []bool{false, true} {
		dir := filledDir(t, 60)
		d := mustOpen(t, dir, Options{Budget: 256 << 20})
		if touched {
			count(t, d, 60)
		}
		for _, f := range shardFiles(t, dir, sealedSuffix) {
			if err := os.Truncate(f, 100_000); err != nil {
				t.Fatal(err)
			}
		}
		if touched && noPopulate.Load() {
			t.Log("this kernel cannot say that pages are gone")
			continue
		}
		hits := count(t, d, 60)
		if s := d.Stats(); hits > 20 || int64(60-hits) != s.BadEntries {
			t.Errorf("touched %v: %d hits, %+v", touched, hits, s)
		}
	}
}

// TestResidentIsBounded checks that mapped files do not grow the process beyond Resident and are
// still read correctly (cache.C11).
func TestResidentIsBounded(t *testing.T) { runRole(t, command(t, "resident", t.TempDir())) }

func roleResident(args []string) error {
	const n, size = 400, 256 << 10 // 100 MB
	big := func(i int) []byte { return bytes.Repeat(value(i)[:1], size) }
	d, err := Open(args[0], Options{Budget: 1 << 30, ShardBytes: 4 << 20})
	if err != nil {
		return err
	}
	for i := range n {
		if err := d.Put(key(i), big(i)); err != nil {
			return err
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	for _, limit := range []int64{16 << 20, 1 << 30} {
		if d, err = Open(args[0], Options{Budget: 1 << 30, Resident: limit}); err != nil {
			return err
		}
		before, peak := fileRSS(), int64(0)
		for round := range 3 {
			for i := range n {
				i = i * 7 % n
				e, ok := d.Get(key(i))
				if !ok || !bytes.Equal(e.Data, big(i)) {
					return fmt.Errorf("round %d entry %d: %v", round, i, ok)
				}
				e.Release()
				if i%10 == 0 {
					peak = max(peak, fileRSS()-before)
				}
			}
		}
		s := d.Stats()
		fmt.Printf("limit %d: RSS of files grew by %d, counted %d\n", limit, peak, s.Peak)
		// Without an effective limit, RSS must be high enough to measure. The system decides how
		// much of it stays in memory.
		whole := int64(n * size)
		if limit < whole && (peak > limit*3/2 || s.Peak > limit+size) ||
			limit > whole && (peak < whole/2 || s.Mapped != whole) {
			return fmt.Errorf("limit %d: the RSS of files grew by %d; %+v", limit, peak, s)
		}
		if err := d.Close(); err != nil {
			return err
		}
		if d.mappedBytes.Load() != 0 {
			return fmt.Errorf("%d bytes are counted after Close", d.mappedBytes.Load())
		}
	}
	return nil
}

// fileRSS returns the bytes of shards in this process's memory, according to the page tables.
func fileRSS() (sum int64) {
	text, _ := os.ReadFile("/proc/self/smaps")
	ours := false
	for line := range strings.Lines(string(text)) {
		var n int64
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &n); err == nil {
			if ours {
				sum += n << 10
			}
		} else if f := strings.Fields(line); len(f) >= 5 && strings.Contains(f[0], "-") {
			ours = strings.HasSuffix(f[len(f)-1], sealedSuffix)
		}
	}
	return sum
}
