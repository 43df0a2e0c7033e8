package bag

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/store"
)

// recordingHead is what opening needs of a recording.
type recordingHead struct {
	topics   []TopicInfo // Messages is not used; recordings from an index share them
	counts   []int64     // number of messages of each topic
	bytes    int64       // Storage.Bytes
	notes    map[string]string
	findings []robocache.Finding
}

// headOf returns the head of an open recording.
func headOf(ctx context.Context, s Storage) (*recordingHead, error) {
	h := &recordingHead{topics: s.Topics(), bytes: s.Bytes()}
	for i := range h.topics {
		h.counts = append(h.counts, h.topics[i].Messages)
	}
	var err error
	if h.notes, err = s.Notes(ctx); err != nil {
		return nil, err
	}
	h.findings = s.Findings()
	return h, nil
}

// checkStorage returns an error if an open recording differs from its head in the index.
func (h *recordingHead) checkStorage(s Storage, name string) error {
	topics := s.Topics()
	isSame := len(topics) == len(h.topics)
	for i := 0; isSame && i < len(topics); i++ {
		have, want := &topics[i], &h.topics[i]
		isSame = have.Name == want.Name && have.Type == want.Type &&
			have.Encoding == want.Encoding && have.SchemaText == want.SchemaText &&
			have.Messages == h.counts[i]
	}
	if isSame {
		return nil
	}
	return robocache.Temporary("open", robocache.Where{"file": name},
		"the recording is no longer the one that was opened with the index").
		WithCause(store.ErrChanged).WithHint("Open the dataset again. If this error remains, "+
		"delete the index and run %s.", robocache.Command("index URI"))
}

// headPart is the part of records with the head of a recording.
const headPart = "recording"

const (
	headVersion = 1
	minShared   = 256 // bytes from which on the text of a note is a shared block
)

// usesIndex reports whether the options allow heads of an index. Scans and strict reading have other
// results.
func (o *Options) usesIndex() bool { return o.Index != nil && !o.IgnoreIndex && !o.Strict }

// indexedHeads returns the heads that the index has, by recording. The others are nil.
func (d *Dataset) indexedHeads() []*recordingHead {
	recs := d.pool.recs
	heads := make([]*recordingHead, len(recs))
	if !d.opt.usesIndex() {
		return heads
	}
	parser := headParser{topics: map[int64][]TopicInfo{}, texts: map[string]string{}}
	for i := range recs {
		p, ok := d.opt.Index.Lookup(headPart, recs[i].Name, recs[i].Size, recs[i].Version)
		if !ok {
			continue
		}
		if heads[i] = parser.parseHead(&p); heads[i] == nil {
			continue
		}
		for _, f := range heads[i].findings {
			d.recordFinding(-1, f)
		}
	}
	d.pool.indexed = slices.Clone(heads)
	return heads
}

// recordHead passes the head of a recording that was opened to the index.
func (d *Dataset) recordHead(rec int, h *recordingHead) {
	r := &d.pool.recs[rec]
	if !d.opt.usesIndex() || r.Version == "" {
		return
	}
	e := store.Entry{Name: r.Name, Size: r.Size, Version: r.Version}
	d.opt.Index.Record(headPart, e, h.encode)
}

// plainFinding is a finding whose JSON has the hint as it is.
type plainFinding robocache.Finding

// encode returns the head as the payload of a record.
func (h *recordingHead) encode() *recindex.Payload {
	p := &recindex.Payload{Shared: [][]byte{encodeTopics(h.topics)}, Own: []byte{headVersion}}
	own := p.Own
	for _, n := range h.counts {
		own = recindex.AppendNumber(own, n)
	}
	own = recindex.AppendNumber(own, h.bytes)
	own = recindex.AppendNumber(own, int64(len(h.notes)))
	for _, key := range slices.Sorted(maps.Keys(h.notes)) {
		own = recindex.AppendText(own, key)
		if text := h.notes[key]; len(text) < minShared {
			own = recindex.AppendText(recindex.AppendNumber(own, 0), text)
		} else {
			own = recindex.AppendNumber(own, int64(len(p.Shared)))
			p.Shared = append(p.Shared, []byte(text))
		}
	}
	var findings []byte
	if len(h.findings) > 0 {
		var err error
		plain := make([]plainFinding, len(h.findings))
		for i, f := range h.findings {
			plain[i] = plainFinding(f)
		}
		if findings, err = json.Marshal(plain); err != nil {
			return nil
		}
	}
	p.Own = recindex.AppendText(own, string(findings))
	return p
}

// encodeTopics encodes topics without their numbers of messages.
func encodeTopics(topics []TopicInfo) []byte {
	b := recindex.AppendNumber([]byte{headVersion}, int64(len(topics)))
	for i := range topics {
		t := &topics[i]
		for _, text := range []string{
			t.Name, t.Type, t.SchemaEncoding, t.SchemaText, t.Encoding,
		} {
			b = recindex.AppendText(b, text)
		}
		flags := int64(0)
		for bit, isSet := range []bool{t.Publish, t.Sequence, t.Latched, t.Metadata != nil} {
			if isSet {
				flags |= 1 << bit
			}
		}
		b = recindex.AppendNumber(recindex.AppendNumber(b, flags), int64(len(t.Metadata)))
		for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
			b = recindex.AppendText(recindex.AppendText(b, key), t.Metadata[key])
		}
	}
	return b
}

// parseTopics decodes the result of encodeTopics. It returns nil if b is damaged.
func parseTopics(b []byte) []TopicInfo {
	if len(b) == 0 || b[0] != headVersion {
		return nil
	}
	c := recindex.NewCursor(b[1:])
	topics := []TopicInfo{}
	for range c.Count() {
		t := TopicInfo{
			Name: c.Text(), Type: c.Text(), SchemaEncoding: c.Text(), SchemaText: c.Text(),
			Encoding: c.Text(),
		}
		flags := c.Number()
		t.Publish, t.Sequence, t.Latched = flags&1 != 0, flags&2 != 0, flags&4 != 0
		if flags&8 != 0 {
			t.Metadata = map[string]string{}
		}
		for range c.Count() {
			key := c.Text()
			if t.Metadata == nil || c.Err() != nil {
				return nil
			}
			t.Metadata[key] = c.Text()
		}
		if c.Err() != nil {
			return nil
		}
		topics = append(topics, t)
	}
	if len(c.Rest()) > 0 || c.Err() != nil {
		return nil
	}
	return topics
}

// headSharer makes the heads of opened recordings share equal topics and notes. Safe for concurrent
// use.
type headSharer struct {
	mu     sync.Mutex
	topics map[string][]TopicInfo // by the result of encodeTopics
	texts  headParser
}

// shareEqual replaces the topics and notes of h by equal ones of earlier heads.
func (s *headSharer) shareEqual(h *recordingHead) {
	encoded := encodeTopics(h.topics)
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.topics[string(encoded)]
	if !ok {
		known = slices.Clone(h.topics)
		s.topics[string(encoded)] = known
	}
	h.topics = known
	notes := make(map[string]string, len(h.notes))
	for key, text := range h.notes {
		notes[s.texts.text([]byte(key))] = s.texts.text([]byte(text))
	}
	h.notes = notes
}

// headParser decodes heads. Equal topics and texts share memory.
type headParser struct {
	topics map[int64][]TopicInfo // by number of the shared block
	texts  map[string]string
	shared map[int64]string // long texts by number of the shared block
}

// maxKnownTexts limits the texts that headParser remembers.
const maxKnownTexts = 1 << 16

// text returns the text of b.
func (p *headParser) text(b []byte) string {
	if known, ok := p.texts[string(b)]; ok {
		return known
	}
	text := string(b)
	if len(p.texts) < maxKnownTexts {
		p.texts[text] = text
	}
	return text
}

// parseHead decodes a payload. It returns nil if the payload is damaged.
func (p *headParser) parseHead(in *recindex.Payload) *recordingHead {
	if len(in.Own) == 0 || in.Own[0] != headVersion || len(in.Shared) == 0 {
		return nil
	}
	topics, ok := p.topics[in.IDs[0]]
	if !ok {
		topics = parseTopics(in.Shared[0])
		p.topics[in.IDs[0]] = topics
	}
	if topics == nil {
		return nil
	}
	c := recindex.NewCursor(in.Own[1:])
	h := &recordingHead{
		topics: topics,
		counts: make([]int64, len(topics)),
		notes:  map[string]string{},
	}
	for i := range h.counts {
		h.counts[i] = c.Number()
	}
	h.bytes = c.Number()
	for range c.Count() {
		key, block := p.text(c.Bytes()), c.Number()
		switch {
		case block == 0:
			h.notes[key] = p.text(c.Bytes())
		case block < int64(len(in.Shared)):
			h.notes[key] = p.sharedText(in.IDs[block], in.Shared[block])
		default:
			return nil
		}
	}
	findings := c.Bytes()
	if c.Err() != nil || len(c.Rest()) > 0 {
		return nil
	}
	if len(findings) > 0 && json.Unmarshal(findings, &h.findings) != nil {
		return nil
	}
	return h
}

// sharedText returns the text of a shared block.
func (p *headParser) sharedText(id int64, b []byte) string {
	text, ok := p.shared[id]
	if !ok {
		if p.shared == nil {
			p.shared = map[int64]string{}
		}
		text = string(b)
		p.shared[id] = text
	}
	return text
}
