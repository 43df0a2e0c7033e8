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

// split is the files of one recording as one (B4).
type split struct {
	parts  []bag.Storage
	list   bag.Topics
	topics []*splitTopic
	found  []robocache.Finding
	notes  map[string]string
}

// splitTopic is a topic over the parts.
type splitTopic struct {
	in []int // its place in each part; -1 = not there
	// number of its first message in each part, in the order of the parts; one more for the end
	start []int
	order []int32 // message by log time → message by part; nil where they are the same
	index *bag.Index
	mu    sync.Mutex
}

var _ bag.Storage = (*split)(nil)

// join makes one recording of several. Close closes the parts.
func join(parts []bag.Storage) *split {
	s := &split{parts: parts}
	for p, part := range parts {
		for t, info := range part.Topics() {
			n := s.list.Add(info)
			own := &s.list.Infos[n]
			if n == len(s.topics) {
				own.Metadata, own.Messages = maps.Clone(info.Metadata), 0 // summed below
				s.topics = append(s.topics, &splitTopic{in: slices.Repeat([]int{-1}, len(parts))})
			}
			if own.SchemaText == "" {
				own.SchemaText, own.SchemaEncoding = info.SchemaText, info.SchemaEncoding
			}
			own.Latched = own.Latched || info.Latched
			own.Messages += info.Messages
			s.topics[n].in[p] = t
		}
	}
	return s
}

// topic gives a topic with its index, which is made when it is first wanted.
func (s *split) topic(ctx context.Context, n int) (*splitTopic, error) {
	t := s.topics[n]
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index != nil {
		return t, nil
	}
	start, index := make([]int, 1, len(s.parts)+1), &bag.Index{}
	for p, in := range t.in {
		if in >= 0 {
			ix, err := s.parts[p].Index(ctx, in)
			if err != nil {
				return nil, err
			}
			if len(s.parts) == 1 {
				t.start, t.index = append(start, len(ix.Log)), ix
				return t, nil
			}
			index.Log = append(index.Log, ix.Log...)
			index.Publish = append(index.Publish, ix.Publish...)
		}
		start = append(start, len(index.Log))
	}
	if len(index.Publish) != len(index.Log) { // some part has none
		index.Publish = nil
	}
	if t.order = reader.InOrder(index.Log); t.order != nil {
		index = &bag.Index{
			Log:     reader.Permute(index.Log, t.order),
			Publish: reader.Permute(index.Publish, t.order),
		}
	}
	t.start, t.index = start, index
	return t, nil
}

func (s *split) Topics() []bag.TopicInfo { return s.list.Infos }

func (s *split) Index(ctx context.Context, topic int) (*bag.Index, error) {
	t, err := s.topic(ctx, topic)
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
	t, err := s.topic(ctx, topic)
	if err != nil {
		return err
	}
	for from < to {
		// The longest run that lies in one part, in its order.
		first, n := from, 1
		if t.order != nil {
			first = int(t.order[from])
		}
		part := sort.SearchInts(t.start, first+1) - 1
		for from+n < to && first+n < t.start[part+1] && (t.order == nil || int(t.order[from+n]) == first+n) {
			n++
		}
		base := from - (first - t.start[part])
		err := s.parts[part].Messages(
			ctx,
			t.in[part],
			first-t.start[part],
			first-t.start[part]+n,
			func(i int, m *bag.Message) error {
				m.Source |= uint32(part) << 16 // a file numbers its senders as it likes
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

// Walk walks the parts one after the other; topics whose parts overlap in time one by one.
func (s *split) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (map[int]error, error) {
	failed := map[int]error{}
	var inStep []int
	for _, n := range topics {
		t, err := s.topic(ctx, n)
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
			if k := s.topics[n].in[p]; k >= 0 && failed[n] == nil {
				in, back[k] = append(in, k), n
			}
		}
		if len(in) == 0 {
			continue
		}
		bad, err := part.Walk(ctx, in, func(topic, i int, m *bag.Message) error {
			m.Source |= uint32(p) << 16 // a file numbers its senders as it likes
			return fn(back[topic], s.topics[back[topic]].start[p]+i, m)
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

// Notes are the metadata's own, and those of the parts.
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
