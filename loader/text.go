package loader

import (
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// textColumn is texts of the dataset.
type textColumn struct{ *column }

func (*textColumn) waits(int) int { return 1 }

func (c *textColumn) fill(w *reader, p *part) error { return w.text(p, c.column) }

// texts are where the texts of a column go.
func (p *part) texts(c *column) []string { return p.u.batch.Texts[p.src.texts[c.entry]].Values }

// text fills a column of strings.
func (w *reader) text(p *part, c *column) error {
	all, err := w.rowsOf(p, c, nil)
	if err != nil {
		return err
	}
	rows := all
	if slices.ContainsFunc(all, noRow) { // a grid that reaches beyond the rows: "" where there is none
		rows = slices.DeleteFunc(slices.Clone(all), noRow)
	}
	values, err := readTexts(w.Ctx(), p.src.ds, c.key, rows)
	if err == nil && len(values) != len(rows) {
		err = robocache.Malformed("loader", nil, "the dataset gave another number of texts than asked")
	}
	if err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.key}), func(sub []robocache.Row) error {
			_, err := readTexts(w.Ctx(), p.src.ds, c.key, sub)
			return err
		})
		return nil
	}
	for i, r := range all {
		if !noRow(r) {
			p.texts(c)[p.slot(i)], values = values[0], values[1:]
		}
	}
	return nil
}

// episodeIDColumn is the index of the sample's episode, as text.
type episodeIDColumn struct{ *column }

func (*episodeIDColumn) waits(int) int { return 1 }

func (c *episodeIDColumn) fill(w *reader, p *part) error { return w.episodeIDs(p, c.column) }

// episodeIDs fills a column with the indices of episodes, as text.
func (w *reader) episodeIDs(p *part, c *column) error {
	for i, r := range p.rows[0] {
		p.texts(c)[p.slot(i)] = strconv.FormatInt(p.src.ds.Info().EpisodeIndex(r.Episode), 10)
	}
	return nil
}
