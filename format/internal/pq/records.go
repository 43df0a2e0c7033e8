package pq

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// ReadJSON assembles the rows of a column of any nesting and gives each as JSON text: groups are
// objects in the order of the schema, lists are arrays, maps objects, nulls are null. Floats keep
// the value that they have as float64. A leaf for which raw says true holds JSON texts, which
// become values (and stay texts where they are no JSON).
func ReadJSON(
	ctx context.Context,
	r robocache.Ranged,
	f *File,
	group int,
	top *Node,
	raw func(*Node) bool,
	lim Limits,
) (out []string, err error) {
	defer guard.Recover("parquet", &err)
	defer guard.At(robocache.Where{"row_group": group, "column": top.Name})
	a := assembler{from: map[*Node]*stream{}, limit: lim.Bytes}
	for _, leaf := range top.Leaves(nil) {
		a.from[leaf] = &stream{
			col:  guard.Must(ReadColumn(ctx, r, f, group, leaf, nil, lim)),
			leaf: leaf,
			raw:  raw != nil && raw(leaf),
		}
	}
	for row := range f.Groups[group].Rows {
		a.row(top, row)
		// Events of language columns repeat on every frame of an episode: equal neighbours share
		// their text.
		if n := len(out); n > 0 && out[n-1] == a.buf.String() {
			out = append(out, out[n-1])
			continue
		}
		out = append(out, a.buf.String())
	}
	for _, s := range a.from {
		if s.entry != s.col.Entries {
			bad("the columns of a group hold different numbers of rows")
		}
	}
	return out, nil
}

// stream walks one leaf's levels and values.
type stream struct {
	col          *Column
	leaf         *Node
	raw          bool
	entry, value int
}

// level is the next entry's, of levels that are nil where all are the same; -1 at the end.
func (s *stream) level(levels []uint8, all int) int {
	switch {
	case s.entry >= s.col.Entries:
		return -1
	case levels == nil:
		return all
	}
	return int(levels[s.entry])
}

func (s *stream) def() int { return s.level(s.col.Def, s.leaf.MaxDef) }
func (s *stream) rep() int { return s.level(s.col.Rep, 0) }

func (s *stream) skip() {
	if s.def() == s.leaf.MaxDef {
		s.value++
	}
	s.entry++
}

type assembler struct {
	from         map[*Node]*stream
	buf          bytes.Buffer
	limit, total int64 // bytes of text
}

// row writes a row into buf.
func (a *assembler) row(top *Node, row int64) {
	defer guard.In("row", row)
	a.buf.Reset()
	a.node(top)
	if a.total += int64(a.buf.Len()); a.total > a.limit {
		guard.Fail(robocache.ResourceLimit("parquet", nil, "").
			Expected("fewer bytes of text than "+strconv.FormatInt(a.limit, 10), "more"))
	}
}

func (a *assembler) first(n *Node) *stream {
	for n.Group() {
		if len(n.Children) == 0 {
			bad("a group without columns")
		}
		n = n.Children[0]
	}
	return a.from[n]
}

func (a *assembler) skip(n *Node) {
	for _, l := range n.Leaves(nil) {
		a.from[l].skip()
	}
}

// node writes the value of an optional or required node.
func (a *assembler) node(n *Node) {
	s := a.first(n)
	if s == nil || s.def() < 0 {
		bad("a column of the group ends early")
	}
	if n.Repetition == Repeated {
		a.list(n, n)
		return
	}
	if s.def() < n.MaxDef {
		a.buf.WriteString("null")
		a.skip(n)
		return
	}
	if !n.Group() {
		a.leaf(n, s)
		return
	}
	if n.Note == List && len(n.Children) == 1 && n.Children[0].Repetition == Repeated {
		rep := n.Children[0]
		if rep.Group() && len(rep.Children) == 1 {
			a.list(rep, rep.Children[0])
		} else {
			a.list(rep, rep)
		}
		return
	}
	if n.Note == Map && len(n.Children) == 1 && n.Children[0].Repetition == Repeated &&
		len(n.Children[0].Children) == 2 {
		a.list(n.Children[0], nil)
		return
	}
	a.object(n)
}

func (a *assembler) object(n *Node) {
	a.buf.WriteByte('{')
	for i, c := range n.Children {
		if i > 0 {
			a.buf.WriteString(", ")
		}
		a.text([]byte(c.Name))
		a.buf.WriteString(": ")
		a.node(c)
	}
	a.buf.WriteByte('}')
}

// list writes the elements of a repeated node; elem is what an element consists of, nil for the
// pairs of a map, which become an object.
func (a *assembler) list(rep, elem *Node) {
	s := a.first(rep)
	bracket := "[]"
	if elem == nil {
		bracket = "{}"
	}
	if s.def() < rep.MaxDef {
		a.buf.WriteString(bracket)
		a.skip(rep)
		return
	}
	a.buf.WriteByte(bracket[0])
	for i := 0; int64(a.buf.Len()) <= a.limit; i++ {
		if i > 0 {
			if s.rep() != rep.MaxRep {
				break
			}
			a.buf.WriteString(", ")
		}
		before := s.entry
		switch {
		case elem == nil:
			a.node(rep.Children[0])
			a.buf.WriteString(": ")
			a.node(rep.Children[1])
		case elem != rep:
			a.node(elem)
		case rep.Group():
			a.object(rep)
		default:
			a.leaf(rep, s)
		}
		if s.entry == before {
			bad("lists of different lengths in one group")
		}
	}
	a.buf.WriteByte(bracket[1])
}

func (a *assembler) leaf(n *Node, s *stream) {
	if s.value >= s.col.Len() {
		bad("values end early")
	}
	b := s.col.Item(s.value)
	switch n.Type {
	case Boolean:
		a.buf.WriteString(strconv.FormatBool(b[0] != 0))
	case Int32, Int64:
		v := binary.LittleEndian.Uint64(append(slices.Clone(b), 0, 0, 0, 0))
		switch {
		case n.Note == Unsigned:
			a.buf.WriteString(strconv.FormatUint(v, 10))
		case n.Type == Int32:
			a.buf.WriteString(strconv.FormatInt(int64(int32(v)), 10))
		default:
			a.buf.WriteString(strconv.FormatInt(int64(v), 10))
		}
	case Float:
		a.float(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case Double:
		a.float(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case ByteArray:
		if !utf8.Valid(b) {
			bad("a text that is not UTF-8")
		}
		if s.raw && json.Valid(b) {
			a.buf.Write(b)
		} else {
			a.text(b)
		}
	default:
		bad("a type that has no JSON form: %s", n.Type)
	}
	s.skip()
}

// float writes numbers as Python's json does: NaN and infinities by name.
func (a *assembler) float(v float64) {
	switch {
	case math.IsNaN(v):
		a.buf.WriteString("NaN")
	case math.IsInf(v, 1):
		a.buf.WriteString("Infinity")
	case math.IsInf(v, -1):
		a.buf.WriteString("-Infinity")
	default:
		b := strconv.AppendFloat(nil, v, 'g', -1, 64)
		if !bytes.ContainsAny(b, ".e") {
			b = append(b, ".0"...)
		}
		a.buf.Write(b)
	}
}

func (a *assembler) text(b []byte) { a.buf.Write(guard.Must(json.Marshal(string(b)))) }
