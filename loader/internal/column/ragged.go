package column

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// CloudColumn holds rows of varying length, such as point clouds.
type CloudColumn struct{ *Column }

func (*CloudColumn) Waits(int) int { return 0 }

// SpanColumn holds all rows of a stream in a time span around each sample.
type SpanColumn struct{ *Column }

func (*SpanColumn) Waits(int) int { return 0 }

// TimesColumn holds the times of the rows of another column's span.
type TimesColumn struct{ *Column }

func (c *TimesColumn) Waits(int) int { return int(boolByte(!c.IsRagged())) }

func (c *TimesColumn) Fill(w *Reader, p *Part) error { return w.fillSpanTimes(p, c.Column) }

// RaggedEntries holds the entries of a ragged column for the samples of one part.
type RaggedEntries struct {
	Part   *Part
	Column *Column
	Data   []byte // entries one after the other, in the tensor's dtype
	Counts []int  // entries of each sample and step
}

// StackEntries copies the entries of all parts to dst in the order of the batch's samples.
func StackEntries(list []RaggedEntries, dst []byte) {
	if len(list) == 1 && list[0].Part.Slots == nil {
		copy(dst, list[0].Data)
		return
	}
	type sample struct {
		slot int
		data []byte
	}
	var all []sample
	for _, e := range list {
		at := 0
		for i := range e.Part.sampleCount() {
			n := 0
			for _, c := range e.Counts[i*e.Column.Steps : (i+1)*e.Column.Steps] {
				n += c * e.Column.OutBytes
			}
			all = append(all, sample{e.Part.batchSlot(i), e.Data[at : at+n]})
			at += n
		}
	}
	slices.SortFunc(all, func(x, y sample) int { return x.slot - y.slot })
	at := 0
	for _, s := range all {
		at += copy(dst[at:], s.data)
	}
}

// RaggedColumn returns the ragged column of a tensor of the batch, or nil.
func (src *DataSource) RaggedColumn(tensor int) *Column {
	i := slices.IndexFunc(src.Columns, func(c *Column) bool {
		return c.IsRagged() && src.TensorSlots[c.Entry] == tensor
	})
	if i < 0 {
		return nil
	}
	return src.Columns[i]
}

// ReadRagged reads the entries of a part's samples. It returns nil if it recorded a bad episode.
func (w *Reader) ReadRagged(p *Part, c *Column) (*RaggedEntries, error) {
	var e *RaggedEntries
	var err error
	if Is[*CloudColumn](c) {
		e, err = w.readClouds(p, c)
	} else {
		e, err = w.spanEntries(p, c)
	}
	if err != nil || e == nil || c.StoredDType == c.OutDType && c.Norm == nil || len(e.Data) == 0 {
		return e, err
	}
	out := make([]byte, len(e.Data)/c.RowBytes*c.OutBytes)
	err = Convert(out, c.OutDType, e.Data, c.StoredDType, c.Elements, c.Norm)
	e.Data = out
	return e, err
}

// spanEntries reads the rows in the span around each sample that hold a value, or their times for a
// TimesColumn.
func (w *Reader) spanEntries(p *Part, c *Column) (*RaggedEntries, error) {
	rows, counts, at, err := w.spanRows(p, c)
	if err != nil {
		return nil, err
	}
	e := &RaggedEntries{
		Part:   p,
		Column: c,
		Counts: counts,
		Data:   make([]byte, len(rows)*c.RowBytes),
	}
	if Is[*TimesColumn](c) {
		return e, w.writeTimes(p, c, AsSlice[int64](e.Data), rows, counts, at)
	}
	if !w.checkFinite(p, c) || !w.readRows(p, c, rows, e.Data) {
		return nil, nil
	}
	return e, nil
}

// maxCloudRows is the number of rows that are read at once. Their size is unknown until they are
// read.
const maxCloudRows = 32

// readClouds reads rows of varying length, for the samples or for the steps of their windows.
func (w *Reader) readClouds(p *Part, c *Column) (*RaggedEntries, error) {
	mask, maskDone := p.stageEntry(c.MaskEntry)
	rows, err := w.RowsOf(p, c, mask)
	maskDone()
	if err == nil && c.Time == nil {
		err = w.maskRows(p, c, rows)
	}
	if err != nil {
		return nil, err
	}
	e := &RaggedEntries{Part: p, Column: c, Counts: make([]int, len(rows))}
	ds := p.Source.Dataset
	gather := func(rows []robocache.Row) ([]byte, []int, error) {
		data, counts, err := gatherRagged(w.Ctx(), ds, c.Key, rows)
		if err == nil {
			err = c.checkEntries(data, counts, len(rows))
		}
		return data, counts, err
	}
	requested := make([]robocache.Row, 0, maxCloudRows)
	positions := make([]int, 0, maxCloudRows)
	for i := 0; i < len(rows); {
		requested, positions = requested[:0], positions[:0]
		for ; i < len(rows) && len(requested) < maxCloudRows; i++ {
			if !NoRow(rows[i]) {
				requested, positions = append(requested, rows[i]), append(positions, i)
			}
		}
		if len(requested) == 0 {
			break
		}
		data, counts, err := gather(requested)
		if err != nil {
			err := robocache.At(err, robocache.Where{"stream": c.Key})
			p.failEpisodes(requested, err, func(sub []robocache.Row) error {
				_, _, err := gather(sub)
				return err
			})
			return nil, nil
		}
		if need := int64(len(e.Data) + len(data)); need > p.Source.Resources.Budget {
			return nil, spanBudgetError(c, need, p.Source.Resources.Budget)
		}
		if e.Data == nil && i == len(rows) {
			e.Data = data // all entries in one read: the slice is not shared
		} else {
			e.Data = append(e.Data, data...)
		}
		for k, n := range counts {
			e.Counts[positions[k]] = n
		}
	}
	return e, nil
}

// checkEntries rejects ragged data whose size contradicts its counts.
func (c *Column) checkEntries(data []byte, counts []int, rows int) error {
	n := 0
	for _, k := range counts {
		n += max(k, 0)
	}
	if len(counts) != rows || n*c.RowBytes != len(data) {
		return robocache.Malformed("loader", nil, "the dataset returned another number of "+
			"entries than it declares").
			Expected(
				fmt.Sprintf("%d bytes of %d rows", n*c.RowBytes, rows),
				fmt.Sprintf("%d bytes of %d", len(data), len(counts)),
			)
	}
	return nil
}

// spanBudgetError returns the error of rows of one batch that exceed the budget.
func spanBudgetError(c *Column, bytes, budget int64) error {
	where := robocache.Where{"stream": c.Key, "bytes": bytes}
	return robocache.ResourceLimit("loader", where, "memory_budget: the rows of one batch do not "+
		"fit").
		Expected("at most "+layout.FormatMiB(budget), layout.FormatMiB(bytes)+" of "+c.Key).
		WithHint("raise memory_budget, or lower batch_size or the window")
}
