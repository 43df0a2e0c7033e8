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

// ReadJSON reads a column of any nesting and returns each row as JSON text. Groups become objects
// in the order of the schema, lists arrays, maps objects, and nulls null. Floats keep their float64
// value. Leaves for which raw returns true contain JSON texts: these become JSON values, or strings
// if they are not valid JSON.
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
	a := jsonAssembler{leaves: map[*Node]*leafStream{}, limit: lim.Bytes}
	for _, leaf := range top.Leaves(nil) {
		a.leaves[leaf] = &leafStream{
			col:  guard.Must(ReadColumn(ctx, r, f, group, leaf, nil, lim)),
			leaf: leaf,
			raw:  raw != nil && raw(leaf),
		}
	}
	for row := range f.Groups[group].Rows {
		a.writeRow(top, row)
		// Events in language columns repeat on every frame of an episode. Equal neighbors share one
		// string.
		if n := len(out); n > 0 && out[n-1] == a.buf.String() {
			out = append(out, out[n-1])
			continue
		}
		out = append(out, a.buf.String())
	}
	for _, s := range a.leaves {
		if s.entry != s.col.Entries {
			failParse("the columns of a group hold different numbers of rows")
		}
	}
	return out, nil
}

// leafStream iterates over the levels and values of one leaf.
type leafStream struct {
	col          *Column
	leaf         *Node
	raw          bool
	entry, value int
}

// levelAt returns the level of the current entry, or -1 at the end. If levels is nil, all entries
// have level all.
func (s *leafStream) levelAt(levels []uint8, all int) int {
	switch {
	case s.entry >= s.col.Entries:
		return -1
	case levels == nil:
		return all
	}
	return int(levels[s.entry])
}

func (s *leafStream) defLevel() int { return s.levelAt(s.col.Def, s.leaf.MaxDef) }
func (s *leafStream) repLevel() int { return s.levelAt(s.col.Rep, 0) }

func (s *leafStream) skipEntry() {
	if s.defLevel() == s.leaf.MaxDef {
		s.value++
	}
	s.entry++
}

type jsonAssembler struct {
	leaves       map[*Node]*leafStream
	buf          bytes.Buffer
	limit, total int64 // bytes of text
}

// writeRow writes a row to buf.
func (a *jsonAssembler) writeRow(top *Node, row int64) {
	defer guard.In("row", row)
	a.buf.Reset()
	a.writeNode(top)
	if a.total += int64(a.buf.Len()); a.total > a.limit {
		guard.Fail(robocache.ResourceLimit("parquet", nil, "").
			Expected("fewer bytes of text than "+strconv.FormatInt(a.limit, 10), "more"))
	}
}

func (a *jsonAssembler) firstLeaf(n *Node) *leafStream {
	for n.Group() {
		if len(n.Children) == 0 {
			failParse("a group without columns")
		}
		n = n.Children[0]
	}
	return a.leaves[n]
}

func (a *jsonAssembler) skipNode(n *Node) {
	for _, l := range n.Leaves(nil) {
		a.leaves[l].skipEntry()
	}
}

// writeNode writes the value of a node.
func (a *jsonAssembler) writeNode(n *Node) {
	s := a.firstLeaf(n)
	if s == nil || s.defLevel() < 0 {
		failParse("a column of the group ends early")
	}
	if n.Repetition == Repeated {
		a.writeList(n, n)
		return
	}
	if s.defLevel() < n.MaxDef {
		a.buf.WriteString("null")
		a.skipNode(n)
		return
	}
	if !n.Group() {
		a.writeLeaf(n, s)
		return
	}
	if n.Note == List && len(n.Children) == 1 && n.Children[0].Repetition == Repeated {
		rep := n.Children[0]
		if rep.Group() && len(rep.Children) == 1 {
			a.writeList(rep, rep.Children[0])
		} else {
			a.writeList(rep, rep)
		}
		return
	}
	if n.Note == Map && len(n.Children) == 1 && n.Children[0].Repetition == Repeated &&
		len(n.Children[0].Children) == 2 {
		a.writeList(n.Children[0], nil)
		return
	}
	a.writeObject(n)
}

func (a *jsonAssembler) writeObject(n *Node) {
	a.buf.WriteByte('{')
	for i, c := range n.Children {
		if i > 0 {
			a.buf.WriteString(", ")
		}
		a.writeText([]byte(c.Name))
		a.buf.WriteString(": ")
		a.writeNode(c)
	}
	a.buf.WriteByte('}')
}

// writeList writes the elements of a repeated node. elem is the node of one element. For a map elem
// is nil, and the pairs become an object.
func (a *jsonAssembler) writeList(rep, elem *Node) {
	s := a.firstLeaf(rep)
	bracket := "[]"
	if elem == nil {
		bracket = "{}"
	}
	if s.defLevel() < rep.MaxDef {
		a.buf.WriteString(bracket)
		a.skipNode(rep)
		return
	}
	a.buf.WriteByte(bracket[0])
	for i := 0; int64(a.buf.Len()) <= a.limit; i++ {
		if i > 0 {
			if s.repLevel() != rep.MaxRep {
				break
			}
			a.buf.WriteString(", ")
		}
		before := s.entry
		switch {
		case elem == nil:
			a.writeNode(rep.Children[0])
			a.buf.WriteString(": ")
			a.writeNode(rep.Children[1])
		case elem != rep:
			a.writeNode(elem)
		case rep.Group():
			a.writeObject(rep)
		default:
			a.writeLeaf(rep, s)
		}
		if s.entry == before {
			failParse("lists of different lengths in one group")
		}
	}
	a.buf.WriteByte(bracket[1])
}

func (a *jsonAssembler) writeLeaf(n *Node, s *leafStream) {
	if s.value >= s.col.Len() {
		failParse("values end early")
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
		a.writeFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case Double:
		a.writeFloat(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case ByteArray:
		if !utf8.Valid(b) {
			failParse("a text that is not UTF-8")
		}
		if s.raw && json.Valid(b) {
			a.buf.Write(b)
		} else {
			a.writeText(b)
		}
	default:
		failParse("a type that has no JSON form: %s", n.Type)
	}
	s.skipEntry()
}

// writeFloat writes a number like Python's json module, which writes NaN and infinities as names.
func (a *jsonAssembler) writeFloat(v float64) {
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

func (a *jsonAssembler) writeText(b []byte) { a.buf.Write(guard.Must(json.Marshal(string(b)))) }
