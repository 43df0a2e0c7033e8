package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

func local(t testing.TB) (*Local, string) {
	t.Helper()
	dir := t.TempDir()
	l, err := OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// soon fails a test if f blocks, as opening a FIFO would.
func soon(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("hangs")
		return nil
	}
}

// TestLocalOddThings checks that anything but a regular file is a typed error at once, and not
// listed (store.T1).
func TestLocalOddThings(t *testing.T) {
	l, dir := local(t)
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/secret", []byte("secret"), 0o666))
	must(t, os.MkdirAll(dir+"/d/e", 0o777))
	must(t, os.WriteFile(dir+"/d/e/f", []byte("x"), 0o666))
	must(t, syscall.Mkfifo(dir+"/fifo", 0o666))
	want := map[string]error{"fifo": robocache.ErrMalformed, "d": robocache.ErrMalformed}
	for name, target := range map[string]string{
		"out":      outside + "/secret",
		"outdir":   outside,
		"up":       "../../../../etc/passwd",
		"dev":      "/dev/zero",
		"loop1":    "loop2",
		"loop2":    "loop1",
		"in":       "d/e/f",
		"indir":    "d",
		"d/back":   "..",
		"dangling": "nope",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	for _, name := range []string{
		"out",
		"outdir/secret",
		"up",
		"dev",
		"loop1",
		"d/back/d/back/out",
	} {
		want[name] = robocache.ErrMalformed
	}
	want["dangling"] = robocache.ErrMalformed // callers may ignore ErrNotFound
	for name, class := range want {
		for op, do := range map[string]func() error{
			"open": func() error { _, err := l.Open(t.Context(), name); return err },
			"stat": func() error { _, err := l.Stat(t.Context(), name); return err },
			"read": func() error { _, err := ReadFile(t.Context(), l, name, 100); return err },
		} {
			if err := soon(t, do); !errors.Is(err, class) {
				t.Errorf("%s %s: %v, want %v", op, name, err, class)
			}
		}
	}
	for _, name := range []string{"in", "indir/e/f", "d/back/in"} {
		if b, err := ReadFile(t.Context(), l, name, 10); err != nil || string(b) != "x" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	list, err := l.List(t.Context(), "")
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, " "); err != nil || got != "d/e/f in indir/e/f" {
		t.Errorf("list: %q, %v", got, err)
	}
	// Writing through a link that leaves the root is rejected.
	for _, name := range []string{"outdir/new", "outdir/deep/new"} {
		if _, err := l.Create(t.Context(), name); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("create %s: %v", name, err)
		}
	}
	// Replacing a link replaces the link and not its target.
	w, err := l.Create(t.Context(), "out")
	must(t, err)
	must(t, w.Commit())
	if b, _ := os.ReadFile(outside + "/secret"); string(b) != "secret" {
		t.Error("wrote through a link")
	}
}

func TestOpenLocalOddThings(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o666))
	must(t, syscall.Mkfifo(dir+"/fifo", 0o666))
	for uri, class := range map[string]error{
		dir + "/nope":   robocache.ErrNotFound,
		dir + "/file":   robocache.ErrMisuse,
		dir + "/fifo":   robocache.ErrMisuse,
		dir + "/file/x": robocache.ErrNotFound,
		"/dev/null":     robocache.ErrMisuse,
		"a\x00b":        robocache.ErrMalformed,
		"":              robocache.ErrMisuse,
		"s3://b/x":      robocache.ErrUnsupported,
		"pipe:echo x":   robocache.ErrNotFound,
		"file://host/x": robocache.ErrUnsupported,
		"file:///%zz":   robocache.ErrMalformed,
		"mem://":        robocache.ErrNotFound,
		"http://":       robocache.ErrMalformed, "http:///x": robocache.ErrMalformed,
	} {
		err := soon(t, func() error { _, err := Open(uri); return err })
		if !errors.Is(err, class) {
			t.Errorf("%q: %v, want %v", uri, err, class)
		}
	}
	spaced := dir + "/a b"
	must(t, os.Mkdir(spaced, 0o777))
	for _, uri := range []string{
		"file://" + dir + "/a%20b",
		"file://localhost" + dir + "/a%20b",
		"FILE://" + dir + "/a%20b",
		"file:" + dir + "/a%20b",
		spaced + "/",
	} {
		s, err := Open(uri)
		if err != nil || s.URI() != spaced {
			t.Errorf("%s: %v", uri, err)
		}
	}
	w, err := OpenWritable(dir + "/made/deep")
	must(t, err)
	f, err := w.Create(t.Context(), "x")
	must(t, err)
	must(t, f.Commit())
	if _, err := OpenWritable("http://127.0.0.1:1/"); !errors.Is(err, robocache.ErrUnsupported) {
		t.Error(err)
	}
	if os.Geteuid() == 0 {
		t.Log("root may read everything: unreadable folders not tried")
		return
	}
	must(t, os.Mkdir(dir+"/closed", 0))
	if _, err := Open(dir + "/closed"); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestHubSnapshot checks that the links of Hugging Face's cache work, and no others.
func TestHubSnapshot(t *testing.T) {
	hub := t.TempDir()
	repo := hub + "/datasets--o--n"
	must(t, os.MkdirAll(repo+"/blobs", 0o777))
	must(t, os.MkdirAll(repo+"/snapshots/c0ffee/meta", 0o777))
	must(t, os.WriteFile(repo+"/blobs/b1", []byte("{}"), 0o666))
	must(t, os.WriteFile(hub+"/other", []byte("x"), 0o666))
	must(t, os.Symlink("../../../blobs/b1", repo+"/snapshots/c0ffee/meta/info.json"))
	must(t, os.Symlink("../../../../other", repo+"/snapshots/c0ffee/meta/bad.json"))
	s, err := Open(repo + "/snapshots/c0ffee")
	must(t, err)
	if b, err := ReadFile(t.Context(), s, "meta/info.json", 10); err != nil || string(b) != "{}" {
		t.Error(err)
	}
	if _, err := s.Open(t.Context(), "meta/bad.json"); !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
	list, err := s.List(t.Context(), "")
	if err != nil || len(list) != 1 || list[0].Name != "meta/info.json" {
		t.Error(list, err)
	}
}

// TestLocalChangeSeenAtClose checks that Close reports a change that no read could detect, so that
// ReadFile cannot miss it (store.T3).
func TestLocalChangeSeenAtClose(t *testing.T) {
	l, dir := local(t)
	must(t, os.WriteFile(dir+"/a", []byte("aaaa"), 0o666))
	must(t, os.Chtimes(dir+"/a", time.Unix(1, 0), time.Unix(1, 0)))
	f, err := l.Open(t.Context(), "a")
	must(t, err)
	must(t, os.WriteFile(dir+"/a", []byte("bbbb"), 0o666))
	if err := f.Close(); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

// fullDisk accepts some bytes and then has no space, or fails at fsync.
type fullDisk struct {
	tempFile
	left  int
	fsync error
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) > d.left {
		n, _ := d.tempFile.Write(p[:d.left])
		return n, &fs.PathError{Op: "write", Path: "temp", Err: syscall.ENOSPC}
	}
	d.left -= len(p)
	return d.tempFile.Write(p)
}

func (d *fullDisk) Sync() error {
	if d.fsync != nil {
		return d.fsync
	}
	return d.tempFile.Sync()
}

// TestNoSpace checks that a full disk is a resource limit, that the old file stays, and that the
// temporary file is removed at once (store.T6).
func TestNoSpace(t *testing.T) {
	for _, disk := range []*fullDisk{
		{left: 3},
		{left: 0},
		{left: 100, fsync: syscall.ENOSPC},
		{left: 100, fsync: syscall.EIO},
	} {
		l, dir := local(t)
		must(t, os.WriteFile(dir+"/a", []byte("old"), 0o666))
		w, err := l.Create(t.Context(), "a")
		must(t, err)
		lw := w.(*localWriter)
		disk.tempFile = lw.file
		lw.file = disk
		_, err = w.Write([]byte("hello"))
		if err == nil {
			err = w.Commit()
		}
		class := robocache.ErrResourceLimit
		if disk.fsync == syscall.EIO {
			class = robocache.ErrTemporary
		}
		if !errors.Is(err, class) {
			t.Errorf("%v", err)
		}
		entries, _ := os.ReadDir(dir)
		if b, _ := os.ReadFile(dir + "/a"); len(entries) != 1 || string(b) != "old" {
			t.Errorf("left %v, %q", entries, b)
		}
		if err := w.Commit(); !errors.Is(err, class) {
			t.Errorf("Commit after the failure: %v", err)
		}
		w.Abort()
	}
}

// TestSweep checks that only old temporary files are removed, and that none is ever listed.
func TestSweep(t *testing.T) {
	l, dir := local(t)
	must(t, os.MkdirAll(dir+"/d", 0o777))
	must(t, os.WriteFile(dir+"/d/keep", nil, 0o666))
	must(t, os.WriteFile(dir+"/d/"+tempPrefix+"OLD", nil, 0o666))
	must(t, os.Chtimes(dir+"/d/"+tempPrefix+"OLD", time.Unix(1, 0), time.Unix(1, 0)))
	must(t, os.Chtimes(dir+"/d/keep", time.Unix(1, 0), time.Unix(1, 0)))
	w, err := l.Create(t.Context(), "d/young")
	must(t, err)
	if list, err := l.List(t.Context(), ""); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if n, err := l.Sweep(t.Context(), time.Hour); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	must(t, w.Commit())
	if list, err := l.List(t.Context(), ""); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestLocalReadAllocatesNothing(t *testing.T) {
	l, dir := local(t)
	must(t, os.WriteFile(dir+"/a", make([]byte, 1<<20), 0o666))
	f, err := l.Open(t.Context(), "a")
	must(t, err)
	defer f.Close()
	p := make([]byte, 4096)
	ctx := t.Context()
	// The duration is below checkEvery, so that no read checks mtime.
	if n := testing.AllocsPerRun(200, func() { must(t, f.ReadAt(ctx, p, 8192)) }); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}

func TestMergeCoversEverySpan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var spans []Span
		for range rng.IntN(30) {
			spans = append(spans, Span{Off: rng.Int64N(1000), P: make([]byte, rng.IntN(50))})
		}
		gap := rng.Int64N(20)
		n := 0
		end := int64(-1 << 40)
		for _, r := range mergeSpans(spans, gap, 100) {
			if len(r.spans) > 1 && r.end-r.off > 100 {
				t.Fatal("run over the limit")
			}
			n += len(r.spans)
			for _, s := range r.spans {
				if s.Off < r.off || s.Off+int64(len(s.P)) > r.end {
					t.Fatal("span outside its run")
				}
			}
			end = max(end, r.end)
		}
		if n != len(spans) {
			t.Fatalf("%d spans of %d", n, len(spans))
		}
	}
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{
		"a",
		"a/b",
		"../a",
		"a/../b",
		"/a",
		"a\x00",
		"./a//b/.",
		"",
		".",
		"..",
		"a/..",
		strings.Repeat("a/", 3000),
		"\xff",
		"a\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		c, err := CleanName(name)
		if err != nil {
			var e *robocache.Error
			if !errors.As(err, &e) || !errors.Is(err, robocache.ErrMalformed) || c != "" {
				t.Fatalf("%q: %q, %v", name, c, err)
			}
			return
		}
		if !filepath.IsLocal(c) || !fs.ValidPath(c) && strings.ToValidUTF8(c, "") == c ||
			len(c) > MaxName {
			t.Fatalf("%q became %q", name, c)
		}
		if again, err := CleanName(c); err != nil || again != c {
			t.Fatalf("%q is not stable: %q, %v", c, again, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	for _, s := range []string{
		"http://u:hunter2@h/x?hunter2#hunter2",
		"https://h",
		"file:///x",
		"file://h/x",
		"mem://a",
		"s3://b/k",
		"x",
		"",
		"http://[::1",
		"HTTP://h:1/%2e%2e/",
		"pipe:ls",
		"file:%2e",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		s, err := Open(uri)
		if err != nil {
			var e *robocache.Error
			if !errors.As(err, &e) {
				t.Fatalf("%q: %v is not typed", uri, err)
			}
			return
		}
		defer Close(s)
		if h, ok := s.(*HTTP); ok {
			i := strings.IndexAny(h.URI(), "?#@")
			if i >= 0 && !strings.Contains(h.base.EscapedPath(), h.URI()[i:i+1]) {
				t.Fatalf("%q: the URI says too much: %s", uri, h.URI())
			}
			u := h.fileURL("a/b?c#d")
			if u.Host != h.base.Host || !strings.HasSuffix(u.EscapedPath(), "/a/b%3Fc%23d") {
				t.Fatalf("%q: a name left the root: %s", uri, u)
			}
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{
		"bytes 0-0/1",
		"bytes */5",
		"bytes 1-2/*",
		"bytes 5-1/9",
		"bytes 0-9/9",
		"bytes -1-2/3",
		"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		start, last, total, ok := parseContentRange(s)
		if ok &&
			(start < 0 || total < -1 || last >= 0 && (last < start || total >= 0 &&
				last >= total)) {
			t.Fatalf("%q: %d-%d/%d", s, start, last, total)
		}
	})
}

// BenchmarkLocalReadAt compares ReadAt with *os.File.ReadAt.
func BenchmarkLocalReadAt(b *testing.B) {
	l, dir := local(b)
	data := bytes.Repeat([]byte("robocache"), 8<<20/9)
	must(b, os.WriteFile(dir+"/a", data, 0o666))
	for _, n := range []int{512, 4 << 10, 64 << 10, 1 << 20} {
		p := make([]byte, n)
		b.Run(fmt.Sprintf("store/%d", n), func(b *testing.B) {
			f, err := l.Open(b.Context(), "a")
			must(b, err)
			defer f.Close()
			ctx := b.Context()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := range b.N {
				if err := f.ReadAt(ctx, p, int64(i*7919%(len(data)-n))); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("os/%d", n), func(b *testing.B) {
			f, err := os.Open(dir + "/a")
			must(b, err)
			defer f.Close()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for i := range b.N {
				if _, err := f.ReadAt(p, int64(i*7919%(len(data)-n))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLadderOfLinks checks that a listing reports a ladder of links, which has 2^depth paths, and
// does not follow all of them. Many links to one folder are allowed.
func TestLadderOfLinks(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const shared = 300
	must(os.MkdirAll(filepath.Join(dir, "shared", "deep"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "shared", "deep", "f"), nil, 0o644))
	for i := range shared {
		must(os.Symlink("shared", filepath.Join(dir, fmt.Sprint("link", i))))
	}
	s, err := openLocal(dir, true) // without follow, os.Root allows eight links in a name
	must(err)
	defer s.Close()
	if list, err := s.List(t.Context(), ""); err != nil || len(list) != shared+1 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	const depth = 30
	for i := range depth {
		at := filepath.Join(dir, "ladder", fmt.Sprint(i))
		must(os.MkdirAll(at, 0o755))
		for _, side := range []string{"left", "right"} {
			if i+1 < depth {
				must(os.Symlink(filepath.Join("..", fmt.Sprint(i+1)), filepath.Join(at, side)))
			}
		}
	}
	if _, err := s.List(t.Context(), ""); !errors.Is(err, robocache.ErrResourceLimit) {
		t.Fatalf("%v", err)
	}
}

// TestListWhileFoldersGo checks that a listing succeeds while other processes write and remove
// folders. Removed entries are not listed.
func TestListWhileFoldersGo(t *testing.T) {
	l, dir := local(t)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			a := filepath.Join(dir, "a", strconv.Itoa(i%8))
			if err = os.MkdirAll(filepath.Join(a, "b"), 0o755); err == nil {
				err = os.WriteFile(filepath.Join(a, "b", "f"), nil, 0o644)
			}
			err = errors.Join(err, os.RemoveAll(a))
		}
		done <- err
	}()
	for range 3000 {
		if _, err := l.List(t.Context(), ""); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
