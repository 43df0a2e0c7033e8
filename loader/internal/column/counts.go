package column

import "github.com/goatnote-inc/robocache"

// Keys with the names of LeRobot's columns, for datasets that lack these columns.
var (
	// countIndex is the number of the row among the rows of all episodes. With hz or an anchor it is
	// the number of the sample, which Locate accepts.
	countIndex   = countOf("index")
	countEpisode = countOf("episode_index") // recorded number of the row's episode
	countFrame   = countOf("frame_index")   // number of the row in its episode
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
