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

// sequenceCounter counts the messages of one sender, and those that are missing by their sequence
// numbers. Messages are added in the order of recording.
type sequenceCounter struct {
	count, lost int64  // messages that were added, and that are missing between them
	firstGap    int    // row of the message after the first gap
	last        uint32 // highest number since the sender's last start
	// jumps counts how often the number increased by more than one, by size of the step.
	jumps map[uint32]int64
}

// stride returns the step by which most numbers increase, or 0 if most increase by 1. A filter, or
// a recorder that keeps every nth message, causes a stride. The stride is the median of the steps
// above 1. The mean would be wrong, because one long gap is a loss.
func (c *sequenceCounter) stride() uint32 {
	var jumpCount int64
	for _, n := range c.jumps {
		jumpCount += n
	}
	steps := c.count - 1
	if c.count < 3 || 2*jumpCount <= steps {
		return 0
	}
	sizes := slices.Sorted(maps.Keys(c.jumps))
	beforeMedian := jumpCount / 2
	for _, size := range sizes {
		if beforeMedian -= c.jumps[size]; beforeMedian < 0 {
			return size
		}
	}
	return sizes[len(sizes)-1]
}

// Some steps of the sequence number are not a loss. A late message steps back by at most
// maxLateStep. A larger step back, or a step of minRestartStep or more, is a restart of the sender.
const (
	maxLateStep    = 64
	minRestartStep = 1 << 20
)

// addNumber adds the sequence number of the message in the given row.
func (c *sequenceCounter) addNumber(seq uint32, row int) {
	step := int32(seq - c.last) // small also when the number overflows to 0
	switch {
	case c.count == 0 || step >= minRestartStep || step < -maxLateStep:
		c.last = seq
	case step > 0:
		if step > 1 {
			if c.lost == 0 {
				c.firstGap = row
			}
			c.lost += int64(step) - 1
			if c.jumps == nil {
				c.jumps = map[uint32]int64{}
			}
			c.jumps[uint32(step)]++
		}
		c.last = seq
	case step < 0:
		c.lost = max(0, c.lost-1) // a late message: it was counted as lost before
	}
	c.count++
}

// sender identifies a sender by the index of its topic in the storage and Message.Source.
type sender struct {
	topic  int
	source uint32
}

// findLost reports messages that the recording lacks, by gaps in their sequence numbers. If the
// recorder numbered all topics in one sequence, there is one finding, otherwise one per sender.
func (d *Dataset) findLost(ctx context.Context, ep int) (out []robocache.Finding) {
	e := &d.episodes[ep]
	episode := d.About.EpisodeIndex(ep)
	d.useStorage(ctx, e.rec, func(s Storage) {
		senders, all := d.countSequences(ctx, e, s)
		if n, shared := missingFromShared(all, len(senders)); shared {
			if n > 0 {
				out = append(out, robocache.Finding{
					Severity: robocache.SeverityWarning,
					Code:     "lost-messages",
					Where:    robocache.Where{"episode": episode},
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
		infos := s.Topics()
		ids := slices.SortedFunc(maps.Keys(senders), func(a, b sender) int {
			return cmp.Or(a.topic-b.topic, cmp.Compare(a.source, b.source))
		})
		for _, id := range ids {
			if c := senders[id]; c.lost > 0 {
				where := robocache.Where{
					"episode": episode,
					"stream":  strings.TrimPrefix(infos[id.topic].Name, "/"),
					"row":     c.firstGap,
				}
				out = append(out, lostFinding(where, c))
			}
		}
	})
	return out
}

// countSequences reads the sequence numbers of an episode. It returns a counter for each sender,
// and the numbers of all messages.
func (d *Dataset) countSequences(
	ctx context.Context,
	e *episode,
	s Storage,
) (senders map[sender]*sequenceCounter, all []uint32) {
	senders = map[sender]*sequenceCounter{}
	for k, info := range s.Topics() {
		if !info.Sequence || info.Messages == 0 {
			continue
		}
		// The empty topic is not latched: the span begins with the episode.
		from, to := d.episodeSpan(e, &topic{}, guard.Must(s.Index(ctx, k)).Log)
		guard.Check(s.Messages(ctx, k, from, to, func(i int, m *Message) error {
			id := sender{k, m.Source}
			if senders[id] == nil {
				senders[id] = &sequenceCounter{}
			}
			senders[id].addNumber(m.Sequence, i)
			all = append(all, m.Sequence)
			return nil
		}))
	}
	return senders, all
}

// lostFinding returns the finding for lost messages of a sender. If the numbers have a regular
// stride, and steps are 2 on average or more, it reports the stride instead of a loss.
func lostFinding(where robocache.Where, c *sequenceCounter) robocache.Finding {
	steps := c.count - 1
	if stride := c.stride(); stride > 1 && c.lost >= steps {
		delete(where, "row")
		return robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "numbers-stride",
			Where:    where,
			Count:    c.count,
			Message: fmt.Sprintf(
				"the sequence numbers of the sender mostly increase by %d, with %d messages for "+
					"%d numbers. A filter, or a recorder that keeps every nth message, causes "+
					"such "+
					"a stride. Lost messages cannot be detected by these numbers.",
				stride,
				c.count,
				c.count+c.lost,
			),
		}
	}
	return robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "lost-messages",
		Where:    where,
		Count:    c.lost,
		Message: fmt.Sprintf(
			"%d messages are missing of %d: the sender counted them, the recording does not "+
				"hold them; the first before message %d",
			c.lost,
			c.count+c.lost,
			c.firstGap,
		),
		Hint: "give the recorder a larger buffer; align with max_gap",
	}
}

// missingFromShared reports whether the recorder numbered the messages of all topics in one
// sequence, and how many numbers are missing in it. The sequence is shared if no number repeats and
// at least half of the numbers between the first and the last are present. It sorts all.
func missingFromShared(all []uint32, senders int) (missing int64, shared bool) {
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

// findLostRows finds gaps in the seq field of headers, which types from ROS 1 have.
func (d *Dataset) findLostRows(
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
	var c sequenceCounter
	for i := range want {
		c.addNumber(binary.LittleEndian.Uint32(dst[4*i:]), i)
	}
	if c.lost == 0 {
		return nil
	}
	where := robocache.Where{
		"episode": d.About.EpisodeIndex(ep),
		"stream":  f.Key,
		"row":     c.firstGap,
	}
	return []robocache.Finding{lostFinding(where, &c)}
}
