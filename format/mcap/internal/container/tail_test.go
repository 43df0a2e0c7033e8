package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// tailer follows a file in memory.
type tailer struct {
	*Tail
	got  []told
	errs []error
}

func newTailer(b []byte, limits Limits) *tailer {
	return &tailer{Tail: NewTail(bytes.NewReader(b), limits)}
}

// pollAll polls until no error is returned.
func (r *tailer) pollAll(t testing.TB, size int) {
	t.Helper()
	for range 1 << 16 {
		err := r.Poll(t.Context(), int64(size), func(c *Channel, m *Message) {
			r.got = append(r.got, told{c.Topic, m.Log, string(m.Data)})
		})
		if err == nil {
			return
		}
		r.errs = append(r.errs, err)
	}
	t.Fatal("Poll returns errors without end")
}

// fileOrder returns the messages in the order of the file, as foxglove's reader returns them.
func fileOrder(t testing.TB, b []byte) (out []told) {
	t.Helper()
	r, err := foxglove.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	messages, err := r.Messages(foxglove.UsingIndex(false), foxglove.InOrder(foxglove.FileOrder))
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, c, m, err := messages.NextInto(nil)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, told{c.Topic, int64(m.LogTime), string(m.Data)})
	}
}

// TestTailGrows reads files that grow by one byte. Each message must be returned once, as soon as
// its record or chunk is complete (mcap.M7), and Skip must leave out exactly the complete ones.
func TestTailGrows(t *testing.T) {
	for name, opt := range variants {
		b := written(t, opt, 60)
		want := fileOrder(t, b)
		counts := make([]int, len(b)+1) // messages of the first bytes
		r := newTailer(b, TailLimits)
		for size := range len(b) + 1 {
			r.pollAll(t, size)
			counts[size] = len(r.got)
			whole := newTailer(b[:size], TailLimits)
			if size%stride(t) == 0 {
				if whole.pollAll(t, size); len(whole.got) != len(r.got) {
					t.Fatalf("%s: at %d, %d messages step by step, %d at once", name, size,
						len(r.got), len(whole.got))
				}
			}
		}
		if len(r.errs) > 0 || !slices.Equal(r.got, want) || !r.Ended() {
			t.Errorf("%s: %d messages of %d, %v", name, len(r.got), len(want), r.errs)
		}
		for size := 0; size <= len(b); size += 1 + 13*stride(t)/37 {
			r := newTailer(b, TailLimits)
			if err := r.Skip(t.Context(), int64(size)); err != nil {
				t.Fatal(err)
			}
			if r.pollAll(t, len(b)); len(r.errs) > 0 || !slices.Equal(r.got, want[counts[size]:]) {
				t.Fatalf("%s: after Skip to %d, %d messages, want %d (%v)", name, size,
					len(r.got), len(want)-counts[size], r.errs)
			}
		}
	}
}

// TestTailKeepsChannels checks that a channel keeps its pointer when its definition is repeated.
func TestTailKeepsChannels(t *testing.T) {
	b := build(channel(1, "/a"), message(1, 1, "x"), channel(1, "/a"), message(1, 2, "y"))
	var seen []*Channel
	r := NewTail(bytes.NewReader(b), TailLimits)
	err := r.Poll(
		t.Context(),
		int64(len(b)),
		func(c *Channel, _ *Message) { seen = append(seen, c) },
	)
	if err != nil || len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("%v, %v", seen, err)
	}
}

// TestTailDamage checks that damage loses only the record or chunk that contains it (mcap.M7).
func TestTailDamage(t *testing.T) {
	good := func(text string) []byte {
		records := slices.Concat(channel(1, "/a"), message(1, 5, text))
		return chunkOf("", uint64(len(records)), crc32.ChecksumIEEE(records), records)
	}
	records := message(1, 6, strings.Repeat("z", 100))
	limits := Limits{Chunk: 2000, Ratio: 10}
	for name, test := range map[string]struct {
		bad  []byte
		want error
	}{
		"checksum":     {chunkOf("", uint64(len(records)), 1, records), robocache.ErrMalformed},
		"compression":  {chunkOf("zip", 10, 0, records), robocache.ErrUnsupported},
		"not zstd":     {chunkOf("zstd", 100, 0, records), robocache.ErrMalformed},
		"wrong size":   {chunkOf("", 7, 0, records), robocache.ErrMalformed},
		"large chunk":  {chunkOf("zstd", 2001, 0, records), robocache.ErrResourceLimit},
		"huge chunk":   {chunkOf("zstd", 1<<60, 0, records), robocache.ErrResourceLimit},
		"bomb":         {chunkOf("lz4", 2000<<1, 0, records[:10]), robocache.ErrResourceLimit},
		"large record": {message(1, 6, strings.Repeat("z", 2100)), robocache.ErrResourceLimit},
		"undefined":    {message(9, 6, "z"), robocache.ErrMalformed},
		"redefined":    {channel(1, "/b"), robocache.ErrMalformed},
		"short":        {[]byte{byte(OpMessage), 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, robocache.ErrMalformed},
		"late time":    {message(1, 1<<63, "z"), robocache.ErrMalformed},
		"end in chunk": {
			chunkOf("", 12, 0, append([]byte{byte(OpMessage), 200}, make([]byte, 10)...)),
			robocache.ErrMalformed,
		},
	} {
		b := build(good("one"), test.bad, good("two"))
		for _, isStepwise := range []bool{false, true} {
			r := newTailer(b, limits)
			for size := range len(b) {
				if isStepwise {
					r.pollAll(t, size)
				}
			}
			r.pollAll(t, len(b))
			want := []told{{"/a", 5, "one"}, {"/a", 5, "two"}}
			if !slices.Equal(r.got, want) || len(r.errs) != 1 || !errors.Is(r.errs[0], test.want) {
				t.Errorf("%s: %v, %v, want one error of class %v", name, r.got, r.errs, test.want)
			}
		}
	}
}

// TestTailStops checks files whose further records cannot be found.
func TestTailStops(t *testing.T) {
	valid := build(channel(1, "/a"), message(1, 5, "x"))
	endless := slices.Clone(valid)
	at := len(magic)
	binary.LittleEndian.PutUint64(endless[at+1:], 1<<63)
	for name, b := range map[string][]byte{
		"magic":  append([]byte("\x89MCAP9\r\n"), valid[len(magic):]...),
		"length": endless,
	} {
		r := newTailer(b, TailLimits)
		r.pollAll(t, len(b))
		if len(r.errs) != 1 || !errors.Is(r.errs[0], robocache.ErrMalformed) || !r.Ended() {
			t.Errorf("%s: %v, %v", name, r.got, r.errs)
		}
	}
	zeros := append(unfinished(channel(1, "/a"), message(1, 5, "x")), make([]byte, 100)...)
	r := newTailer(zeros, TailLimits)
	if r.pollAll(t, len(zeros)); len(r.got) != 1 || len(r.errs) > 0 || r.Ended() {
		t.Errorf("zeros behind the records: %v, %v", r.got, r.errs)
	}
}

// unfinished makes a file that ends after the records.
func unfinished(recs ...[]byte) []byte {
	b := build(recs...)
	return b[:len(b)-(headSize+4)-tailSize]
}

// TestTailRewritten checks that a file with other content before the next record is detected.
func TestTailRewritten(t *testing.T) {
	old := unfinished(channel(1, "/a"), message(1, 5, "old"))
	changed := build(channel(1, "/a"), message(1, 5, "new"), message(1, 6, "more"))
	for name, b := range map[string][]byte{"changed": changed, "truncated": old[:len(old)-1]} {
		source := &switchedFile{now: old}
		r := NewTail(source, TailLimits)
		err := r.Poll(t.Context(), int64(len(old)), func(*Channel, *Message) {})
		if err != nil {
			t.Fatal(err)
		}
		source.now = b
		err = r.Poll(t.Context(), int64(len(changed)), func(*Channel, *Message) {
			t.Errorf("%s: a message of the changed file", name)
		})
		if !errors.Is(err, ErrRewritten) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// switchedFile is a file in memory whose content can be replaced.
type switchedFile struct{ now []byte }

func (s *switchedFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(s.now).ReadAt(p, off)
}

// FuzzTail checks that any bytes yield messages or typed errors within bounded memory, and the same
// messages if the file grows in steps.
func FuzzTail(f *testing.F) {
	for _, opt := range variants {
		f.Add(written(f, opt, 6), uint16(100))
	}
	f.Add(build(chunkOf("zstd", 1<<60, 0, []byte("abc")), message(1, 9, "y"), channel(1, "/b")),
		uint16(7))
	limits := Limits{Chunk: 1 << 20, Ratio: 20}
	f.Fuzz(func(t *testing.T, b []byte, step uint16) {
		before := hostile.Allocated()
		once := newTailer(b, limits)
		once.pollAll(t, len(b))
		if got := hostile.Allocated() - before; got > uint64(64<<20+400*len(b)) {
			t.Errorf("%d bytes were allocated for %d", got, len(b))
		}
		steps := newTailer(b, limits)
		for size := 0; size < len(b); size += max(int(step), len(b)/64+1) {
			steps.pollAll(t, size)
		}
		steps.pollAll(t, len(b))
		for _, err := range append(once.errs, steps.errs...) {
			if !errors.Is(err, ErrRewritten) {
				hostile.Typed(t, err)
			}
		}
		if !slices.Equal(once.got, steps.got) || fmt.Sprint(once.errs) != fmt.Sprint(steps.errs) {
			t.Errorf("at once %v, %v\nin steps %v, %v", once.got, once.errs, steps.got, steps.errs)
		}
		skip := newTailer(b, limits)
		for range 1 << 16 {
			if skip.Skip(t.Context(), int64(len(b)/2)) == nil {
				break
			}
		}
		skip.pollAll(t, len(b))
	})
}
