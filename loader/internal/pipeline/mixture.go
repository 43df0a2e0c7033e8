package pipeline

import (
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// dealToSources divides the samples of a batch into one part per source. It returns the number of
// parts to complete.
func (a *Assembler) dealToSources(u *PlannedBatch, samples []int64) (parts int64) {
	index := column.AsSlice[int64](u.Batch.Tensors[a.Schema.DatasetIndexTensor].Data)
	u.Parts = slices.Grow(u.Parts[:0], len(a.Sources))
	numbers := make([][]int64, len(a.Sources))
	slots := make([][]int32, len(a.Sources))
	for i, s := range samples {
		src, number := a.SourceOf(s)
		numbers[src.Index] = append(numbers[src.Index], number)
		slots[src.Index] = append(slots[src.Index], int32(i))
		index[i] = int64(src.Index)
	}
	for _, src := range a.Sources {
		if len(numbers[src.Index]) == 0 {
			continue
		}
		u.Parts = append(u.Parts, column.Part{
			Build:  &u.BatchBuild,
			Source: &src.DataSource,
			Slots:  slots[src.Index],
		})
		p := &u.Parts[len(u.Parts)-1]
		parts += p.Begin(numbers[src.Index])
		p.ClearAbsent()
	}
	return parts
}
