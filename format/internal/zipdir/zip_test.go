package zipdir

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// file is a Ranged in memory.
type file []byte

func (f file) Size() int64     { return int64(len(f)) }
func (f file) Version() string { return "1" }
func (f file) Close() error    { return nil }
func (f file) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(f)) || copy(p, f[off:]) < len(p) {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "read after the end"}
	}
	return nil
}

func archive(t testing.TB, method uint16, members ...string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		m, err := w.CreateHeader(&zip.FileHeader{Name: members[i], Method: method})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.Write([]byte(members[i+1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte, limit int64) (map[string]string, error) {
	d, err := Read(context.Background(), file(b), limit)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range d.Files {
		c, err := d.Bytes(context.Background(), file(b), []*File{&d.Files[i]})
		if err != nil {
			return out, err
		}
		out[d.Files[i].Name] = string(c[0])
	}
	return out, nil
}

// TestMembers checks zipdir.Z1 and zipdir.Z2.
func TestMembers(t *testing.T) {
	long := strings.Repeat("abc", 10000)
	for _, method := range []uint16{Stored, Deflate} {
		b := archive(t, method, "a", "alpha", "dir/", "", "dir/b", long, "empty", "")
		for _, front := range []string{"", "something in front"} {
			got, err := read(append([]byte(front), b...), 1<<20)
			if err != nil || len(got) != 3 || got["a"] != "alpha" || got["dir/b"] != long ||
				got["empty"] != "" {
				t.Error(method, front, len(got), err)
			}
		}
	}
}

// TestNumPy reads the npz files that NumPy writes, with forced zip64 members.
func TestNumPy(t *testing.T) {
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with numpy: ", err)
	}
	for _, save := range []string{"savez", "savez_compressed"} {
		b, err := exec.Command(
			py,
			"-c",
			"import numpy as np, sys, io; f = io.BytesIO(); np."+save+"(f, a=np.arange(1000), "+
				"b=np.zeros((3,4))); sys.stdout.buffer.write(f.getvalue())",
		).
			Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(b, 1<<20)
		if err != nil || len(got["a.npy"]) != 8128 || len(got["b.npy"]) != 128+96 {
			t.Error(save, err, len(got["a.npy"]), len(got["b.npy"]))
		}
	}
}

// entryOf returns the directory record of a member.
func entryOf(b []byte, name string) []byte {
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte("PK\x01\x02"))
		if i < 0 {
			return nil
		}
		at += i
		if string(b[at+46:at+46+len(name)]) == name {
			return b[at:]
		}
		at++
	}
}

// TestHostile checks that wrong sizes are errors before memory is allocated.
func TestHostile(t *testing.T) {
	le := binary.LittleEndian
	two := func() []byte { return archive(t, Stored, "a", "alpha", "b", "betas") }
	for name, c := range map[string]struct {
		b     []byte
		class error
		text  string
	}{
		"two of one name": {archive(
			t,
			Stored,
			"a",
			"1",
			"a",
			"2",
		), robocache.ErrMalformed, "two members"},
		"one by another spelling": {archive(
			t,
			Stored,
			"a",
			"1",
			"./a",
			"2",
		), robocache.ErrMalformed, "two members"},
		"out of the root": {archive(t, Stored, "../a", "1"), robocache.ErrMalformed, ".."},
		"absolute": {archive(
			t,
			Stored,
			"/etc/passwd",
			"1",
		), robocache.ErrMalformed, "absolute"},
		"overlap": {func() []byte {
			b := two()
			copy(
				entryOf(b, "b")[42:46],
				[]byte{0, 0, 0, 0},
			)
			return b
		}(), robocache.ErrMalformed, "overlap"},
		"into the next": {func() []byte {
			b := two()
			e := entryOf(b, "a")
			le.PutUint32(e[20:], 60)
			le.PutUint32(e[24:], 60)
			return b
		}(), robocache.ErrMalformed, "overlap"},
		"bomb": {func() []byte {
			b := archive(t, Deflate, "a", strings.Repeat("x", 100))
			le.PutUint32(entryOf(b, "a")[24:], 1<<30)
			return b
		}(), robocache.ErrMalformed, "can hold"},
		"over the limit": {archive(
			t,
			Deflate,
			"a",
			strings.Repeat("x", 2<<20),
		), robocache.ErrResourceLimit, "at most"},
		"longer than declared": {func() []byte {
			b := archive(t, Deflate, "a", strings.Repeat("x", 100))
			le.PutUint32(entryOf(b, "a")[24:], 50)
			return b
		}(), robocache.ErrMalformed, ""},
		"checksum": {
			func() []byte { b := two(); b[bytes.Index(b, []byte("alpha"))] ^= 1; return b }(),
			robocache.ErrMalformed,
			"CRC",
		},
		"encrypted": {
			func() []byte { b := two(); entryOf(b, "a")[8] |= 1; return b }(),
			robocache.ErrUnsupported,
			"encrypted",
		},
		"method": {
			func() []byte { b := two(); entryOf(b, "a")[10] = 93; return b }(),
			robocache.ErrUnsupported,
			"93",
		},
		"many claims": {
			func() []byte { b := two(); le.PutUint16(b[len(b)-22+10:], 60000); return b }(),
			robocache.ErrMalformed,
			"60000",
		},
		"no archive": {bytes.Repeat([]byte("x"), 100), robocache.ErrMalformed, "no end record"},
	} {
		_, err := read(c.b, 1<<20)
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTruncation checks that an archive that is cut anywhere is an error, or returns the original
// members.
func TestTruncation(t *testing.T) {
	b := archive(t, Deflate, "a", "alpha", "b", strings.Repeat("beta", 100))
	for n := range len(b) {
		if _, err := read(b[:n], 1<<20); err == nil {
			t.Errorf("cut to %d of %d bytes it is read", n, len(b))
		}
	}
}

// FuzzZip checks zipdir.Z1 to zipdir.Z4: the result is data with a correct checksum or a typed
// error, and memory is proportional to the file.
func FuzzZip(f *testing.F) {
	f.Add(archive(f, Stored, "a", "alpha", "b/c", "x"))
	f.Add(archive(f, Deflate, "a", strings.Repeat("alpha", 50)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		d, err := Read(t.Context(), file(b), 1<<20)
		hostile.Typed(t, err)
		if err == nil {
			for i := range d.Files {
				c, err := d.Bytes(t.Context(), file(b), []*File{&d.Files[i]})
				hostile.Typed(t, err)
				if err == nil && crc32.ChecksumIEEE(c[0]) != d.Files[i].CRC {
					t.Error("a member that is not what its checksum says")
				}
			}
		}
		if got := hostile.Allocated() - before; got > uint64(4<<20+8000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}
