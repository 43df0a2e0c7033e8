package pqw

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestArrowSchema checks that pyarrow reads every type, lists of lists, structs and metadata from
// the schema.
func TestArrowSchema(t *testing.T) {
	python := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	types := map[string]ArrowType{
		"bool":      ArrowBool,
		"int8":      ArrowInt8,
		"int16":     ArrowInt16,
		"int32":     ArrowInt32,
		"int64":     ArrowInt64,
		"uint8":     ArrowUint8,
		"uint16":    ArrowUint16,
		"uint32":    ArrowUint32,
		"uint64":    ArrowUint64,
		"halffloat": ArrowFloat16,
		"float":     ArrowFloat32,
		"double":    ArrowFloat64,
		"string":    ArrowText,
		"binary":    ArrowBinary,
	}
	fields := []Arrow{
		{
			Name:     "state",
			Type:     ArrowFixedList(7),
			Children: []Arrow{{Name: "element", Type: ArrowFloat32}},
		},
		{
			Name: "array",
			Type: ArrowList,
			Children: []Arrow{
				{
					Name:     "element",
					Type:     ArrowList,
					Children: []Arrow{{Name: "element", Type: ArrowUint8}},
				},
			},
			Meta: [][2]string{{"k", "é"}, {"empty", ""}},
		},
		{
			Name:     "image",
			Type:     ArrowStruct,
			Children: []Arrow{{Name: "bytes", Type: ArrowBinary}, {Name: "path", Type: ArrowText}},
		},
	}
	want := []string{
		"state: fixed_size_list<element: float>[7]",
		"array: list<element: list<element: uint8>>",
		"image: struct<bytes: binary, path: string>",
	}
	for name, a := range types {
		fields, want = append(
			fields,
			Arrow{Name: "of " + name, Type: a},
		), append(
			want,
			"of "+name+": "+name,
		)
	}
	const script = `
import base64, sys, pyarrow as pa
b = base64.b64decode(sys.stdin.read(), validate=True)
assert len(b) % 8 == 0, len(b)
s = pa.ipc.read_schema(pa.py_buffer(b))
assert all(f.nullable for f in s)
assert s.metadata == {b"huggingface": b'{"info": 1}'}, s.metadata
assert s.field("array").metadata == {b"k": "é".encode(), b"empty": b""}, s.field("array").metadata
print("\n".join(f"{f.name}: {f.type}" for f in s))
empty = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(sys.argv[1])))
assert len(empty) == 0 and not empty.metadata
`
	c := exec.Command(python, "-c", script, ArrowSchema(nil, nil))
	c.Stdin = strings.NewReader(ArrowSchema(fields, [][2]string{{"huggingface", `{"info": 1}`}}))
	if err := exec.Command(python, "-c", "import pyarrow").Run(); err != nil {
		t.Skip("no pyarrow in .venv")
	}
	out, err := c.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != strings.Join(want, "\n") {
		t.Fatalf("%v: %s", err, got)
	}
}
