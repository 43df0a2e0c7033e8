package bag

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// survey is what reading messages of a topic finds.
type survey struct {
	t    *topic
	dec  *ros2.Topic
	row  func(clock, entry int, timestamp int64, stamped bool)
	log  int64 // of the message that row is called for
	n    int   // messages of the recording that is read
	all  int   // that it has by its index
	rows []timestamps
	err  error // of the first message that is wrong
	at   int

	stamped   bool   // some message has a header
	code, why string // against the headers
}

func newSurvey(t *topic, dec *ros2.Topic) *survey {
	s := &survey{t: t, dec: dec, rows: make([]timestamps, 1)}
	s.row = func(clock, _ int, timestamp int64, stamped bool) {
		if !stamped {
			return
		}
		for clock >= len(s.rows) {
			s.rows = append(s.rows, timestamps{})
		}
		c := &s.rows[clock]
		c.header, c.log = append(c.header, timestamp), append(c.log, s.log)
	}
	return s
}

// expect makes room for the timestamps of the messages of a recording, which mostly are rows of the
// first clock.
func (s *survey) expect(n int) {
	s.all = n
	s.rows[0].header, s.rows[0].log = slices.Grow(
		s.rows[0].header,
		n,
	), slices.Grow(
		s.rows[0].log,
		n,
	)
}

func (s *survey) take(i int, m *Message) {
	s.n++
	s.log = m.Log
	if err := s.dec.Scan(m.Data, s.row); err != nil && s.err == nil {
		s.err, s.at = err, i
	}
}

// weigh looks at the headers of a recording's messages, and lets go of them.
func (s *survey) weigh(tolerance int64) {
	for k := range s.rows {
		c := &s.rows[k]
		s.stamped = s.stamped || len(c.header) > 0
		if s.why == "" {
			s.code, s.why = verdict(c.header, c.log, tolerance)
		}
		c.header, c.log = c.header[:0], c.log[:0]
	}
}

// settle reads every message once: it settles the columns of the decoders, and shows which headers
// are no clock.
func (d *Dataset) settle(ctx context.Context) {
	list := make([]*survey, len(d.topics))
	for i, t := range d.topics {
		list[i] = newSurvey(t, t.dec)
	}
	for rec := range d.pool.recs {
		d.settleRecording(ctx, rec, list)
	}
	for _, s := range list {
		d.refresh(s.t)
		for _, f := range s.t.dec.Findings() {
			d.notice(-1, f)
		}
		d.chooseClock(s)
	}
}

// settleRecording reads the messages of one recording: in one pass.
func (d *Dataset) settleRecording(ctx context.Context, rec int, list []*survey) {
	here := map[int]*survey{}
	var places []int
	for _, s := range list {
		if p := s.t.place[rec]; p >= 0 && s.t.counts[rec] > 0 {
			here[p], places = s, append(places, p)
			s.n = 0
		}
	}
	if len(places) == 0 {
		return
	}
	var failed map[int]error
	err := d.pool.use(ctx, rec, func(st Storage) (err error) {
		for _, p := range places {
			if ix, err := st.Index(ctx, p); err == nil {
				here[p].expect(len(ix.Log))
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
		if own := cmp.Or(failed[p], err); own != nil {
			d.bear(own)
			d.notice(
				-1,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-recording",
					Where:    robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key},
					Message:  own.Error(),
				},
			)
			continue
		}
		if s.err != nil && d.opt.Strict {
			guard.Fail(
				robocache.At(
					s.err,
					robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key, "index": s.at},
				),
			)
		}
		t.counts[rec] = int64(s.n)
		d.keepTimestamps(rec, s)
		s.weigh(d.stepsAllowed())
	}
}

// keepTimestamps keeps the headers of a recording's messages, where each has one and all are there:
// who asks for its rows need not read them again.
func (d *Dataset) keepTimestamps(rec int, s *survey) {
	if s.err != nil || len(s.rows) != 1 || len(s.rows[0].header) != s.n || s.n != s.all {
		return
	}
	if d.kept += 8 * int64(s.n); d.kept > d.opt.Budget/16 {
		return
	}
	if s.t.header == nil {
		s.t.header = map[int][]int64{}
	}
	s.t.header[rec] = slices.Clone(s.rows[0].header)
}

// probe checks a topic by its first messages alone.
func (d *Dataset) probe(t *topic) {
	s := newSurvey(t, guard.Must(ros2.NewTopic(t.name, t.schema, t.first)))
	for i, b := range t.first {
		s.take(i, &Message{Log: t.firstLog[i], Data: b})
	}
	s.weigh(d.stepsAllowed())
	d.chooseClock(s)
}

// chooseClock settles the clock of a topic: as asked, else header where the type has one and it is
// plausible, else log.
func (d *Dataset) chooseClock(s *survey) {
	t := s.t
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
	t.stamped = s.stamped
	if t.restored && asked == "" {
		// the writer's timestamps: headers are the same, and round nothing either, but zero is a
		// time there
		asked = Log
	}
	switch {
	case asked == Header && !t.stamped || asked == Publish && !t.publish:
		if byName {
			guard.Fail(
				robocache.Misuse("open", robocache.Where{"stream": t.key}, "clock %s", asked).
					Expected("a clock that the stream has", t.typ+" has none"),
			)
		}
		t.choice = Log // asked of all streams: those that have it
	case asked != "":
		t.choice = asked
	case t.stamped && s.why == "":
		t.choice = Header
	default:
		t.choice = Log
		if t.stamped {
			d.notice(-1, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     s.code,
				Where:    robocache.Where{"stream": t.key},
				Message:  s.why + ": the recorder's time is taken (clock log)",
				Hint: "open with " + robocache.Option(
					"options",
					"clock",
					"header",
				) + " to take them all the same",
			})
		}
	}
}

// owns says that a stream's key is one of the topic's.
func (t *topic) owns(key string) bool {
	return key == t.key || key == t.name || strings.HasPrefix(key, t.key+".")
}

// stepsAllowed is how far a plausible header may step back; where episodes begin at steps, as far
// as it likes.
func (d *Dataset) stepsAllowed() int64 {
	if d.opt.EpisodesBy == "steps" {
		return 1 << 61
	}
	return d.opt.Tolerance.Nanoseconds()
}
