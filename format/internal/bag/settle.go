package bag

import (
	"context"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// headerCheck is what the messages that were read say of the headers of a topic.
type headerCheck struct {
	stamped   bool
	code, why string // against them
}

// watcher reads the rows of one recording's messages.
type watcher struct {
	dec  *ros2.Topic
	rows []timestamps // by clock
	err  error        // of the first message that is wrong
	at   int

	log int64 // of the message that row is called for
	row func(clock, entry int, timestamp int64, stamped bool)
}

func newWatcher(dec *ros2.Topic) *watcher {
	w := &watcher{dec: dec}
	w.row = func(clock, _ int, timestamp int64, stamped bool) {
		if !stamped {
			return
		}
		for clock >= len(w.rows) {
			w.rows = append(w.rows, timestamps{})
		}
		c := &w.rows[clock]
		c.header, c.log = append(c.header, timestamp), append(c.log, w.log)
	}
	return w
}

// expect makes room for the timestamps of so many messages, which mostly are rows of the first clock.
func (w *watcher) expect(n int) {
	if len(w.rows) == 0 {
		w.rows = append(w.rows, timestamps{})
	}
	w.rows[0].header, w.rows[0].log = slices.Grow(w.rows[0].header, n), slices.Grow(w.rows[0].log, n)
}

func (w *watcher) take(i int, m *Message) {
	w.log = m.Log
	if err := w.dec.Scan(m.Data, w.row); err != nil && w.err == nil {
		w.err, w.at = err, i
	}
}

// add adds what was seen.
func (j *headerCheck) add(w *watcher, tolerance int64) {
	for _, c := range w.rows {
		j.stamped = j.stamped || len(c.header) > 0
		if j.why == "" {
			j.code, j.why = verdict(c.header, c.log, tolerance)
		}
	}
	for k := range w.rows {
		w.rows[k].header, w.rows[k].log = w.rows[k].header[:0], w.rows[k].log[:0]
	}
}

// settling is what reading all messages of a topic finds.
type settling struct {
	t *topic
	w *watcher
	j headerCheck
	n int // messages of the recording that is read
	// all is how many it has by its index
	all int
}

func (s *settling) take(i int, m *Message) {
	s.n++
	s.w.take(i, m)
}

// settle reads every message once: it settles the columns of the decoders, and shows which headers are no clock.
func (d *Dataset) settle(ctx context.Context) error {
	list := make([]*settling, len(d.topics))
	for i, t := range d.topics {
		list[i] = &settling{t: t, w: newWatcher(t.dec)}
	}
	for rec := range d.pool.recs {
		guard.Check(d.settleRecording(ctx, rec, list))
	}
	for _, s := range list {
		d.refresh(s.t)
		for _, f := range s.t.dec.Findings() {
			d.notice(-1, f)
		}
		guard.Check(d.chooseClock(s.t, &s.j))
	}
	return nil
}

// settleRecording reads the messages of one recording: in one pass.
func (d *Dataset) settleRecording(ctx context.Context, rec int, list []*settling) error {
	here := map[int]*settling{}
	var places []int
	for _, s := range list {
		if p := s.t.place[rec]; p >= 0 && s.t.counts[rec] > 0 {
			here[p], places = s, append(places, p)
			s.n = 0
		}
	}
	if len(places) == 0 {
		return nil
	}
	var failed map[int]error
	err := d.pool.use(ctx, rec, func(st Storage) (err error) {
		for _, p := range places {
			if ix, err := st.Index(ctx, p); err == nil {
				here[p].all = len(ix.Log)
				here[p].w.expect(len(ix.Log))
			}
		}
		failed, err = st.Walk(ctx, places, func(place, i int, m *Message) error {
			here[place].take(i, m)
			return nil
		})
		return err
	})
	for _, p := range places {
		s := here[p]
		t := s.t
		own := failed[p]
		if own == nil {
			own = err
		}
		if own != nil {
			if fatal(own) || d.opt.Strict {
				return own
			}
			d.notice(-1, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-recording", Where: robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key}, Message: own.Error()})
			continue
		}
		if s.w.err != nil && d.opt.Strict {
			return robocache.At(s.w.err, robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key, "index": s.w.at})
		}
		t.counts[rec] = int64(s.n)
		d.keepTimestamps(rec, s)
		s.j.add(s.w, d.stepsAllowed())
	}
	return nil
}

// keepStamps keeps the headers of a recording's messages, where each has one and all are there: who asks for its rows need not read them again.
func (d *Dataset) keepTimestamps(rec int, s *settling) {
	if s.w.err != nil || len(s.w.rows) != 1 || len(s.w.rows[0].header) != s.n || s.n != s.all {
		return
	}
	if d.kept += 8 * int64(s.n); d.kept > d.opt.Budget/16 {
		return
	}
	if s.t.header == nil {
		s.t.header = map[int][]int64{}
	}
	s.t.header[rec] = slices.Clone(s.w.rows[0].header)
}

// probe checks a topic by its first messages alone.
func (d *Dataset) probe(t *topic) error {
	dec := guard.Must(ros2.NewTopic(t.name, t.schema, t.first))
	w := newWatcher(dec)
	for i, b := range t.first {
		w.take(i, &Message{Log: t.firstLog[i], Data: b})
	}
	var j headerCheck
	j.add(w, d.stepsAllowed())
	return d.chooseClock(t, &j)
}

// chooseClock settles the clock of a topic: as asked, else header where the type has one and it is plausible, else log.
func (d *Dataset) chooseClock(t *topic, j *headerCheck) error {
	asked, byName := d.opt.Clock, false
	if d.opt.Map != nil {
		for _, m := range d.opt.Map.Streams {
			for _, from := range m.From {
				if (m.Clock == Header || m.Clock == Publish || m.Clock == Log) && t.owns(from) {
					asked, byName = m.Clock, true
				}
			}
		}
	}
	t.stamped = j.stamped
	if t.restored && asked == "" {
		asked = Log // the writer's timestamps: headers are the same, and round nothing either, but zero is a time there
	}
	switch {
	case asked == Header && !t.stamped || asked == Publish && !t.publish:
		if byName {
			return &robocache.Error{Class: robocache.ErrMisuse, Op: "open", Where: robocache.Where{"stream": t.key}, Msg: "clock " + asked, Want: "a clock that the stream has", Got: t.typ + " has none"}
		}
		t.choice = Log // asked of all streams: those that have it
	case asked != "":
		t.choice = asked
	case t.stamped && j.why == "":
		t.choice = Header
	default:
		t.choice = Log
		if t.stamped {
			d.notice(-1, robocache.Finding{Severity: robocache.SeverityWarning, Code: j.code, Where: robocache.Where{"stream": t.key},
				Message: j.why + ": the recorder's time is taken (clock log)", Hint: "open with the option clock=header to take them all the same"})
		}
	}
	return nil
}

// owns says that a stream's key is one of the topic's.
func (t *topic) owns(key string) bool {
	return key == t.key || key == t.name || strings.HasPrefix(key, t.key+".")
}

// stepsAllowed is how far a plausible header may step back; where episodes begin at steps, as far as it likes.
func (d *Dataset) stepsAllowed() int64 {
	if d.opt.EpisodesBy == "steps" {
		return 1 << 61
	}
	return d.opt.Tolerance.Nanoseconds()
}
