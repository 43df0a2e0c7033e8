package mcap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// Chunks keeps decompressed chunks of several recordings below one budget.
type Chunks = container.Chunks

// NewChunks makes room for the chunks of a dataset that may take so many bytes in all.
func NewChunks(budget int64) *Chunks { return container.NewChunks(max(4<<20, budget/4)) }

// StorageOptions are the choices of OpenStorage.
type StorageOptions struct {
	Chunks *Chunks // of the recordings of one dataset; nil = one of 64 MiB for this one
	Strict bool    // a damaged chunk is an error; else it is skipped, counted and found
	Scan   bool    // the summary is not believed: the file is scanned
}

// StorageOptionsOf are those that follow from a dataset's options.
func StorageOptionsOf(o bag.Options) StorageOptions {
	return StorageOptions{Chunks: NewChunks(o.Budget), Strict: o.Strict, Scan: o.IgnoreIndex}
}

// Storage is an MCAP file as a recording.
type Storage struct {
	file   *container.File
	name   string
	topics []*topic
	list   bag.Topics

	mu    sync.Mutex
	ready bool // places are made
	held  int64
	notes map[string]string
}

// topic is one or several channels of one name and type.
type topic struct {
	channels []uint16
	*container.ChannelIndex
}

var _ bag.Storage = (*Storage)(nil)

// OpenStorage opens an MCAP file; name is for errors. Close of the storage closes the file; where
// OpenStorage fails, it is the caller's.
func OpenStorage(
	ctx context.Context,
	file robocache.Ranged,
	name string,
	opt StorageOptions,
) (s *Storage, err error) {
	defer crash.RecoverFile("mcap open", name, &err)
	defer robocache.LocateIn(&err, "file", name)
	f, err := container.Open(
		ctx,
		file,
		container.Options{Chunks: opt.Chunks, Strict: opt.Strict, Scan: opt.Scan},
	)
	if err != nil {
		return s, err
	}
	s = &Storage{file: f, name: name}
	if err := s.listTopics(ctx); err != nil {
		return s, err
	}
	return s, nil
}

// counted says that the statistics have the messages of each channel.
func counted(f *container.File) bool {
	if f.Statistics == nil || f.Recovered {
		return false
	}
	var sum uint64
	for id, n := range f.Statistics.PerChannel {
		if f.Channels[id] == nil {
			return false
		}
		sum += n
	}
	return sum == f.Statistics.Messages
}

// listTopics joins the channels of one topic and type: several publishers of a topic have a channel
// each.
func (s *Storage) listTopics(ctx context.Context) error {
	f := s.file
	counts := map[uint16]int64{}
	if counted(f) {
		for id, n := range f.Statistics.PerChannel {
			counts[id] = int64(min(n, 1<<40))
		}
	} else {
		// Without counts a channel only the index knows how many messages there are.
		index, err := f.Index(ctx)
		if err != nil {
			return err
		}
		for id, c := range index.Channels {
			counts[id] = int64(c.Len())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Channels)) {
		c := f.Channels[id]
		info := bag.TopicInfo{
			Name:     c.Topic,
			Encoding: c.Encoding,
			Metadata: c.Metadata,
			Publish:  true,
			Sequence: true,
			Latched:  bag.Latched(c.Metadata["offered_qos_profiles"]),
		}
		if sc := f.Schemas[c.Schema]; sc != nil {
			info.Type, info.SchemaEncoding, info.SchemaText = sc.Name, sc.Encoding, sc.Data
		}
		i := s.list.Add(info)
		if i == len(s.topics) {
			s.topics = append(s.topics, &topic{})
		}
		s.list.Infos[i].Messages += counts[id]
		s.topics[i].channels = append(s.topics[i].channels, id)
	}
	return nil
}

// Topics lists the topics.
func (s *Storage) Topics() []bag.TopicInfo { return s.list.Infos }

// File gives the container, for doctor.
func (s *Storage) File() *container.File { return s.file }

// settle makes the places of all topics.
func (s *Storage) settle(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		return nil
	}
	ix, err := s.file.Index(ctx)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": s.name})
	}
	for _, t := range s.topics {
		t.ChannelIndex = ix.Of(t.channels)
		s.held += int64(t.Len()) * 16
	}
	s.ready = true
	return nil
}

// Index gives the log times of a topic, of the message indexes.
func (s *Storage) Index(ctx context.Context, topic int) (ix *bag.Index, err error) {
	defer crash.RecoverFile("mcap index", s.name, &err)
	if err := s.settle(ctx); err != nil {
		return ix, err
	}
	return &bag.Index{Log: s.topics[topic].Log}, nil
}

// Messages gives messages of a topic by log time. Chunks ahead are decompressed beside fn.
func (s *Storage) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	failed, err := s.read(
		ctx,
		[]run{{topic, from, to}},
		func(_, i int, m *bag.Message) error { return fn(i, m) },
	)
	return cmp.Or(err, failed[topic])
}

// Walk gives the messages of topics, each topic's by log time, in one pass over the chunks that
// hold them.
func (s *Storage) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (failed map[int]error, err error) {
	wants := make([]run, len(topics))
	for n, k := range topics {
		wants[n] = run{k, 0, -1}
	}
	return s.read(ctx, wants, fn)
}

// run is messages of a topic, one after the other; to -1: to the last.
type run struct{ topic, from, to int }

// read gives runs of messages in one pass; runs whose chunks overlap in time each alone, in as many
// passes as their chunks step back.
func (s *Storage) read(
	ctx context.Context,
	wants []run,
	fn func(topic, i int, m *bag.Message) error,
) (failed map[int]error, err error) {
	defer crash.RecoverFile("mcap read", s.name, &err)
	if err := s.settle(ctx); err != nil {
		return failed, err
	}
	failed = map[int]error{}
	var inStep []run
	for _, w := range wants {
		t := s.topics[w.topic]
		if w.to < 0 {
			w.to = t.Len()
		}
		if w.from < 0 || w.to > t.Len() || w.from > w.to {
			return nil, robocache.Misuse("mcap", robocache.Where{"file": s.name, "stream": s.list.Infos[w.topic].Name}, "").
				Expected(fmt.Sprintf("messages of 0 to %d", t.Len()), fmt.Sprintf("%d to %d", w.from, w.to))
		}
		from := w.from
		for i := from + 1; i < w.to; i++ {
			if t.Chunk[i] >= t.Chunk[i-1] {
				continue
			}
			if err := s.pass(ctx, []run{{w.topic, from, i}}, failed, fn); err != nil {
				return failed, err
			}
			from = i
		}
		if w.from != from {
			err = s.pass(ctx, []run{{w.topic, from, w.to}}, failed, fn)
		} else {
			inStep = append(inStep, w)
		}
		if err != nil {
			return failed, err
		}
	}
	return failed, s.pass(ctx, inStep, failed, fn)
}

// errNoMore ends a pass whose topics all failed.
var errNoMore = errors.New("no topic is left")

// pass reads runs whose chunks ascend. A topic that failed is read no further.
func (s *Storage) pass(
	ctx context.Context,
	runs []run,
	failed map[int]error,
	fn func(topic, i int, m *bag.Message) error,
) error {
	in := map[int32][]run{} // chunk → the runs' parts in it
	last := map[int32]uint32{}
	for _, w := range runs {
		t := s.topics[w.topic]
		for from := w.from; from < w.to && failed[w.topic] == nil; {
			to, chunk, at := from, t.Chunk[from], uint32(0)
			for ; to < w.to && t.Chunk[to] == chunk; to++ {
				at = max(at, t.At[to])
			}
			in[chunk], last[chunk] = append(in[chunk], run{w.topic, from, to}), max(at, last[chunk])
			from = to
		}
	}
	var parts []container.Part
	for _, chunk := range slices.Sorted(maps.Keys(in)) {
		parts = append(parts, container.Part{Chunk: chunk, Last: last[chunk]})
	}
	var m container.Message
	var out bag.Message
	err := s.file.InOrder(ctx, parts, func(n int, records []byte) error {
		for _, w := range in[parts[n].Chunk] {
			t := s.topics[w.topic]
			for i := w.from; i < w.to && failed[w.topic] == nil; i++ {
				channel := t.channels[0]
				if t.Channel != nil {
					channel = t.Channel[i]
				}
				err := s.file.At(records, int(t.Chunk[i]), t.At[i], channel, t.Log[i], &m)
				if err == nil {
					out = bag.Message{
						Log:      m.Log,
						Publish:  m.Publish,
						Sequence: m.Sequence,
						Source:   uint32(m.Channel),
						Data:     m.Data,
					}
					err = fn(w.topic, i, &out)
				}
				if err != nil {
					failed[w.topic] = robocache.At(
						err,
						robocache.Where{
							"file":   s.name,
							"stream": s.list.Infos[w.topic].Name,
							"index":  i,
						},
					)
				}
			}
		}
		if !slices.ContainsFunc(runs, func(w run) bool { return failed[w.topic] == nil }) {
			return errNoMore
		}
		return nil
	})
	if errors.Is(err, errNoMore) {
		return nil
	}
	return robocache.At(err, robocache.Where{"file": s.name})
}

// Notes gives the metadata records, "<record>.<key>" → value. Records above 64 MiB in all are left
// out.
func (s *Storage) Notes(ctx context.Context) (_ map[string]string, err error) {
	defer crash.RecoverFile("mcap metadata", s.name, &err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes != nil {
		return s.notes, nil
	}
	notes := map[string]string{}
	left := int64(64 << 20)
	for _, p := range s.file.Metadata {
		if left -= p.Length; left < 0 {
			break
		}
		m, err := s.file.ReadMetadata(ctx, p)
		if err := robocache.At(err, robocache.Where{"file": s.name}); err != nil {
			return nil, err
		}
		for k, v := range m {
			notes[p.Name+"."+k] = v
		}
	}
	s.notes = notes
	return notes, nil
}

// Bytes is the size of all chunks, decompressed.
func (s *Storage) Bytes() (n int64) {
	for i := range s.file.Chunks {
		n += s.file.Chunks[i].Size
	}
	return n
}

// Remote says that reading messages waits for a store.
func (s *Storage) Remote() bool { return s.file.Remote() }

// Held is what the indexes hold.
func (s *Storage) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held + int64(len(s.file.Chunks))*120
}

// Verify compares the check sums of the data section and of attachments, which reading messages
// does not touch.
func (s *Storage) Verify(ctx context.Context) (_ []robocache.Finding, err error) {
	defer crash.RecoverFile("mcap verify", s.name, &err)
	found, err := s.file.Verify(ctx)
	return s.named(found), robocache.At(err, robocache.Where{"file": s.name})
}

// Findings are what opening and reading met so far.
func (s *Storage) Findings() []robocache.Finding { return s.named(s.file.Findings()) }

// named adds the file's name.
func (s *Storage) named(out []robocache.Finding) []robocache.Finding {
	for i := range out {
		w := robocache.Where{"file": s.name}
		for k, v := range out[i].Where {
			w[k] = v
		}
		out[i].Where = w
	}
	return out
}

// Close closes the file.
func (s *Storage) Close() error { return s.file.Close() }
