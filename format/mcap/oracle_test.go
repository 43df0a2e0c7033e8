package mcap

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// bagOracle is the content of a recording according to an independent reader.
type bagOracle struct {
	Messages int64 `json:"messages"`
	Topics   map[string]struct {
		Type     string `json:"type"`
		Encoding string `json:"encoding"`
		Count    int    `json:"count"`
		Payload  string `json:"payload_sha256_u32len"`
		Times    string `json:"log_times_sha256_u64le"`
	} `json:"topics"`
}

func openFile(t testing.TB, path string, opt StorageOptions) *Storage {
	t.Helper()
	st, err := store.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Open(context.Background(), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStorage(context.Background(), r, filepath.Base(path), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); store.Close(st) })
	return s
}

// digest returns the digests of the oracle: payloads with their lengths, and log times, in the
// order of log times.
func digest(t testing.TB, s bag.Storage, topic int) (n int, payload, times string) {
	t.Helper()
	ctx := context.Background()
	ix, err := s.Index(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	hp, ht := sha256.New(), sha256.New()
	err = s.Messages(ctx, topic, 0, len(ix.Log), func(i int, m *bag.Message) error {
		if m.Log != ix.Log[i] {
			t.Errorf("message %d: log time %d, index %d", i, m.Log, ix.Log[i])
		}
		hp.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(m.Data))))
		hp.Write(m.Data)
		ht.Write(binary.LittleEndian.AppendUint64(nil, uint64(m.Log)))
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, hex.EncodeToString(hp.Sum(nil)), hex.EncodeToString(ht.Sum(nil))
}

// TestOracle compares every MCAP file of the real recordings, message by message, with the results
// of an independent reader. It reads with the summary and by scanning.
func TestOracle(t *testing.T) {
	for _, set := range []string{"mcap_robot", "rosbag2"} {
		root := realdata.Path(t, set)
		b, err := os.ReadFile(filepath.Join(root, "oracle", "bags.json"))
		if err != nil {
			t.Fatal(err)
		}
		var files map[string]bagOracle
		if err := json.Unmarshal(b, &files); err != nil {
			t.Fatal(err)
		}
		for name, want := range files {
			if !strings.HasSuffix(name, ".mcap") {
				continue
			}
			for _, scan := range []bool{false, true} {
				s := openFile(t, filepath.Join(root, name), StorageOptions{Scan: scan})
				var total int64
				if len(s.Topics()) < len(want.Topics) {
					t.Errorf("%s: %d topics of %d", name, len(s.Topics()), len(want.Topics))
				}
				for i, info := range s.Topics() {
					w := want.Topics[info.Name]
					n, payload, times := digest(t, s, i)
					total += int64(n)
					if n == 0 && w.Count == 0 {
						continue // a channel without messages
					}
					if n != w.Count || payload != w.Payload || times != w.Times ||
						info.Type != w.Type ||
						info.Encoding != w.Encoding ||
						info.Messages != int64(n) {
						t.Errorf(
							"%s scan=%v %s: %d messages of %d, %+v",
							name,
							scan,
							info.Name,
							n,
							w.Count,
							info,
						)
					}
				}
				if total != want.Messages {
					t.Errorf("%s scan=%v: %d messages of %d", name, scan, total, want.Messages)
				}
				if fs := s.Findings(); !scan && len(fs) > 0 {
					t.Logf("%s: %+v", name, fs)
				}
			}
		}
	}
}
