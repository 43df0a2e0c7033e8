package diff

import "fmt"

// String returns the name and both values.
func (p Property) String() string { return fmt.Sprintf("%s: %v → %v", p.Name, p.A, p.B) }

// ByText returns " by up to 0.1", or "" if there is no difference.
func ByText(difference *float64) string {
	if difference == nil {
		return ""
	}
	return fmt.Sprintf(" by up to %.6g", *difference)
}

// Lines describes the differences, one a line.
func (c *Change) Lines() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	n := c.Rows
	for _, part := range []struct {
		rows int
		text string
	}{
		{n.RemovedHead, "removed at the head"},
		{n.RemovedMiddle, "removed in the middle"},
		{n.RemovedTail, "removed at the tail"},
		{n.AddedHead, "added at the head"},
		{n.AddedMiddle, "added in the middle"},
		{n.AddedTail, "added at the tail"},
	} {
		if part.rows > 0 {
			add("%d rows %s", part.rows, part.text)
		}
	}
	if c.Tasks != nil {
		add("%v", *c.Tasks)
	}
	if c.Times != nil {
		add("timestamps of %d rows differ by up to %.6g s", c.Times.Rows, c.Times.MaxDifference)
	}
	for i := range c.Streams {
		add("%s", c.Streams[i].text())
	}
	return lines
}

// text describes the differences of the stream.
func (s *Stream) text() string {
	text := fmt.Sprintf("%s: %s of %d rows differ%s", s.Key, s.What, s.Rows,
		ByText(s.MaxDifference))
	switch {
	case s.What == "lacking":
		text = s.Key + ": only one of the episodes has the stream"
	case s.PSNR != nil:
		text += fmt.Sprintf(", PSNR %.1f dB on average, %.1f at least", s.PSNR.Mean, s.PSNR.Min)
	}
	if s.Rows > 0 && s.FirstRow >= 0 {
		text += fmt.Sprintf(", from row %d on", s.FirstRow)
	}
	if s.RemovedRows+s.AddedRows > 0 {
		text += fmt.Sprintf("; %d rows removed, %d added", s.RemovedRows, s.AddedRows)
	}
	return text
}

// Match is a matched episode: its indices in A and in B.
type Match struct {
	A      int64   `json:"a"`
	B      int64   `json:"b"`
	Change *Change `json:"-"` // nil: the contents are equal
}

// MatchOf returns the match of an episode of A, or of B if inB is set. It returns nil if the episode
// has none.
func (r *Report) MatchOf(index int64, inB bool) *Match {
	side := func(a, b int64) int64 {
		if inB {
			return b
		}
		return a
	}
	unmatched := r.Removed
	if inB {
		unmatched = r.Added
	}
	for _, e := range unmatched {
		if e.Index == index {
			return nil
		}
	}
	for i := range r.Changed {
		if c := &r.Changed[i]; side(c.A, c.B) == index {
			return &Match{A: c.A, B: c.B, Change: c}
		}
	}
	for _, m := range r.Moved {
		if k := index - side(m.A, m.B); k >= 0 && k < int64(m.Count) {
			return &Match{A: m.A + k, B: m.B + k}
		}
	}
	return &Match{A: index, B: index}
}
