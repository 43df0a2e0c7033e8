package column

import (
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// TextColumn is texts of the dataset.
type TextColumn struct{ *Column }

func (*TextColumn) Waits(int) int { return 1 }

func (c *TextColumn) Fill(w *Reader, p *Part) error { return w.text(p, c.Column) }

// texts are where the texts of a column go.
func (p *Part) texts(c *Column) []string {
	return p.Build.Batch.Texts[p.Source.TextSlots[c.Entry]].Values
}

// text fills a column of strings.
func (w *Reader) text(p *Part, c *Column) error {
	all, err := w.RowsOf(p, c, nil)
	if err != nil {
		return err
	}
	rows := all
	if slices.ContainsFunc(all, NoRow) { // a grid that reaches beyond the rows: "" where there is none
		rows = slices.DeleteFunc(slices.Clone(all), NoRow)
	}
	values, err := readTexts(w.Ctx(), p.Source.Dataset, c.Key, rows)
	if err == nil && len(values) != len(rows) {
		err = robocache.Malformed("loader", nil, "the dataset gave another number of texts than asked")
	}
	if err != nil {
		p.isolate(rows, robocache.At(err, robocache.Where{"stream": c.Key}), func(sub []robocache.Row) error {
			_, err := readTexts(w.Ctx(), p.Source.Dataset, c.Key, sub)
			return err
		})
		return nil
	}
	for i, r := range all {
		if !NoRow(r) {
			p.texts(c)[p.slot(i)], values = values[0], values[1:]
		}
	}
	return nil
}

// EpisodeIDColumn is the index of the sample's episode, as text.
type EpisodeIDColumn struct{ *Column }

func (*EpisodeIDColumn) Waits(int) int { return 1 }

func (c *EpisodeIDColumn) Fill(w *Reader, p *Part) error { return w.episodeIDs(p, c.Column) }

// episodeIDs fills a column with the indices of episodes, as text.
func (w *Reader) episodeIDs(p *Part, c *Column) error {
	for i, r := range p.rows[0] {
		p.texts(c)[p.slot(i)] = strconv.FormatInt(p.Source.Dataset.Info().EpisodeIndex(r.Episode), 10)
	}
	return nil
}
