package bag

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
)

// track contains the rows of one topic in one episode.
type track struct {
	clocks []rows // parallel to topic.clocks
	// full is true if the payloads were read. All timestamps are then known, and messages that are
	// lost to damage are excluded. Otherwise the rows are those of the index.
	full bool
}

// rows are the rows of one clock of a topic, in the order of the chosen clock.
type rows struct {
	timestamps
	msg   []int32 // message of each row; nil means base + row
	base  int32
	entry []int32 // row within the message; nil means 0
	n     int     // number of rows
}

// messageOf returns the message of row i, as its number in the topic.
func (r *rows) messageOf(i int) int32 {
	if r.msg == nil {
		return r.base + int32(i)
	}
	return r.msg[i]
}

// entryOf returns the position of a row in its message.
func (r *rows) entryOf(i int) int {
	if r.entry == nil {
		return 0
	}
	return int(r.entry[i])
}

// memoryBytes returns the size of a track in the cache.
func (t *track) memoryBytes() (n int64) {
	const overhead = 200 // about the size of a rows
	for _, r := range t.clocks {
		n += 4 * int64(len(r.msg)+len(r.entry))
		n += 8 * int64(len(r.header)+len(r.publish)+len(r.log))
		n += overhead
	}
	return n
}

type trackKey struct {
	ep, topic int
	full      bool
}

// needsPayload reports whether the rows of a topic require its messages. The index is enough only
// for one row per message by the clock log.
func (d *Dataset) needsPayload(t *topic) bool {
	return t.clock != Log || t.manyRows
}

// trackOf returns the rows of a topic in an episode. full requests rows from the payloads, not from
// the index. When trackOf reads payloads, the same pass may also load other topics (see loadPlain).
func (d *Dataset) trackOf(ctx context.Context, ep, topic int, full bool) *track {
	t := d.topics[topic]
	full = full || d.needsPayload(t)
	t.requested.Store(true)
	defer guard.At(robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key})
	return leafcache.Load(ctx, d.tracks, trackKey{ep, topic, full}, func() (*track, int64) {
		tr := d.loadTrack(ctx, ep, topic, full)
		return tr, tr.memoryBytes()
	})
}

// episodeSpan returns the range of a topic's messages that belongs to an episode by log time. For a
// latched topic, the range begins with the recording.
func (d *Dataset) episodeSpan(e *episode, t *topic, log []int64) (from, to int) {
	from = 0
	to = len(log)
	if e.whole {
		return from, to
	}
	to = firstAtOrAfter(log, e.to)
	if !t.latched {
		from = firstAtOrAfter(log, e.from)
	}
	return min(from, to), to
}

// firstAtOrAfter returns the first position whose time is at or after t.
func firstAtOrAfter(at []int64, t int64) int {
	i, _ := slices.BinarySearch(at, t)
	return i
}

// loadTrack reads the rows of a topic in an episode. It uses the index if full is false, and the
// messages otherwise.
func (d *Dataset) loadTrack(ctx context.Context, ep, topic int, full bool) (out *track) {
	e := d.openEpisode(ep)
	t := d.topics[topic]
	storageIndex := t.storageIndex[e.rec]
	if storageIndex < 0 { // the recording lacks the topic
		return &track{clocks: make([]rows, len(t.clocks)), full: full}
	}
	d.useStorage(ctx, e.rec, func(s Storage) {
		ix := guard.Must(s.Index(ctx, storageIndex))
		from, to := d.episodeSpan(e, t, ix.Log)
		switch {
		case !full:
			r := rows{
				timestamps: timestamps{log: ix.Log[from:to:to]},
				base:       int32(from),
				n:          to - from,
			}
			if ix.Publish != nil {
				r.publish = ix.Publish[from:to:to]
			}
			out = &track{clocks: []rows{r}}
		case !t.manyRows:
			out = d.loadPlain(ctx, s, e, ep, topic)
		default:
			out = d.loadEntries(ctx, s, t, storageIndex, from, to)
		}
	})
	return out
}

// unreadMessages counts the messages of a topic that cannot be read.
type unreadMessages struct {
	count int64
	first error
}

// addError counts message i of topic t, and keeps the error of the first one.
func (u *unreadMessages) addError(t *topic, i int, err error) {
	u.count++
	if u.first == nil {
		u.first = robocache.At(err, robocache.Where{"stream": t.key, "index": i})
	}
}

// reportUnread records a finding for messages that cannot be read. It fails the call if the dataset
// is strict.
func (d *Dataset) reportUnread(ep int, t *topic, u unreadMessages) {
	if u.count > 0 && d.opt.Strict {
		guard.Fail(u.first)
	}
	if u.count > 0 {
		d.recordFinding(ep, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "malformed-message",
			Where:    robocache.Where{"stream": t.key},
			Message: fmt.Sprintf(
				"%d messages cannot be read and are left out; the first: %v",
				u.count,
				u.first,
			),
			Count: u.count,
		})
	}
}

// sortRows sorts rows by their clock. It returns the permutation, or nil if they were in order.
func (d *Dataset) sortRows(r *rows, clock string) []int32 {
	order := guard.Must(rowOrder(r.byClock(clock), d.opt.Tolerance.Nanoseconds(), clock))
	if order != nil {
		r.pickRows(order)
	}
	return order
}

// topicPass is one topic in a pass over a recording.
type topicPass struct {
	topic      *topic
	topicIndex int     // index of the topic in the dataset
	from, to   int     // messages of the episode
	log        []int64 // log times of all messages of the topic

	// The slices below are parallel to the messages of the episode.
	header       []int64 // header timestamps; nil if the topic has none
	headersKnown bool    // header was filled during Open
	publish      []int64
	readable     []bool // the message was found, and its payload can be read

	columns *columnFiller // nil if columns are not filled
	unread  unreadMessages
}

// addMessage reads the times and columns of message i.
func (p *topicPass) addMessage(i int, m *Message) {
	k := i - p.from
	p.publish[k] = m.Publish
	var err error
	if p.topic.hasHeader && !p.headersKnown {
		var stamped bool
		p.header[k], stamped, err = p.topic.dec.Timestamp(m.Data)
		if err == nil && !stamped {
			err = robocache.Malformed("times", nil, "a message without a timestamp")
		}
	}
	if err == nil && p.columns != nil {
		err = p.columns.putRow(k, m.Data)
	}
	p.readable[k] = err == nil
	if err != nil {
		p.unread.addError(p.topic, i, err)
	}
}

// loadPlain reads timestamps and columns of a topic with one row per message. If the episode
// contains all messages of the topic, the pass over the recording also reads other topics with one
// row per message: those that a read requested in this or another episode, and that are not in the
// cache. A consumer usually reads the same topics of each episode.
func (d *Dataset) loadPlain(ctx context.Context, s Storage, e *episode, ep, topic int) *track {
	own := d.newPass(ctx, s, e, topic)
	ownIndex := own.topic.storageIndex[e.rec]
	hasAll := own.from == 0 && own.to == len(own.log)
	if !hasAll {
		guard.Check(s.Messages(
			ctx,
			ownIndex,
			own.from,
			own.to,
			func(i int, m *Message) error { own.addMessage(i, m); return nil },
		))
		return d.finishTrack(own, ep)
	}
	indices := []int{ownIndex} // storage index of the topic of each pass
	passes := map[int]*topicPass{ownIndex: own}
	for i, t := range d.topics {
		index := t.storageIndex[e.rec]
		if i == topic || index < 0 || passes[index] != nil {
			continue
		}
		if !t.requested.Load() || !d.needsPayload(t) || t.manyRows {
			continue
		}
		if _, ok := d.tracks.Peek(trackKey{ep, i, true}); !ok {
			indices = append(indices, index)
			passes[index] = d.newPass(ctx, s, e, i)
		}
	}
	failed, err := s.Walk(ctx, indices, func(index, i int, m *Message) error {
		if p := passes[index]; i >= p.from && i < p.to {
			p.addMessage(i, m)
		}
		return nil
	})
	guard.Check(cmp.Or(err, failed[ownIndex]))
	for _, index := range indices[1:] {
		if failed[index] != nil {
			continue // reported when the topic is read
		}
		p := passes[index]
		// An error is ignored here: it is reported when the topic is read.
		if tr, err := guard.Value(func() *track { return d.finishTrack(p, ep) }); err == nil {
			d.tracks.Put(trackKey{ep, p.topicIndex, true}, tr, tr.memoryBytes())
		}
	}
	return d.finishTrack(own, ep)
}

// newPass prepares reading the messages of a topic in an episode.
func (d *Dataset) newPass(ctx context.Context, s Storage, e *episode, topicIndex int) *topicPass {
	t := d.topics[topicIndex]
	log := guard.Must(s.Index(ctx, t.storageIndex[e.rec])).Log
	p := &topicPass{topic: t, topicIndex: topicIndex, log: log}
	p.from, p.to = d.episodeSpan(e, t, log)
	n := p.to - p.from
	p.publish = make([]int64, n)
	p.readable = make([]bool, n)
	if t.hasHeader {
		if known := t.headerTimes[e.rec]; len(known) == len(log) {
			p.header = slices.Clone(known[p.from:p.to])
			p.headersKnown = true
		} else {
			p.header = make([]int64, n)
		}
	}
	// Columns are filled only if the rows of the topic always come from its payloads. Otherwise
	// later reads of blocks use the rows of the index. Those include messages that are lost to
	// damage, but the rows of this pass do not.
	if d.needsPayload(t) {
		p.columns = d.newFiller(t, n)
	}
	return p
}

// finishTrack returns the track of a pass: the rows that could be read, in the order of their
// clock.
func (d *Dataset) finishTrack(p *topicPass, ep int) *track {
	d.reportUnread(ep, p.topic, p.unread)
	r := rows{
		base: int32(p.from),
		n:    p.to - p.from,
		timestamps: timestamps{
			header:  p.header,
			publish: p.publish,
			log:     slices.Clone(p.log[p.from:p.to]),
		},
	}
	var kept []int32 // nil means all rows
	if slices.Contains(p.readable, false) {
		kept = make([]int32, 0, r.n)
		for i, readable := range p.readable {
			if readable {
				kept = append(kept, int32(i))
			}
		}
		r.pickRows(kept)
	}
	order := d.sortRows(&r, p.topic.clock)
	if kept == nil {
		kept = order
	} else {
		kept = reader.Permute(kept, order)
	}
	if p.columns != nil {
		p.columns.storeBlocks(d, ep, p.topicIndex, kept)
	}
	return &track{clocks: []rows{r}, full: true}
}

// pickRows keeps the listed rows, in that order.
func (r *rows) pickRows(list []int32) {
	msg := make([]int32, len(list))
	for i, row := range list {
		msg[i] = r.messageOf(int(row))
	}
	r.msg = msg
	r.n = len(list)
	r.entry = reader.Permute(r.entry, list)
	r.header = reader.Permute(r.header, list)
	r.publish = reader.Permute(r.publish, list)
	r.log = reader.Permute(r.log, list)
}

// loadEntries reads a topic whose messages contain any number of rows, on several clocks.
func (d *Dataset) loadEntries(
	ctx context.Context,
	s Storage,
	t *topic,
	storageIndex, from, to int,
) *track {
	// A scan changes the columns of its decoder. A separate decoder leaves the decoder of the
	// dataset unchanged. It begins with the columns of the dataset, because a recording may have
	// them in another order.
	e := &entryCollector{
		topic: t,
		dec:   guard.Must(t.dec.Clone()),
		known: map[string]int{},
		rows:  make([]rows, len(t.clocks)),
	}
	for i, c := range t.clocks {
		e.known[c] = i
	}
	guard.Check(s.Messages(
		ctx,
		storageIndex,
		from,
		to,
		func(i int, m *Message) error { e.addMessage(i, m); return nil },
	))
	d.reportUnread(-1, t, e.unread)
	out := &track{clocks: e.rows[:len(t.clocks)], full: true}
	if more := len(e.rows) - len(t.clocks); more > 0 {
		d.recordFinding(-1, robocache.Finding{
			Severity: robocache.SeverityWarning,
			Code:     "late-streams",
			Where:    robocache.Where{"stream": t.key},
			Message: fmt.Sprintf(
				"%d streams begin after the messages that were read to list them; they are "+
					"left out",
				more,
			),
			Hint:  "open with " + robocache.Option("options", "scan", "all"),
			Count: int64(more),
		})
	}
	for i := range out.clocks {
		d.sortRows(&out.clocks[i], t.clock)
	}
	return out
}

// entryCollector collects the rows of messages that contain several.
type entryCollector struct {
	topic  *topic
	dec    *ros2.Topic
	known  map[string]int // clock → index in rows
	rows   []rows         // those of topic.clocks, then those of new clocks
	unread unreadMessages
}

// entryRow is one row of a message. clock is its number in the decoder of the collector.
type entryRow struct {
	clock, entry int
	timestamp    int64
}

// addMessage collects the rows of message i. A clock that topic.clocks lacks gets a further element
// of e.rows.
func (e *entryCollector) addMessage(i int, m *Message) {
	var found []entryRow
	err := e.dec.Scan(m.Data, func(clock, entry int, timestamp int64, stamped bool) {
		found = append(found, entryRow{clock, entry, timestamp})
	})
	if err != nil {
		e.unread.addError(e.topic, i, err)
		return
	}
	// The decoder of the collector may number the clocks in another order than the topic.
	names := e.dec.Clocks()
	for _, f := range found {
		if f.clock >= len(names) {
			continue
		}
		name := names[f.clock]
		k, ok := e.known[name]
		if !ok {
			k = len(e.rows)
			e.known[name] = k
			e.rows = append(e.rows, rows{})
		}
		r := &e.rows[k]
		r.msg = append(r.msg, int32(i))
		r.entry = append(r.entry, int32(f.entry))
		r.header = append(r.header, f.timestamp)
		r.publish = append(r.publish, m.Publish)
		r.log = append(r.log, m.Log)
		r.n++
	}
}
