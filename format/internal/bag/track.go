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
	// the payloads were read: all timestamps are known, and messages that are lost to damage are
	// excluded
	full bool
}

// rows are the rows of one clock of a topic, in the order of the chosen clock.
type rows struct {
	timestamps
	msg   []int32 // message of each row; nil means base + row
	base  int32
	entry []int32 // row within the message; nil means 0
	n     int
}

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

func (t *track) memoryBytes() (n int64) {
	const overhead = 200
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

// needsPayload reports whether the times of a topic's rows are not in the index.
func (d *Dataset) needsPayload(t *topic) bool {
	return t.clock != Log || t.manyRows
}

// trackOf returns the rows of a topic in an episode. It loads other topics that were requested
// before in the same pass.
func (d *Dataset) trackOf(ctx context.Context, ep, topic int, full bool) *track {
	t := d.topics[topic]
	full = full || d.needsPayload(t)
	t.requested.Store(true)
	defer guard.At(robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key})
	return leafcache.Load(ctx, d.tracks, trackKey{ep, topic, full}, func() (*track, int64) {
		v := d.loadTrack(ctx, ep, topic, full)
		return v, v.memoryBytes()
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

func (d *Dataset) loadTrack(ctx context.Context, ep, topic int, full bool) (out *track) {
	e := d.openEpisode(ep)
	t := d.topics[topic]
	place := t.storageIndex[e.rec]
	if place < 0 {
		return &track{clocks: make([]rows, len(t.clocks)), full: full}
	}
	d.useStorage(ctx, e.rec, func(s Storage) {
		ix := guard.Must(s.Index(ctx, place))
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
			out = d.loadEntries(ctx, s, t, place, from, to)
		}
	})
	return out
}

// unreadMessages counts the messages of a topic that cannot be read.
type unreadMessages struct {
	count int64
	first error
}

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
	p := guard.Must(rowOrder(r.byClock(clock), d.opt.Tolerance.Nanoseconds(), clock))
	if p != nil {
		r.pickRows(p)
	}
	return p
}

// topicPass is one topic in a pass over a recording.
type topicPass struct {
	topic      *topic
	number     int // index of the topic in the dataset
	from, to   int
	log        []int64
	timestamps []int64 // header timestamps
	publish    []int64
	// for each message: it was found, and its payload can be read
	good    []bool
	cols    *columnFiller
	settled bool // timestamps are already known
	unread  unreadMessages
}

func (j *topicPass) addMessage(i int, m *Message) {
	k := i - j.from
	j.publish[k] = m.Publish
	var err error
	if j.topic.hasHeader && !j.settled {
		var ok bool
		j.timestamps[k], ok, err = j.topic.dec.Timestamp(m.Data)
		if err == nil && !ok {
			err = robocache.Malformed("times", nil, "a message without a timestamp")
		}
	}
	if err == nil && j.cols != nil {
		err = j.cols.putRow(k, m.Data)
	}
	j.good[k] = err == nil
	if err != nil {
		j.unread.addError(j.topic, i, err)
	}
}

// loadPlain reads timestamps and columns of a topic with one row per message. If the episode
// contains all messages of the topic, loadPlain reads other such topics in the same pass, if they
// were requested before and are not in the cache.
func (d *Dataset) loadPlain(ctx context.Context, s Storage, e *episode, ep, topic int) *track {
	own := d.newPass(ctx, s, e, topic)
	ownIndex := own.topic.storageIndex[e.rec]
	if own.from != 0 || own.to != len(own.log) {
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
			d.tracks.Put(trackKey{ep, p.number, true}, tr, tr.memoryBytes())
		}
	}
	return d.finishTrack(own, ep)
}

// newPass prepares reading the messages of a topic in an episode.
func (d *Dataset) newPass(ctx context.Context, s Storage, e *episode, number int) *topicPass {
	t := d.topics[number]
	log := guard.Must(s.Index(ctx, t.storageIndex[e.rec])).Log
	p := &topicPass{topic: t, number: number, log: log}
	p.from, p.to = d.episodeSpan(e, t, log)
	n := p.to - p.from
	p.publish = make([]int64, n)
	p.good = make([]bool, n)
	if t.hasHeader {
		if h := t.headerTimes[e.rec]; len(h) == len(log) {
			p.timestamps = slices.Clone(h[p.from:p.to])
			p.settled = true
		} else {
			p.timestamps = make([]int64, n)
		}
	}
	// Fill columns only if times come from payloads. Otherwise block reads use the rows of the
	// index, which differ from the rows of this pass after damage.
	if d.needsPayload(t) {
		p.cols = d.newFiller(t, n)
	}
	return p
}

// finishTrack returns the track of a pass: the rows that could be read, in the order of their
// clock.
func (d *Dataset) finishTrack(j *topicPass, ep int) *track {
	d.reportUnread(ep, j.topic, j.unread)
	r := rows{
		base: int32(j.from),
		n:    j.to - j.from,
		timestamps: timestamps{
			header:  j.timestamps,
			publish: j.publish,
			log:     slices.Clone(j.log[j.from:j.to]),
		},
	}
	var kept []int32 // nil means all rows
	if slices.Contains(j.good, false) {
		kept = make([]int32, 0, r.n)
		for i, good := range j.good {
			if good {
				kept = append(kept, int32(i))
			}
		}
		r.pickRows(kept)
	}
	order := d.sortRows(&r, j.topic.clock)
	if kept == nil {
		kept = order
	} else {
		kept = reader.Permute(kept, order)
	}
	if j.cols != nil {
		j.cols.storeBlocks(d, ep, j.number, kept)
	}
	return &track{clocks: []rows{r}, full: true}
}

// pickRows keeps the rows p, in that order.
func (r *rows) pickRows(p []int32) {
	msg := make([]int32, len(p))
	for i, k := range p {
		msg[i] = r.messageOf(int(k))
	}
	r.msg = msg
	r.n = len(p)
	r.entry = reader.Permute(r.entry, p)
	r.header = reader.Permute(r.header, p)
	r.publish = reader.Permute(r.publish, p)
	r.log = reader.Permute(r.log, p)
}

// loadEntries reads a topic whose messages contain any number of rows, on several clocks.
func (d *Dataset) loadEntries(
	ctx context.Context,
	s Storage,
	t *topic,
	place, from, to int,
) *track {
	// A scan changes the columns of its decoder. A separate decoder leaves the decoder of the
	// dataset unchanged.
	e := &entryCollector{
		topic: t,
		dec:   guard.Must(ros2.NewTopic(t.name, t.schema, t.samples)),
		known: map[string]int{},
		rows:  make([]rows, len(t.clocks)),
	}
	for i, c := range t.clocks {
		e.known[c] = i
	}
	guard.Check(s.Messages(
		ctx,
		place,
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
	known  map[string]int // clock → index in topic.clocks
	rows   []rows
	unread unreadMessages
}

type entryRow struct {
	clock, entry int
	timestamp    int64
}

func (e *entryCollector) addMessage(i int, m *Message) {
	var found []entryRow
	err := e.dec.Scan(m.Data, func(clock, entry int, timestamp int64, stamped bool) {
		found = append(found, entryRow{clock, entry, timestamp})
	})
	if err != nil {
		e.unread.addError(e.topic, i, err)
		return
	}
	names := e.dec.Clocks()
	for _, f := range found {
		if f.clock >= len(names) {
			continue
		}
		k, ok := e.known[names[f.clock]]
		if !ok {
			k = len(e.rows)
			e.known[names[f.clock]] = k
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
