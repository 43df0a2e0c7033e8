package rlds

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

const handShard = "toy-train.tfrecord-00000-of-00001"

func has(d *Dataset, code string) bool {
	for _, f := range d.Info().Findings {
		if f.Code == code {
			return true
		}
	}
	return false
}

// TestTruncatedAnywhere truncates a shard at any byte. The complete records are read, and the
// truncation is a finding.
func TestTruncatedAnywhere(t *testing.T) {
	h := newHand()
	whole := h.shards[handShard]
	ends := map[int]int{0: 0}
	at := 0
	for k := 1; k <= 3; k++ {
		n, _ := recordLength(whole[at:])
		at += headBytes + int(n) + tailBytes
		ends[at] = k
	}
	complete := 0
	for cut := 0; cut <= len(whole); cut++ {
		if k, ok := ends[cut]; ok {
			complete = k
		}
		if testing.Short() && cut%23 != 0 { // the run with the race detector tests fewer positions
			continue
		}
		h.shards[handShard] = whole[:cut]
		d, err := h.open(t, "cut")
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if _, even := ends[cut]; d.Info().Episodes != complete ||
			has(d, "truncated-shard") == even ||
			has(d, "shard-length-differs") != (complete < 3) {
			t.Fatalf("cut at %d: %d episodes, %+v", cut, d.Info().Episodes, d.Info().Findings)
		}
		for e := range complete {
			if err := checkEpisode(t, d, e, e); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
	}
}

// TestFlippedAnywhere flips any byte. Its record is lost, or the rest of the shard if the byte is
// in a length. All delivered values are correct.
func TestFlippedAnywhere(t *testing.T) {
	h := newHand()
	whole := h.shards[handShard]
	step := 1
	if testing.Short() {
		step = 19 // with -short (the race detector) fewer bytes are tested
	}
	for i := 0; i < len(whole); i += step {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(whole)
			b[i] ^= flip
			h.shards[handShard] = b
			d, err := h.open(t, "flip")
			if err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
			bad := 0
			for e := range d.Info().Episodes {
				if d.Len(e) != []int{3, 1, 5}[e] {
					// The heads were wrong, and reading the whole record reports it.
					if err := d.Gather(t.Context(), "reward", rowsOf(d, e),
						make([]byte, 4*d.Len(e))); err == nil && d.Len(e) > 0 {
						t.Errorf("byte %d: episode %d has %d steps", i, e, d.Len(e))
					}
					bad++
					continue
				}
				if err := checkEpisode(t, d, e, e); err != nil {
					if hostile.Typed(t, err); !errors.Is(err, robocache.ErrMalformed) ||
						!strings.Contains(err.Error(), handShard) {
						t.Errorf("byte %d: %v", i, err)
					}
					bad++
				}
			}
			if lost := 3 - d.Info().Episodes; bad+lost == 0 || lost == 0 && bad > 1 ||
				lost > 0 && len(d.Info().Findings) == 0 {
				t.Errorf("byte %d: %d episodes bad, %d lost, %+v", i, bad, lost, d.Info().Findings)
			}
			found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
			if err != nil || len(found) == 0 {
				t.Errorf("byte %d: the doctor sees nothing (%v)", i, err)
			}
			d.Close()
		}
	}
}

// TestLyingLength checks that a length with a valid check sum is still compared with the file.
func TestLyingLength(t *testing.T) {
	for _, n := range []uint64{1 << 60, 1<<64 - 1, 1 << 40, 1 << 31} {
		h := newHand()
		b := binary.LittleEndian.AppendUint64(nil, n)
		b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
		h.shards[handShard] = append(
			appendRecord(nil, handEpisode(0, 3)),
			append(b, make([]byte, 100)...)...)
		before := hostile.Allocated()
		d, err := h.open(t, "lie")
		if err != nil || d.Info().Episodes != 1 || !has(d, "truncated-shard") {
			t.Errorf("%d: %v", n, err)
		}
		if got := hostile.Allocated() - before; got > 4<<20 {
			t.Errorf("%d bytes for a lie", got)
		}
	}
}

// TestMissingShard checks that the other shards are read, and that indexes count what is stated.
func TestMissingShard(t *testing.T) {
	h := newHand()
	h.info = handInfo("toy", "train", 1, 4, 2)
	h.shards = map[string][]byte{
		"toy-train.tfrecord-00000-of-00003": appendRecord(nil, handEpisode(0, 3)),
		"toy-train.tfrecord-00002-of-00003": append(
			appendRecord(nil, handEpisode(5, 2)),
			appendRecord(nil, handEpisode(6, 1))...),
		"toy-train.tfrecord-00007-of-00009": nil,
	}
	d, err := h.open(t, "missing")
	if err != nil {
		t.Fatal(err)
	}
	if d.Info().Episodes != 3 || d.Info().Frames != 6 || !has(d, "missing-shard") ||
		!has(d, "unlisted-file") ||
		d.Info().Splits["train"] != "0:3" {
		t.Errorf("%+v", d.Info())
	}
	for i, want := range []int64{0, 5, 6} {
		ep, err := d.Episode(t.Context(), i)
		if err != nil || ep.Index != want {
			t.Errorf("%+v %v", ep, err)
		}
		if err := checkEpisode(t, d, i, int(want)); err != nil {
			t.Error(err)
		}
	}
	h.shards = nil
	_, err = h.open(t, "none")
	var e *robocache.Error
	if !errors.Is(err, robocache.ErrNotFound) || !errors.As(err, &e) {
		t.Fatal(err)
	}
	if e.Err != nil || e.Hint == "" || e.Where["file"] != "toy-train.tfrecord-00000-of-00003" {
		t.Errorf("not the file and what to do alone: %v", err)
	}
}

// TestLostEpisodes checks that lost or unreadable episodes stop training with an error that names
// them. An unreadable episode does so only if it is selected.
func TestLostEpisodes(t *testing.T) {
	whole := newHand().shards[handShard]
	first, _ := recordLength(whole)
	at := headBytes + int(first) + tailBytes // offset of the second record
	flipped := bytes.Clone(whole)
	flipped[at+8] ^= 1 // the check sum of its length
	noExample := appendRecord(bytes.Clone(whole[:at]), []byte{0xff, 0xff})
	noExample = append(noExample, appendRecord(nil, handEpisode(2, 5))...)
	for what, c := range map[string]struct {
		shard []byte
		info  string
		bad   int // the unreadable episode; -1 if the lost episodes are unknown
	}{
		"cut":               {whole[:len(whole)-1], handInfo("toy", "train", 3), -1},
		"cut, gzip":         {squeeze(t, "gzip", 6, whole)[:80], handInfo("toy", "train", 3), -1},
		"length":            {flipped, handInfo("toy", "train", 3), -1},
		"unreadable record": {noExample, handInfo("toy", "train", 3), 1},
	} {
		h := newHand()
		h.info, h.shards[handShard] = c.info, c.shard
		d, err := h.open(t, "lost")
		if err != nil {
			t.Fatal(what, err)
		}
		err = robocache.Whole(d, nil, "train", "skip bad episodes")
		var e *robocache.Error
		if !errors.Is(err, robocache.ErrMalformed) || !errors.As(err, &e) ||
			e.Where["file"] != handShard {
			t.Errorf("%s: %v", what, err)
		}
		if c.bad < 0 {
			continue
		}
		if d.Len(c.bad) != 0 || d.Info().Episodes != 3 || e.Where["episode"] != int64(c.bad) {
			t.Errorf("%s: %d episodes, %v", what, d.Info().Episodes, err)
		}
		if err := robocache.Whole(d, []int{0, 2}, "train", ""); err != nil {
			t.Errorf("%s, of other episodes: %v", what, err)
		}
	}
	d, err := newHand().open(t, "not-lost")
	if err == nil {
		err = robocache.Whole(d, nil, "train", "")
	}
	if err != nil {
		t.Error(err)
	}
}

// TestCounts checks that an error names a key with a wrong number of values, and the expected
// number.
func TestCounts(t *testing.T) {
	edit := map[string]func(x *exampleWriter){
		"too few": func(x *exampleWriter) {
			x.floats("steps/observation/state", f32s(1, 2, 3))
		},
		"too many": func(x *exampleWriter) {
			x.floats("steps/observation/state", f32s(1, 2, 3, 4, 5, 6, 7, 8))
		},
		"missing": func(x *exampleWriter) { delete(x.features, "steps/observation/state") },
		"other list": func(x *exampleWriter) {
			x.ints("steps/observation/state", []int64{1, 2, 3, 4, 5, 6})
		},
		"few texts": func(x *exampleWriter) {
			x.strings("steps/language_instruction", [][]byte{[]byte("a")})
		},
		"out of range": func(x *exampleWriter) {
			x.ints("steps/observation/n", []int64{1, 2, 1 << 40})
		},
	}
	for name, f := range edit {
		h := newHand()
		x := handExample(0, 3)
		f(x)
		b, err := x.bytes()
		if err != nil {
			t.Fatal(err)
		}
		h.shards[handShard] = append(appendRecord(nil, b), appendRecord(nil, handEpisode(1, 2))...)
		d, err := h.open(t, "counts")
		if err != nil {
			t.Fatal(name, err)
		}
		if err := checkEpisode(t, d, 0, 0); !errors.Is(err, robocache.ErrMalformed) ||
			!strings.Contains(err.Error(), "steps/") {
			t.Errorf("%s: %v", name, err)
		}
		if err := checkEpisode(t, d, 1, 1); err != nil {
			t.Errorf("%s cost the other episode: %v", name, err)
		}
	}
	// An episode of no steps may omit its keys; an unknown key is counted.
	h := newHand()
	x := newExample()
	x.ints("steps/new_key", []int64{1})
	b, _ := x.bytes()
	h.shards[handShard] = append(appendRecord(nil, b), appendRecord(nil, handEpisode(1, 2))...)
	d, err := h.open(t, "empty")
	if err != nil || d.Info().Episodes != 2 || d.Len(0) != 0 || !has(d, "unknown-features") {
		t.Fatalf("%v", err)
	}
	if err := checkEpisode(t, d, 0, 0); err != nil {
		t.Error(err)
	}
}

// TestUnpacked checks that lists that are not packed, or in several parts, have the same values.
func TestUnpacked(t *testing.T) {
	h := newHand()
	x := handExample(4, 3)
	var state, n []byte
	for i := range 3 {
		for _, v := range f32Pairs(4, i) {
			state = append(append(state, 1<<3|byte(protowire.Fixed32Type)), v...)
		}
		n = binary.AppendUvarint(append(n, 1<<3|byte(protowire.VarintType)), uint64(int64(i)-1))
	}
	x.put("steps/observation/state", floatList, state)
	x.put("steps/observation/n", intList, n)
	x.put("steps/reward", floatList, append(packedField(f32s(0, 1)), packedField(f32s(2))...))
	b, err := x.bytes()
	if err != nil {
		t.Fatal(err)
	}
	h.shards[handShard] = appendRecord(nil, b)
	d, err := h.open(t, "unpacked")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkEpisode(t, d, 0, 4); err != nil {
		t.Error(err)
	}
	got := make([]byte, 12)
	if err := d.Gather(t.Context(), "reward", rowsOf(d, 0), got); err != nil ||
		!bytes.Equal(got, f32s(0, 1, 2)) {
		t.Error(got, err)
	}
}

func f32Pairs(e, i int) [][]byte { return [][]byte{f32s(float32(e)), f32s(float32(i))} }

// TestPackedShards checks that a shard compressed with gzip or zlib is read. A damaged one gives
// the records before the damage.
func TestPackedShards(t *testing.T) {
	for _, how := range []string{"gzip", "zlib"} {
		h := newHand()
		whole := h.shards[handShard]
		var z bytes.Buffer
		var err error
		if how == "gzip" {
			w := gzip.NewWriter(&z)
			_, err = w.Write(whole)
			err = errors.Join(err, w.Close())
		} else {
			w := zlib.NewWriter(&z)
			_, err = w.Write(whole)
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		h.shards[handShard] = z.Bytes()
		d, err := h.open(t, how)
		if err != nil || d.Info().Episodes != 3 || len(d.Info().Findings) != 0 {
			t.Fatal(how, err)
		}
		for _, e := range []int{2, 0, 1} {
			if err := checkEpisode(t, d, e, e); err != nil {
				t.Error(how, err)
			}
		}
		for cut := range z.Len() {
			h.shards[handShard] = z.Bytes()[:cut]
			d, err := h.open(t, how)
			if err != nil {
				if hostile.Typed(t, err); cut > headBytes &&
					!errors.Is(err, robocache.ErrMalformed) {
					t.Errorf("%s cut at %d: %v", how, cut, err)
				}
				continue
			}
			for e := range d.Info().Episodes {
				if err := checkEpisode(t, d, e, e); err != nil {
					t.Errorf("%s cut at %d: %v", how, cut, err)
				}
			}
			d.Close()
		}
	}
	// A bomb: 64 MiB of zeros are one record of 1 GiB, or none.
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	head := binary.LittleEndian.AppendUint64(nil, 900<<20)
	head = binary.LittleEndian.AppendUint32(head, maskedCRC(head))
	w.Write(head)
	w.Write(make([]byte, 64<<20))
	w.Close()
	h := newHand()
	h.shards[handShard] = z.Bytes()
	before := hostile.Allocated()
	d, err := h.open(t, "bomb")
	if err != nil || d.Info().Episodes != 0 || !has(d, "truncated-shard") {
		t.Error(err)
	}
	if got := hostile.Allocated() - before; got > 400<<20 {
		t.Errorf("%d bytes for a bomb", got)
	}
}

// TestFaultAnywhere makes the n-th operation of the store fail, until a run succeeds. No answer is
// wrong, and every error is typed.
func TestFaultAnywhere(t *testing.T) {
	h := newHand()
	for n := int64(1); ; n++ {
		s := storetest.NewMem(fmt.Sprintf("rlds-fault-%d", n))
		h.put(s)
		plan := &storetest.Plan{Nth: n}
		err := func() error {
			d, err := OpenStore(t.Context(), storetest.Faulty(s, plan), handOptions)
			if err != nil {
				return err
			}
			defer d.Close()
			for e := range d.Info().Episodes {
				if err := checkEpisode(t, d, e, e); err != nil {
					return err
				}
			}
			if d.Info().Episodes != 3 {
				t.Errorf("operation %d: %d episodes without an error", n, d.Info().Episodes)
			}
			return nil
		}()
		s.Drop()
		if !plan.Struck() {
			if err != nil || n < 8 {
				t.Errorf("%d operations, %v", n-1, err)
			}
			return
		}
		if err == nil {
			t.Errorf("operation %d failed, and nobody said so", n)
		}
		hostile.Typed(t, err)
	}
}

// TestIndexOnce checks that opening again reads no shard.
func TestIndexOnce(t *testing.T) {
	h := newHand()
	s := storetest.NewMem("rlds-once")
	defer s.Drop()
	h.put(s)
	open := func() int64 {
		c := storetest.Counting(s)
		d, err := OpenStore(t.Context(), c, handOptions)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return c.Counts().BytesRead
	}
	first, second := open(), open()
	if meta := int64(len(h.info) + 2000); second >= first || second > meta {
		t.Errorf("%d bytes, then %d", first, second)
	}
	// Another version of the file has another index.
	s.Put(handShard, appendRecord(nil, handEpisode(7, 2)))
	d, err := OpenStore(t.Context(), s, handOptions)
	if err != nil || d.Info().Episodes != 1 {
		t.Fatal(err)
	}
	if err := checkEpisode(t, d, 0, 7); err != nil {
		t.Error(err)
	}
}

// TestCancelled checks that a canceled context is reported as such.
func TestCancelled(t *testing.T) {
	h := newHand()
	s := storetest.NewMem("rlds-cancel")
	defer s.Drop()
	h.put(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenStore(ctx, s, handOptions); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
