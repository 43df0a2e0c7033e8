package mcap

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/realdata"
)

func cpu() float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// TestWindows is the arm of bench/runners/formats_mcap.py: windows of time of a file, as payloads or as columns, with what they cost.
func TestWindows(t *testing.T) {
	path := os.Getenv("ROBOCACHE_MCAP")
	if path == "" {
		t.Skip("no ROBOCACHE_MCAP: bench/runners/formats_mcap.py sets it")
	}
	ctx := context.Background()
	budget, _ := strconv.ParseInt(os.Getenv("ROBOCACHE_BUDGET"), 10, 64)
	container.Poison = false
	s := openFile(t, path, StorageOptions{Chunks: container.NewChunks(budget)})
	if os.Getenv("ROBOCACHE_MODE") == "floor" {
		floor(t, s)
		return
	}
	topics := map[string]int{}
	for i, info := range s.Topics() {
		topics[info.Name] = i
	}
	decoders := map[string]*ros2.Topic{}
	columns := os.Getenv("ROBOCACHE_MODE") == "columns"
	var out strings.Builder
	for _, line := range strings.Split(os.Getenv("ROBOCACHE_WINDOWS"), "\n") {
		var name string
		var from, to int64
		if _, err := fmt.Sscan(line, &name, &from, &to); err != nil {
			t.Fatal(err)
		}
		before := cpu()
		topic := topics[name]
		ix, err := s.Index(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		lo, hi := 0, 0
		for lo = searchTime(ix.Log, from); lo+hi < len(ix.Log) && ix.Log[lo+hi] < to; hi++ {
		}
		hi += lo
		n, crc := 0, uint32(0)
		if !columns {
			var head [8]byte
			err = s.Messages(ctx, topic, lo, hi, func(i int, m *bag.Message) error {
				binary.LittleEndian.PutUint64(head[:], uint64(m.Log))
				crc = crc32.Update(crc32.Update(crc, crc32.IEEETable, head[:]), crc32.IEEETable, m.Data)
				n++
				return nil
			})
		} else {
			dec := decoders[name]
			err = s.Messages(ctx, topic, lo, hi, func(i int, m *bag.Message) error {
				if dec == nil {
					info := s.Topics()[topic]
					schema, err := ros2.ParseSchema(info.SchemaEncoding, info.Type, info.SchemaText)
					if err != nil {
						return err
					}
					if dec, err = ros2.NewTopic(name, schema, [][]byte{m.Data}); err != nil {
						return err
					}
					decoders[name] = dec
				}
				row := make([]byte, dec.Fields()[0].Feature.RowBytes())
				_, err := dec.Numeric(m.Data, 0, 0, row)
				crc = crc32.Update(crc, crc32.IEEETable, row)
				n++
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "window: %d %d %.6f\n", n, crc, cpu()-before)
	}
	fmt.Print(out.String())
}

// floor reads and opens every chunk of a file, nothing more: what a window that finds nothing in a cache cannot do without.
func floor(t *testing.T, s *Storage) {
	var all []int32
	for i := range s.File().Chunks {
		all = append(all, int32(i))
	}
	for range 6 {
		before := cpu()
		if err := s.File().InOrder(context.Background(), all, func(int32, []byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("floor: %.9f\n", (cpu()-before)/float64(len(all)))
	}
}

func searchTime(at []int64, t int64) int {
	lo, hi := 0, len(at)
	for lo < hi {
		if m := (lo + hi) / 2; at[m] < t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// BenchmarkOpen: a recording with all it holds, settled.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap")
	for b.Loop() {
		ds, err := Open(context.Background(), path, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		ds.Close()
	}
}

// BenchmarkGather: windows of 50 rows of the joints, from decoded columns.
func BenchmarkGather(b *testing.B) {
	ctx := context.Background()
	ds, err := Open(ctx, filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap"), robocache.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer ds.Close()
	w := ds.Info().Feature("joint_states.position").RowBytes()
	rows, dst := allRows(0, 50), make([]byte, 50*w)
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for k := 0; b.Loop(); k++ {
		for i := range rows {
			rows[i].Index = (k*7)%270 + i
		}
		if err := ds.Gather(ctx, "joint_states.position", rows, dst); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan: every message of the recording, past the cache.
func BenchmarkScan(b *testing.B) {
	ctx := context.Background()
	for _, name := range []string{"recording_zstd.mcap", "recording_lz4.mcap"} {
		b.Run(name, func(b *testing.B) {
			s := openFile(b, filepath.Join(realdata.Path(b, "mcap_robot"), name), StorageOptions{Chunks: container.NewChunks(1)})
			var all []int
			for i := range s.Topics() {
				all = append(all, i)
			}
			b.SetBytes(s.Bytes())
			for b.Loop() {
				if _, err := s.Walk(ctx, all, func(int, int, *bag.Message) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWhole opens a recording and gathers all its numbers: ROBOCACHE_MCAP, or the shared one.
func BenchmarkWhole(b *testing.B) {
	path := os.Getenv("ROBOCACHE_MCAP")
	if path == "" {
		path = filepath.Join(realdata.Path(b, "mcap_robot"), "recording_zstd.mcap")
	}
	container.Poison = false
	defer func() { container.Poison = true }()
	ctx := context.Background()
	before, n := cpu(), 0
	for ; b.Loop(); n++ {
		ds, err := Open(ctx, path, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range ds.Info().Features {
			if f.RowBytes() == 0 {
				continue
			}
			t, err := ds.Times(ctx, 0, f.Key)
			if err != nil {
				b.Fatal(err)
			}
			if err := ds.Gather(ctx, f.Key, allRows(0, len(t)), make([]byte, len(t)*f.RowBytes())); err != nil {
				b.Fatal(err)
			}
		}
		ds.Close()
	}
	b.ReportMetric((cpu()-before)/float64(n)*1e3, "cpu-ms/op")
}
