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

// Scan gives all messages of some topics in one pass over the chunks that hold them.
func (s *Storage) Scan(ctx context.Context, topics []int, fn func(topic, i int, m *bag.Message) error) (err error) {
	defer guard.File("mcap scan", s.name, &err)
	if err := s.settle(ctx); err != nil {
		return err
	}
	want := map[int32]bool{}
	for _, t := range topics {
		for c := range s.topics[t].byChunk {
			want[c] = true
		}
	}
	chunks := slices.Sorted(maps.Keys(want))
	err = s.file.Each(ctx, chunks, func(chunk int32, records []byte) error {
		var m container.Message
		var out bag.Message
		for _, k := range topics {
			t := s.topics[k]
			for _, i := range t.byChunk[chunk] {
				p := t.place[i]
				if err := s.file.At(records, int(chunk), p.at, p.channel, t.index.Log[i], &m); err != nil {
					return robocache.At(err, robocache.Where{"stream": s.infos[k].Name, "index": i})
				}
				out = bag.Message{Log: m.Log, Publish: m.Publish, Sequence: m.Sequence, Source: uint32(m.Channel), Data: m.Data}
				if err := fn(k, int(i), &out); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return robocache.At(err, robocache.Where{"file": s.name})
}

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
