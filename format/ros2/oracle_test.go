package ros2

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// python returns the interpreter with rosbags. The test is skipped without it.
func python(tb testing.TB) string {
	tb.Helper()
	return realdata.Python(tb, "rosbags")
}

// reference is a message that rosbags wrote and read.
type reference struct {
	Type   string
	Schema string
	Data   string
	Leaves map[string]any // numbers as hex of their little-endian bytes, texts as a list
	raw    []byte
}

func referenceMessages(tb testing.TB, seed string) []reference {
	tb.Helper()
	cmd := exec.Command(python(tb), "testdata/messages.py", seed)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	var all []reference
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var j reference
		if err := json.Unmarshal(sc.Bytes(), &j); err != nil {
			tb.Fatal(err)
		}
		if j.Schema == "" && len(all) > 0 && all[len(all)-1].Type == j.Type {
			j.Schema = all[len(all)-1].Schema
		}
		j.raw, _ = hex.DecodeString(j.Data)
		all = append(all, j)
	}
	return all
}

// leavesOf decodes all leaves of a message with the schema.
func leavesOf(g *generic, msg []byte) (map[string]any, error) {
	s := g.acquireSink()
	defer g.releaseSink(s)
	n := len(g.tree.leaves)
	s.out, s.texts, s.last = make([][]byte, n), make([][]string, n), n
	for k := range n {
		s.slot[k] = int32(k)
	}
	if err := s.decode(g.tree, msg); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for k, l := range g.tree.leaves {
		if strings.HasSuffix(l.path, ".length") {
			continue
		}
		if l.text && len(s.texts[k]) > 0 {
			list := []any{}
			for _, t := range s.texts[k] {
				list = append(list, t)
			}
			out[l.path] = list
		} else if len(s.out[k]) > 0 {
			out[l.path] = hex.EncodeToString(s.out[k])
		}
	}
	return out, nil
}

// TestEqualsRosbags compares every type that rosbags knows, and types with every construct, in both
// byte orders (ros2.R1).
func TestEqualsRosbags(t *testing.T) {
	kinds := map[string]int{}
	for _, j := range referenceMessages(t, "1") {
		s, err := ParseSchema("ros2msg", j.Type, j.Schema)
		if err != nil {
			t.Fatalf("%s: %v\n%s", j.Type, err, j.Schema)
		}
		g, err := newGeneric(s)
		if err != nil {
			t.Fatalf("%s: %v", j.Type, err)
		}
		got, err := leavesOf(g, j.raw)
		if err != nil {
			t.Fatalf("%s: %v\n%x", j.Type, err, j.raw)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(j.Leaves)
		if !bytes.Equal(a, b) {
			t.Fatalf("%s:\n%x\ngot  %s\nwant %s", j.Type, j.raw, a, b)
		}
		kinds[j.Type]++
		alone(t, g, &j)
	}
	if len(kinds) < 130 {
		t.Errorf("only %d types", len(kinds))
	}
}

// alone checks that reading a single field of a message returns the same as reading all fields.
func alone(t *testing.T, g *generic, j *reference) {
	t.Helper()
	for k, leaf := range g.fields {
		l := &g.tree.leaves[leaf]
		if strings.HasSuffix(l.path, ".length") {
			continue
		}
		want := j.Leaves[l.path]
		if l.text {
			got, err := g.decodeText(j.raw, k, 0)
			list, _ := want.([]any)
			if l.seqs > 0 || len(l.dims) > 0 {
				b, _ := json.Marshal(list)
				if string(b) == "null" {
					b = []byte("[]")
				}
				if err != nil || got != string(b) {
					t.Errorf("%s %s: %q, %v", j.Type, l.path, got, err)
				}
			} else if err != nil || len(list) != 1 || got != list[0] {
				t.Errorf("%s %s: %q, not %v: %v", j.Type, l.path, got, list, err)
			}
			continue
		}
		numbers, _ := want.(string)
		got, n, err := g.appendRagged(j.raw, k, 0, nil)
		if err != nil || hex.EncodeToString(got) != numbers || n*l.dtype.Size() != len(got) {
			t.Errorf("%s %s: %x, not %s: %v", j.Type, l.path, got, numbers, err)
		}
		dst := make([]byte, len(numbers)/2)
		ok := []uint8{0}
		if err := g.decodeRow(j.raw, 0, []int{k}, rows{[][]byte{dst}, [][]uint8{ok}, 0, 1}); err !=
			nil || ok[0] == 0 || hex.EncodeToString(dst) != numbers {
			t.Errorf("%s %s: %x, not %s: %v", j.Type, l.path, dst, numbers, err)
		}
	}
}

// TestFastEqualsGeneric checks that fast decoders return the same as the schema-driven decoder, and
// that fields of other types are complete (ros2.R5).
func TestFastEqualsGeneric(t *testing.T) {
	fasts := 0
	for _, j := range referenceMessages(t, "2") {
		s, err := ParseSchema("ros2msg", j.Type, j.Schema)
		if err != nil {
			t.Fatal(err)
		}
		top, err := NewTopic("/a/b", s, [][]byte{j.raw})
		if err != nil {
			if !strings.Contains(j.Type, "Image") && !strings.Contains(j.Type, "PointCloud2") {
				t.Fatalf("%s: %v", j.Type, err)
			}
			continue // random sizes and encodings are not a valid image
		}
		b, ok := top.decoder.(*blockDecoder)
		if !ok {
			continue
		}
		fasts++
		got, err := leavesOf(top.head, j.raw)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []byte
		for _, l := range top.head.tree.leaves {
			if v, ok := got[l.path].(string); ok && l.dtype == robocache.Float64 {
				p, _ := hex.DecodeString(v)
				numbers = append(numbers, p...)
			}
		}
		for k, f := range top.Fields() {
			dst := make([]byte, f.Feature.RowBytes())
			valid, err := top.Numeric(j.raw, k, 0, dst)
			if err != nil {
				t.Fatal(err)
			}
			if !valid && b.parts[k].covarianceAt == 0 {
				t.Errorf("%s%s not valid", j.Type, f.Suffix)
			}
			p := b.parts[k]
			if want := numbers[8*p.at : 8*(p.at+p.n)]; valid && !bytes.Equal(dst, want) {
				t.Errorf("%s%s: %x, not %x", j.Type, f.Suffix, dst, want)
			}
		}
	}
	if fasts < 60 {
		t.Errorf("only %d messages through fast paths", fasts)
	}
}

// TestKnownFresh checks that the embedded texts are those that the script generates.
func TestKnownFresh(t *testing.T) {
	p := python(t)
	out, err := exec.Command(p, filepath.Join(realdata.Root(t), "scripts", "ros2-known.py")).
		Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != knownText {
		t.Error("known.txt is stale: go generate ./format/ros2")
	}
	for name := range knownTexts() {
		text, ok := SchemaText(name)
		if !ok {
			t.Errorf("no text of %s", name)
			continue
		}
		s, err := ParseSchema("ros2msg", name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if k, _ := KnownSchema(name); k.sign != s.sign {
			t.Errorf("%s: text and schema differ", name)
		}
	}
}
