package column

// CountColumn holds row or episode numbers for a dataset that has no such column
// (options.GeneratedKeys).
type CountColumn struct{ *Column }

func (*CountColumn) Waits(int) int { return 1 }

func (c *CountColumn) Fill(w *Reader, p *Part) error { return w.fillCounts(p, c.Column) }

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
