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

// survey collects information about a topic while its messages are read.
type survey struct {
	t    *topic
	dec  *ros2.Topic
	row  func(clock, entry int, timestamp int64, stamped bool)
	log  int64 // log time of the message for which row is called
	n    int   // messages read of the current recording
	all  int   // messages in the index of the current recording
	rows []timestamps
	err  error // error of the first malformed message
	at   int

	stamped   bool   // at least one message has a header
	code, why string // reason why the headers cannot be the clock
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

// reserve allocates space for the timestamps of a recording's messages. Most messages are rows of
// the first clock.
func (s *survey) reserve(n int) {
	s.all = n
	first := &s.rows[0]
	first.header, first.log = slices.Grow(first.header, n), slices.Grow(first.log, n)
}

func (s *survey) addMessage(i int, m *Message) {
	s.n++
	s.log = m.Log
	if err := s.dec.Scan(m.Data, s.row); err != nil && s.err == nil {
		s.err, s.at = err, i
	}
}

// judgeHeaders checks the headers of a recording's messages and then drops them.
func (s *survey) judgeHeaders(tolerance int64) {
	for k := range s.rows {
		c := &s.rows[k]
		s.stamped = s.stamped || len(c.header) > 0
		if s.why == "" {
			s.code, s.why = headerFault(c.header, c.log, tolerance)
		}
		c.header, c.log = c.header[:0], c.log[:0]
	}
}

// surveyAll reads every message once. It determines the columns of the decoders and finds headers
// that cannot be a clock.
func (d *Dataset) surveyAll(ctx context.Context) {
	list := make([]*survey, len(d.topics))
	for i, t := range d.topics {
		list[i] = newSurvey(t, t.dec)
	}
	for rec := range d.pool.recs {
		d.surveyRecording(ctx, rec, list)
	}
	for _, s := range list {
		d.refreshFields(s.t)
		for _, f := range s.t.dec.Findings() {
			d.recordFinding(-1, f)
		}
		d.chooseClock(s)
	}
}

// surveyRecording reads the messages of one recording in one pass.
func (d *Dataset) surveyRecording(ctx context.Context, rec int, list []*survey) {
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
	err := d.pool.withStorage(ctx, rec, func(st Storage) (err error) {
		for _, p := range places {
			if ix, err := st.Index(ctx, p); err == nil {
				here[p].reserve(len(ix.Log))
			}
		}
		failed, err = st.Walk(ctx, places, func(place, i int, m *Message) error {
			here[place].addMessage(i, m)
			return nil
		})
		return err
	})
	for _, p := range places {
		s := here[p]
		t := s.t
		if own := cmp.Or(failed[p], err); own != nil {
			d.failIfFatal(own)
			d.recordFinding(
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
		s.judgeHeaders(d.stepsAllowed())
	}
}

// keepTimestamps keeps the headers of a recording's messages if all messages have one. Later reads
// of the rows then do not need the messages.
func (d *Dataset) keepTimestamps(rec int, s *survey) {
	if s.err != nil || len(s.rows) != 1 || len(s.rows[0].header) != s.n || s.n != s.all {
		return
	}
	if d.kept += 8 * int64(s.n); d.kept > d.opt.Budget/16 {
		return
	}
	if s.t.headerTimes == nil {
		s.t.headerTimes = map[int][]int64{}
	}
	s.t.headerTimes[rec] = slices.Clone(s.rows[0].header)
}

// surveySample checks a topic by its first messages only.
func (d *Dataset) surveySample(t *topic) {
	s := newSurvey(t, guard.Must(ros2.NewTopic(t.name, t.schema, t.first)))
	for i, b := range t.first {
		s.addMessage(i, &Message{Log: t.firstLog[i], Data: b})
	}
	s.judgeHeaders(d.stepsAllowed())
	d.chooseClock(s)
}

// chooseClock chooses the clock of a topic: the requested one, otherwise header if the type has a
// plausible one, otherwise log.
func (d *Dataset) chooseClock(s *survey) {
	t := s.t
	asked, byName := d.opt.Clock, false
	if d.opt.Map != nil {
		for _, m := range d.opt.Map.Streams {
			for _, from := range m.From {
				if (m.Clock == Header || m.Clock == Publish || m.Clock == Log) && t.ownsKey(from) {
					asked, byName = m.Clock, true
				}
			}
		}
	}
	t.stamped = s.stamped
	if t.restored && asked == "" {
		// The log times are the original timestamps. Headers are equal, but there a timestamp of 0
		// counts as missing.
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
		t.clock = Log // requested for all streams, but this one does not have it
	case asked != "":
		t.clock = asked
	case t.stamped && s.why == "":
		t.clock = Header
	default:
		t.clock = Log
		if t.stamped {
			d.recordFinding(-1, robocache.Finding{
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

// ownsKey reports whether key is a stream of the topic.
func (t *topic) ownsKey(key string) bool {
	return key == t.key || key == t.name || strings.HasPrefix(key, t.key+".")
}

// stepsAllowed returns how far a plausible header may step back. If episodes begin at steps, there
// is no limit.
func (d *Dataset) stepsAllowed() int64 {
	if d.opt.EpisodesBy == "steps" {
		return 1 << 61
	}
	return d.opt.Tolerance.Nanoseconds()
}
