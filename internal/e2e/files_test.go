package e2e

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	_ "github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/synth"
)

// use opens a folder, reads everything and decodes two episodes. It fails if that takes too long.
func use(t *testing.T, dir string) (err error) {
	t.Helper()
	bounded(t, 200<<20, func() {
		var ds robocache.Dataset
		if ds, err = robocache.Open(t.Context(), dir, robocache.OpenOptions{}); err != nil {
			return
		}
		defer ds.Close()
		if err = readAll(t.Context(), ds); err == nil {
			_, _, err = digest(
				t.Context(),
				ds,
				loader.Config{
					Order:   loader.Order{Episodes: []int{0, 1}},
					Windows: loader.Windows{Keys: []string{"action", camera}},
				},
			)
		}
	})
	sound(t, err)
	return err
}

// e2e.C3: other objects take the place of a file: a folder, a FIFO, a device, links inside and
// outside the root.
func TestStrangeFiles(t *testing.T) {
	decoders(t)
	base := load(t, small)
	outside := base.disk(t)
	for name := range base {
		if name == "meta/stats.json" {
			continue
		}
		t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
			dir := base.disk(t)
			p := filepath.Join(dir, name)
			put := func(make func() error) {
				t.Helper()
				if err := os.RemoveAll(p); err != nil {
					t.Fatal(err)
				}
				if err := make(); err != nil {
					t.Skip(err)
				}
			}
			refused := func(what string) {
				t.Helper()
				err := use(t, dir)
				if err == nil {
					t.Errorf("%s: no error", what)
				} else if !strings.Contains(err.Error(), name) ||
					!errors.Is(err, robocache.ErrMalformed) {
					t.Errorf("%s: expected malformed input that names the file: %v", what, err)
				}
			}
			put(func() error { return os.Mkdir(p, 0o755) })
			refused("folder")
			put(func() error { return syscall.Mkfifo(p, 0o644) })
			refused("FIFO")
			put(func() error { return os.Symlink("/dev/zero", p) })
			refused("link to a device")
			put(func() error { return os.Symlink(filepath.Join(outside, name), p) })
			refused("link out of the root, absolute")
			put(func() error {
				rel, err := filepath.Rel(filepath.Dir(p), filepath.Join(outside, name))
				if err != nil {
					return err
				}
				return os.Symlink(rel, p)
			})
			refused("link out of the root, relative")
			put(func() error { return os.Symlink(filepath.Base(p), p) })
			refused("link to itself")
			if syscall.Mknod(p+".null", syscall.S_IFCHR|0o666, 1<<8|3) == nil {
				put(func() error { return os.Rename(p+".null", p) })
				refused("device")
			}
			// a link inside the root is read like a file
			put(func() error {
				real := filepath.Join(dir, "real")
				if err := os.WriteFile(real, base[name], 0o644); err != nil {
					return err
				}
				rel, err := filepath.Rel(filepath.Dir(p), real)
				if err != nil {
					return err
				}
				return os.Symlink(rel, p)
			})
			if err := use(t, dir); err != nil {
				t.Errorf("link inside the root: %v", err)
			}
		})
	}
	t.Run("folder linked out", func(t *testing.T) {
		for _, folder := range []string{"meta", "data", "videos"} {
			dir := base.disk(t)
			p := filepath.Join(dir, folder)
			if err := os.RemoveAll(p); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(outside, folder), p); err != nil {
				t.Fatal(err)
			}
			if err := use(t, dir); err == nil {
				t.Errorf("%s: a link out of the root was followed", folder)
			}
		}
	})
	t.Run("a file for the dataset", func(t *testing.T) {
		p := filepath.Join(t.TempDir(), "set.mp4")
		if err := os.WriteFile(p, base[mp4], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := use(t, p); err == nil {
			t.Error("no error")
		}
	})
}

// e2e.C3: unreadable folders and files give a typed error that reports this with the name. If the
// test runs as root, its thread drops the privilege.
func TestUnreadable(t *testing.T) {
	base := load(t, small)
	for _, name := range []string{
		"",
		"meta",
		info,
		"meta/episodes",
		eptab,
		"data",
		table,
		"videos",
		mp4,
	} {
		t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
			dir := base.disk(t)
			// make the parent folders accessible
			for p := dir; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
				os.Chmod(p, 0o755)
			}
			p := filepath.Join(dir, name)
			if err := os.Chmod(p, 0); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(p, 0o755)
			err := asNobody(t, func() error { return read(t.Context(), dir) })
			sound(t, err)
			if err == nil {
				t.Fatal("no error")
			}
			if !errors.Is(err, os.ErrPermission) {
				t.Errorf("permission denied wanted, got %v", err)
			}
			if base := filepath.Base(name); name != "" && !strings.Contains(err.Error(), base) {
				t.Errorf("%s is not named: %v", base, err)
			}
		})
	}
}

// asNobody runs f on a thread that does not have the right to read everything.
func asNobody(t *testing.T, f func() error) error {
	if os.Geteuid() != 0 {
		return f()
	}
	probe := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(probe, nil, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); e != 0 {
			t.Log(e)
		}
		if h, err := os.Open(probe); err == nil {
			h.Close()
			done <- errors.New("skip")
			return
		}
		done <- f()
	}()
	err := <-done
	if err != nil && err.Error() == "skip" {
		t.Skip("root keeps its right to read everything here")
	}
	return err
}

// full mounts a small file system. It skips the test if that is not possible.
func full(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("no small file system can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// left lists the files below a folder.
func left(dir string) (out []string) {
	filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err == nil && p != dir && !e.IsDir() {
			out = append(out, strings.TrimPrefix(p, dir))
		}
		return nil
	})
	return out
}

// e2e.C6: without space, the result is a resource limit error that names the file, and no partial
// file remains.
func TestNoSpace(t *testing.T) {
	decoders(t)
	src := open(t, realdata.Path(t, small))
	// the result has about 0.8 MB
	for _, size := range []string{"4k", "64k", "300k", "500k", "900k"} {
		t.Run("convert "+size, func(t *testing.T) {
			dir := full(t, size)
			dst := filepath.Join(dir, "out")
			var err error
			bounded(t, 1<<30, func() {
				_, err = toLeRobot(
					t.Context(),
					src,
					dst,
					convert.Options{},
					map[string]string{"temp_dir": t.TempDir()},
				)
			})
			if err == nil {
				if _, e := os.Stat(filepath.Join(dst, info)); e != nil {
					t.Error(e)
				}
				return
			}
			want(t, err, robocache.ErrResourceLimit)
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the cause is hidden: %v", err)
			}
			if files := left(dir); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
	for _, size := range []string{"8k", "40k", "120k"} {
		t.Run("synth "+size, func(t *testing.T) {
			dir := full(t, size)
			var err error
			bounded(t, 1<<30, func() {
				_, err = synth.Write(
					t.Context(),
					filepath.Join(dir, "out"),
					synth.Options{Episodes: 2, Seconds: 1, Cameras: 1, Codec: "png", Seed: 1},
				)
			})
			want(t, err, robocache.ErrResourceLimit)
			if files := left(dir); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
	t.Run("temporary folder", func(t *testing.T) {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := toLeRobot(
			t.Context(),
			src,
			dst,
			convert.Options{WriteOptions: robocache.WriteOptions{Episodes: []int{0, 1, 2}}},
			map[string]string{"video_codec": "h264", "temp_dir": full(t, "8k")},
		)
		if err != nil && errors.Is(err, robocache.ErrUnsupported) {
			t.Skip(err)
		}
		want(t, err, robocache.ErrResourceLimit)
		if files := left(filepath.Dir(dst)); len(files) > 0 {
			t.Errorf("left behind: %v", files)
		}
	})
}

// e2e.C6: if statistics do not fit on the disk, the old file remains.
func TestNoSpaceForStats(t *testing.T) {
	base := load(t, small)
	dir := full(t, "1200k")
	for name, data := range base {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	f.Close()
	ds := open(t, dir)
	st, err := stats.Compute(t.Context(), ds, stats.Options{Keys: []string{"action"}})
	if err != nil {
		t.Fatal(err)
	}
	// as `robocache stats --write` does
	text, err := stats.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.OpenWritable(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close(s)
	w, err := s.Create(t.Context(), "meta/stats.json")
	if err == nil {
		if _, err = w.Write(text); err == nil {
			err = w.Commit()
		}
		w.Abort()
	}
	want(t, err, robocache.ErrResourceLimit)
	after, _ := os.ReadFile(filepath.Join(dir, "meta/stats.json"))
	if !bytes.Equal(after, base["meta/stats.json"]) {
		t.Errorf("stats.json has %d bytes, it had %d", len(after), len(base["meta/stats.json"]))
	}
	if n := len(left(dir)); n != len(base)+1 {
		t.Errorf("left behind: %v", left(dir))
	}
}
