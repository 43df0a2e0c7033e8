package loader

// countColumn is what rows are counted by, if the dataset has no column of it (generatedKeys).
type countColumn struct{ *column }

func (*countColumn) waits(int) int { return 1 }

func (c *countColumn) fill(w *reader, p *part) error { return w.numbers(p, c.column) }

// numbers fills a column with what rows are counted by.
func (w *reader) numbers(p *part, c *column) error {
	dst, done := p.rowsInto(c.entry)
	defer done()
	out, src := view[int64](dst), p.src
	for i, r := range p.rows[0] {
		switch {
		case c.key == "frame_index":
			out[i] = int64(r.Index)
		case c.key == "episode_index":
			out[i] = src.ds.Info().EpisodeIndex(r.Episode)
		case src.before != nil:
			out[i] = src.before[r.Episode] + int64(r.Index)
		default:
			out[i] = p.u.batch.Indices[p.slot(i)] - src.offset
		}
	}
	return nil
}
