package rosbag2

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

// split combines the files of one recording (rosbag2.B4).
type split struct {
	parts  []bag.Storage
	list   bag.Topics
	topics []*splitTopic
	found  []robocache.Finding
	notes  map[string]string
}

// splitTopic is a topic in the parts of a recording.
type splitTopic struct {
	positions []int // position of the topic in each part; -1 if it is absent
	// For each part, the number of its first message; the last element is the total.
	starts []int
	order  []int32 // position by log time → position by part; nil if they are equal
	index  *bag.Index
	mu     sync.Mutex
}

var _ bag.Storage = (*split)(nil)

// joinParts combines several storages into one recording. Close closes the parts.
func joinParts(parts []bag.Storage) *split {
	s := &split{parts: parts}
	for p, part := range parts {
		for t, info := range part.Topics() {
			n := s.list.Add(info)
			own := &s.list.Infos[n]
			if n == len(s.topics) {
				own.Metadata, own.Messages = maps.Clone(info.Metadata), 0 // summed below
				s.topics = append(
					s.topics,
					&splitTopic{positions: slices.Repeat([]int{-1}, len(parts))},
				)
			}
			if own.SchemaText == "" {
				own.SchemaText, own.SchemaEncoding = info.SchemaText, info.SchemaEncoding
			}
			own.Latched = own.Latched || info.Latched
			own.Messages += info.Messages
			s.topics[n].positions[p] = t
		}
	}
	return s
}

// indexedTopic returns a topic with its index. The first call builds the index.
func (s *split) indexedTopic(ctx context.Context, n int) (*splitTopic, error) {
	t := s.topics[n]
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index != nil {
		return t, nil
	}
	start, index := make([]int, 1, len(s.parts)+1), &bag.Index{}
	for p, in := range t.positions {
		if in >= 0 {
			ix, err := s.parts[p].Index(ctx, in)
			if err != nil {
				return nil, err
			}
			if len(s.parts) == 1 {
				t.starts, t.index = append(start, len(ix.Log)), ix
				return t, nil
			}
			index.Log = append(index.Log, ix.Log...)
			index.Publish = append(index.Publish, ix.Publish...)
		}
		start = append(start, len(index.Log))
	}
	if len(index.Publish) != len(index.Log) { // some part has no publish times
		index.Publish = nil
	}
	if t.order = reader.InOrder(index.Log); t.order != nil {
		index = &bag.Index{
			Log:     reader.Permute(index.Log, t.order),
			Publish: reader.Permute(index.Publish, t.order),
		}
	}
	t.starts, t.index = start, index
	return t, nil
}

func (s *split) Topics() []bag.TopicInfo { return s.list.Infos }

func (s *split) Index(ctx context.Context, topic int) (*bag.Index, error) {
	t, err := s.indexedTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	return t.index, nil
}

func (s *split) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	t, err := s.indexedTopic(ctx, topic)
	if err != nil {
		return err
	}
	for from < to {
		// Find the longest run of messages in one part.
		first, n := from, 1
		if t.order != nil {
			first = int(t.order[from])
		}
		part := sort.SearchInts(t.starts, first+1) - 1
		for from+n < to && first+n < t.starts[part+1] && (t.order == nil ||
			int(t.order[from+n]) == first+n) {
			n++
		}
		base := from - (first - t.starts[part])
		err := s.parts[part].Messages(
			ctx,
			t.positions[part],
			first-t.starts[part],
			first-t.starts[part]+n,
			func(i int, m *bag.Message) error {
				m.Source |= uint32(part) << 16 // each file numbers its senders separately
				return fn(base+i, m)
			},
		)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// Walk reads the parts one after the other. Topics whose parts overlap in time are read separately.
func (s *split) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (map[int]error, error) {
	failed := map[int]error{}
	var inStep []int
	for _, n := range topics {
		t, err := s.indexedTopic(ctx, n)
		if err == nil && t.order == nil {
			inStep = append(inStep, n)
			continue
		}
		if err == nil {
			err = s.Messages(
				ctx,
				n,
				0,
				len(t.index.Log),
				func(i int, m *bag.Message) error { return fn(n, i, m) },
			)
		}
		if err != nil {
			failed[n] = err
		}
	}
	for p, part := range s.parts {
		var in []int
		back := map[int]int{}
		for _, n := range inStep {
			if k := s.topics[n].positions[p]; k >= 0 && failed[n] == nil {
				in, back[k] = append(in, k), n
			}
		}
		if len(in) == 0 {
			continue
		}
		bad, err := part.Walk(ctx, in, func(topic, i int, m *bag.Message) error {
			m.Source |= uint32(p) << 16 // each file numbers its senders separately
			return fn(back[topic], s.topics[back[topic]].starts[p]+i, m)
		})
		for k, e := range bad {
			failed[back[k]] = e
		}
		if err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// Verify verifies the parts.
func (s *split) Verify(ctx context.Context) (out []robocache.Finding, err error) {
	for _, p := range s.parts {
		found, err := p.Verify(ctx)
		if out = append(out, found...); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s *split) Remote() bool { return slices.ContainsFunc(s.parts, bag.Storage.Remote) }

func (s *split) Bytes() (n int64) {
	for _, p := range s.parts {
		n += p.Bytes()
	}
	return n
}

func (s *split) Held() (n int64) {
	for _, p := range s.parts {
		n += p.Held()
	}
	for _, t := range s.topics {
		t.mu.Lock()
		if t.index != nil {
			n += 8*int64(len(t.index.Log)+len(t.index.Publish)) + 4*int64(len(t.order))
		}
		t.mu.Unlock()
	}
	return n
}

// Notes returns the notes of the metadata and of the parts.
func (s *split) Notes(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range s.parts {
		notes, err := p.Notes(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, notes)
	}
	maps.Copy(out, s.notes)
	return out, nil
}

func (s *split) Findings() []robocache.Finding {
	out := slices.Clone(s.found)
	for _, p := range s.parts {
		out = append(out, p.Findings()...)
	}
	return out
}

func (s *split) Close() (err error) {
	for _, p := range s.parts {
		err = errors.Join(err, p.Close())
	}
	return err
}
