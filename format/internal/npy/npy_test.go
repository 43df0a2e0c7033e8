package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// python runs a script in the test environment. It skips the test if there is no interpreter.
func python(t testing.TB, script string) []byte {
	t.Helper()
	py := filepath.Join(realdata.Root(t), ".venv/bin/python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no .venv with numpy: ", err)
	}
	cmd := exec.Command(py, "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	return b
}

// parts splits the output of a script, which is a sequence of u32 length + bytes.
func parts(t testing.TB, b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b)
		out, b = append(out, b[4:4+n]), b[4+n:]
	}
	return out
}

const emit = `
import sys, io, struct, pickle
import numpy as np
from numpy.lib import format as F
out = sys.stdout.buffer
def put(b): out.write(struct.pack("<I", len(b)) + b)
`

// TestArrays compares every type, order, version and shape with NumPy (npy.N1, npy.N2).
func TestArrays(t *testing.T) {
	b := python(t, emit+`
rng = np.random.default_rng(1)
for dt in ("|b1","|i1","|u1","<i2",">i2","<u2",">u2","<i4",">i4","<u4","<i8",">i8","<u8",">u8","<f2",">f2","<f4",">f4","<f8",">f8"):
    for shape in ((), (1,), (5,), (2,3), (2,3,4), (0,), (3,0,2), (2,2,2,2)):
        for order in "CF":
            for version in ((1,0),(2,0),(3,0)):
                a = np.asarray(rng.integers(0, 120, shape)).astype(dt)
                a = np.asarray(a, order=order)
                f = io.BytesIO(); F.write_array(f, a, version=version)
                put(f.getvalue()); put(np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).tobytes()); put(repr(list(a.shape)).encode())
`)
	p := parts(t, b)
	n := 0
	for ; len(p) > 0; p = p[3:] {
		a, err := Decode(p[0])
		if err != nil {
			t.Fatal(n, err)
		}
		if shape := strings.ReplaceAll(fmt.Sprint(a.Shape), " ", ", "); !bytes.Equal(a.Data,
			p[1]) || shape != string(p[2]) {
			t.Errorf("array %d: %s %s, not %s", n, a.Type, shape, p[2])
		}
		n++
	}
	if n != 20*8*2*3 {
		t.Error(n, "arrays")
	}
}

// TestTexts reads S and U in both byte orders.
func TestTexts(t *testing.T) {
	p := parts(t, python(t, emit+`
for dt in ("S7", "<U9", ">U9"):
    f = io.BytesIO(); np.save(f, np.array(["a", "", "grasp", "h\u00e9" if dt != "S7" else "he"], dtype=dt)); put(f.getvalue())
`))
	for i, b := range p {
		a, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		s, ok := a.Strings()
		if want := []string{"hé", "he"}[min(1, max(0, 1-i))]; !ok || len(s) != 4 ||
			s[2] != "grasp" ||
			s[1] != "" ||
			s[3] != want {
			t.Errorf("%d: %q", i, s)
		}
	}
}

// TestPickles reads the annotations of CALVIN in every pickle protocol, with the names of NumPy 1
// and 2 (npy.N3).
func TestPickles(t *testing.T) {
	p := parts(t, python(t, emit+`
lang = {"language": {"ann": ["push the block", "caf\u00e9"], "task": np.array(["push", "drink"]), "emb": np.arange(8, dtype=">f4").reshape(2, 1, 4)},
        "info": {"indx": [(np.int64(3), 17), [np.int32(20), 90000000000]], "f": np.asfortranarray(np.arange(6.).reshape(2,3)), "none": None, "yes": True, "x": -1.5, "b": b"\x00\xff", "s": np.float32(0.25), "empty": []}}
for proto in range(6):
    o = np.empty((), dtype=object); o[()] = lang
    body = pickle.dumps(o, protocol=proto)
    f = io.BytesIO(); F.write_array_header_1_0(f, {"descr": "|O", "fortran_order": False, "shape": ()}); f.write(body); put(f.getvalue())
    f = io.BytesIO(); F.write_array_header_1_0(f, {"descr": "|O", "fortran_order": False, "shape": ()}); f.write(body.replace(b"numpy._core", b"numpy.core") if proto < 4 else body); put(f.getvalue())
`))
	if len(p) != 12 {
		t.Fatal(len(p))
	}
	for i, b := range p {
		a, err := DecodeObjects(b)
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		root := a.Objects[0].(*Dict)
		get := func(d *Dict, k string) any { v, _ := d.Get(k); return v }
		lang, info := get(root, "language").(*Dict), get(root, "info").(*Dict)
		if ann := get(lang, "ann").(*List); ann.Items[1] != "café" {
			t.Errorf("%d: %q", i, ann.Items)
		}
		if task, ok := get(lang, "task").(*Array).Strings(); !ok || task[1] != "drink" {
			t.Errorf("%d: %v", i, task)
		}
		if v := robocache.Float64s(nil, robocache.Float32,
			get(lang, "emb").(*Array).Data); len(v) != 8 || v[5] != 5 {
			t.Errorf("%d: %v", i, v)
		}
		if v := robocache.Float64s(nil, robocache.Float64,
			get(info, "f").(*Array).Data); fmt.Sprint(v) != "[0 1 2 3 4 5]" {
			t.Errorf("%d: %v", i, v)
		}
		indx := get(info, "indx").(*List)
		if first := indx.Items[0].(Tuple); first[0] != int64(3) || first[1] != int64(17) ||
			indx.Items[1].(*List).Items[1] != int64(90000000000) {
			t.Errorf("%d: %v", i, indx)
		}
		if get(info, "none") != nil || get(info, "yes") != true || get(info, "x") != -1.5 ||
			get(info, "s") != 0.25 ||
			len(get(info, "empty").(*List).Items) != 0 {
			t.Errorf("%d: %v", i, info)
		}
		if _, err := Decode(b); !errors.Is(err, robocache.ErrUnsupported) {
			t.Error("objects without asking for them:", err)
		}
	}
}

// TestHostilePickles checks that a class outside the whitelist is an error that contains its name,
// and that nothing runs (npy.N3).
func TestHostilePickles(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	p := parts(t, python(t, emit+`
import os
class System:
    def __reduce__(self): return (os.system, ("touch `+mark+`",))
class Eval:
    def __reduce__(self): return (eval, ("1+1",))
class Plain: pass
for proto in range(6):
    for x in (System(), Eval(), [1, {"a": System()}], Plain()):
        put(pickle.dumps(x, protocol=proto))
put(b"cos\nsystem\n(S'touch `+mark+`'\ntR.")
put(b"(S'touch `+mark+`'\nios\nsystem\n.")
put(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.")
put(b"c__builtin__\ngetattr\n.")
put(b"cnumpy.core.multiarray\n_reconstruct\n(cos\nsystem\n(I0\ntS'b'\ntR.")
put(b"\x80\x02cnumpy\nndarray\n)\x81.")
put(b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.")
`))
	for i, b := range p {
		_, err := Unpickle(b)
		if !errors.Is(err, robocache.ErrUnsupported) {
			t.Errorf("%d: %q: %v", i, b, err)
		}
		if i < 24 && !strings.Contains(err.Error(),
			map[int]string{0: "system", 1: "eval", 2: "system", 3: "copyreg"}[i%4]) &&
			!strings.Contains(err.Error(), "_reconstructor") && !strings.Contains(err.Error(),
			"Plain") {
			t.Errorf("%d: the error does not name the class: %v", i, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("the pickle ran")
	}
}

// TestHeaders checks that a header which is not a literal, or declares a wrong size, is an error
// (npy.N1).
func TestHeaders(t *testing.T) {
	file := func(h string) []byte {
		b := []byte("\x93NUMPY\x01\x00")
		b = binary.LittleEndian.AppendUint16(b, uint16(len(h)))
		return append(append(b, h...), make([]byte, 64)...)
	}
	for h, class := range map[string]error{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,), }":   robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }": robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }":                    robocache.ErrMalformed,
		// needs 68 bytes, the file has 64
		"{'descr': '<f4', 'fortran_order': False, 'shape': (17,), }":           robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': __import__('os'), 'shape': (1,), }": robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': " +
			"(2,)}": robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': " +
			"False}": robocache.ErrMalformed,
		"{'descr': '<f4', 'fortran_order': False, 'shape': 3}": robocache.ErrMalformed,
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': " +
			"(1,)}": robocache.ErrUnsupported,
		"{'descr': '<c8', 'fortran_order': False, 'shape': " +
			"(1,)}": robocache.ErrUnsupported,
		"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': " +
			"(1,)}": robocache.ErrUnsupported,
		"{'descr': '|V8', 'fortran_order': False, 'shape': " +
			"(1,)}": robocache.ErrUnsupported,
		"{'descr': '<U0', 'fortran_order': False, 'shape': " +
			"(281474976710656,)}": robocache.ErrMalformed,
		strings.Repeat("[", 9000): robocache.ErrMalformed,
		"":                        robocache.ErrMalformed,
		"{'descr':'<f4','fortran_order':False,'shape':(16,)}":                  nil,
		"{ 'shape' : ( 4L , 4L ), \"descr\": u'<f4', 'fortran_order': True}\n": nil,
	} {
		_, err := Decode(file(h))
		if class == nil && err != nil || class != nil && !errors.Is(err, class) {
			t.Errorf("%.60s: %v", h, err)
		}
	}
}

// TestTruncation checks that a file that is cut anywhere is an error, not a shorter array.
func TestTruncation(t *testing.T) {
	p := parts(t, python(t, emit+`
f = io.BytesIO(); np.save(f, np.arange(12.).reshape(3,4)); put(f.getvalue())
o = np.empty((), dtype=object); o[()] = {"a": [1, "x", np.arange(3)]}
f = io.BytesIO(); np.save(f, o); put(f.getvalue())
`))
	for i, b := range p {
		for n := range len(b) {
			if _, err := DecodeObjects(b[:n]); err == nil {
				t.Errorf("file %d cut to %d of %d bytes is read", i, n, len(b))
			}
		}
	}
}

// FuzzUnpickle checks npy.N4 and npy.N5.
func FuzzUnpickle(f *testing.F) {
	f.Add([]byte("\x80\x02}q\x00U\x01aq\x01]q\x02(K\x01K\x02es."))
	f.Add([]byte("(lp0\nI1\naS'x'\na."))
	f.Add(
		[]byte(
			"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x15numpy.core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy\x8c\x07ndarray\x93K\x00\x85C\x01b\x87R(K\x01K\x02\x85\x8c\x05numpy\x8c\x05dtype\x93\x8c\x02f4\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89C\x08abcdefghtb.",
		),
	)
	f.Add([]byte("\x80\x02c_codecs\nencode\nX\x03\x00\x00\x00abcX\x06\x00\x00\x00latin1\x86R."))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		v, err := Unpickle(b)
		hostile.Typed(t, err)
		if a, ok := v.(*Array); ok {
			a.Strings()
			a.Int64s()
		}
		if got := hostile.Allocated() - before; got > uint64(4<<20+1000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}

// FuzzArray checks npy.N1 and npy.N5.
func FuzzArray(f *testing.F) {
	for _, h := range []string{
		"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }",
		"{'descr': '>U3', 'fortran_order': False, 'shape': (1,), }",
		"{'descr': '|O', 'fortran_order': False, 'shape': (), }",
	} {
		b := []byte("\x93NUMPY\x01\x00")
		b = binary.LittleEndian.AppendUint16(b, uint16(len(h)))
		f.Add(append(append(b, h...), "0123456789abcdef"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := hostile.Allocated()
		a, err := DecodeObjects(b)
		hostile.Typed(t, err)
		if err == nil {
			a.Strings()
			a.Int64s()
		}
		if got := hostile.Allocated() - before; got > uint64(4<<20+1000*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
	})
}
