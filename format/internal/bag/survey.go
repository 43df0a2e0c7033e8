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
	topic      *topic
	dec        *ros2.Topic
	onRow      func(clock, entry int, timestamp int64, stamped bool)
	messageLog int64 // log time of the message for which onRow is called
	messages   int   // messages read of the current recording
	indexed    int   // messages in the index of the current recording
	// for each clock, the times of the rows with a header in the current recording
	rows     []timestamps
	err      error // error of the first malformed message
	errIndex int

	hasHeader    bool   // at least one message has a header
	code, reason string // reason why the headers cannot be the clock
}

// newSurvey returns an empty survey of topic t, which scans the messages with dec.
func newSurvey(t *topic, dec *ros2.Topic) *survey {
	s := &survey{topic: t, dec: dec, rows: make([]timestamps, 1)}
	s.onRow = func(clock, _ int, timestamp int64, stamped bool) {
		if !stamped {
			return
		}
		for clock >= len(s.rows) {
			s.rows = append(s.rows, timestamps{})
		}
		c := &s.rows[clock]
		c.header = append(c.header, timestamp)
		c.log = append(c.log, s.messageLog)
	}
	return s
}

// reserve allocates space for the timestamps of a recording's messages. Most messages are rows of
// the first clock.
func (s *survey) reserve(n int) {
	s.indexed = n
	first := &s.rows[0]
	first.header, first.log = slices.Grow(first.header, n), slices.Grow(first.log, n)
}

// addMessage scans message i of the current recording and collects the times of its rows.
func (s *survey) addMessage(i int, m *Message) {
	s.messages++
	s.messageLog = m.Log
	if err := s.dec.Scan(m.Data, s.onRow); err != nil && s.err == nil {
		s.err, s.errIndex = err, i
	}
}

// judgeHeaders decides whether the headers of the current recording can be the clock. If not, it
// stores the reason, unless an earlier recording had one. It then drops the collected times.
func (s *survey) judgeHeaders(tolerance int64) {
	for k := range s.rows {
		times := &s.rows[k]
		s.hasHeader = s.hasHeader || len(times.header) > 0
		if s.reason == "" {
			s.code, s.reason = headerFault(times.header, times.log, tolerance)
		}
		times.header, times.log = times.header[:0], times.log[:0]
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
		d.refreshFields(s.topic)
		for _, f := range s.topic.dec.Findings() {
			d.recordFinding(-1, f)
		}
		d.chooseClock(s)
	}
}

// surveyRecording reads the messages of one recording in one pass.
func (d *Dataset) surveyRecording(ctx context.Context, rec int, list []*survey) {
	surveyAt := map[int]*survey{} // by the topic's index in the storage
	var indices []int
	for _, s := range list {
		if index := s.topic.storageIndex[rec]; index >= 0 && s.topic.counts[rec] > 0 {
			surveyAt[index] = s
			indices = append(indices, index)
			s.messages = 0
		}
	}
	if len(indices) == 0 {
		return
	}
	var failed map[int]error
	err := d.pool.withStorage(ctx, rec, func(st Storage) (err error) {
		for _, index := range indices {
			if ix, err := st.Index(ctx, index); err == nil {
				surveyAt[index].reserve(len(ix.Log))
			}
		}
		failed, err = st.Walk(ctx, indices, func(index, i int, m *Message) error {
			surveyAt[index].addMessage(i, m)
			return nil
		})
		return err
	})
	for _, index := range indices {
		s := surveyAt[index]
		t := s.topic
		if topicErr := cmp.Or(failed[index], err); topicErr != nil {
			d.failIfFatal(topicErr)
			d.recordFinding(-1, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "unreadable-recording",
				Where:    robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key},
				Message:  topicErr.Error(),
			})
			continue
		}
		if s.err != nil && d.opt.Strict {
			guard.Fail(robocache.At(s.err, robocache.Where{
				"file":   d.pool.recs[rec].Name,
				"stream": t.key,
				"index":  s.errIndex,
			}))
		}
		t.counts[rec] = int64(s.messages)
		d.keepTimestamps(rec, s)
		s.judgeHeaders(d.maxStepBack())
	}
}

// keepTimestamps keeps the header timestamps of a recording's messages, so that later reads of the
// rows do not need the messages. It does so only if every message was read and is one row with a
// header. The timestamps of all topics together take at most a sixteenth of the budget.
func (d *Dataset) keepTimestamps(rec int, s *survey) {
	readAll := s.err == nil && s.messages == s.indexed
	hasOneClock := len(s.rows) == 1
	if !readAll || !hasOneClock || len(s.rows[0].header) != s.messages {
		return
	}
	if d.headerTimesBytes += 8 * int64(s.messages); d.headerTimesBytes > d.opt.Budget/16 {
		return
	}
	if s.topic.headerTimes == nil {
		s.topic.headerTimes = map[int][]int64{}
	}
	s.topic.headerTimes[rec] = slices.Clone(s.rows[0].header)
}

// surveySample chooses the clock of a topic by its first messages only.
func (d *Dataset) surveySample(t *topic) {
	s := newSurvey(t, guard.Must(ros2.NewTopic(t.name, t.schema, t.samples)))
	for i, b := range t.samples {
		s.addMessage(i, &Message{Log: t.sampleLogs[i], Data: b})
	}
	s.judgeHeaders(d.maxStepBack())
	d.chooseClock(s)
}

// chooseClock chooses the clock of a topic: the requested one, otherwise header if the type has a
// plausible one, otherwise log.
func (d *Dataset) chooseClock(s *survey) {
	t := s.topic
	requested := d.opt.Clock
	byMapping := false // the mapping names a clock for this topic
	if d.opt.Map != nil {
		for _, m := range d.opt.Map.Streams {
			for _, from := range m.From {
				if (m.Clock == Header || m.Clock == Publish || m.Clock == Log) && t.ownsKey(from) {
					requested = m.Clock
					byMapping = true
				}
			}
		}
	}
	t.hasHeader = s.hasHeader
	if t.restored && requested == "" {
		// The log times and the headers both are the original timestamps. Log is better, because a
		// header of 0 counts as missing.
		requested = Log
	}
	switch {
	case requested == Header && !t.hasHeader || requested == Publish && !t.hasPublish:
		if byMapping {
			guard.Fail(
				robocache.Misuse("open", robocache.Where{"stream": t.key}, "clock %s", requested).
					Expected("a clock that the stream has", t.typ+" has none"),
			)
		}
		t.clock = Log // requested for all streams, but this one does not have it
	case requested != "":
		t.clock = requested
	case t.hasHeader && s.reason == "":
		t.clock = Header
	default:
		t.clock = Log
		if t.hasHeader {
			d.recordFinding(-1, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     s.code,
				Where:    robocache.Where{"stream": t.key},
				Message:  s.reason + ": the recorder's time is taken (clock log)",
				Hint: "open with " + robocache.Option("options", "clock", "header") +
					" to take them all the same",
			})
		}
	}
}

// ownsKey reports whether key names the topic or one of its streams.
func (t *topic) ownsKey(key string) bool {
	return key == t.key || key == t.name || strings.HasPrefix(key, t.key+".")
}

// maxStepBack returns how far a plausible header may step back. If episodes begin at steps, there
// is no limit.
func (d *Dataset) maxStepBack() int64 {
	if d.opt.EpisodesBy == "steps" {
		return 1 << 61 // ns, 73 years; small enough to be subtracted from a timestamp
	}
	return d.opt.Tolerance.Nanoseconds()
}
