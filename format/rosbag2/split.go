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
)

// split is the files of one recording as one (B4).
type split struct {
	parts  []bag.Storage
	infos  []bag.TopicInfo
	topics []*splitTopic
	found  []robocache.Finding
	notes  map[string]string
}

// splitTopic is a topic over the parts.
type splitTopic struct {
	in    []int   // its place in each part; -1 = not there
	start []int   // number of its first message in each part, in the order of the parts; one more for the end
	order []int32 // message by log time → message by part; nil where they are the same
	index *bag.Index
	mu    sync.Mutex
}

var (
	_ bag.Storage = (*split)(nil)
	_ bag.Bulk    = (*split)(nil)
	_ bag.Sized   = (*split)(nil)
	_ bag.Noted   = (*split)(nil)

	_ bag.Verified = (*split)(nil)
)

// join makes one recording of several. Close closes the parts.
func join(parts []bag.Storage) *split {
	s := &split{parts: parts}
	type key struct{ name, typ, encoding string }
	known := map[key]int{}
	for p, part := range parts {
		for t, info := range part.Topics() {
			k := key{info.Name, info.Type, info.Encoding}
			n, ok := known[k]
			if !ok {
				n = len(s.infos)
				known[k] = n
				info.Metadata = maps.Clone(info.Metadata)
				s.infos = append(s.infos, info)
				s.infos[n].Messages = 0 // summed below
				s.topics = append(s.topics, &splitTopic{in: slices.Repeat([]int{-1}, len(parts))})
			}
			if s.infos[n].SchemaText == "" {
				s.infos[n].SchemaText, s.infos[n].SchemaEncoding = info.SchemaText, info.SchemaEncoding
			}
			s.infos[n].Latched = s.infos[n].Latched || info.Latched
			s.infos[n].Messages += info.Messages
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
	publish := true
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
			publish = publish && (ix.Publish != nil || len(ix.Log) == 0)
			index.Publish = append(index.Publish, ix.Publish...)
		}
		start = append(start, len(index.Log))
	}
	if !publish || len(index.Publish) != len(index.Log) {
		index.Publish = nil
	}
	if !slices.IsSorted(index.Log) {
		t.order = make([]int32, len(index.Log))
		for k := range t.order {
			t.order[k] = int32(k)
		}
		log := index.Log
		sort.SliceStable(t.order, func(a, b int) bool { return log[t.order[a]] < log[t.order[b]] })
		index = &bag.Index{Log: ordered(index.Log, t.order), Publish: ordered(index.Publish, t.order)}
	}
	t.start, t.index = start, index
	return t, nil
}

func ordered(v []int64, order []int32) []int64 {
	if v == nil {
		return nil
	}
	out := make([]int64, len(v))
	for k, o := range order {
		out[k] = v[o]
	}
	return out
}

func (s *split) Topics() []bag.TopicInfo { return s.infos }

func (s *split) Index(ctx context.Context, topic int) (*bag.Index, error) {
	t, err := s.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	return t.index, nil
}

func (s *split) Messages(ctx context.Context, topic, from, to int, fn func(i int, m *bag.Message) error) error {
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
		err := s.parts[part].Messages(ctx, t.in[part], first-t.start[part], first-t.start[part]+n, func(i int, m *bag.Message) error {
			m.Source |= uint32(part) << 16 // a file numbers its senders as it likes
			return fn(base+i, m)
		})
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// Verify verifies the parts.
func (s *split) Verify(ctx context.Context) (out []robocache.Finding, err error) {
	for _, p := range s.parts {
		if v, ok := p.(bag.Verified); ok {
			found, err := v.Verify(ctx)
			if out = append(out, found...); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// Scan reads the parts one after the other.
func (s *split) Scan(ctx context.Context, topics []int, fn func(topic, i int, m *bag.Message) error) error {
	for p, part := range s.parts {
		var in []int
		back := map[int]int{}
		inverse := map[int][]int32{}
		for _, n := range topics {
			t, err := s.topic(ctx, n)
			if err != nil {
				return err
			}
			if t.in[p] < 0 {
				continue
			}
			in = append(in, t.in[p])
			back[t.in[p]] = n
			if t.order != nil {
				inv := make([]int32, len(t.order))
				for k, o := range t.order {
					inv[o] = int32(k)
				}
				inverse[n] = inv
			}
		}
		if len(in) == 0 {
			continue
		}
		err := scan(ctx, part, in, func(topic, i int, m *bag.Message) error {
			n := back[topic]
			i += s.topics[n].start[p]
			if inv := inverse[n]; inv != nil {
				i = int(inv[i])
			}
			return fn(n, i, m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scan reads topics of any storage.
func scan(ctx context.Context, s bag.Storage, topics []int, fn func(topic, i int, m *bag.Message) error) error {
	if b, ok := s.(bag.Bulk); ok {
		return b.Scan(ctx, topics, fn)
	}
	for _, t := range topics {
		n := int(s.Topics()[t].Messages)
		if err := s.Messages(ctx, t, 0, n, func(i int, m *bag.Message) error { return fn(t, i, m) }); err != nil {
			return err
		}
	}
	return nil
}

// Remote says that reading messages waits for a store: films of such a recording are fetched ahead.
func (s *split) Remote() bool {
	return slices.ContainsFunc(s.parts, func(p bag.Storage) bool {
		r, ok := p.(interface{ Remote() bool })
		return ok && r.Remote()
	})
}

func (s *split) Bytes() (n int64) {
	for _, p := range s.parts {
		if z, ok := p.(bag.Sized); ok {
			n += z.Bytes()
		}
	}
	return n
}

func (s *split) Held() (n int64) {
	for _, p := range s.parts {
		if z, ok := p.(bag.Sized); ok {
			n += z.Held()
		}
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
		n, ok := p.(bag.Noted)
		if !ok {
			continue
		}
		notes, err := n.Notes(ctx)
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
