package loader

import "github.com/goatnote-inc/robocache"

// Locate says for samples by number which source each is of, and which row of its dataset (with hz: which place of the episode's
// timeline). A loader of one dataset has one source, 0.
func (l *Loader) Locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	if err := l.a.checkIndices(indices); err != nil {
		return err
	}
	for i, sample := range indices {
		src, number := l.a.sourceOf(sample)
		r, _ := src.table.Row(number)
		each(i, src.index, r)
	}
	return nil
}
