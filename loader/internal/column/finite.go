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

// FiniteRows finds rows of float streams that hold a NaN or infinite number. It reads each stream
// of an episode once, when the first of its samples is built; after that a sample costs one lookup.
// Ragged rows and depth are exempt, because there such numbers mean that nothing was measured. Safe
// for concurrent use.
type FiniteRows struct {
	dataset robocache.Dataset
	Streams map[string]*streamRows
}

// streamRows caches the results for one stream.
type streamRows struct {
	feature *robocache.Feature
	State   []atomic.Uint32 // per episode: scanUnknown, ScanFinite or scanBad
	locks   [16]sync.Mutex  // serialize scans of one episode
	mu      sync.Mutex
	badRows map[int][]int // bad rows of each episode, ascending; guarded by mu
}

// States of an episode in streamRows.
const (
	scanUnknown = iota
	ScanFinite
	scanBad
)

// scanBytes is the number of bytes of a stream that are read at a time.
const scanBytes = 1 << 20

// NewFiniteRows returns a FiniteRows for all dense float streams of ds. It reads nothing.
func NewFiniteRows(ds robocache.Dataset) *FiniteRows {
	f := &FiniteRows{dataset: ds, Streams: map[string]*streamRows{}}
	info := ds.Info()
	for i := range info.Features {
		x := &info.Features[i]
		if x.Kind == robocache.KindNumeric && !x.Ragged() && x.DType.Float() && x.RowBytes() > 0 {
			f.Streams[x.Key] = &streamRows{
				feature: x,
				State:   make([]atomic.Uint32, info.Episodes),
				badRows: map[int][]int{},
			}
		}
	}
	return f
}

// BadRows returns the rows of an episode that hold a NaN or infinite number, ascending. It ignores
// rows that cannot be read: the error is reported when they are delivered.
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
			bad, err := f.scanEpisode(ctx, s, episode)
			if err != nil {
				return nil, err
			}
			if len(bad) == 0 {
				s.State[episode].Store(ScanFinite)
				return nil, nil
			}
			s.mu.Lock()
			s.badRows[episode] = bad
			s.mu.Unlock()
			s.State[episode].Store(scanBad)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.badRows[episode], nil
}

// scanEpisode reads a stream of an episode and returns its bad rows.
func (f *FiniteRows) scanEpisode(
	ctx context.Context,
	s *streamRows,
	episode int,
) (bad []int, err error) {
	n, err := robocache.RowsIn(ctx, f.dataset, episode, s.feature)
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
		rows := robocache.RowsOf(episode, at, m)
		err := gatherRows(ctx, f.dataset, s.feature.Key, rows, values[:m*size])
		if robocache.Bad(err) {
			continue // the other rows are still checked
		}
		if err != nil {
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

// exponentBits returns the exponent bits of a float type, which are all set in NaN and infinity,
// and the lowest exponent bit. Both are repeated over 64 bits.
func exponentBits(d robocache.DType) (mask, lowest uint64) {
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

// allFinite reports whether no number is NaN or infinite.
func allFinite(values []byte, d robocache.DType) bool {
	mask, lowest := exponentBits(d)
	var carried uint64 // adding the lowest bit to an exponent of all ones carries into the sign bit
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

// signShift returns the distance of the sign bit from the lowest exponent bit.
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

// checkFinite reports whether all numbers of a stream are finite in the episodes of a part. Episodes
// with NaN or infinite numbers are recorded as bad.
func (w *Reader) checkFinite(p *Part, c *Column) bool {
	f := p.Source.FiniteRows
	if f == nil || f.Streams[c.StreamKey()] == nil || !p.Source.RefuseNaN {
		return true
	}
	state := f.Streams[c.StreamKey()].State
	finite := true
	last := int32(-1)
	for _, place := range p.tablePositions {
		if place == last {
			continue
		}
		last = place
		episode := p.Source.Table.Episode(int(place))
		if state[episode].Load() == ScanFinite {
			continue
		}
		bad, err := f.BadRows(w.Ctx(), c.StreamKey(), episode)
		switch {
		case err != nil:
			p.Build.Fail(err)
			return false
		case len(bad) > 0:
			finite = false
			first := robocache.Row{Episode: episode, Index: bad[0]}
			p.recordBadEpisode(episode, p.Source.nonFiniteError(w.Ctx(), c, first, len(bad)))
		}
	}
	return finite
}

// nonFiniteError returns the error of an episode with a number of bad rows. r is the first of them.
func (src *DataSource) nonFiniteError(
	ctx context.Context,
	c *Column,
	r robocache.Row,
	rows int,
) error {
	what, column := "a number that is not finite", 0
	values := make([]byte, c.Feature.RowBytes())
	if gatherRows(ctx, src.Dataset, c.StreamKey(), []robocache.Row{r}, values) == nil {
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
		WithHint("%s skips such episodes, %s pads such rows, %s trains on them; %s lists them",
			robocache.Option("on_bad_episode", "skip"),
			robocache.Option("on_nan", "mask"),
			robocache.Option("on_nan", "allow"),
			robocache.Command("doctor %s", src.redactedURI()))
}

// numberText formats a NaN or infinite number.
func numberText(b []byte, d robocache.DType) string {
	var v float64
	switch d {
	case robocache.Float64:
		v = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case robocache.Float32:
		v = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	default: // float16 or bfloat16
		bits := binary.LittleEndian.Uint16(b)
		exponent, _ := exponentBits(d)
		const sign = 1 << 15
		fraction := bits &^ sign &^ uint16(exponent)
		switch {
		case fraction != 0:
			v = math.NaN()
		case bits&sign != 0:
			v = math.Inf(-1)
		default:
			v = math.Inf(1)
		}
	}
	return fmt.Sprint(v)
}
