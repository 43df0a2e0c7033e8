package column

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// FiniteRows finds rows of float streams with a number that is NaN or infinite. It reads each stream of an episode
// once, when the first of its samples is made, so that a batch costs one look-up a sample. Safe for concurrent use.
// Rows of varying length and depth are exempt: there such numbers mean that nothing was measured.
type FiniteRows struct {
	ds      robocache.Dataset
	Streams map[string]*streamRows
}

// streamRows caches the check of one stream.
type streamRows struct {
	feature *robocache.Feature
	State   []atomic.Uint32 // by episode: scanUnknown …
	locks   [16]sync.Mutex  // of scans, by episode
	mu      sync.Mutex
	bad     map[int][]int // by episode: its bad rows, ascending
}

const (
	scanUnknown = iota
	ScanFinite
	scanBad
)

// scanBytes is how much of a stream is read at a time.
const scanBytes = 1 << 20

func NewFiniteRows(ds robocache.Dataset) *FiniteRows {
	f := &FiniteRows{ds: ds, Streams: map[string]*streamRows{}}
	info := ds.Info()
	for i := range info.Features {
		if x := &info.Features[i]; x.Kind == robocache.KindNumeric && !x.Ragged() && x.DType.Float() && x.RowBytes() > 0 {
			f.Streams[x.Key] = &streamRows{feature: x, State: make([]atomic.Uint32, info.Episodes), bad: map[int][]int{}}
		}
	}
	return f
}

// BadRows returns the rows of an episode that hold a number that is not finite, ascending.
// An episode that cannot be read has none: the error is reported when the row is delivered.
func (f *FiniteRows) BadRows(ctx context.Context, key string, episode int) ([]int, error) {
	s := f.Streams[key]
	if s == nil {
		return nil, nil
	}
	switch s.State[episode].Load() {
	case ScanFinite:
		return nil, nil
	case scanUnknown:
		lock := &s.locks[episode%len(s.locks)]
		lock.Lock()
		defer lock.Unlock()
		if s.State[episode].Load() == scanUnknown {
			bad, err := f.scan(ctx, s, episode)
			if err != nil {
				return nil, err
			}
			if len(bad) == 0 {
				s.State[episode].Store(ScanFinite)
				return nil, nil
			}
			s.mu.Lock()
			s.bad[episode] = bad
			s.mu.Unlock()
			s.State[episode].Store(scanBad)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[episode], nil
}

func (f *FiniteRows) scan(ctx context.Context, s *streamRows, episode int) (bad []int, err error) {
	n, err := robocache.RowsIn(ctx, f.ds, episode, s.feature)
	if robocache.Bad(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	size := s.feature.RowBytes()
	step := min(max(scanBytes/size, 1), n)
	values := make([]byte, step*size)
	for at := 0; at < n; at += step {
		m := min(step, n-at)
		if err := gatherRows(ctx, f.ds, s.feature.Key, robocache.RowsOf(episode, at, m), values[:m*size]); robocache.Bad(err) {
			continue // the other rows are still checked
		} else if err != nil {
			return nil, err
		}
		if allFinite(values[:m*size], s.feature.DType) {
			continue
		}
		for i := range m {
			if !allFinite(values[i*size:(i+1)*size], s.feature.DType) {
				bad = append(bad, at+i)
			}
		}
	}
	return bad, nil
}

// exponents are the bits of a float type that are all set in a number that is not finite, and the lowest of them,
// repeated over 64 bits.
func exponents(d robocache.DType) (mask, lowest uint64) {
	switch d {
	case robocache.Float64:
		return 0x7ff0 << 48, 0x0010 << 48
	case robocache.Float32:
		return 0x7f800000_7f800000, 0x00800000_00800000
	case robocache.Float16:
		return 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400
	default: // bfloat16
		return 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080
	}
}

// allFinite reports whether no number of a float type is NaN or infinite.
func allFinite(values []byte, d robocache.DType) bool {
	mask, lowest := exponents(d)
	var carried uint64 // an exponent of all ones carries into the bit of the sign
	for len(values) >= 8 {
		carried |= (binary.LittleEndian.Uint64(values)&mask + lowest) &^ mask
		values = values[8:]
	}
	if len(values) > 0 {
		var rest [8]byte
		copy(rest[:], values)
		carried |= (binary.LittleEndian.Uint64(rest[:])&mask + lowest) &^ mask
	}
	return carried&(lowest<<signShift(d)) == 0
}

// signShift is how many bits the sign lies above the lowest bit of the exponent.
func signShift(d robocache.DType) int {
	switch d {
	case robocache.Float64:
		return 11
	case robocache.Float16:
		return 5
	default:
		return 8
	}
}

// checkFinite blames the episodes of a part whose stream holds a number that is not finite; false if there are any.
func (w *Reader) checkFinite(p *Part, c *Column) bool {
	f := p.Source.FiniteRows
	if f == nil || f.Streams[c.Key] == nil || !p.Source.RefuseNaN {
		return true
	}
	state := f.Streams[c.Key].State
	finite := true
	last := int32(-1)
	for _, place := range p.places {
		if place == last {
			continue
		}
		last = place
		episode := p.Source.Table.Episode(int(place))
		if state[episode].Load() == ScanFinite {
			continue
		}
		bad, err := f.BadRows(w.Ctx(), c.Key, episode)
		switch {
		case err != nil:
			p.Build.Fail(err)
			return false
		case len(bad) > 0:
			finite = false
			p.blame(episode, p.Source.notFinite(w.Ctx(), c, robocache.Row{Episode: episode, Index: bad[0]}, len(bad)))
		}
	}
	return finite
}

// notFinite is the error of an episode with bad rows, of which r is the first.
func (src *DataSource) notFinite(ctx context.Context, c *Column, r robocache.Row, rows int) error {
	what, column := "a number that is not finite", 0
	values := make([]byte, c.Feature.RowBytes())
	if gatherRows(ctx, src.Dataset, c.Key, []robocache.Row{r}, values) == nil {
		size := c.StoredDType.Size()
		for i := range c.Elements {
			if one := values[i*size : (i+1)*size]; !allFinite(one, c.StoredDType) {
				what, column = numberText(one, c.StoredDType), i
				break
			}
		}
	}
	where := src.Where(c, r)
	where["column"] = column
	msg := fmt.Sprintf("the number of column %d is %s", column, what)
	if rows > 1 {
		msg += fmt.Sprintf(", the first of %d such rows of the episode", rows)
	}
	return robocache.Malformed("loader", where, "%s", msg).
		WithHint("%s leaves such episodes out, %s pads such rows, %s trains on them; %s lists them",
			robocache.Option("on_bad_episode", "skip"), robocache.Option("on_nan", "mask"), robocache.Option("on_nan", "allow"), robocache.Command("doctor %s", src.uri()))
}

// numberText names a number that is not finite.
func numberText(b []byte, d robocache.DType) string {
	var v float64
	switch d {
	case robocache.Float64:
		v = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case robocache.Float32:
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	default:
		bits := binary.LittleEndian.Uint16(b)
		mask, _ := exponents(d)
		if bits&^uint16(mask)&0x7fff != 0 {
			return "NaN"
		}
		v = math.Inf(1 - 2*int(bits>>15))
	}
	return fmt.Sprint(v)
}
