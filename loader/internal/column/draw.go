package column

import (
	"cmp"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// Draw states what a column reads at random for each sample. A draw is a pure function of seed,
// epoch, the sample's row in its dataset, and the column's key. The rows of a window share it, and
// so do all goals.
type Draw struct {
	Number uint32 // of the key's draws
	// Alternatives are the columns of which one fills each sample. The first is the column of the
	// batch.
	Alternatives []*Column
	// IsGoal reports whether the sample's row is replaced by a later row of its episode, which is
	// drawn uniformly. The last row is replaced by itself.
	IsGoal   bool
	LastRows int // rows at the end of an episode that are no goals
}

// Alternatives returns the columns that fill the column's tensor: the column itself, unless it is
// drawn.
func (c *Column) Alternatives() []*Column {
	if c.Draw == nil {
		return []*Column{c}
	}
	return c.Draw.Alternatives
}

// StreamKey returns the key of the stream that the column reads.
func (c *Column) StreamKey() string { return cmp.Or(c.Stream, c.Key) }

// ShareOutputs makes the alternatives of the column fill its tensors.
func (c *Column) ShareOutputs() {
	for _, one := range c.Alternatives() {
		one.outputs = c.outputs
	}
}

// EachDrawn calls fn for each alternative of a column with the part that it fills. A column without
// draws fills the whole part. It stops at the first error.
func (p *Part) EachDrawn(c *Column, fn func(c *Column, p *Part) error) error {
	if c.Draw == nil {
		return fn(c, p)
	}
	n := len(c.Draw.Alternatives)
	samples := make([][]int32, n)
	for i := range p.sampleCount() {
		k := 0
		if n > 1 {
			k = int(p.drawUniform(c.Draw, i) * float64(n))
		}
		samples[k] = append(samples[k], int32(i))
	}
	for k, list := range samples {
		if len(list) == 0 {
			continue
		}
		if err := fn(c.Draw.Alternatives[k], p.drawnPart(c.Draw, list)); err != nil {
			return err
		}
	}
	return nil
}

// drawUniform returns the draw of sample i, in [0, 1).
func (p *Part) drawUniform(d *Draw, i int) float64 {
	return kernel.DrawUniform(uint64(p.Source.Seed), p.sampleEpoch(i), d.Number,
		sampleNumber(p.anchors[i]))
}

// drawnPart returns the part of some samples. With IsGoal its rows and windows are those of the
// goals. Random draws stay those of the samples.
func (p *Part) drawnPart(d *Draw, samples []int32) *Part {
	out := &Part{Build: p.Build, Source: p.Source}
	rows := make([]robocache.Row, len(samples))
	for k, i := range samples {
		out.Slots = append(out.Slots, int32(p.batchSlot(int(i))))
		out.anchors = append(out.anchors, p.anchors[i])
		out.tablePositions = append(out.tablePositions, p.tablePositions[i])
		rows[k] = p.anchors[i]
		if d.IsGoal {
			rows[k].Index = p.goalRow(d, int(i))
		}
	}
	out.resolveWindows(rows)
	return out
}

// goalRow returns the row of sample i's goal in its episode.
func (p *Part) goalRow(d *Draw, i int) int {
	row := p.rows[0][i]
	rows, isCounted := p.Source.EpisodeRows[row.Episode]
	if !isCounted {
		rows = p.Source.Dataset.Len(row.Episode)
	}
	later := rows - d.LastRows - 1 - row.Index
	if later <= 0 {
		return row.Index
	}
	return row.Index + 1 + int(p.drawUniform(d, i)*float64(later))
}
