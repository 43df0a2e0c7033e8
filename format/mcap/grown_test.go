package mcap_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
)

// TestTextsThatGrow checks that the memory for first messages and tasks is bounded if 2 KB of a
// file expand to 63 MiB.
func TestTextsThatGrow(t *testing.T) {
	le := binary.LittleEndian
	rec := func(op byte, content []byte) []byte {
		return append(append([]byte{op}, le.AppendUint64(nil, uint64(len(content)))...), content...)
	}
	str := func(b []byte, s string) []byte {
		return append(le.AppendUint32(b, uint32(len(s))), s...)
	}
	rle := func(head []byte, n int, tail []byte) []byte {
		var b bytes.Buffer
		b.Write([]byte{0x28, 0xB5, 0x2F, 0xFD, 0x00 | 2<<6, 0x70})
		b.Write(le.AppendUint32(nil, uint32(len(head)+n+len(tail))))
		put := func(last, kind, size int) {
			h := last | kind<<1 | size<<3
			b.Write([]byte{byte(h), byte(h >> 8), byte(h >> 16)})
		}
		put(0, 0, len(head))
		b.Write(head)
		for n > 0 {
			k := min(n, 128<<10)
			put(0, 1, k)
			b.WriteByte('a')
			n -= k
		}
		put(1, 0, len(tail))
		b.Write(tail)
		return b.Bytes()
	}
	file := []byte("\x89MCAP0\r\n")
	file = append(file, rec(1, make([]byte, 8))...)
	s := le.AppendUint16(nil, 1)
	s = str(str(str(s, "std_msgs/msg/String"), "ros2msg"), "string data\n")
	file = append(file, rec(3, s)...)
	c := le.AppendUint16(le.AppendUint16(nil, 1), 1)
	c = str(str(c, "/task"), "cdr")
	c = le.AppendUint32(c, 0)
	file = append(file, rec(4, c)...)
	const N = 12
	for i := range N {
		fill := 63 << 20
		m := le.AppendUint16(nil, 1)
		m = le.AppendUint32(m, uint32(i))
		m = le.AppendUint64(m, uint64(1+i)*1e9)
		m = le.AppendUint64(m, uint64(1+i)*1e9)
		m = append(m, 0, 1, 0, 0)
		m = le.AppendUint32(m, uint32(fill+2))
		m = append(m, byte('b'+i))
		head := append([]byte{5}, le.AppendUint64(nil, uint64(len(m)+fill+1))...)
		head = append(head, m...)
		body := rle(head, fill, []byte{0})
		k := make([]byte, 16)
		k = le.AppendUint64(k, uint64(len(head)+fill+1))
		k = le.AppendUint32(k, 0)
		k = str(k, "zstd")
		k = le.AppendUint64(k, uint64(len(body)))
		k = append(k, body...)
		file = append(file, rec(6, k)...)
	}
	p := filepath.Join(t.TempDir(), "x.mcap")
	if err := os.WriteFile(p, file, 0o600); err != nil {
		t.Fatal(err)
	}
	ds, err := mcap.Open(t.Context(), p, robocache.OpenOptions{MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	runtime.GC()
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	if ms.HeapAlloc > 400<<20 {
		t.Errorf(
			"%d MiB are held of a file of %d bytes, the budget is 64 MiB",
			ms.HeapAlloc>>20,
			len(file),
		)
	}
	runtime.KeepAlive(ds)
}
