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
	for _, r := range t.clocks {
		n += int64(len(r.msg)+len(r.entry))*4 + int64(len(r.header)+len(r.publish)+len(r.log))*8 +
			200
	}
	return n
}

type trackKey struct {
	ep, topic int
	full      bool
}

// needsPayload reports whether the times of a topic's rows are not in the index.
func (d *Dataset) needsPayload(t *topic) bool {
	return t.clock != Log || t.many
}

// trackOf returns the rows of a topic in an episode. It loads other topics that were requested
// before in the same pass.
func (d *Dataset) trackOf(ctx context.Context, ep, topic int, full bool) *track {
	t := d.topics[topic]
	full = full || d.needsPayload(t)
	t.wanted.Store(true)
	defer guard.At(robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key})
	return leafcache.Load(ctx, d.tracks, trackKey{ep, topic, full}, func() (*track, int64) {
		v := d.loadTrack(ctx, ep, topic, full)
		return v, v.memoryBytes()
	})
}

// episodeSpan returns the range of a topic's messages that belongs to an episode by log time. For a
// latched topic, the range begins with the recording.
func (d *Dataset) episodeSpan(e *episode, t *topic, log []int64) (from, to int) {
	from, to = 0, len(log)
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
	place := t.place[e.rec]
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
		case !t.many:
			out = d.loadPlain(ctx, s, e, ep, topic)
		default:
			out = d.loadEntries(ctx, s, t, place, from, to)
		}
	})
	return out
}

// unreadMessages counts the messages of a topic that cannot be read.
type unreadMessages struct {
	n     int64
	first error
}

func (u *unreadMessages) addError(t *topic, i int, err error) {
	if u.n++; u.first == nil {
		u.first = robocache.At(err, robocache.Where{"stream": t.key, "index": i})
	}
}

// reportUnread records a finding for messages that cannot be read. It fails the call if the dataset
// is strict.
func (d *Dataset) reportUnread(ep int, t *topic, u unreadMessages) {
	if u.n > 0 && d.opt.Strict {
		guard.Fail(u.first)
	}
	if u.n > 0 {
		d.recordFinding(
			ep,
			robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "malformed-message",
				Where:    robocache.Where{"stream": t.key},
				Message: fmt.Sprintf(
					"%d messages cannot be read and are left out; the first: %v",
					u.n,
					u.first,
				),
				Count: u.n,
			},
		)
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
	if j.topic.stamped && !j.settled {
		var ok bool
		if j.timestamps[k], ok, err = j.topic.dec.Timestamp(m.Data); err == nil && !ok {
			err = robocache.Malformed("times", nil, "a message without a timestamp")
		}
	}
	if err == nil && j.cols != nil {
		err = j.cols.putRow(k, m.Data)
	}
	if j.good[k] = err == nil; err != nil {
		j.unread.addError(j.topic, i, err)
	}
}

// loadPlain reads timestamps and columns of a topic with one row per message. In the same pass it
// reads other such topics that were requested before.
func (d *Dataset) loadPlain(ctx context.Context, s Storage, e *episode, ep, topic int) *track {
	var jobs []*topicPass
	var places []int
	at := map[int]*topicPass{}
	add := func(number int) {
		t := d.topics[number]
		j := &topicPass{topic: t, number: number, log: guard.Must(s.Index(ctx, t.place[e.rec])).Log}
		j.from, j.to = d.episodeSpan(e, t, j.log)
		n := j.to - j.from
		j.publish, j.good = make([]int64, n), make([]bool, n)
		if t.stamped {
			if h := t.headerTimes[e.rec]; len(h) == len(j.log) {
				j.timestamps, j.settled = slices.Clone(h[j.from:j.to]), true
			} else {
				j.timestamps = make([]int64, n)
			}
		}
		// Otherwise block reads use the track of the index, whose rows may differ if there is
		// damage.
		if d.needsPayload(t) {
			j.cols = d.newFiller(t, n)
		}
		jobs, places = append(jobs, j), append(places, t.place[e.rec])
		at[t.place[e.rec]] = j
	}
	add(topic)
	if j := jobs[0]; j.from != 0 || j.to != len(j.log) {
		guard.Check(
			s.Messages(
				ctx,
				places[0],
				j.from,
				j.to,
				func(i int, m *Message) error { j.addMessage(i, m); return nil },
			),
		)
		return d.finishTrack(j, ep)
	}
	for i, t := range d.topics {
		if i == topic || !t.wanted.Load() || !d.needsPayload(t) || t.many || t.place[e.rec] < 0 ||
			at[t.place[e.rec]] != nil {
			continue
		}
		if _, ok := d.tracks.Peek(trackKey{ep, i, true}); !ok {
			add(i)
		}
	}
	failed, err := s.Walk(ctx, places, func(topic, i int, m *Message) error {
		if j := at[topic]; i >= j.from && i < j.to {
			j.addMessage(i, m)
		}
		return nil
	})
	guard.Check(cmp.Or(err, failed[places[0]]))
	for k, j := range jobs[1:] {
		if failed[places[k+1]] != nil {
			continue // reported when the topic is read
		}
		// An error is ignored here: it is reported when the topic is read.
		if tr, err := guard.Value(func() *track { return d.finishTrack(j, ep) }); err == nil {
			d.tracks.Put(trackKey{ep, j.number, true}, tr, tr.memoryBytes())
		}
	}
	return d.finishTrack(jobs[0], ep)
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
	var p []int32
	if slices.Contains(j.good, false) {
		p = make([]int32, 0, r.n)
		for i, good := range j.good {
			if good {
				p = append(p, int32(i))
			}
		}
		r.pickRows(p)
	}
	if q := d.sortRows(&r, j.topic.clock); p == nil {
		p = q
	} else {
		p = reader.Permute(p, q)
	}
	if j.cols != nil {
		j.cols.storeBlocks(d, ep, j.number, p)
	}
	return &track{clocks: []rows{r}, full: true}
}

// pickRows keeps the rows p, in that order.
func (r *rows) pickRows(p []int32) {
	msg := make([]int32, len(p))
	for i, k := range p {
		msg[i] = r.messageOf(int(k))
	}
	r.msg, r.n = msg, len(p)
	r.entry = reader.Permute(r.entry, p)
	r.header, r.publish = reader.Permute(r.header, p), reader.Permute(r.publish, p)
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
		dec:   guard.Must(ros2.NewTopic(t.name, t.schema, t.first)),
		known: map[string]int{},
		rows:  make([]rows, len(t.clocks)),
	}
	for i, c := range t.clocks {
		e.known[c] = i
	}
	guard.Check(
		s.Messages(
			ctx,
			place,
			from,
			to,
			func(i int, m *Message) error { e.addMessage(i, m); return nil },
		),
	)
	d.reportUnread(-1, t, e.unread)
	out := &track{clocks: e.rows[:len(t.clocks)], full: true}
	if more := len(e.rows) - len(t.clocks); more > 0 {
		d.recordFinding(
			-1,
			robocache.Finding{
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
			},
		)
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
		r.msg, r.entry = append(r.msg, int32(i)), append(r.entry, int32(f.entry))
		r.header, r.publish = append(r.header, f.timestamp), append(r.publish, m.Publish)
		r.log = append(r.log, m.Log)
		r.n++
	}
}
