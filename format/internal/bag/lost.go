package bag

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// counter reads one sender's count of its messages, in the order in which they were recorded.
type counter struct {
	n, lost int64
	first   int // place of the message before which the first are missing
	last    uint32
	steps   map[uint32]int64 // how often the count went up by more than one, by how much
}

// stride is the step by which the count mostly goes up, where that is not one: a filter, or a
// recorder that keeps every so manyth, left the others out. What stands in for a loss is told by
// the steps, not by their sum: one long gap is a loss.
func (c *counter) stride() uint32 {
	var jumps int64
	for _, n := range c.steps {
		jumps += n
	}
	if c.n < 3 || 2*jumps <= c.n-1 {
		return 0
	}
	values := slices.Sorted(maps.Keys(c.steps))
	half := jumps / 2
	for _, v := range values { // the middle one
		if half -= c.steps[v]; half < 0 {
			return v
		}
	}
	return values[len(values)-1]
}

// What a count may do without being a loss: a message that comes late steps back a little, a sender
// that begins anew steps far.
const (
	latest = 64
	anew   = 1 << 20
)

func (c *counter) take(seq uint32, place int) {
	step := int32(seq - c.last)
	switch {
	case c.n == 0 || step >= anew || step < -latest:
		c.last = seq
	case step > 0:
		if step > 1 {
			if c.lost == 0 {
				c.first = place
			}
			c.lost += int64(step) - 1
			if c.steps == nil {
				c.steps = map[uint32]int64{}
			}
			c.steps[uint32(step)]++
		}
		c.last = seq
	case step < 0:
		c.lost = max(0, c.lost-1) // late, not lost
	}
	c.n++
}

type sender struct {
	topic  int
	source uint32
}

// lost finds messages that their senders counted and the recording does not hold.
func (d *Dataset) lost(ctx context.Context, ep int) (out []robocache.Finding) {
	e := &d.eps[ep]
	d.use(ctx, e.rec, func(s Storage) {
		senders := map[sender]*counter{}
		var all []uint32
		infos := s.Topics()
		for k, info := range infos {
			if !info.Sequence || info.Messages == 0 {
				continue
			}
			from, to := d.span(e, &topic{}, guard.Must(s.Index(ctx, k)).Log)
			guard.Check(s.Messages(ctx, k, from, to, func(i int, m *Message) error {
				id := sender{k, m.Source}
				if senders[id] == nil {
					senders[id] = &counter{}
				}
				senders[id].take(m.Sequence, i)
				all = append(all, m.Sequence)
				return nil
			}))
		}
		if n, one := oneCount(all, len(senders)); one {
			if n > 0 {
				out = append(out, robocache.Finding{
					Severity: robocache.SeverityWarning,
					Code:     "lost-messages",
					Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep)},
					Count:    n,
					Message: fmt.Sprintf(
						"%d messages are missing of %d, by the recorder's count over all topics",
						n,
						n+int64(len(all)),
					),
					Hint: "give the recorder a larger buffer; align with max_gap",
				})
			}
			return
		}
		ids := slices.SortedFunc(
			maps.Keys(senders),
			func(a, b sender) int { return cmp.Or(a.topic-b.topic, cmp.Compare(a.source, b.source)) },
		)
		for _, id := range ids {
			if c := senders[id]; c.lost > 0 {
				out = append(
					out,
					lostFinding(
						robocache.Where{
							"episode": d.About.EpisodeIndex(ep),
							"stream":  strings.TrimPrefix(infos[id.topic].Name, "/"),
							"row":     c.first,
						},
						c,
					),
				)
			}
		}
	})
	return out
}

// lostFinding tells of messages that a sender counted; where most of its numbers are left out
// evenly, of that, and of no loss.
func lostFinding(where robocache.Where, c *counter) robocache.Finding {
	if s := c.stride(); s > 1 && c.lost > c.n-2 {
		delete(where, "row")
		return robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "numbers-stride",
			Where:    where,
			Count:    c.n,
			Message: fmt.Sprintf(
				"the sender's numbers run on with a stride, by %d most of the time: %d messages of %d, as where a filter or a recorder keeps every so manyth; what is lost beside that cannot be told by them",
				s,
				c.n,
				c.n+c.lost,
			),
		}
	}
	return robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "lost-messages",
		Where:    where,
		Count:    c.lost,
		Message: fmt.Sprintf(
			"%d messages are missing of %d: the sender counted them, the recording does not hold them; the first before message %d",
			c.lost,
			c.n+c.lost,
			c.first,
		),
		Hint: "give the recorder a larger buffer; align with max_gap",
	}
}

// oneCount says whether a recorder counted the messages of all topics in one row, and how many of
// those are missing.
func oneCount(all []uint32, senders int) (missing int64, one bool) {
	if senders < 2 || len(all) < 2*senders {
		return 0, false
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			return 0, false
		}
	}
	missing = int64(all[len(all)-1]) - int64(all[0]) + 1 - int64(len(all))
	return missing, missing <= int64(len(all))
}

// countedRows finds what is missing by the seq of headers, as types from ROS 1 carry it.
func (d *Dataset) countedRows(
	ctx context.Context,
	ep int,
	t *topic,
	f *robocache.Feature,
	rows int,
) []robocache.Finding {
	if !strings.HasSuffix(f.Key, "header.seq") || f.RowBytes() != 4 || t.latched || rows == 0 {
		return nil
	}
	want := reader.Rows(ep, 0, rows)
	dst := make([]byte, 4*rows)
	guard.Check(d.Gather(ctx, f.Key, want, dst))
	var c counter
	for i := range want {
		c.take(binary.LittleEndian.Uint32(dst[4*i:]), i)
	}
	if c.lost == 0 {
		return nil
	}
	return []robocache.Finding{
		lostFinding(
			robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": f.Key, "row": c.first},
			&c,
		),
	}
}
