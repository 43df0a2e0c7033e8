package rlds

import (
	"encoding/binary"
	"fmt"
	"math/bits"
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

// The wire types of protobuf.
const (
	wireVarint = 0
	wire64     = 1
	wireLen    = 2
	wire32     = 5
)

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

// uvarint reads a varint of at most 64 bits; n ≤ 0 where there is none.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// field is one field of a message.
type field struct {
	num, wire int
	from, to  int // its bytes in the message: of a varint its own, of the others the value's
}

// next reads the field at position p of b.
func next(b []byte, p int) (f field, end int, ok bool) {
	tag, n := uvarint(b[p:])
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
		return field{}, 0, false
	}
	p += n
	f = field{num: int(tag >> 3), wire: int(tag & 7), from: p}
	switch f.wire {
	case wireVarint:
		if _, n = uvarint(b[p:]); n <= 0 {
			return field{}, 0, false
		}
		f.to = p + n
	case wire64:
		f.to = p + 8
	case wire32:
		f.to = p + 4
	case wireLen:
		size, n := uvarint(b[p:])
		if n <= 0 || size > uint64(len(b)-p-n) {
			return field{}, 0, false
		}
		f.from = p + n
		f.to = f.from + int(size)
	default:
		return field{}, 0, false // groups were never used here
	}
	if f.to > len(b) {
		return field{}, 0, false
	}
	return f, f.to, true
}

// errWire says where a record stops being a tf.train.Example.
type errWire struct {
	at   int
	what string
}

func (e *errWire) Error() string {
	return fmt.Sprintf("byte %d of the record: %s is cut or no protobuf", e.at, e.what)
}

// parseExample finds the features of a tf.train.Example. Names are looked up in want (name → number in lists); others are counted.
// Nothing of b is copied. lists must be zero. arena takes the positions of byte strings.
func parseExample(b []byte, want map[string]int, lists []list) (unknown int, err error) {
	arena := make([]span, 0, 256)
	for p := 0; p < len(b); {
		f, end, ok := next(b, p)
		if !ok {
			return unknown, &errWire{p, "the example"}
		}
		p = end
		if f.num != 1 || f.wire != wireLen {
			continue
		}
		for q := f.from; q < f.to; {
			e, end, ok := next(b[:f.to], q)
			if !ok {
				return unknown, &errWire{q, "the map of features"}
			}
			q = end
			if e.num != 1 || e.wire != wireLen {
				continue
			}
			if arena, err = parseEntry(b, e, want, lists, arena, &unknown); err != nil {
				return unknown, err
			}
		}
	}
	return unknown, nil
}

// parseEntry reads one map entry: key(1) and Feature(2), either may be absent, the last of each counts.
func parseEntry(b []byte, e field, want map[string]int, lists []list, arena []span, unknown *int) ([]span, error) {
	var key, val field
	for p := e.from; p < e.to; {
		f, end, ok := next(b[:e.to], p)
		if !ok {
			return arena, &errWire{p, "a map entry"}
		}
		p = end
		if f.wire == wireLen {
			switch f.num {
			case 1:
				key = f
			case 2:
				val = f
			}
		}
	}
	slot, ok := want[string(b[key.from:key.to])]
	if !ok {
		*unknown++
		return arena, nil
	}
	l := &lists[slot]
	*l = list{found: true}
	for p := val.from; p < val.to; {
		f, end, ok := next(b[:val.to], p)
		if !ok {
			return arena, &errWire{p, "a feature"}
		}
		p = end
		if f.wire != wireLen || f.num < 1 || f.num > 3 {
			continue
		}
		if listKind(f.num) == l.kind {
			// Two pieces of one list in a feature are legal protobuf and are joined by it; nobody writes them.
			return arena, &errWire{p, "a feature whose list is in pieces:"}
		}
		*l = list{found: true, kind: listKind(f.num), raw: b[f.from:f.to]}
		var err error
		if arena, err = l.count(b, f, arena); err != nil {
			return arena, err
		}
	}
	return arena, nil
}

// count goes through the values of a list once: how many there are and, of byte strings, where.
func (l *list) count(b []byte, f field, arena []span) ([]span, error) {
	first := len(arena)
	for p := f.from; p < f.to; {
		v, end, ok := next(b[:f.to], p)
		if !ok {
			return arena, &errWire{p, "a list"}
		}
		p = end
		if v.num != 1 {
			continue
		}
		switch {
		case l.kind == bytesList && v.wire == wireLen:
			arena = append(arena, span{uint32(v.from), uint32(v.to)})
		case l.kind == floatList && v.wire == wire32:
			l.n++
			l.run = nil
			continue
		case l.kind == intList && v.wire == wireVarint:
			l.n++
			l.run = nil
			continue
		case l.kind == floatList && v.wire == wireLen && (v.to-v.from)%4 == 0:
			if l.run = nil; l.n == 0 && end == f.to {
				l.run = b[v.from:v.to]
			}
			l.n += (v.to - v.from) / 4
		case l.kind == intList && v.wire == wireLen:
			n, ok := countVarints(b[v.from:v.to])
			if !ok {
				return arena, &errWire{v.from, "a packed list"}
			}
			if l.run = nil; l.n == 0 && end == f.to {
				l.run = b[v.from:v.to]
			}
			l.n += n
		default:
			return arena, &errWire{p, "a list whose values are of another type:"}
		}
	}
	if l.kind == bytesList {
		l.spans = arena[first:len(arena):len(arena)]
		l.n = len(l.spans)
	}
	return arena, nil
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

// eachFloat calls fn with the values of a float list, little-endian, a run at a time.
func (l *list) eachFloat(fn func(run []byte)) {
	if l.run != nil {
		fn(l.run)
		return
	}
	for p := 0; p < len(l.raw); {
		v, end, ok := next(l.raw, p)
		if !ok {
			return
		}
		p = end
		if v.num == 1 {
			fn(l.raw[v.from:v.to])
		}
	}
}

// eachInt calls fn with the values of an integer list in turn; false where a varint is longer than 64 bits or fn says so.
func (l *list) eachInt(fn func(v int64) bool) bool {
	varints := func(b []byte) bool {
		for p := 0; p < len(b); {
			v, n := uvarint(b[p:])
			if n <= 0 || !fn(int64(v)) {
				return false
			}
			p += n
		}
		return true
	}
	if l.run != nil {
		return varints(l.run)
	}
	for p := 0; p < len(l.raw); {
		v, end, ok := next(l.raw, p)
		if !ok {
			return false
		}
		p = end
		if v.num == 1 && !varints(l.raw[v.from:v.to]) {
			return false
		}
	}
	return true
}
