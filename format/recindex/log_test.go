package recindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/store"
)

// encodeLog returns a log with n records of two shared blocks.
func encodeLog(n int) ([]byte, *Log) {
	l := newLog()
	e := newEncoder(l)
	for i := range n {
		p := &Payload{
			Shared: [][]byte{[]byte("topics"), fmt.Appendf(nil, "layout %d", i%2)},
			Own:    fmt.Appendf(nil, "own %d", i),
		}
		e.addEntry(recordKey{"p", fmt.Sprintf("%d.mcap", i)}, int64(i), fmt.Sprint("v", i), p)
	}
	return append(l.header(), e.out...), l
}

// ix.C1, ix.C2, ix.C11
func TestLogReturnsRecords(t *testing.T) {
	b, _ := encodeLog(5)
	l, err := parseLog(b)
	if err != nil || l.end != int64(len(b)) || l.Len() != 5 || len(l.shared) != 3 {
		t.Fatalf(
			"%v: %d of %d bytes, %d records, %d blocks",
			err,
			l.end,
			len(b),
			l.Len(),
			len(l.shared),
		)
	}
	s := newSession(l, nil)
	p, ok := s.Lookup("p", "3.mcap", 3, "v3")
	if !ok || string(p.Own) != "own 3" || string(p.Shared[1]) != "layout 1" || p.IDs[1] != 2 {
		t.Errorf("%v %+v", ok, p)
	}
	for _, wrong := range []struct {
		part, name string
		size       int64
		version    string
	}{
		{"q", "3.mcap", 3, "v3"},
		{"p", "4.mcap", 3, "v3"},
		{"p", "3.mcap", 4, "v3"},
		{"p", "3.mcap", 3, "v4"},
		{"p", "3.mcap", 3, ""},
	} {
		if _, ok := s.Lookup(wrong.part, wrong.name, wrong.size, wrong.version); ok {
			t.Errorf("%v was found", wrong)
		}
	}
}

// ix.C4: a log that is cut at any byte has the records before the cut, and the next writer appends
// there.
func TestLogCutAtEveryByte(t *testing.T) {
	b, _ := encodeLog(4)
	full, _ := parseLog(b)
	ends := []int64{int64(headerSize)}
	for at := int64(headerSize); at < int64(len(b)); {
		at += recordHead + int64(binary.LittleEndian.Uint32(b[at:]))
		ends = append(ends, at)
	}
	for cut := range len(b) {
		l, err := parseLog(b[:cut])
		if cut < headerSize {
			if err == nil {
				t.Fatalf("a header of %d bytes is accepted", cut)
			}
			if again, err := parseLocked(
				b[:cut],
				full,
			); err != nil ||
				again.identity == full.identity {
				t.Fatalf("%v: the header of %d bytes is not made again", err, cut)
			}
			continue
		}
		i, isEnd := slices.BinarySearch(ends, int64(cut))
		if !isEnd {
			i--
		}
		if err != nil || l.end != ends[i] {
			t.Fatalf("cut at %d: %v, ends at %d, want %d", cut, err, l.end, ends[i])
		}
		e := newEncoder(l)
		e.addEntry(recordKey{"p", "new"}, 1, "v", &Payload{Shared: [][]byte{[]byte("topics")}})
		repaired, err := parseLog(append(slices.Clone(b[:l.end]), e.out...))
		if err != nil || repaired.Len() != l.Len()+1 || repaired.sequence != l.sequence+1 {
			t.Fatalf("cut at %d: %v, %d records after %d", cut, err, repaired.Len(), l.Len())
		}
	}
}

// ix.C4: a changed byte ends the log before its record.
func TestLogEndsAtDamage(t *testing.T) {
	b, _ := encodeLog(4)
	for at := headerSize; at < len(b); at++ {
		damaged := slices.Clone(b)
		damaged[at] ^= 0x40
		l, err := parseLog(damaged)
		if err != nil || l.end > int64(at) || l.Len() == 4 {
			t.Fatalf("byte %d: %v, end %d, %d records", at, err, l.end, l.Len())
		}
	}
}

// ix.C3, ix.C13, ix.C14
func TestLogChangesSurviveCompaction(t *testing.T) {
	b, first := encodeLog(3)
	l, _ := parseLog(b)
	start := l.Position()
	e := newEncoder(l)
	e.addEntry(recordKey{"p", "1.mcap"}, 10, "new", &Payload{Own: []byte("x")})
	e.sequence++
	e.putRemoval(e.sequence, recordKey{"p", "0.mcap"})
	e.addEntry(recordKey{"p", "9.mcap"}, 11, "v9", &Payload{Own: []byte("y")})
	whole, _ := parseLog(append(b, e.out...))
	compact, err := parseLog(whole.compacted())
	if err != nil || compact.end >= whole.end || compact.dead != 0 {
		t.Fatalf("%v: %d bytes, %d before; %d dead", err, compact.end, whole.end, compact.dead)
	}
	for _, l := range []*Log{whole, compact} {
		changes, end, err := l.Changes(start)
		want := []Change{
			{Sequence: 4, Name: "1.mcap", Size: 10, Version: "new"},
			{Sequence: 5, Name: "0.mcap", Removed: true},
			{Sequence: 6, Name: "9.mcap", Size: 11, Version: "v9"},
		}
		if err != nil || !slices.Equal(changes, want) || end.Sequence != 6 {
			t.Errorf("%v: %v until %v", err, changes, end)
		}
		if all, _, _ := l.Changes(Position{}); len(all) != 4 || all[0].Name != "2.mcap" {
			t.Errorf("all changes: %v", all)
		}
		if rest, _, _ := l.Changes(end); len(rest) != 0 {
			t.Errorf("changes after the end: %v", rest)
		}
	}
	other := newLog()
	for _, from := range []Position{other.Position(), {Log: first.identity, Sequence: 7}} {
		if _, _, err := whole.Changes(from); from.Log != "" && !errors.Is(err, store.ErrChanged) {
			t.Errorf("%v: %v", from, err)
		}
	}
}

// A log whose shared blocks or sequence numbers contradict each other ends there.
func TestLogRejectsContradictions(t *testing.T) {
	entry := func(sequence, blocks, id int64) []byte {
		body := AppendNumber([]byte{entryKind}, sequence)
		body = AppendText(AppendText(body, "p"), "n")
		body = AppendText(AppendNumber(body, 1), "v")
		body = AppendNumber(body, blocks)
		return AppendNumber(body, id)
	}
	for name, body := range map[string][]byte{
		"a shared block that is missing": entry(6, 1, 99),
		"a count beyond the record":      entry(6, 1<<40, 0),
		"a sequence that repeats":        entry(5, 1, 0),
		"an unknown kind":                {9, 1, 1},
		"a shared block out of order":    {sharedKind, 77},
		"a text beyond the record":       append(AppendNumber([]byte{entryKind}, 6), 0xff, 0x7f),
		"a number without an end":        {entryKind, 0xff, 0xff, 0xff},
		"an empty body":                  {},
	} {
		b, _ := encodeLog(5)
		l, err := parseLog(appendRecord(slices.Clone(b), body))
		if err != nil || l.end != int64(len(b)) {
			t.Errorf("%s: %v, end %d, want %d", name, err, l.end, len(b))
		}
	}
}

// ix.C12
func FuzzLog(f *testing.F) {
	b, _ := encodeLog(3)
	f.Add(b)
	f.Add(b[:len(b)-3])
	spans := encodeSpans(
		[]store.Span{{Off: 0, P: []byte("head")}, {Off: 90, P: []byte("foot")}},
		"v",
	)
	l := newLog()
	e := newEncoder(l)
	e.addEntry(recordKey{spansPart, "a"}, 100, "v", &Payload{Own: spans})
	f.Add(append(l.header(), e.out...))
	f.Add(spans)
	f.Fuzz(func(t *testing.T, b []byte) {
		parseSpans(b, 100)
		// The checksum hides the rest of the parser from the fuzzer, so bodies are parsed too.
		for _, data := range [][]byte{b, appendRecord(slices.Clone(newLog().header()), b)} {
			l, err := parseLog(data)
			if err != nil {
				continue
			}
			for key, r := range l.records {
				p := l.payload(&r)
				parseSpans(p.Own, r.size)
				if key.name == "" || len(p.Shared) != len(p.IDs) {
					t.Fatal("a record without a name, or without its blocks")
				}
			}
			again, err := parseLog(l.compacted())
			if err != nil || again.Len() != l.Len() || again.sequence != l.sequence {
				t.Fatalf("compaction changes the log: %v", err)
			}
			if l.end > int64(len(data)) || !bytes.HasPrefix(data, l.header()) {
				t.Fatal("the log is longer than its file")
			}
		}
	})
}
