package mapping

import (
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Message returns the messages from which a stream is read, with the mapping that makes the stream
// from their fields. It returns nil if the fields belong to several topics, if the base maps them
// itself, or if the drift is relative to the beginning of an episode.
func (d *mappedDataset) Message(key string) *robocache.MessageSource {
	s := d.streams[key]
	if s == nil || s.unitErr != nil || !s.drift.IsZero() && !s.drift.Fixed {
		return nil
	}
	out := robocache.MessageOf(d.base, s.parts[0].key)
	if out == nil || s.isRenamed() && !s.hasOwnTimes() {
		return out
	}
	m := &robocache.StreamMapping{Scale: s.scale, Offset: s.offset, Drift: s.drift}
	field := func(key string) (suffix string, ok bool) {
		part := robocache.MessageOf(d.base, key)
		if part == nil || part.Topic != out.Topic || part.Mapping != nil {
			return "", false
		}
		return part.Field, true
	}
	joined := 0
	for _, p := range s.parts {
		suffix, ok := field(p.key)
		if !ok {
			return nil
		}
		m.From, joined = append(m.From, suffix), joined+p.rowBytes
	}
	if size := s.feature.RowBytes(); size != joined {
		from, width := s.firstByte/s.feature.DType.Size(), s.feature.Elements()
		m.Slice = []int{from, from + width}
	}
	if s.timestamps != "" {
		suffix, ok := field(s.timestamps)
		if !ok || suffix == "" {
			return nil
		}
		m.Clock = timestampPrefix + suffix
		for name, unit := range unitNanos {
			if unit == s.unit {
				m.TimestampUnit = name
			}
		}
	}
	out.Mapping = m
	return out
}

// Stream makes rows of a mapped stream from rows of its sources, one at a time. It needs no
// dataset.
type Stream struct {
	mapped *mappedStream
	dtype  robocache.DType // type of the timestamps that the mapping takes from a source
	parts  [][]byte        // during Join
	read   func(part int) ([]byte, error)
}

// NewStream returns the stream of an entry of a mapping whose streams From and Clock are sources.
func NewStream(m *robocache.StreamMapping, sources []robocache.Feature) (*Stream, error) {
	const key = "stream"
	all := &robocache.Mapping{Streams: map[string]robocache.StreamMapping{key: *m}}
	if err := checkMapping(all); err != nil {
		return nil, err
	}
	info := &robocache.Info{Features: sources}
	d := &mappedDataset{base: descriptionOnly{info: info}, mapping: all}
	mapped, err := d.newStream(key, m)
	if err != nil {
		return nil, err
	}
	s := &Stream{mapped: mapped}
	s.read = func(part int) ([]byte, error) { return s.parts[part], nil }
	if mapped.timestamps != "" {
		s.dtype = info.Feature(mapped.timestamps).DType
	}
	return s, nil
}

// Feature returns the description of the stream. Its key has no meaning.
func (s *Stream) Feature() *robocache.Feature { return &s.mapped.feature }

// Timestamps returns the key of the source that holds the timestamps, or "" if none does.
func (s *Stream) Timestamps() string { return s.mapped.timestamps }

// Join writes a row of the stream to dst, which has RowBytes of the feature. parts are the rows of
// the sources in From. Join must not be called concurrently.
func (s *Stream) Join(dst []byte, parts [][]byte) error {
	s.parts = parts
	return s.mapped.joinRows(dst, 1, s.read)
}

// Time returns the time of a row from its time in the source, and from the row of the source of
// timestamps if there is one.
func (s *Stream) Time(at int64, timestamp []byte) (int64, error) {
	t := []int64{at}
	var err error
	if s.mapped.timestamps != "" {
		if t, err = s.mapped.timesOf(s.dtype, timestamp); err != nil {
			return 0, err
		}
	}
	if !isOutOfRange(t[0]) { // else the differences of Correct would overflow
		s.mapped.drift.Correct(t)
	}
	if isOutOfRange(t[0]) {
		return 0, errOutOfRange(s.mapped.timestamps, 0, strconv.FormatInt(t[0], 10))
	}
	return t[0] + s.mapped.offset, nil
}

// descriptionOnly is a dataset that has streams and no rows.
type descriptionOnly struct {
	robocache.Dataset
	info *robocache.Info
}

func (d descriptionOnly) Info() *robocache.Info { return d.info }
