package column

import (
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// TextColumn holds texts of the dataset.
type TextColumn struct {
	*Column
	Rule options.TextRule // "": texts as stored
}

func (*TextColumn) Waits(int) int { return 1 }

func (c *TextColumn) Fill(w *Reader, p *Part) error { return w.fillTexts(p, c) }

// batchTexts returns the values of the batch's text column for c.
func (p *Part) batchTexts(c *Column) []string {
	return p.Build.Batch.Texts[p.Source.TextSlots[c.Entry]].Values
}

// fillTexts fills a column of strings.
func (w *Reader) fillTexts(p *Part, c *TextColumn) error {
	all, err := w.RowsOf(p, c.Column, nil)
	if err != nil {
		return err
	}
	rows := all
	if slices.ContainsFunc(all, NoRow) { // a grid may extend beyond the rows: such texts stay ""
		rows = slices.DeleteFunc(slices.Clone(all), NoRow)
	}
	values, err := readTexts(w.Ctx(), p.Source.Dataset, c.StreamKey(), rows)
	if err == nil && len(values) != len(rows) {
		err = robocache.Malformed(
			"loader",
			nil,
			"the dataset returned another number of texts than requested",
		)
	}
	if err != nil {
		first := robocache.At(err, robocache.Where{"stream": c.StreamKey()})
		p.failEpisodes(rows, first, func(sub []robocache.Row) error {
			_, err := readTexts(w.Ctx(), p.Source.Dataset, c.StreamKey(), sub)
			return err
		})
		return nil
	}
	for i, r := range all {
		if !NoRow(r) {
			p.batchTexts(c.Column)[p.batchSlot(i)] = c.Rule.Apply(values[0])
			values = values[1:]
		}
	}
	return nil
}

// episodeID is the index of each sample's episode as text.
var episodeID = GeneratedKind{
	Key:   options.EpisodeID,
	DType: robocache.String,
	fill:  (*Reader).episodeIDs,
}

// episodeIDs fills episodeID.
func (w *Reader) episodeIDs(p *Part, c *Column) error {
	for i, r := range p.rows[0] {
		p.batchTexts(c)[p.batchSlot(i)] = strconv.FormatInt(
			p.Source.Dataset.Info().EpisodeIndex(r.Episode),
			10,
		)
	}
	return nil
}
