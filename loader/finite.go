package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
)

// OnNaN selects the treatment of numbers that are NaN or infinite.
type OnNaN string

const (
	NaNError OnNaN = "error" // the episode is bad; default
	NaNMask  OnNaN = "mask"  // its row is a masked row of zeros
	NaNAllow OnNaN = "allow" // it is delivered; default with Compat LeRobot
)

// finiteRows finds rows of float streams with a number that is NaN or infinite. It reads each stream of an episode
// once, when the first of its samples is made, so that a batch costs one look-up a sample. Safe for concurrent use.
// Rows of varying length and depth are exempt: there such numbers mean that nothing was measured.
type finiteRows struct {
	ds      robocache.Dataset
	streams map[string]*streamRows
}

// streamRows caches the check of one stream.
type streamRows struct {
	feature *robocache.Feature
	state   []atomic.Uint32 // by episode: scanUnknown …
	locks   [16]sync.Mutex  // of scans, by episode
	mu      sync.Mutex
	bad     map[int][]int // by episode: its bad rows, ascending
}

const (
	scanUnknown = iota
	scanFinite
	scanBad
)

// scanBytes is how much of a stream is read at a time.
const scanBytes = 1 << 20

func newFiniteRows(ds robocache.Dataset) *finiteRows {
	f := &finiteRows{ds: ds, streams: map[string]*streamRows{}}
	info := ds.Info()
	for i := range info.Features {
		if x := &info.Features[i]; x.Kind == robocache.KindNumeric && !x.Ragged() && x.DType.Float() && x.RowBytes() > 0 {
			f.streams[x.Key] = &streamRows{feature: x, state: make([]atomic.Uint32, info.Episodes), bad: map[int][]int{}}
		}
	}
	return f
}

// badRows returns the rows of an episode that hold a number that is not finite, ascending.
// An episode that cannot be read has none: the error is reported when the row is delivered.
func (f *finiteRows) badRows(ctx context.Context, key string, episode int) ([]int, error) {
	s := f.streams[key]
	if s == nil {
		return nil, nil
	}
	switch s.state[episode].Load() {
	case scanFinite:
		return nil, nil
	case scanUnknown:
		lock := &s.locks[episode%len(s.locks)]
		lock.Lock()
		defer lock.Unlock()
		if s.state[episode].Load() == scanUnknown {
			bad, err := f.scan(ctx, s, episode)
			if err != nil {
				return nil, err
			}
			if len(bad) == 0 {
				s.state[episode].Store(scanFinite)
				return nil, nil
			}
			s.mu.Lock()
			s.bad[episode] = bad
			s.mu.Unlock()
			s.state[episode].Store(scanBad)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[episode], nil
}

func (f *finiteRows) scan(ctx context.Context, s *streamRows, episode int) (bad []int, err error) {
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
func (w *reader) checkFinite(p *part, c *column) bool {
	f := p.src.finite
	if f == nil || f.streams[c.key] == nil || !p.src.refuseNaN {
		return true
	}
	state := f.streams[c.key].state
	finite := true
	last := int32(-1)
	for _, place := range p.places {
		if place == last {
			continue
		}
		last = place
		episode := p.src.table.Episode(int(place))
		if state[episode].Load() == scanFinite {
			continue
		}
		bad, err := f.badRows(w.Ctx(), c.key, episode)
		switch {
		case err != nil:
			p.u.fail(err)
			return false
		case len(bad) > 0:
			finite = false
			p.blame(episode, p.src.notFinite(w.Ctx(), c, robocache.Row{Episode: episode, Index: bad[0]}, len(bad)))
		}
	}
	return finite
}

// notFinite is the error of an episode with bad rows, of which r is the first.
func (src *dataSource) notFinite(ctx context.Context, c *column, r robocache.Row, rows int) error {
	what, column := "a number that is not finite", 0
	values := make([]byte, c.feature.RowBytes())
	if gatherRows(ctx, src.ds, c.key, []robocache.Row{r}, values) == nil {
		size := c.stored.Size()
		for i := range c.elems {
			if one := values[i*size : (i+1)*size]; !allFinite(one, c.stored) {
				what, column = numberText(one, c.stored), i
				break
			}
		}
	}
	where := src.where(c, r)
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

// maskedNaN is a dataset whose rows with a number that is not finite hold no value.
type maskedNaN struct {
	robocache.Dataset
	info robocache.Info
	rows *finiteRows
}

func maskNaN(ds robocache.Dataset, rows *finiteRows) *maskedNaN {
	m := &maskedNaN{Dataset: ds, info: *ds.Info(), rows: rows}
	m.info.Features = slices.Clone(m.info.Features)
	for i := range m.info.Features {
		if f := &m.info.Features[i]; rows.streams[f.Key] != nil && !f.Default {
			f.Masked = true
		}
	}
	return m
}

// Unwrap returns the dataset with its own rows (robocache.As).
func (m *maskedNaN) Unwrap() robocache.Dataset { return m.Dataset }

// Info returns the dataset's, in which float streams are masked.
func (m *maskedNaN) Info() *robocache.Info { return &m.info }

// Gather returns zeros for rows with a number that is not finite.
func (m *maskedNaN) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if err := m.Dataset.Gather(ctx, key, rows, dst); err != nil || len(rows) == 0 {
		return err
	}
	size := len(dst) / len(rows)
	return m.eachBad(ctx, key, rows, func(i int) { clear(dst[i*size : (i+1)*size]) })
}

// GatherRagged returns the dataset's rows of varying length: they are not masked.
func (m *maskedNaN) GatherRagged(
	ctx context.Context, key string, rows []robocache.Row,
) (data []byte, counts []int, err error) {
	return robocache.GatherRagged(ctx, m.Dataset, key, rows)
}

// Lacks reports whether an episode of the dataset lacks a stream.
func (m *maskedNaN) Lacks(episode int, key string) bool {
	return robocache.Lacks(m.Dataset, episode, key)
}

// LeaseFrames returns the dataset's images, lent if the dataset lends them.
func (m *maskedNaN) LeaseFrames(
	ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
) (done func(), err error) {
	if l, ok := m.Dataset.(robocache.FrameLeaser); ok {
		return l.LeaseFrames(ctx, key, rows, out)
	}
	return nil, m.Dataset.Frames(ctx, key, rows, out)
}

// Valid is the dataset's, without the rows that are masked here.
func (m *maskedNaN) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) error {
	if f := m.Dataset.Info().Feature(key); f != nil && f.Masked {
		if err := robocache.Valid(ctx, m.Dataset, key, rows, valid); err != nil {
			return err
		}
	} else {
		for i := range valid {
			valid[i] = 1
		}
	}
	return m.eachBad(ctx, key, rows, func(i int) { valid[i] = 0 })
}

// eachBad calls fn for each of the rows with a number that is not finite.
func (m *maskedNaN) eachBad(ctx context.Context, key string, rows []robocache.Row, fn func(i int)) error {
	s := m.rows.streams[key]
	if s == nil || !m.info.Feature(key).Masked {
		return nil
	}
	for i, r := range rows {
		if s.state[r.Episode].Load() == scanFinite {
			continue
		}
		bad, err := m.rows.badRows(ctx, key, r.Episode)
		if err != nil {
			return err
		}
		if _, is := slices.BinarySearch(bad, r.Index); is {
			fn(i)
		}
	}
	return nil
}
