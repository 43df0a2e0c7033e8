package column

// CountColumn is what rows are counted by, if the dataset has no column of it (GeneratedKeys).
type CountColumn struct{ *Column }

func (*CountColumn) Waits(int) int { return 1 }

func (c *CountColumn) Fill(w *Reader, p *Part) error { return w.numbers(p, c.Column) }

// numbers fills a column with what rows are counted by.
func (w *Reader) numbers(p *Part, c *Column) error {
	dst, done := p.rowsInto(c.Entry)
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
			out[i] = p.Build.Batch.Indices[p.slot(i)] - src.SampleOffset
		}
	}
	return nil
}
