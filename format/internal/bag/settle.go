package bag

import (
	"context"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
)

// judgement is what the messages that were read say of the headers of a topic.
type judgement struct {
	stamped   bool
	code, why string // against them
}

// watcher reads the rows of one recording's messages.
type watcher struct {
	dec  *ros2.Topic
	rows map[int]*stamps
	err  error // of the first message that is wrong
	at   int
}

func (w *watcher) take(i int, m *Message) {
	err := w.dec.Scan(m.Data, func(clock, entry int, stamp int64, stamped bool) {
		if !stamped {
			return
		}
		c := w.rows[clock]
		if c == nil {
			c = &stamps{}
			w.rows[clock] = c
		}
		c.header, c.log = append(c.header, stamp), append(c.log, m.Log)
	})
	if err != nil && w.err == nil {
		w.err, w.at = err, i
	}
}

// judge adds what was seen.
func (j *judgement) judge(w *watcher, tolerance int64) {
	for _, c := range w.rows {
		j.stamped = true
		if j.why == "" {
			j.code, j.why = verdict(c.header, c.log, tolerance)
		}
	}
	clear(w.rows)
}

// settle reads every message once: it settles the columns of the decoders, and shows which headers are no clock.
func (d *Dataset) settle(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for _, t := range d.topics {
		g.Go(func() (err error) {
			defer guard("open", &err)
			return d.settleTopic(ctx, t)
		})
	}
	return g.Wait()
}

func (d *Dataset) settleTopic(ctx context.Context, t *topic) error {
	var j judgement
	w := watcher{dec: t.dec, rows: map[int]*stamps{}}
	for rec, place := range t.place {
		if place < 0 || t.counts[rec] == 0 {
			continue
		}
		n := 0
		err := d.pool.use(ctx, rec, func(s Storage) error {
			ix, err := s.Index(ctx, place)
			if err != nil {
				return err
			}
			return s.Messages(ctx, place, 0, len(ix.Log), func(i int, m *Message) error {
				n++
				w.take(i, m)
				return nil
			})
		})
		if err != nil {
			if fatal(err) || d.opt.Strict {
				return err
			}
			d.notice(-1, robocache.Finding{Severity: robocache.SeverityError, Code: "unreadable-recording", Where: robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key}, Message: err.Error()})
			continue
		}
		if w.err != nil && d.opt.Strict {
			return robocache.At(w.err, robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key, "index": w.at})
		}
		t.counts[rec] = int64(n)
		j.judge(&w, d.stepsAllowed())
	}
	d.refresh(t)
	for _, f := range t.dec.Findings() {
		d.notice(-1, f)
	}
	return d.chooseClock(t, &j)
}

// probe judges a topic by its first messages alone.
func (d *Dataset) probe(t *topic) error {
	dec, err := ros2.NewTopic(t.name, t.schema, t.first)
	if err != nil {
		return err
	}
	w := watcher{dec: dec, rows: map[int]*stamps{}}
	for i, b := range t.first {
		w.take(i, &Message{Log: t.firstLog[i], Data: b})
	}
	var j judgement
	j.judge(&w, d.stepsAllowed())
	return d.chooseClock(t, &j)
}

// chooseClock settles the clock of a topic: as asked, else header where the type has one and it is plausible, else log.
func (d *Dataset) chooseClock(t *topic, j *judgement) error {
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
		asked = Log // the writer's stamps: headers are the same, and round nothing either, but zero is a time there
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
				Message: j.why + ": the recorder's time is taken (clock log)", Mend: "open with the option clock=header to take them all the same"})
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
