package rlds

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// bridgeRecords returns the framed records of the real dataset and its schema.
func bridgeRecords(b *testing.B) (*schema, [][]byte, int64) {
	b.Helper()
	dir := filepath.Join(realdata.Path(b, "bridge_rlds"), "bridge_dataset", "1.0.0")
	text, err := os.ReadFile(filepath.Join(dir, featuresName))
	if err != nil {
		b.Fatal(err)
	}
	s, err := parseFeatures(text)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "bridge_dataset-train.tfrecord-00000-of-00001"))
	if err != nil {
		b.Fatal(err)
	}
	var out [][]byte
	for p := 0; p < len(file); {
		n, ok := recordLength(file[p:])
		if !ok {
			b.Fatal("bad length")
		}
		end := p + headBytes + int(n) + tailBytes
		out = append(out, file[p:end])
		p = end
	}
	return s, out, int64(len(file))
}

// perCore reports bytes per CPU second, which depends less on the load of the machine than the wall
// time.
func perCore(b *testing.B, size int64, run func()) {
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	b.SetBytes(size)
	n, from := 0, cpu()
	for b.Loop() {
		run()
		n++
	}
	b.ReportMetric(float64(size)*float64(n)/1e9/(cpu()-from), "GB/cpu-s")
}

// BenchmarkParse measures check sums, the example, and all counts. The goal is 2 GB/s per core.
func BenchmarkParse(b *testing.B) {
	s, records, size := bridgeRecords(b)
	b.ReportAllocs()
	perCore(b, size, func() {
		for _, r := range records {
			if _, err := s.parseRecord(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkParseAlone is BenchmarkParse without the check sums.
func BenchmarkParseAlone(b *testing.B) {
	s, records, size := bridgeRecords(b)
	perCore(b, size, func() {
		for _, r := range records {
			if _, err := s.parseData(r[headBytes : len(r)-tailBytes]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkUnfold measures parsing, and converting the values of every numeric stream to rows.
func BenchmarkUnfold(b *testing.B) {
	s, records, size := bridgeRecords(b)
	perCore(b, size, func() {
		for _, r := range records {
			rec, err := s.parseRecord(r)
			if err != nil {
				b.Fatal(err)
			}
			for i := range s.leaves {
				if s.leaves[i].coding == plain {
					if _, err := s.column(rec, i, func(int64) {}); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
}

// BenchmarkOpen measures index and metadata of the real dataset, without a cache.
func BenchmarkOpen(b *testing.B) {
	dir := realdata.Path(b, "bridge_rlds")
	for b.Loop() {
		indexes.Clear()
		d, err := Open(b.Context(), dir, robocache.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		d.Close()
	}
}
