package bag

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// cutEpisodes divides the recordings into episodes: one per recording, or parts of recordings by
// log time.
func (d *Dataset) cutEpisodes(ctx context.Context, errs []error) {
	method, arg, _ := strings.Cut(d.opt.EpisodesBy, ":")
	failOption := func(want string) {
		guard.Fail(robocache.Misuse("open", nil, "option episodes_by").
			Expected(want, strconv.Quote(d.opt.EpisodesBy)))
	}
	// cut divides one recording; nil means one episode per recording. logTimes holds the sorted log
	// times of its messages.
	var cut func(rec int, logTimes []int64) []episode
	switch method {
	case "", "file":
	case "gap":
		s, err := strconv.ParseFloat(arg, 64)
		if err != nil || !(s > 0 && s < 1e9) {
			failOption("gap:<seconds>")
		}
		cut = func(rec int, logTimes []int64) []episode {
			return cutGaps(rec, logTimes, int64(s*1e9))
		}
	case "events":
		if arg == "" {
			failOption("events:<topic>")
		}
		cut = func(rec int, logTimes []int64) []episode {
			return d.cutEvents(ctx, rec, logTimes, arg)
		}
	case "table":
		spans := parseTable(arg)
		cut = func(rec int, logTimes []int64) []episode { return cutTable(rec, logTimes, spans) }
	case "steps":
		cut = func(rec int, logTimes []int64) []episode { return d.cutSteps(ctx, rec, logTimes) }
	default:
		failOption("file, gap:<seconds>, events:<topic>, table:<from>-<to>,… or steps")
	}
	for rec, r := range d.pool.recs {
		if errs[rec] != nil {
			d.episodes = append(d.episodes, episode{rec: rec, whole: true, err: errs[rec]})
			d.recordFinding(len(d.episodes)-1, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "unreadable-recording",
				Where:    robocache.Where{"file": r.Name},
				Message:  errs[rec].Error(),
				Lost:     true,
			})
			continue
		}
		eps := []episode{{rec: rec, whole: true}}
		if cut != nil {
			err := guard.Try(func() {
				logTimes := d.mergedLogTimes(ctx, rec)
				if len(logTimes) > 0 || method == "events" || method == "table" {
					eps = cut(rec, logTimes)
				}
			})
			guard.Check(robocache.At(err, robocache.Where{"file": r.Name}))
		}
		d.episodes = append(d.episodes, eps...)
	}
}

// forEachMessage calls fn for the messages of a topic in a recording. span selects messages by
// their log times; nil selects all.
func (d *Dataset) forEachMessage(
	ctx context.Context,
	rec int,
	t *topic,
	span func(log []int64) (from, to int),
	fn func(i int, m *Message) error,
) {
	d.useStorage(ctx, rec, func(s Storage) {
		ix := guard.Must(s.Index(ctx, t.storageIndex[rec]))
		from := 0
		to := len(ix.Log)
		if span != nil {
			from, to = span(ix.Log)
		}
		guard.Check(s.Messages(ctx, t.storageIndex[rec], from, to, fn))
	})
}

// logTimes returns the log times of a topic in a recording.
func (d *Dataset) logTimes(ctx context.Context, rec int, t *topic) (log []int64) {
	d.useStorage(
		ctx,
		rec,
		func(s Storage) { log = guard.Must(s.Index(ctx, t.storageIndex[rec])).Log },
	)
	return log
}

// mergedLogTimes returns the sorted log times of all topics of a recording that are not latched.
func (d *Dataset) mergedLogTimes(ctx context.Context, rec int) (logTimes []int64) {
	for _, t := range d.topics {
		if t.storageIndex[rec] >= 0 && !t.latched {
			logTimes = append(logTimes, d.logTimes(ctx, rec, t)...)
		}
	}
	slices.Sort(logTimes)
	return logTimes
}

// cutGaps makes an episode of each run of messages without a gap of more than gap nanoseconds.
func cutGaps(rec int, logTimes []int64, gap int64) (out []episode) {
	from := logTimes[0]
	for i := 1; i < len(logTimes); i++ {
		if logTimes[i]-logTimes[i-1] > gap {
			out = append(out, episode{rec: rec, from: from, to: logTimes[i-1] + 1})
			from = logTimes[i]
		}
	}
	return append(out, episode{rec: rec, from: from, to: logTimes[len(logTimes)-1] + 1})
}

// minEpochTime is the smallest value in a table that is in nanoseconds since the epoch. Smaller
// values are in seconds from the start of the recording.
const minEpochTime = 1e12

// parseTable parses spans such as "0-10,20-30.5" (see minEpochTime).
func parseTable(arg string) [][2]float64 {
	var out [][2]float64
	for _, part := range strings.FieldsFunc(arg, func(r rune) bool {
		return r == ',' || r == ';'
	}) {
		a, b, ok := strings.Cut(strings.TrimSpace(part), "-")
		from, err1 := strconv.ParseFloat(a, 64)
		to, err2 := strconv.ParseFloat(b, 64)
		if !ok || err1 != nil || err2 != nil || !(from < to) || math.IsInf(to, 0) || from < 0 {
			guard.Fail(robocache.Misuse("open", nil, "option episodes_by").
				Expected("table:<from>-<to>,… with from < to", strconv.Quote(part)))
		}
		out = append(out, [2]float64{from, to})
	}
	if len(out) == 0 {
		guard.Fail(robocache.Misuse("open", nil, "option episodes_by").
			Expected("table:<from>-<to>,…", "no span"))
	}
	return out
}

// cutTable makes an episode of each span of parseTable that contains a message. logTimes holds the
// sorted log times of the recording.
func cutTable(rec int, logTimes []int64, spans [][2]float64) (out []episode) {
	for _, s := range spans {
		if len(logTimes) == 0 {
			break
		}
		from, to := s[0], s[1]
		e := episode{rec: rec}
		if from >= minEpochTime {
			e.from, e.to = int64(from), int64(to)
		} else {
			e.from = logTimes[0] + int64(math.Round(from*1e9))
			e.to = logTimes[0] + int64(math.Round(to*1e9))
		}
		if i := firstAtOrAfter(logTimes, e.from); i < len(logTimes) && logTimes[i] < e.to {
			out = append(out, e)
		}
	}
	return out
}

// cutEvents makes episodes from a topic of events. A text such as stop or done closes the open
// episode, and any other text closes it and opens the next one (see addText). For booleans and
// numbers, a change to nonzero opens an episode and a change to zero closes it. Only the first
// element of an array counts.
func (d *Dataset) cutEvents(
	ctx context.Context,
	rec int,
	logTimes []int64,
	name string,
) (out []episode) {
	var t *topic
	for _, o := range d.topics {
		if o.name == name || o.key == name || ros2.Key(name) == o.key {
			t = o
		}
	}
	if t == nil || len(t.fields) == 0 {
		guard.Fail(robocache.Misuse("open", nil, "option episodes_by").
			Expected("events:<topic> with a topic of the recordings", name))
	}
	if t.storageIndex[rec] < 0 {
		return nil
	}
	field := slices.IndexFunc(t.fields, func(f ros2.Field) bool {
		isNumber := f.Feature.Kind == robocache.KindNumeric && f.Feature.RowBytes() > 0
		return isNumber || f.Feature.Kind == robocache.KindText
	})
	if field < 0 {
		guard.Fail(robocache.Misuse("open", nil, "option episodes_by").
			Expected("a topic of texts, booleans or numbers", t.typ))
	}
	f := &t.fields[field].Feature
	if len(logTimes) == 0 {
		return nil
	}
	events := eventCutter{rec: rec, openedAt: -1}
	d.forEachMessage(ctx, rec, t, nil, func(_ int, m *Message) error {
		if f.Kind == robocache.KindNumeric {
			row := make([]byte, f.RowBytes())
			if _, err := t.dec.Numeric(m.Data, field, 0, row); err != nil {
				return err
			}
			isNonzero := func(b byte) bool { return b != 0 }
			firstElement := row[:f.DType.Size()]
			events.addState(m.Log, slices.ContainsFunc(firstElement, isNonzero))
			return nil
		}
		text, err := t.dec.Text(m.Data, field, 0)
		if err != nil {
			return err
		}
		events.addText(m.Log, text)
		return nil
	})
	events.closeEpisode(logTimes[len(logTimes)-1] + 1)
	return events.episodes
}

// eventCutter makes episodes from events.
type eventCutter struct {
	rec      int
	episodes []episode
	openedAt int64 // log time at which the open episode begins, or -1 if none is open
	isOn     bool  // last state
}

// closeEpisode ends the open episode, if there is one, at a log time.
func (c *eventCutter) closeEpisode(at int64) {
	if c.openedAt >= 0 && at > c.openedAt {
		c.episodes = append(c.episodes, episode{rec: c.rec, from: c.openedAt, to: at})
	}
	c.openedAt = -1
}

// addState opens an episode if the state becomes on, and closes it if it becomes off.
func (c *eventCutter) addState(at int64, isOn bool) {
	if isOn && !c.isOn {
		c.openedAt = at
	} else if !isOn && c.isOn {
		c.closeEpisode(at)
	}
	c.isOn = isOn
}

// addText closes the open episode. It opens the next one unless the text states an end.
func (c *eventCutter) addText(at int64, text string) {
	c.closeEpisode(at)
	word := strings.ToLower(strings.TrimSpace(text))
	begins := func(prefix string) bool { return strings.HasPrefix(word, prefix) }
	ends := []string{"stop", "end", "done", "finish", "abort", "cancel"}
	if !slices.ContainsFunc(ends, begins) {
		c.openedAt = at
	}
}

// cutSteps begins a new episode at each message whose timestamp steps back by more than the
// tolerance. The timestamps are publish times if that clock is requested, otherwise headers. The
// boundaries are log times. Nothing is interpolated across them.
func (d *Dataset) cutSteps(ctx context.Context, rec int, logTimes []int64) []episode {
	var steps []int64 // log times of messages that step back
	for _, t := range d.topics {
		if t.storageIndex[rec] < 0 || t.manyRows || d.opt.Clock == Log {
			continue
		}
		const none = math.MinInt64
		latest := int64(none) // latest timestamp since the last step
		d.forEachMessage(ctx, rec, t, nil, func(_ int, m *Message) error {
			at := m.Publish
			hasTime := true
			if d.opt.Clock != Publish {
				var err error
				if at, hasTime, err = t.dec.Timestamp(m.Data); err != nil {
					return nil // reported when the message is read
				}
			}
			if !hasTime || at == 0 {
				return nil
			}
			if latest != none && at < latest-d.opt.Tolerance.Nanoseconds() {
				steps = append(steps, m.Log)
				latest = at
			}
			latest = max(latest, at)
			return nil
		})
	}
	if len(steps) == 0 {
		return []episode{{rec: rec, whole: true}}
	}
	slices.Sort(steps)
	// A clock that steps back affects several streams at almost the same time. Steps within one
	// second therefore begin only one episode.
	var out []episode
	from := logTimes[0]
	for i, s := range steps {
		sameCause := i > 0 && s-steps[i-1] < int64(time.Second)
		if sameCause || s <= from {
			continue
		}
		out = append(out, episode{rec: rec, from: from, to: s})
		from = s
	}
	d.recordFinding(-1, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "clock-steps-back",
		Where:    robocache.Where{"file": d.pool.recs[rec].Name},
		Message:  fmt.Sprintf("a clock steps back %d times: an episode begins at each", len(steps)),
		Count:    int64(len(steps)),
	})
	return append(out, episode{rec: rec, from: from, to: logTimes[len(logTimes)-1] + 1})
}
