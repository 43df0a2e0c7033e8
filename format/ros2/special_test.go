package ros2

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

type special struct {
	Case, Type string
	Data       []string
	Want       map[string]any
	msgs       [][]byte
}

func (s *special) hex(key string) []byte {
	v, _ := s.Want[key].(string)
	b, _ := hex.DecodeString(v)
	return b
}

func (s *special) ints(key string) (out []int) {
	list, _ := s.Want[key].([]any)
	for _, v := range list {
		out = append(out, int(v.(float64)))
	}
	return out
}

func specials(t *testing.T) (all []special) {
	t.Helper()
	cmd := exec.Command(python(t), "testdata/special.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var s special
		if err := json.Unmarshal(sc.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Data {
			b, _ := hex.DecodeString(d)
			s.msgs = append(s.msgs, b)
		}
		all = append(all, s)
	}
	return all
}

// scanned makes a topic and scans all messages. rows[clock] holds the (message, entry) of each row.
func (s *special) scanned(t *testing.T) (*Topic, map[int][][2]int) {
	t.Helper()
	schema, ok := KnownSchema(s.Type)
	if !ok {
		t.Fatalf("%s is not known", s.Type)
	}
	top, err := NewTopic("/t", schema, s.msgs[:1])
	if err != nil {
		t.Fatalf("%s: %v", s.Case, err)
	}
	rows := map[int][][2]int{}
	for k, m := range s.msgs {
		err := top.Scan(m, func(clock, entry int, timestamp int64, stamped bool) {
			rows[clock] = append(rows[clock], [2]int{k, entry})
			if want := int64(1700000000+k)*1e9 + int64(k)*7; stamped && timestamp != want &&
				len(s.msgs) > 1 && !strings.HasPrefix(s.Case, "cloud") {
				t.Errorf("%s: timestamp %d, not %d", s.Case, timestamp, want)
			}
		})
		if err != nil {
			t.Fatalf("%s: message %d: %v", s.Case, k, err)
		}
	}
	return top, rows
}

// numbers reads a field with Columns and compares Numeric with it.
func numbers(
	t *testing.T,
	top *Topic,
	s *special,
	rows [][2]int,
	k int,
	f Field,
) ([]byte, []uint8) {
	t.Helper()
	size := f.Feature.RowBytes()
	var msgs [][]byte
	var entries []int32
	for _, r := range rows {
		msgs, entries = append(msgs, s.msgs[r[0]]), append(entries, int32(r[1]))
	}
	dst, valid := bytes.Repeat([]byte{0xaa}, size*len(rows)), make([]uint8, len(rows))
	if bad, err := top.Columns(msgs, entries, []int{k}, [][]byte{dst}, [][]uint8{valid}); err !=
		nil || bad != -1 {
		t.Fatalf("%s: %d, %v", s.Case, bad, err)
	}
	one := make([]byte, size)
	for i := range rows {
		ok, err := top.Numeric(msgs[i], k, int(entries[i]), one)
		if err != nil || ok != (valid[i] == 1) || !bytes.Equal(one, dst[i*size:(i+1)*size]) {
			t.Errorf("%s%s: Numeric differs from Columns: %v", s.Case, f.Suffix, err)
		}
		rowDst, rowValid := make([]byte, len(dst)), make([]uint8, len(rows))
		if err := top.Row(msgs[i], int(entries[i]), []int{k}, [][]byte{rowDst}, [][]uint8{rowValid},
			i); err != nil || rowValid[i] != valid[i] || !bytes.Equal(rowDst[i*size:(i+1)*size],
			one) {
			t.Errorf("%s%s: Row differs from Columns: %v", s.Case, f.Suffix, err)
		}
		if clear(rowDst[i*size : (i+1)*size]); !bytes.Equal(rowDst, make([]byte, len(dst))) {
			t.Errorf("%s%s: Row writes beside its row", s.Case, f.Suffix)
		}
	}
	return dst, valid
}

// TestSpecial compares hard cases of the hand-written decoders with NumPy, OpenCV and Pillow
// (ros2.R1, ros2.R6).
func TestSpecial(t *testing.T) {
	for _, s := range specials(t) {
		top, rows := s.scanned(t)
		fields := top.Fields()
		seen := 0
		for k, f := range fields {
			where := s.Case + f.Suffix
			switch {
			case f.Feature.Kind == robocache.KindImage:
				s.imaged(t, top, &f.Feature)
				seen++
			case f.Feature.Ragged():
				var all []byte
				var counts []int
				for _, m := range s.msgs {
					at := len(all)
					out, n, err := top.Ragged(m, k, 0, all)
					if err != nil {
						t.Fatalf("%s: %v", where, err)
					}
					all, counts = out, append(counts, n)
					if len(all)-at != n*f.Feature.Elements()*f.Feature.DType.Size() {
						t.Errorf("%s: %d bytes of %d entries", where, len(all)-at, n)
					}
				}
				key := f.Suffix
				if _, ok := s.Want["values"]; ok {
					key = "values"
				}
				if !bytes.Equal(all, s.hex(key)) ||
					fmt.Sprint(counts) != fmt.Sprint(s.ints("counts")) {
					t.Errorf(
						"%s: values differ, counts %v, not %v",
						where,
						counts,
						s.ints("counts"),
					)
				}
				if c, ok := s.Want["channels"]; ok && f.Suffix == "" &&
					f.Feature.Shape[1] != int(c.(float64)) {
					t.Errorf("%s: shape %v", where, f.Feature.Shape)
				}
				seen++
			default:
				got, valid := numbers(t, top, &s, rows[f.Clock], k, f)
				key := f.Suffix
				if _, ok := s.Want["values"]; ok {
					key = "values"
				}
				if want := s.hex(key); !bytes.Equal(got, want) {
					t.Errorf("%s: %x, not %x", where, got, want)
				}
				var marks []int
				for _, v := range valid {
					marks = append(marks, int(v))
				}
				if w := s.ints(key + ".valid"); w != nil && fmt.Sprint(w) != fmt.Sprint(marks) {
					t.Errorf("%s: valid %v, not %v", where, marks, w)
				}
				if f.Feature.Masked != bytes.Contains(valid, []byte{0}) {
					t.Errorf("%s: masked %v", where, f.Feature.Masked)
				}
				if w := s.ints("shape"); w != nil && fmt.Sprint(w) != fmt.Sprint(f.Feature.Shape) {
					t.Errorf("%s: shape %v, not %v", where, f.Feature.Shape, w)
				}
				seen++
			}
		}
		streams := 0
		for k := range s.Want {
			if strings.HasPrefix(k, ".") && !strings.HasSuffix(k, ".valid") || k == "" ||
				k == "values" ||
				k == "size" ||
				k == "height" {
				streams++
			}
		}
		if seen != streams {
			t.Errorf("%s: %d streams, not %d", s.Case, seen, streams)
		}
	}
}

func (s *special) imaged(t *testing.T, top *Topic, f *robocache.Feature) {
	t.Helper()
	ref, err := top.Image(s.msgs[0], 0, 0)
	if err != nil {
		t.Fatalf("%s: %v", s.Case, err)
	}
	if size := s.ints("size"); size != nil &&
		(size[0] != f.Height || size[1] != f.Width || size[2] != f.Channels) {
		t.Errorf("%s: %d × %d × %d, not %v", s.Case, f.Height, f.Width, f.Channels, size)
	}
	if want := s.hex("encoded"); want != nil {
		if !bytes.Equal(ref.Encoded, want) {
			t.Errorf("%s: other bytes", s.Case)
		}
		return
	}
	r := ref.Raw
	if d, ok := s.Want["dtype"].(string); ok && r.DType.String() != d || r.DType != f.DType ||
		r.Channels != f.Channels {
		t.Errorf("%s: %v", s.Case, r.DType)
	}
	size := r.DType.Size()
	stride := r.Stride
	if stride == 0 {
		stride = r.Width * r.Channels * size
	}
	var got []byte
	for y := range r.Height {
		row := bytes.Clone(r.Pix[y*stride : y*stride+r.Width*r.Channels*size])
		if r.BGR {
			for x := 0; x < len(row); x += 3 {
				row[x], row[x+2] = row[x+2], row[x]
			}
		}
		got = append(got, row...)
	}
	want := s.hex("pixels")
	if r.DType == robocache.Float32 && strings.HasPrefix(s.Case, "depth") {
		got, want = quiet(got), quiet(want)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: pixels differ:\n%x\n%x", s.Case, got, want)
	}
}

// quiet replaces all NaN by one value, because the bits of a NaN are not specified.
func quiet(p []byte) []byte {
	out := bytes.Clone(p)
	for k := 0; k+4 <= len(out); k += 4 {
		if out[k+3]&0x7f == 0x7f && out[k+2]&0x80 != 0 && (out[k+2]&0x7f|out[k+1]|out[k]) != 0 {
			copy(out[k:], []byte{0, 0, 0xc0, 0x7f})
		}
	}
	return out
}
