package bag

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// track is the rows of one topic in one episode.
type track struct {
	clocks []rows // parallel to topic.clocks
	full   bool   // payloads were read: all timestamps are there, and messages that damage took are not
}

// rows are those of one clock of a topic, by the chosen clock.
type rows struct {
	timestamps
	msg   []int32 // message of each row; nil = base + row
	base  int32
	entry []int32 // row within the message; nil = 0
	n     int
}

func (r *rows) message(i int) int32 {
	if r.msg == nil {
		return r.base + int32(i)
	}
	return r.msg[i]
}

func (r *rows) bytes() int64 {
	return int64(len(r.msg)+len(r.entry))*4 + int64(len(r.header)+len(r.publish)+len(r.log))*8
}

func (t *track) bytes() (n int64) {
	for i := range t.clocks {
		n += t.clocks[i].bytes() + 200
	}
	return n
}

type trackKey struct {
	ep, topic int
	full      bool
}

// needsPayload says that the times of a topic's rows cannot be had from the index.
func (d *Dataset) needsPayload(t *topic) bool {
	return t.choice != Log || t.many
}

// track gives the rows of a topic in an episode. What is loaded with it: the other topics that were asked for before, in one pass.
func (d *Dataset) track(ctx context.Context, ep, topic int, full bool) (*track, error) {
	t := d.topics[topic]
	full = full || d.needsPayload(t)
	t.wanted.Store(true)
	v, err := d.tracks.Get(ctx, trackKey{ep, topic, full}, func() (*track, int64, error) {
		v, err := d.loadTrack(ctx, ep, topic, full)
		if err != nil {
			return nil, 0, err
		}
		return v, v.bytes(), nil
	})
	return v, robocache.At(err, robocache.Where{"episode": ep, "stream": t.key})
}

// span is the part of a topic's messages that belongs to an episode: by log time. A latched topic's begins with the recording.
func (d *Dataset) span(e *episode, t *topic, log []int64) (from, to int) {
	from, to = 0, len(log)
	if e.whole {
		return from, to
	}
	to = search(log, e.to)
	if !t.latched {
		from = search(log, e.from)
	}
	return min(from, to), to
}

// search is the first place whose time is at or after t.
func search(at []int64, t int64) int {
	i, _ := slices.BinarySearch(at, t)
	return i
}

func (d *Dataset) loadTrack(ctx context.Context, ep, topic int, full bool) (out *track, err error) {
	e, err := d.episode(ep)
	if err != nil {
		return nil, err
	}
	t := d.topics[topic]
	place := t.place[e.rec]
	if place < 0 {
		return &track{clocks: make([]rows, len(t.clocks)), full: full}, nil
	}
	err = d.pool.use(ctx, e.rec, func(s Storage) error {
		ix, err := s.Index(ctx, place)
		if err != nil {
			return err
		}
		from, to := d.span(e, t, ix.Log)
		switch {
		case !full:
			out = &track{clocks: []rows{{timestamps: timestamps{log: ix.Log[from:to:to], publish: cut(ix.Publish, from, to)}, base: int32(from), n: to - from}}}
		case !t.many:
			out, err = d.loadPlain(ctx, s, e, ep, topic)
		default:
			out, err = d.loadEntries(ctx, s, t, place, from, to)
		}
		return err
	})
	return out, err
}

func cut(v []int64, from, to int) []int64 {
	if v == nil {
		return nil
	}
	return v[from:to:to]
}

// job is one topic of a pass over a recording.
type job struct {
	topic      *topic
	number     int // of the topic in the dataset
	from, to   int
	log        []int64
	timestamps []int64 // header
	publish    []int64
	state      []uint8 // of each message: 0 not met (damage took it), 1 met, 2 its payload is wrong
	cols       *filler
	settled    bool  // timestamps are there
	err        error // of the first message that is wrong
}

func (j *job) take(i int, m *Message) {
	k := i - j.from
	j.publish[k] = m.Publish
	j.state[k] = 1
	if j.topic.stamped && !j.settled {
		ns, ok, err := j.topic.dec.Timestamp(m.Data)
		if err == nil && !ok {
			err = &robocache.Error{Class: robocache.ErrMalformed, Op: "times", Msg: "a message without a timestamp"}
		}
		if err != nil {
			j.wrong(k, err)
			return
		}
		j.timestamps[k] = ns
	}
	if j.cols != nil {
		if err := j.cols.put(k, m.Data); err != nil {
			j.wrong(k, err)
		}
	}
}

func (j *job) wrong(k int, err error) {
	j.state[k] = 2
	if j.err == nil {
		j.err = robocache.At(err, robocache.Where{"stream": j.topic.key, "index": k + j.from})
	}
}

// loadPlain reads timestamps and columns of a topic whose messages are one row each, and of the other such topics that were asked for.
func (d *Dataset) loadPlain(ctx context.Context, s Storage, e *episode, ep, topic int) (_ *track, err error) {
	defer guard.Malformed("recordings", &err)
	var jobs []*job
	var places []int
	at := map[int]*job{}
	add := func(number int) error {
		t := d.topics[number]
		ix, err := s.Index(ctx, t.place[e.rec])
		if err != nil {
			return err
		}
		j := &job{topic: t, number: number, log: ix.Log}
		j.from, j.to = d.span(e, t, ix.Log)
		n := j.to - j.from
		j.publish, j.state = make([]int64, n), make([]uint8, n)
		if t.stamped {
			if h := t.header[e.rec]; len(h) == len(ix.Log) {
				j.timestamps, j.settled = slices.Clone(h[j.from:j.to]), true
			} else {
				j.timestamps = make([]int64, n)
			}
		}
		if d.needsPayload(t) { // else the rows of the track that is read by are those of the index, and may be others where there is damage
			j.cols = d.newFiller(t, n)
		}
		jobs, places = append(jobs, j), append(places, t.place[e.rec])
		at[t.place[e.rec]] = j
		return nil
	}
	guard.Check(add(topic))
	if jobs[0].from == 0 && jobs[0].to == len(jobs[0].log) {
		for i, t := range d.topics {
			if i == topic || !t.wanted.Load() || !d.needsPayload(t) || t.many || t.place[e.rec] < 0 || at[t.place[e.rec]] != nil {
				continue
			}
			if _, ok := d.tracks.Peek(trackKey{ep, i, true}); ok {
				continue
			}
			guard.Check(add(i))
		}
		failed, err := s.Walk(ctx, places, func(topic, i int, m *Message) error {
			if j := at[topic]; i >= j.from && i < j.to {
				j.take(i, m)
			}
			return nil
		})
		guard.Check(cmp.Or(err, failed[places[0]]))
		for k := len(jobs) - 1; k > 0; k-- { // who reads them meets the error
			if failed[places[k]] != nil {
				jobs = slices.Delete(jobs, k, k+1)
			}
		}
	} else {
		j := jobs[0]
		err := s.Messages(ctx, places[0], j.from, j.to, func(i int, m *Message) error { j.take(i, m); return nil })
		if err != nil {
			return nil, err
		}
	}
	for _, j := range jobs[1:] {
		if tr, err := d.finish(j, ep); err == nil { // its own reader meets the error
			d.tracks.Put(trackKey{ep, j.number, true}, tr, tr.bytes())
		}
	}
	return d.finish(jobs[0], ep)
}

// finish makes a track of what a pass found: rows that are there, in the order of their clock.
func (d *Dataset) finish(j *job, ep int) (*track, error) {
	n := j.to - j.from
	r := rows{base: int32(j.from), n: n, timestamps: timestamps{header: j.timestamps, publish: j.publish, log: slices.Clone(j.log[j.from:j.to])}}
	lost, wrong := 0, 0
	for _, s := range j.state {
		if s == 0 {
			lost++
		} else if s == 2 {
			wrong++
		}
	}
	if wrong > 0 {
		if d.opt.Strict {
			return nil, j.err
		}
		d.notice(ep, robocache.Finding{Severity: robocache.SeverityError, Code: "malformed-message", Where: robocache.Where{"stream": j.topic.key}, Message: fmt.Sprintf("%d messages cannot be read and are left out; the first: %v", wrong, j.err), Count: int64(wrong)})
	}
	var p []int32
	if lost+wrong > 0 {
		p = make([]int32, 0, n)
		for i, s := range j.state {
			if s == 1 {
				p = append(p, int32(i))
			}
		}
		r.pick(p)
	}
	q, err := order(r.by(j.topic.choice), d.opt.Tolerance.Nanoseconds(), j.topic.choice)
	if err != nil {
		return nil, err
	}
	if q != nil {
		r.pick(q)
		p = compose(p, q)
	}
	if j.cols != nil {
		j.cols.keep(d, ep, j.number, p)
	}
	return &track{clocks: []rows{r}, full: true}, nil
}

// compose is q over p: first p, then q.
func compose(p, q []int32) []int32 {
	if p == nil {
		return q
	}
	return permute(p, q)
}

// pick keeps some rows, in an order.
func (r *rows) pick(p []int32) {
	msg := make([]int32, len(p))
	for i, k := range p {
		msg[i] = r.message(int(k))
	}
	r.msg, r.n = msg, len(p)
	r.entry = permute(r.entry, p)
	r.header, r.publish, r.log = permute(r.header, p), permute(r.publish, p), permute(r.log, p)
}

// loadEntries reads a topic whose messages hold any number of rows, on several clocks.
func (d *Dataset) loadEntries(ctx context.Context, s Storage, t *topic, place, from, to int) (*track, error) {
	// Scanning settles columns of the decoder that it runs on: a decoder of its own leaves the dataset's as it is.
	dec, err := ros2.NewTopic(t.name, t.schema, t.first)
	if err != nil {
		return nil, err
	}
	sc := newEntries(t, dec)
	err = s.Messages(ctx, place, from, to, func(i int, m *Message) error { sc.take(i, m); return nil })
	if err != nil {
		return nil, err
	}
	return sc.finish(d)
}

// entries collects the rows of messages that hold several.
type entries struct {
	topic *topic
	dec   *ros2.Topic
	known map[string]int // clock → place in topic.clocks
	rows  []rows
	wrong int
	err   error
}

func newEntries(t *topic, dec *ros2.Topic) *entries {
	e := &entries{topic: t, dec: dec, known: map[string]int{}}
	for i, c := range t.clocks {
		e.known[c] = i
	}
	e.rows = make([]rows, len(t.clocks))
	return e
}

type entryRow struct {
	clock, entry int
	timestamp    int64
}

func (e *entries) take(i int, m *Message) {
	var found []entryRow
	err := e.dec.Scan(m.Data, func(clock, entry int, timestamp int64, stamped bool) {
		found = append(found, entryRow{clock, entry, timestamp})
	})
	if err != nil {
		e.wrong++
		if e.err == nil {
			e.err = robocache.At(err, robocache.Where{"stream": e.topic.key, "index": i})
		}
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
		r.header, r.publish, r.log = append(r.header, f.timestamp), append(r.publish, m.Publish), append(r.log, m.Log)
		r.n++
	}
}

func (e *entries) finish(d *Dataset) (*track, error) {
	if e.wrong > 0 {
		if d.opt.Strict {
			return nil, e.err
		}
		d.notice(-1, robocache.Finding{Severity: robocache.SeverityError, Code: "malformed-message", Where: robocache.Where{"stream": e.topic.key}, Message: fmt.Sprintf("%d messages cannot be read and are left out; the first: %v", e.wrong, e.err), Count: int64(e.wrong)})
	}
	out := &track{clocks: e.rows[:len(e.topic.clocks)], full: true}
	if more := len(e.rows) - len(e.topic.clocks); more > 0 {
		d.notice(-1, robocache.Finding{Severity: robocache.SeverityWarning, Code: "late-streams", Where: robocache.Where{"stream": e.topic.key}, Message: fmt.Sprintf("%d streams begin after the messages that were read to list them; they are left out", more), Hint: "open with the option scan=all", Count: int64(more)})
	}
	for i := range out.clocks {
		r := &out.clocks[i]
		q, err := order(r.by(e.topic.choice), d.opt.Tolerance.Nanoseconds(), e.topic.choice)
		if err != nil {
			return nil, err
		}
		if q != nil {
			r.pick(q)
		}
	}
	return out, nil
}
