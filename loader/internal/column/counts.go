package column

import "github.com/goatnote-inc/robocache"

// countIndex, countEpisode and countFrame have the names of LeRobot's columns, for a dataset that
// has no such column: the number of the row among those of all episodes, the recorded number of its
// episode, and the number of the row in it. With hz or an anchor "index" is the number of the
// sample, as Locate accepts it.
var (
	countIndex   = countOf("index")
	countEpisode = countOf("episode_index")
	countFrame   = countOf("frame_index")
)

// countOf returns the generated key that fillCounts fills.
func countOf(key string) GeneratedKind {
	return GeneratedKind{
		Key:   key,
		DType: robocache.Int64,
		Shape: []int{1},
		fill:  (*Reader).fillCounts,
	}
}

// fillCounts fills "index", "episode_index" or "frame_index".
func (w *Reader) fillCounts(p *Part, c *Column) error {
	dst, done := p.stageEntry(c.Entry)
	defer done()
	out, src := AsSlice[int64](dst), p.Source
	for i, r := range p.rows[0] {
		switch {
		case c.Key == "frame_index":
			out[i] = int64(r.Index)
		case c.Key == "episode_index":
			out[i] = src.Dataset.Info().EpisodeIndex(r.Episode)
		case src.RowsBefore != nil:
			out[i] = src.RowsBefore[r.Episode] + int64(r.Index)
		default:
			out[i] = p.Build.Batch.Indices[p.batchSlot(i)] - src.SampleOffset
		}
	}
	return nil
}
