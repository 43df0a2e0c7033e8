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

// Chunks is a cache of decompressed chunks of several recordings with one budget.
type Chunks = container.Chunks

// NewChunks returns a chunk cache for a dataset whose memory budget is budget bytes.
func NewChunks(budget int64) *Chunks { return container.NewChunks(max(4<<20, budget/4)) }

// StorageOptions configures OpenStorage.
type StorageOptions struct {
	// shared by the recordings of one dataset; nil means a cache of 64 MiB for this recording
	Chunks *Chunks
	Strict bool // a damaged chunk is an error; otherwise it is skipped, counted and reported
	Scan   bool // ignore the summary and scan the file
}

// StorageOptionsOf returns the StorageOptions for the options of a dataset.
func StorageOptionsOf(o bag.Options) StorageOptions {
	return StorageOptions{Chunks: NewChunks(o.Budget), Strict: o.Strict, Scan: o.IgnoreIndex}
}

// Storage is an MCAP file as a recording. Safe for concurrent use.
type Storage struct {
	file   *container.File
	name   string
	topics []*topic
	list   bag.Topics

	mu        sync.Mutex
	isLoaded  bool // message positions are loaded
	heldBytes int64
	notes     map[string]string
}

// topic is one or more channels of one name and type.
type topic struct {
	channels []uint16
	*container.ChannelIndex
}

var _ bag.Storage = (*Storage)(nil)

// OpenStorage opens an MCAP file. name is used in errors. Closing the storage closes the file. If
// OpenStorage fails, the caller must close the file.
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

// hasCompleteCounts reports whether the statistics count the messages of every channel.
func hasCompleteCounts(f *container.File) bool {
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

// listTopics joins the channels of one topic and type, because each publisher of a topic has its
// own channel.
func (s *Storage) listTopics(ctx context.Context) error {
	f := s.file
	counts := map[uint16]int64{}
	if hasCompleteCounts(f) {
		for id, n := range f.Statistics.PerChannel {
			counts[id] = int64(min(n, 1<<40))
		}
	} else {
		// Without complete statistics, the message counts are taken from the index.
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

// Topics returns the topics.
func (s *Storage) Topics() []bag.TopicInfo { return s.list.Infos }

// File returns the container. It is used by doctor.
func (s *Storage) File() *container.File { return s.file }

// loadPositions loads the message positions of all topics. It does nothing after the first
// successful call.
func (s *Storage) loadPositions(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLoaded {
		return nil
	}
	ix, err := s.file.Index(ctx)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": s.name})
	}
	for _, t := range s.topics {
		t.ChannelIndex = ix.Of(t.channels)
		s.heldBytes += int64(t.Len()) * 16
	}
	s.isLoaded = true
	return nil
}

// Index returns the log times of a topic from the message indexes.
func (s *Storage) Index(ctx context.Context, topic int) (ix *bag.Index, err error) {
	defer crash.RecoverFile("mcap index", s.name, &err)
	if err := s.loadPositions(ctx); err != nil {
		return ix, err
	}
	return &bag.Index{Log: s.topics[topic].Log}, nil
}

// Messages calls fn for messages of a topic in the order of log times. Later chunks are
// decompressed concurrently.
func (s *Storage) Messages(
	ctx context.Context,
	topic, from, to int,
	fn func(i int, m *bag.Message) error,
) error {
	failed, err := s.readRuns(
		ctx,
		[]messageRun{{topic, from, to}},
		func(_, i int, m *bag.Message) error { return fn(i, m) },
	)
	return cmp.Or(err, failed[topic])
}

// Walk calls fn for all messages of the topics in one pass over their chunks. The messages of each
// topic are in the order of log times.
func (s *Storage) Walk(
	ctx context.Context,
	topics []int,
	fn func(topic, i int, m *bag.Message) error,
) (failed map[int]error, err error) {
	wants := make([]messageRun, len(topics))
	for n, k := range topics {
		wants[n] = messageRun{k, 0, -1}
	}
	return s.readRuns(ctx, wants, fn)
}

// messageRun is a range of messages of a topic. to = -1 means up to the last message.
type messageRun struct{ topic, from, to int }

// readRuns calls fn for the messages of runs in one pass. If the chunks of a run overlap in time,
// the run is read separately, in one pass for each step back.
func (s *Storage) readRuns(
	ctx context.Context,
	wants []messageRun,
	fn func(topic, i int, m *bag.Message) error,
) (failed map[int]error, err error) {
	defer crash.RecoverFile("mcap read", s.name, &err)
	if err := s.loadPositions(ctx); err != nil {
		return failed, err
	}
	failed = map[int]error{}
	var inStep []messageRun
	for _, w := range wants {
		t := s.topics[w.topic]
		if w.to < 0 {
			w.to = t.Len()
		}
		if w.from < 0 || w.to > t.Len() || w.from > w.to {
			return nil, robocache.Misuse("mcap", robocache.Where{
				"file":   s.name,
				"stream": s.list.Infos[w.topic].Name,
			}, "").
				Expected(
					fmt.Sprintf("messages of 0 to %d", t.Len()),
					fmt.Sprintf("%d to %d", w.from, w.to),
				)
		}
		from := w.from
		for i := from + 1; i < w.to; i++ {
			if t.Chunk[i] >= t.Chunk[i-1] {
				continue
			}
			if err := s.readPass(ctx, []messageRun{{w.topic, from, i}}, failed, fn); err != nil {
				return failed, err
			}
			from = i
		}
		if w.from != from {
			err = s.readPass(ctx, []messageRun{{w.topic, from, w.to}}, failed, fn)
		} else {
			inStep = append(inStep, w)
		}
		if err != nil {
			return failed, err
		}
	}
	return failed, s.readPass(ctx, inStep, failed, fn)
}

// errNoMore ends a pass in which all topics failed.
var errNoMore = errors.New("no topic is left")

// readPass reads runs whose chunk numbers ascend. It stops reading a topic after an error.
func (s *Storage) readPass(
	ctx context.Context,
	runs []messageRun,
	failed map[int]error,
	fn func(topic, i int, m *bag.Message) error,
) error {
	in := map[int32][]messageRun{} // chunk → the parts of the runs in it
	last := map[int32]uint32{}
	for _, w := range runs {
		t := s.topics[w.topic]
		for from := w.from; from < w.to && failed[w.topic] == nil; {
			to, chunk, at := from, t.Chunk[from], uint32(0)
			for ; to < w.to && t.Chunk[to] == chunk; to++ {
				at = max(at, t.At[to])
			}
			in[chunk], last[chunk] = append(
				in[chunk],
				messageRun{w.topic, from, to},
			), max(
				at,
				last[chunk],
			)
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
		if !slices.ContainsFunc(runs, func(w messageRun) bool { return failed[w.topic] == nil }) {
			return errNoMore
		}
		return nil
	})
	if errors.Is(err, errNoMore) {
		return nil
	}
	return robocache.At(err, robocache.Where{"file": s.name})
}

// Notes returns the metadata records as a map from "<record>.<key>" to value. It stops at a total
// of 64 MiB.
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

// Bytes returns the decompressed size of all chunks.
func (s *Storage) Bytes() (n int64) {
	for i := range s.file.Chunks {
		n += s.file.Chunks[i].Size
	}
	return n
}

// Remote reports whether reading messages waits for a network.
func (s *Storage) Remote() bool { return s.file.Remote() }

// Held returns the memory of the indexes in bytes.
func (s *Storage) Held() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heldBytes + int64(len(s.file.Chunks))*120
}

// Verify checks the checksums of the data section and of attachments. Reading messages does not
// check them.
func (s *Storage) Verify(ctx context.Context) (_ []robocache.Finding, err error) {
	defer crash.RecoverFile("mcap verify", s.name, &err)
	found, err := s.file.Verify(ctx)
	return s.withFileName(found), robocache.At(err, robocache.Where{"file": s.name})
}

// Findings returns the problems found so far by opening and reading.
func (s *Storage) Findings() []robocache.Finding { return s.withFileName(s.file.Findings()) }

// withFileName adds the file's name to findings.
func (s *Storage) withFileName(out []robocache.Finding) []robocache.Finding {
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
