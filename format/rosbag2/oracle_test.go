package rosbag2

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

type bagOracle map[string]struct {
	Messages int64
	Topics   map[string]struct {
		Type, Encoding string
		Count          int64
		Payload        string `json:"payload_sha256_u32len"`
		Times          string `json:"log_times_sha256_u64le"`
	}
}

func readOracle(t *testing.T, path string) (o bagOracle) {
	t.Helper()
	text, err := os.ReadFile(realdata.Path(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func openOne(t *testing.T, dir, file string) bag.Storage {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(s) })
	r := recording{name: file, files: []string{file}}
	st, err := r.openStorage(t.Context(), s, openOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// TestOracle compares every message and time of the real db3 files, through Messages and Scan
// (rosbag2.B4).
func TestOracle(t *testing.T) {
	files := 0
	for _, set := range []string{"rosbag2", "mcap_robot"} {
		base := realdata.Path(t, set)
		for name, o := range readOracle(t, set+"/oracle/bags.json") {
			if !strings.HasSuffix(name, ".db3") {
				continue
			}
			files++
			st := openOne(t, filepath.Join(base, filepath.Dir(name)), filepath.Base(name))
			var n int64
			for k, info := range st.Topics() {
				n += info.Messages
				w, ok := o.Topics[info.Name]
				if !ok {
					if info.Messages > 0 {
						t.Errorf("%s: topic %s is not in the oracle", name, info.Name)
					}
					continue
				}
				if w.Count != info.Messages || w.Type != info.Type || w.Encoding != info.Encoding {
					t.Errorf("%s: %s: %+v, not %+v", name, info.Name, info, w)
				}
				ix, err := st.Index(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				payload, times := sha256.New(), sha256.New()
				add := func(h hash.Hash, v any) { _ = binary.Write(h, binary.LittleEndian, v) }
				err = st.Messages(
					t.Context(),
					k,
					0,
					int(info.Messages),
					func(i int, m *bag.Message) error {
						if ix.Log[i] != m.Log || m.Publish != m.Log {
							t.Errorf("%s: message %d at %d, not %d", info.Name, i, m.Log, ix.Log[i])
						}
						add(times, m.Log)
						add(payload, uint32(len(m.Data)))
						payload.Write(m.Data)
						return nil
					},
				)
				if err != nil {
					t.Fatal(err)
				}
				if got := hex.EncodeToString(payload.Sum(nil)); got != w.Payload {
					t.Errorf("%s: %s: payloads differ", name, info.Name)
				}
				if got := hex.EncodeToString(times.Sum(nil)); got != w.Times {
					t.Errorf("%s: %s: times differ", name, info.Name)
				}
			}
			if n != o.Messages {
				t.Errorf("%s: %d messages, not %d", name, n, o.Messages)
			}
			scanned(t, st)
		}
	}
	if files < 14 {
		t.Errorf("only %d files", files)
	}
}

// scanned compares Walk with Messages.
func scanned(t *testing.T, st bag.Storage) {
	t.Helper()
	var topics []int
	sums := map[[2]int]string{}
	for k, info := range st.Topics() {
		topics = append(topics, k)
		err := st.Messages(
			t.Context(),
			k,
			0,
			int(info.Messages),
			func(i int, m *bag.Message) error {
				sums[[2]int{k, i}] = string(m.Data)
				return nil
			},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	failed, err := st.Walk(t.Context(), topics, func(topic, i int, m *bag.Message) error {
		at := [2]int{topic, i}
		if want, ok := sums[at]; !ok || want != string(m.Data) {
			t.Errorf("message %v differs in Walk", at)
		}
		delete(sums, at)
		return nil
	})
	if err != nil || len(failed) > 0 || len(sums) > 0 {
		t.Errorf("Walk left out %d: %v, %v", len(sums), failed, err)
	}
}
