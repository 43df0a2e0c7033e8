package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Files that nobody closed are closed once nobody can reach them; one that was closed stays closed once, though its number is another file's by then.
func TestForgottenDescriptors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d := openFolder(root)
	defer d.close()
	if in, _, _ := d.open("a"); in == nil {
		t.Skip("the system does not open by openat2")
	} else if err := in.Close(); err != nil {
		t.Fatal(err)
	} else if err := in.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	fds := make([]int, 64)
	func() {
		for i := range fds {
			in, _, _ := d.open("a")
			fds[i] = in.(*descriptor).fd
		}
	}()
	var file unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "a"), &file); err != nil {
		t.Fatal(err)
	}
	left := func() (n int) {
		for _, fd := range fds {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Dev == file.Dev && st.Ino == file.Ino {
				n++
			}
		}
		return n
	}
	// Cleanups run beside us.
	for start := time.Now(); left() > 0; {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d are open", left())
		}
		runtime.GC()
		runtime.Gosched()
	}
	// Closed by hand: the cleanup does not run again, on what took the number.
	in, _, _ := d.open("a")
	fd := in.(*descriptor).fd
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	other, _, _ := d.open("a")
	if other.(*descriptor).fd != fd {
		t.Skip("the number went to another")
	}
	in = nil
	for range 5 {
		runtime.GC()
		runtime.Gosched()
	}
	if _, err := other.ReadAt(make([]byte, 3), 0); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}
