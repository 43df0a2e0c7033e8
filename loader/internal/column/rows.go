package column

import (
	"errors"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
)

// Part is the share of one source in a batch under construction.
type Part struct {
	Build          *BatchBuild
	Source         *DataSource
	anchors        []robocache.Row   // row of each sample, which may be outside its episode
	rows           [][]robocache.Row // rows of each window, samples × steps
	pads           [][]byte          // 1 for each row that replaces a row outside the episode
	tablePositions []int32           // position of each sample's episode in the table
	// position of each sample in the batch; nil: the part is the whole batch
	Slots []int32
}

func (p *Part) sampleCount() int { return len(p.tablePositions) }

// batchSlot returns the position in the batch of the part's sample i.
func (p *Part) batchSlot(i int) int {
	if p.Slots == nil {
		return i
	}
	return int(p.Slots[i])
}

// ValueSlot returns the position in the batch's tensor of the k-th value of a column.
func (p *Part) ValueSlot(c *Column, k int) int {
	if p.Slots == nil {
		return k
	}
	return int(p.Slots[k/c.Steps])*c.Steps + k%c.Steps
}

// frameData returns the memory of the k-th frame of a column.
func (p *Part) frameData(c *Column, k int) []byte {
	k = p.ValueSlot(c, k)
	return p.TensorData(c.Entry)[k*c.OutBytes : (k+1)*c.OutBytes]
}

// TensorData returns the data of the batch's tensor for entry i of the source.
func (p *Part) TensorData(i int) []byte {
	slot := p.Source.TensorSlots[i]
	return p.Build.Batch.Tensors[slot].Data
}

// stageEntry returns contiguous memory for the values of entry i: the tensor itself if the part is
// the whole batch. The caller must call done, which copies the values to their slots. stageEntry
// returns nil for entry -1.
func (p *Part) stageEntry(i int) (dst []byte, done func()) {
	if i < 0 {
		return nil, func() {}
	}
	data := p.TensorData(i)
	if p.Slots == nil {
		return data, func() {}
	}
	return p.stageSlots(i, data)
}

// stageSlots is stageEntry for a part whose values go to some slots of the batch's tensor, whose
// memory is data.
func (p *Part) stageSlots(i int, data []byte) (dst []byte, done func()) {
	tensor := &p.Source.Tensors[i]
	size, pad := tensor.Bytes, p.Source.PaddedRows[tensor.Key]
	wide := p.Source.BatchSchema.Tensors[p.Source.TensorSlots[i]].Bytes
	dst = make([]byte, len(p.Slots)*size)
	return dst, func() {
		for k, slot := range p.Slots {
			from, to := dst[k*size:(k+1)*size], data[int(slot)*wide:int(slot+1)*wide]
			if pad != nil {
				pad.CopyRows(to, from, tensor.DType.Size())
			} else {
				copy(to, from)
			}
		}
	}
}

// ResolveRows sets the rows of the part's samples and of their windows. samples are numbers in the
// source.
func (p *Part) ResolveRows(samples []int64) {
	src, n := p.Source, len(samples)
	p.tablePositions = slices.Grow(p.tablePositions[:0], n)[:n]
	p.anchors = slices.Grow(p.anchors[:0], n)[:n]
	for i, s := range samples {
		r, place := src.Table.Row(s)
		p.anchors[i], p.tablePositions[i] = r, int32(place)
	}
	p.resolveWindows(p.anchors)
}

// resolveWindows sets the rows of windows around one row for each sample.
func (p *Part) resolveWindows(centers []robocache.Row) {
	src, n := p.Source, len(centers)
	if p.rows == nil {
		p.rows, p.pads = make([][]robocache.Row, len(src.Windows)), make([][]byte, len(src.Windows))
	}
	inside := slices.Grow(p.rows[0][:0], n)[:n]
	outside := slices.Grow(p.pads[0][:0], n)[:n]
	for i, r := range centers {
		inside[i], outside[i] = r, 0
		if src.Table.IsPadded {
			row, isOutside := align.Clamp(r.Index, 0, src.rowCount(r.Episode))
			inside[i].Index, outside[i] = row, boolByte(isOutside)
		}
	}
	p.rows[0], p.pads[0] = inside, outside
	for k := 1; k < len(src.Windows); k++ {
		offsets := src.Windows[k].Offsets
		rows := slices.Grow(p.rows[k][:0], n*len(offsets))
		pads := slices.Grow(p.pads[k][:0], n*len(offsets))
		for _, r := range centers {
			length := src.rowCount(r.Episode)
			for _, o := range offsets {
				row, outside := align.Clamp(r.Index, o, length)
				rows = append(rows, robocache.Row{Episode: r.Episode, Index: row})
				pads = append(pads, boolByte(outside))
			}
		}
		p.rows[k], p.pads[k] = rows, pads
	}
}

// boolByte returns 1 for true and 0 for false.
func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Begin resolves the part's samples and returns the number of completions to wait for.
func (p *Part) Begin(samples []int64) (waits int64) {
	p.ResolveRows(samples)
	for _, c := range p.Source.Columns {
		waits += int64(c.Kind.Waits(len(samples)))
		if c.Deferred != nil {
			c.Deferred.beginPart(p, c)
		}
	}
	return waits
}

// NoRow reports whether r has the index -1, which marks a value that no row holds.
func NoRow(r robocache.Row) bool { return r.Index < 0 }

// RowsOf returns the row of each value of a column, with index -1 if there is none. If mask is not
// nil, RowsOf also writes the column's mask. The result is valid until the next call.
func (w *Reader) RowsOf(p *Part, c *Column, mask []byte) ([]robocache.Row, error) {
	if c.Time == nil {
		copy(mask, p.pads[c.Window])
		return p.rows[c.Window], nil
	}
	if c.Span != nil {
		return w.spanSlots(p, c, mask)
	}
	plan, rows, err := w.planSamples(p, c)
	if err != nil {
		return nil, err
	}
	out := slices.Grow(w.planBuffers.chosen[:0], plan.Len())[:plan.Len()]
	w.planBuffers.chosen = out
	for i, k := range plan.Kind {
		out[i] = robocache.Row{Episode: p.rows[0][i/c.Steps].Episode, Index: -1}
		if k == kernel.Copy {
			out[i] = rows[plan.Left[i]]
		}
	}
	if mask != nil {
		writePadMask(mask, plan.Valid)
	}
	return out, nil
}

// writePadMask writes 1 for each value that is not valid. mask and valid may be the same slice.
func writePadMask(mask, valid []uint8) {
	for i, v := range valid {
		mask[i] = 1 - v
	}
}

// maskRows sets the mask of rows without a value, for a column that is read by row. Padding of
// windows stays set.
func (w *Reader) maskRows(p *Part, c *Column, rows []robocache.Row) error {
	if c.Feature == nil || !c.Feature.Masked || c.MaskEntry < 0 {
		return nil
	}
	valid, err := robocache.Validity(w.Ctx(), p.Source.Dataset, c.Feature, rows)
	for i, v := range valid {
		if v == 0 {
			p.TensorData(c.MaskEntry)[p.ValueSlot(c, i)] = 1
		}
	}
	return robocache.At(err, robocache.Where{"stream": c.StreamKey()})
}

// forEachEpisode calls fn for each episode of a part with the indices of its samples. It returns
// errors as episodeError.
func (w *Reader) forEachEpisode(p *Part, fn func(episode int, group []int32) error) error {
	n := p.sampleCount()
	order := slices.Grow(w.orderScratch[:0], n)[:n]
	for i := range order {
		order[i] = int32(i)
	}
	w.orderScratch = order
	slices.SortStableFunc(
		order,
		func(x, y int32) int { return int(p.tablePositions[x]) - int(p.tablePositions[y]) },
	)
	for lo := 0; lo < n; {
		hi := lo
		place := p.tablePositions[order[lo]]
		for hi < n && p.tablePositions[order[hi]] == place {
			hi++
		}
		episode := p.Source.Table.Episode(int(place))
		if err := fn(episode, order[lo:hi]); err != nil {
			var known *episodeError
			if errors.As(err, &known) {
				return err
			}
			return &episodeError{episode, err}
		}
		lo = hi
	}
	return nil
}

// snapToTimestamp moves t to a timestamp at most 1 ns away. On a grid, the time of a sample and an
// offset are rounded separately, so their sum may miss the timestamp of the row by 1 ns. Without the
// correction, a time that is 1 ns after the last row would be padded.
//
// It also returns the index of the first timestamp that is not before the original t. The search
// for a later t can begin there.
func snapToTimestamp(t int64, timestamps []int64, from int) (int64, int) {
	i := from
	for i < len(timestamps) && timestamps[i] < t {
		// Most windows advance by a few rows. Over a longer distance a binary search is faster.
		if i++; i == from+16 {
			more, _ := slices.BinarySearch(timestamps[i:], t)
			i += more
			break
		}
	}
	switch {
	case i < len(timestamps) && timestamps[i]-t <= 1:
		t = timestamps[i]
	case i > 0 && t-timestamps[i-1] == 1:
		t--
	}
	return t, i
}

// planScratch is memory for plans that a worker reuses.
type planScratch struct {
	batchPlan, episodePlan kernel.Plan
	sums                   [2]kernel.Sums
	targets                []int64
	nows                   []int64 // time at which the samples of a causal row must have arrived
	padded                 []bool  // the target row lies before the first tick
	lengths                []int64 // time that each target row covers, for sums
	rows                   []robocache.Row
	chosen                 []robocache.Row // result of RowsOf
}

// ClearAbsent fills the tensors that the source lacks: values with zeros, masks with ones. The mask
// of a key that the source has is 0, because the value is present.
func (p *Part) ClearAbsent() {
	s := p.Source.BatchSchema
	for _, i := range p.Source.AbsentTensors {
		t, data := &s.Tensors[i], p.Build.Batch.Tensors[i].Data
		row := make([]byte, t.Bytes)
		isMask := slices.ContainsFunc(s.Fields, func(x layout.Field) bool {
			return x.Mask && x.Key == t.Key
		})
		dims, isDims := strings.CutSuffix(t.Key, layout.DimsSuffix)
		switch pad := p.Source.PaddedRows[dims]; {
		case !isMask:
		case isDims && pad != nil:
			copy(row, pad.Mask)
		case isDims || p.Source.Column(strings.TrimSuffix(t.Key, layout.PadSuffix)) == nil:
			row = slices.Repeat([]byte{1}, t.Bytes)
		}
		for _, slot := range p.Slots {
			copy(data[int(slot)*t.Bytes:], row)
		}
	}
}
