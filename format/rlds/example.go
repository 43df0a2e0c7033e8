package rlds

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// listKind is the kind of list in a tf.train.Feature.
type listKind uint8

const (
	noList    listKind = 0 // the feature exists but has no list
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

// span is a range of bytes in a record.
type span struct{ from, to uint32 }

// list is one tf.train.Feature of a record.
type list struct {
	kind  listKind
	found bool
	n     int    // number of values
	raw   []byte // message of the list
	run   []byte // the values, if they are one packed run
	spans []span // positions of the values in the record, for a bytes_list
}

// field is one field of a message.
type field struct {
	num      protowire.Number
	typ      protowire.Type
	from, to int // its bytes in the message; for a byte string those of the value
}

// wire reads protobuf messages. The first malformed bytes set err, which ends every message.
type wire struct {
	b   []byte
	err error
}

// errWire states where a record stops being a tf.train.Example.
type errWire struct {
	at   int
	what string
}

func (e *errWire) Error() string {
	return fmt.Sprintf("byte %d of the record: %s is cut or no protobuf", e.at, e.what)
}

func (w *wire) setError(at int, what string) {
	if w.err == nil {
		w.err = &errWire{at, what}
	}
}

// next returns the field at p of the message that ends at to. The next field begins at its end.
// what names the message in errors.
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
		w.setError(p, what)
	}
	return f, n >= 0
}

// parseExample finds the features of a tf.train.Example. want maps names to positions in lists;
// other features are counted. lists must be zero, and its elements alias b.
func parseExample(b []byte, want map[string]int, lists []list) (unknown int, err error) {
	w := &wire{b: b}
	arena := make([]span, 0, 256) // holds the positions of byte strings
	for x, ok := w.next(0, len(b), "the example"); ok; x, ok = w.next(x.to, len(b), "the example") {
		if x.num != 1 || x.typ != protowire.BytesType {
			continue
		}
		const entries = "the map of features"
		for entry, ok := w.next(
			x.from,
			x.to,
			entries,
		); ok; entry, ok = w.next(entry.to, x.to, entries) {
			if entry.num != 1 || entry.typ != protowire.BytesType {
				continue
			}
			var key, val field // either may be absent; the last of each is used
			const pair = "a map entry"
			for f, ok := w.next(
				entry.from,
				entry.to,
				pair,
			); ok; f, ok = w.next(f.to, entry.to, pair) {
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
			// Two parts of one list in a feature are legal protobuf, but no known writer produces
			// them.
			w.setError(f.from, "a feature whose list is in pieces:")
		}
		l = list{found: true, kind: listKind(f.num), raw: w.b[f.from:f.to]}
		arena = w.countValues(&l, f, arena)
	}
	return l, arena
}

// countValues counts the values of a list in one pass, and records the positions of byte strings.
func (w *wire) countValues(l *list, f field, arena []span) []span {
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
				w.setError(v.from, "a packed list")
			}
		default:
			w.setError(v.from, "a list whose values are of another type:")
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

// countVarints counts the bytes that end a varint. It returns false if the last varint is
// incomplete.
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

// runs iterates over the runs of a list's values. There is usually one.
func (l *list) runs() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if l.run != nil {
			yield(l.run)
			return
		}
		w := wire{b: l.raw}
		for f, ok := w.next(
			0,
			len(l.raw),
			"a list",
		); ok; f, ok = w.next(f.to, len(l.raw), "a list") {
			if f.num == 1 && !yield(l.raw[f.from:f.to]) {
				return
			}
		}
	}
}

// eachInt calls fn with the values of an integer list. It returns false if a varint is longer than
// 64 bits or fn returns false.
func (l *list) eachInt(fn func(v int64) bool) bool {
	for b := range l.runs() {
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
