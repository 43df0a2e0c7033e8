package rlds

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// oracle is the result of an independent reader (protobuf's own) for a split.
type oracle struct {
	Records  int
	Offsets  []int64
	Lengths  []int64
	Episodes []map[string]struct {
		Kind   string
		Shape  []int
		DType  string
		Sum    float64
		Count  int
		SHA256 string `json:"sha256"`
		Texts  string `json:"sha256_u32len"`
		First  any
	}
}

func readOracle(t testing.TB, split string) oracle {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(realdata.Path(t, "bridge_rlds"), "oracle", split+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var o oracle
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func mustOpen(t testing.TB, uri string, opt robocache.OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), uri, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func rowsOf(d *Dataset, episode int) []robocache.Row {
	rows := make([]robocache.Row, d.Len(episode))
	for i := range rows {
		rows[i] = robocache.Row{Episode: episode, Index: i}
	}
	return rows
}

// TestBridgeEqualsOracle compares every value of a real dataset bit by bit.
func TestBridgeEqualsOracle(t *testing.T) {
	root := realdata.Path(t, "bridge_rlds")
	for _, split := range []string{"train", "val"} {
		o := readOracle(t, split)
		d := mustOpen(t, root, robocache.OpenOptions{Options: map[string]string{"split": split}})
		info := d.Info()
		if info.Episodes != 25 || info.Frames != 250 || info.FPS.String() != "5" ||
			info.Version != "1.0.0" ||
			len(info.Findings) != 0 {
			t.Fatalf("%+v", info)
		}
		x := d.index[0]
		for e, want := range o.Episodes {
			if x.offset[e] != o.Offsets[e] || x.length[e] != o.Lengths[e] {
				t.Errorf("record %d at %d, %d bytes", e, x.offset[e], x.length[e])
			}
			rows := rowsOf(d, e)
			for name, w := range want {
				key := strings.ReplaceAll(strings.TrimPrefix(name, "steps/"), "/", ".")
				use := rows
				if !strings.HasPrefix(name, "steps/") {
					use = rows[:1]
				}
				f := info.Feature(key)
				if f == nil {
					t.Fatalf("no stream %s", key)
				}
				if got := sum(t, d, f, use); got != w.SHA256+w.Texts {
					t.Errorf(
						"%s episode %d %s: %s, expected %s%s",
						split,
						e,
						name,
						got,
						w.SHA256,
						w.Texts,
					)
				}
			}
			ep, err := d.Episode(t.Context(), e)
			text, _ := want["steps/language_instruction"].First.(string)
			if err != nil || ep.Length != 10 || ep.Index != int64(e) ||
				text != "" && (len(ep.Tasks) != 1 || ep.Tasks[0] != text) {
				t.Errorf("%+v %v", ep, err)
			}
		}
	}
}

// sum returns the oracle's check sum of a stream: of numbers as they are stored (int64, float32),
// and of strings with their lengths.
func sum(t *testing.T, d *Dataset, f *robocache.Feature, rows []robocache.Row) string {
	t.Helper()
	h := sha256.New()
	u32 := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	switch f.Kind {
	case robocache.KindText:
		texts, err := d.Text(t.Context(), f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range texts {
			u32([]byte(s))
		}
	case robocache.KindImage:
		refs := make([]robocache.FrameRef, len(rows))
		if err := d.Frames(t.Context(), f.Key, rows, refs); err != nil {
			t.Fatal(err)
		}
		for _, r := range refs {
			u32(r.Encoded)
		}
	default:
		b := make([]byte, len(rows)*f.RowBytes())
		if err := d.Gather(t.Context(), f.Key, rows, b); err != nil {
			t.Fatal(err)
		}
		if !f.DType.Float() {
			var wide []byte
			for _, v := range robocache.Float64s(nil, f.DType, b) {
				wide = binary.LittleEndian.AppendUint64(wide, uint64(int64(v)))
			}
			b = wide
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestBridgeRandomRows checks that rows of many episodes in any order equal those of one episode at
// a time, and that all splits are opened by default.
func TestBridgeRandomRows(t *testing.T) {
	root := realdata.Path(t, "bridge_rlds")
	d := mustOpen(
		t,
		filepath.Join(root, "bridge_dataset", "1.0.0"),
		robocache.OpenOptions{MemoryBudget: smallestBudget},
	)
	if d.Info().Episodes != 50 || d.Info().Splits["train"] != "0:25" ||
		d.Info().Splits["val"] != "25:50" {
		t.Fatalf("%+v", d.Info())
	}
	var rows []robocache.Row
	for i := range 300 {
		rows = append(rows, robocache.Row{Episode: i * 37 % 50, Index: i * 7 % 10})
	}
	state := make([]byte, len(rows)*28)
	refs := make([]robocache.FrameRef, len(rows))
	if err := d.Gather(t.Context(), "observation.state", rows, state); err != nil {
		t.Fatal(err)
	}
	if err := d.Frames(t.Context(), "observation.image_0", rows, refs); err != nil {
		t.Fatal(err)
	}
	texts, err := d.Text(t.Context(), "task", rows)
	if err != nil {
		t.Fatal(err)
	}
	one, ref := make([]byte, 28), make([]robocache.FrameRef, 1)
	for i := range rows {
		if err := d.Gather(t.Context(), "observation.state", rows[i:i+1], one); err != nil {
			t.Fatal(err)
		}
		if err := d.Frames(t.Context(), "observation.image_0", rows[i:i+1], ref); err != nil {
			t.Fatal(err)
		}
		ep, _ := d.Episode(t.Context(), rows[i].Episode)
		if !bytes.Equal(one, state[i*28:][:28]) || !bytes.Equal(ref[0].Encoded, refs[i].Encoded) ||
			len(ep.Tasks) > 0 && ep.Tasks[0] != texts[i] {
			t.Fatal("row", i, "differs")
		}
	}
	if s := d.CacheStats(); s.Bytes > s.Budget || s.Evictions == 0 {
		t.Errorf("%+v", s)
	}
	times, err := d.Times(t.Context(), 3, "action")
	if err != nil || len(times) != 10 || times[9] != 1_800_000_000 {
		t.Errorf("%v %v", times, err)
	}
	if math.Abs(d.Info().FPS.Float()-5) > 0 {
		t.Error(d.Info().FPS)
	}
}
