package rlds

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// listKind is which of the three lists a tf.train.Feature holds.
type listKind uint8

const (
	noList    listKind = 0 // the feature is there and says nothing: an empty list
	bytesList listKind = 1
	floatList listKind = 2
	intList   listKind = 3
)

func (k listKind) String() string {
	switch k {
	case bytesList:
		return "bytes_list"
	case floatList:
		return "float_list"
	case intList:
		return "int64_list"
	}
	return "no list"
}

// span is a piece of a record.
type span struct{ from, to uint32 }

// list is one tf.train.Feature of a record.
type list struct {
	kind  listKind
	found bool
	n     int    // values
	raw   []byte // the list's message
	run   []byte // its values, where they are one packed run
	spans []span // bytes_list: its values, as positions in the record
}

// field is one field of a message.
type field struct {
	num      protowire.Number
	typ      protowire.Type
	from, to int // its bytes in the message: of a byte string the value's
}

// wire reads protobuf. The first bytes that are none set err, and end every message.
type wire struct {
	b   []byte
	err error
}

// errWire says where a record stops being a tf.train.Example.
type errWire struct {
	at   int
	what string
}

func (e *errWire) Error() string {
	return fmt.Sprintf("byte %d of the record: %s is cut or no protobuf", e.at, e.what)
}

func (w *wire) fail(at int, what string) {
	if w.err == nil {
		w.err = &errWire{at, what}
	}
}

// next gives the field at p of the message that ends at to; the one behind it begins where it ends.
// what is said of a message that is none.
func (w *wire) next(p, to int, what string) (f field, ok bool) {
	if p >= to || w.err != nil {
		return f, false
	}
	num, typ, n := protowire.ConsumeTag(w.b[p:to])
	f = field{num: num, typ: typ, from: p + n}
	if n > 0 && typ == protowire.BytesType {
		var v []byte
		v, n = protowire.ConsumeBytes(w.b[f.from:to])
		f.to = f.from + n
		f.from = f.to - len(v)
	} else if n > 0 {
		n = protowire.ConsumeFieldValue(num, typ, w.b[f.from:to])
		f.to = f.from + n
	}
	if n < 0 {
		w.fail(p, what)
	}
	return f, n >= 0
}

// parseExample finds the features of a tf.train.Example. Names are looked up in want (name → number
// in lists); others are counted. Nothing of b is copied. lists must be zero.
func parseExample(b []byte, want map[string]int, lists []list) (unknown int, err error) {
	w := &wire{b: b}
	arena := make([]span, 0, 256) // takes the positions of byte strings
	for x, ok := w.next(0, len(b), "the example"); ok; x, ok = w.next(x.to, len(b), "the example") {
		if x.num != 1 || x.typ != protowire.BytesType {
			continue
		}
		for entry, ok := w.next(x.from, x.to, "the map of features"); ok; entry, ok = w.next(entry.to, x.to, "the map of features") {
			if entry.num != 1 || entry.typ != protowire.BytesType {
				continue
			}
			var key, val field // either may be absent, the last of each counts
			for f, ok := w.next(entry.from, entry.to, "a map entry"); ok; f, ok = w.next(f.to, entry.to, "a map entry") {
				switch {
				case f.typ != protowire.BytesType:
				case f.num == 1:
					key = f
				case f.num == 2:
					val = f
				}
			}
			slot, ok := want[string(b[key.from:key.to])]
			if !ok {
				unknown++
				continue
			}
			lists[slot], arena = w.feature(val.from, val.to, arena)
		}
	}
	return unknown, w.err
}

// feature reads a tf.train.Feature.
func (w *wire) feature(from, to int, arena []span) (l list, _ []span) {
	l.found = true
	for f, ok := w.next(from, to, "a feature"); ok; f, ok = w.next(f.to, to, "a feature") {
		if f.typ != protowire.BytesType || f.num > 3 {
			continue
		}
		if listKind(f.num) == l.kind {
			// Two pieces of one list in a feature are legal protobuf and are joined by it; nobody
			// writes them.
			w.fail(f.from, "a feature whose list is in pieces:")
		}
		l = list{found: true, kind: listKind(f.num), raw: w.b[f.from:f.to]}
		arena = w.count(&l, f, arena)
	}
	return l, arena
}

// count goes through the values of a list once: how many there are and, of byte strings, where.
func (w *wire) count(l *list, f field, arena []span) []span {
	first := len(arena)
	for v, ok := w.next(f.from, f.to, "a list"); ok; v, ok = w.next(v.to, f.to, "a list") {
		if v.num != 1 {
			continue
		}
		n, bytes := 0, v.typ == protowire.BytesType
		switch {
		case l.kind == bytesList && bytes:
			arena = append(arena, span{uint32(v.from), uint32(v.to)})
			n = 1
		case l.kind == floatList && v.typ == protowire.Fixed32Type,
			l.kind == intList && v.typ == protowire.VarintType:
			n = 1
		case l.kind == floatList && bytes && (v.to-v.from)%4 == 0:
			n = (v.to - v.from) / 4
		case l.kind == intList && bytes:
			var ok bool
			if n, ok = countVarints(w.b[v.from:v.to]); !ok {
				w.fail(v.from, "a packed list")
			}
		default:
			w.fail(v.from, "a list whose values are of another type:")
		}
		if l.run = nil; bytes && l.n == 0 && v.to == f.to && l.kind != bytesList {
			l.run = w.b[v.from:v.to]
		}
		l.n += n
	}
	if l.kind == bytesList {
		l.spans = arena[first:len(arena):len(arena)]
	}
	return arena
}

// countVarints counts the bytes that end a varint; false where the last one does not end.
func countVarints(b []byte) (int, bool) {
	if len(b) == 0 {
		return 0, true
	}
	if b[len(b)-1] >= 0x80 {
		return 0, false
	}
	n, p := 0, 0
	for ; p+8 <= len(b); p += 8 {
		n += 8 - bits.OnesCount64(binary.LittleEndian.Uint64(b[p:])&0x8080808080808080)
	}
	for ; p < len(b); p++ {
		n += int(^b[p] >> 7)
	}
	return n, true
}

// pieces goes over the runs of a list's values: mostly one.
func (l *list) pieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if l.run != nil {
			yield(l.run)
			return
		}
		w := wire{b: l.raw}
		for f, ok := w.next(0, len(l.raw), "a list"); ok; f, ok = w.next(f.to, len(l.raw), "a list") {
			if f.num == 1 && !yield(l.raw[f.from:f.to]) {
				return
			}
		}
	}
}

// eachInt calls fn with the values of an integer list in turn; false where a varint is longer than
// 64 bits or fn says so.
func (l *list) eachInt(fn func(v int64) bool) bool {
	for b := range l.pieces() {
		for len(b) > 0 {
			v, n := uint64(b[0]), 1
			if v >= 0x80 {
				v, n = protowire.ConsumeVarint(b)
			}
			if n < 0 || !fn(int64(v)) {
				return false
			}
			b = b[n:]
		}
	}
	return true
}
