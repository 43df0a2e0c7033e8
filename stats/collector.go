package stats

import (
	"context"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Collector stores rows of numeric features until their statistics are computed. Up to its budget
// they are in memory, beyond it in an unnamed temporary file.
type Collector struct {
	budget int64
	held   int64
	order  []string
	feats  map[string]*spool
}

type spool struct {
	dtype robocache.DType
	shape []int
	mem   [][]byte // blocks of whole rows
	file  *os.File
	size  int64 // number of bytes in file
}

// NewCollector returns a collector that holds up to budget bytes in memory.
func NewCollector(budget int64) *Collector {
	return &Collector{budget: budget, feats: map[string]*spool{}}
}

// memBlock is the size of a block of rows in memory. One single block would be copied whenever it
// grows.
const memBlock = 1 << 20

// Add appends rows of a feature.
func (c *Collector) Add(key string, dtype robocache.DType, shape []int, raw []byte) (err error) {
	s := c.feats[key]
	if s == nil {
		s = &spool{dtype: dtype, shape: shape}
		c.feats[key] = s
		c.order = append(c.order, key)
	}
	if k := len(s.mem) - 1; k < 0 || len(s.mem[k])+len(raw) > cap(s.mem[k]) {
		s.mem = append(s.mem, make([]byte, 0, max(len(raw), min(memBlock, 4*len(raw)))))
	}
	k := len(s.mem) - 1
	s.mem[k] = append(s.mem[k], raw...)
	c.held += int64(len(raw))
	if c.held <= c.budget {
		return nil
	}
	for _, key := range c.order {
		if err := c.feats[key].spillToFile(); err != nil {
			return err
		}
	}
	c.held = 0
	return nil
}

func (s *spool) spillToFile() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "robocache-stats-*")
		if err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		// The file has no name from here on, so nothing remains if the process is killed.
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return robocache.At(err, robocache.Where{"file": f.Name()})
		}
		s.file = f
	}
	for _, b := range s.mem {
		if _, err := s.file.WriteAt(b, s.size); err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		s.size += int64(len(b))
	}
	s.mem = nil
	return nil
}

func (s *spool) sizeBytes() int64 {
	n := s.size
	for _, b := range s.mem {
		n += int64(len(b))
	}
	return n
}

func (s *spool) eachBlock(ctx context.Context, yield func([]byte) error) (err error) {
	row := s.dtype.Size()
	for _, d := range s.shape {
		row *= d
	}
	if s.size > 0 && row > 0 {
		buf := make([]byte, max(1, (1<<20)/row)*row)
		for off := int64(0); off < s.size; {
			part := buf[:min(int64(len(buf)), s.size-off)]
			if _, err := s.file.ReadAt(part, off); err != nil && err != io.EOF {
				return robocache.At(err, robocache.Where{"file": os.TempDir()})
			}
			if err := yield(part); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			off += int64(len(part))
		}
	}
	for _, b := range s.mem {
		if err := yield(b); err != nil {
			return err
		}
	}
	return nil
}

// Stats computes the statistics of all added rows, features in parallel. nonFinite holds, for each
// feature, the number of values that were left out.
func (c *Collector) Stats(
	ctx context.Context,
) (out robocache.Stats, nonFinite map[string]int64, err error) {
	out, nonFinite = robocache.Stats{}, map[string]int64{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	workers := max(1, min(runtime.GOMAXPROCS(0), 8, len(c.order)))
	g.SetLimit(workers)
	for _, key := range c.order {
		s := c.feats[key]
		g.Go(func() (err error) {
			defer crash.Recover("statistics", &err)
			fs, left, err := numericSized(
				ctx,
				s.dtype,
				s.shape,
				s.eachBlock,
				s.sizeBytes(),
				max(c.budget/int64(workers), 1<<20),
			)
			if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if out[key] = fs; left > 0 {
				nonFinite[key] = left
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	return out, nonFinite, nil
}

// Parts sorts all added rows, feature by feature.
func (c *Collector) Parts(ctx context.Context, to *Sorter) (_ map[string][]Part, err error) {
	out := map[string][]Part{}
	for _, key := range c.order {
		s := c.feats[key]
		parts, err := to.Parts(ctx, s.dtype, s.shape, s.eachBlock, s.sizeBytes(), c.budget)
		if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
			return nil, err
		}
		out[key] = parts
	}
	return out, nil
}

// Close discards the rows.
func (c *Collector) Close() {
	for _, s := range c.feats {
		if s.file != nil {
			s.file.Close()
		}
	}
	c.feats, c.order, c.held = map[string]*spool{}, nil, 0
}
