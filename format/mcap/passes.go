package mcap

import (
	"context"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Walk gives the messages of topics, each topic's by log time, in one pass over the chunks that hold them.
func (s *Storage) Walk(ctx context.Context, topics []int, fn func(topic, i int, m *bag.Message) error) (failed map[int]error, err error) {
	defer guard.File("mcap walk", s.name, &err)
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	failed = map[int]error{}
	want := map[int32]bool{}
	var inStep []int // topics whose chunks do not overlap in time
	for _, k := range topics {
		t := s.topics[k]
		if !slices.IsSortedFunc(t.place, func(a, b place) int { return int(a.chunk) - int(b.chunk) }) {
			if err := s.Messages(ctx, k, 0, len(t.place), func(i int, m *bag.Message) error { return fn(k, i, m) }); err != nil {
				failed[k] = err
			}
			continue
		}
		inStep = append(inStep, k)
		for c := range t.byChunk {
			want[c] = true
		}
	}
	chunks := slices.Sorted(maps.Keys(want))
	var m container.Message
	var out bag.Message
	err = s.file.InOrder(ctx, chunks, func(chunk int32, records []byte) error {
		for _, k := range inStep {
			t := s.topics[k]
			for _, i := range t.byChunk[chunk] {
				if failed[k] != nil {
					break
				}
				p := t.place[i]
				err := s.file.At(records, int(chunk), p.at, p.channel, t.index.Log[i], &m)
				if err == nil {
					out = bag.Message{Log: m.Log, Publish: m.Publish, Sequence: m.Sequence, Source: uint32(m.Channel), Data: m.Data}
					err = fn(k, int(i), &out)
				}
				if err != nil {
					failed[k] = robocache.At(err, robocache.Where{"file": s.name, "stream": s.infos[k].Name, "index": i})
				}
			}
		}
		return nil
	})
	return failed, robocache.At(err, robocache.Where{"file": s.name})
}
