package mcap

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestChunksOfManyFiles checks that the open recordings of a folder share one chunk budget.
func TestChunksOfManyFiles(t *testing.T) {
	const files, size = 24, 3 << 20
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range files {
		text := make([]byte, size) // letters that do not compress
		for k := range text {
			text[k] = 'a' + byte(r.IntN(26))
		}
		cdr := append([]byte{0, 1, 0, 0}, binary.LittleEndian.AppendUint32(nil, size+1)...)
		recordIn(
			t,
			filepath.Join(dir, fmt.Sprintf("%02d.mcap", i)),
			size,
			[]msg{
				{"/word", "std_msgs/msg/String", int64(i+1) * 1e9, append(append(cdr, text...), 0)},
			},
		)
	}
	d, err := Open(t.Context(), dir, robocache.OpenOptions{MemoryBudget: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := heap()
	for e := range files {
		texts, err := d.Text(t.Context(), "word", []robocache.Row{{Episode: e}})
		if err != nil || len(texts) != 1 || len(texts[0]) != size {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 40<<20 {
		t.Errorf(
			"%d MiB are kept of %d files of %d MiB, the budget is 16 MiB",
			grown>>20,
			files,
			size>>20,
		)
	}
	runtime.KeepAlive(d)
}

// heap returns the reachable bytes. A second collection empties the pools.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
