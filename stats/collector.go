package stats

import (
	"context"
	"io"
	"os"

	"github.com/goatnote-inc/robocache"
)

// Collector keeps the rows of numeric features as they pass by, until the statistics of all of them are asked for.
// Up to its budget they lie in memory; above it, in an unnamed temporary file.
type Collector struct {
	budget int64
	held   int64
	order  []string
	feats  map[string]*spool
}

type spool struct {
	dtype robocache.DType
	shape []int
	mem   []byte
	file  *os.File
	size  int64 // bytes in file
}

// NewCollector makes a collector that holds up to budget bytes in memory.
func NewCollector(budget int64) *Collector {
	return &Collector{budget: budget, feats: map[string]*spool{}}
}

// Add takes rows of a feature.
func (c *Collector) Add(key string, dtype robocache.DType, shape []int, raw []byte) error {
	s := c.feats[key]
	if s == nil {
		s = &spool{dtype: dtype, shape: shape}
		c.feats[key] = s
		c.order = append(c.order, key)
	}
	s.mem = append(s.mem, raw...)
	c.held += int64(len(raw))
	if c.held <= c.budget {
		return nil
	}
	for _, key := range c.order {
		if err := c.feats[key].spill(); err != nil {
			return err
		}
	}
	c.held = 0
	return nil
}

func (s *spool) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp("", "robocache-stats-*")
		if err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		// Unnamed from here on: nothing is left behind by a kill.
		if err := os.Remove(f.Name()); err != nil {
			f.Close()
			return robocache.At(err, robocache.Where{"file": f.Name()})
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(s.mem, s.size); err != nil {
		return robocache.At(err, robocache.Where{"file": os.TempDir()})
	}
	s.size += int64(len(s.mem))
	s.mem = nil
	return nil
}

func (s *spool) rows(ctx context.Context, yield func([]byte) error) error {
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
	if len(s.mem) > 0 {
		return yield(s.mem)
	}
	return nil
}

// Stats computes the statistics of everything added. nonFinite says, by feature, how many values took no part.
func (c *Collector) Stats(ctx context.Context) (out robocache.Stats, nonFinite map[string]int64, err error) {
	out, nonFinite = robocache.Stats{}, map[string]int64{}
	for _, key := range c.order {
		s := c.feats[key]
		fs, left, err := Numeric(ctx, s.dtype, s.shape, s.rows, max(c.budget, 1<<20))
		if err != nil {
			return nil, nil, robocache.At(err, robocache.Where{"stream": key})
		}
		out[key] = fs
		if left > 0 {
			nonFinite[key] = left
		}
	}
	return out, nonFinite, nil
}

// Close forgets the rows.
func (c *Collector) Close() {
	for _, s := range c.feats {
		if s.file != nil {
			s.file.Close()
		}
	}
	c.feats, c.order, c.held = map[string]*spool{}, nil, 0
}
