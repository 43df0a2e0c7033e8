package bag

import (
	"context"

	"github.com/goatnote-inc/robocache/internal/guard"
)

// EachMessage calls fn for the messages of an episode, one call at a time, with their log times.
// The messages of a topic are in log order. Those of different topics are in the order of the file.
// data is valid until fn returns. Messages that are lost to damage are skipped.
func (d *Dataset) EachMessage(
	ctx context.Context,
	episode int,
	fn func(topic string, log int64, data []byte) error,
) (err error) {
	defer guard.Recover("messages", &err)
	e := d.openEpisode(episode)
	d.useStorage(ctx, e.rec, func(s Storage) {
		type span struct {
			topic    *topic
			from, to int
		}
		spans := map[int]span{}
		var indices []int
		for _, t := range d.topics {
			index := t.storageIndex[e.rec]
			if index < 0 {
				continue
			}
			from, to := d.episodeSpan(e, t, guard.Must(s.Index(ctx, index)).Log)
			spans[index] = span{t, from, to}
			indices = append(indices, index)
		}
		failed, err := s.Walk(ctx, indices, func(index, i int, m *Message) error {
			if s := spans[index]; i >= s.from && i < s.to {
				return fn(s.topic.name, m.Log, m.Data)
			}
			return nil
		})
		guard.Check(err)
		for _, err := range failed {
			guard.Check(err)
		}
	})
	return nil
}
