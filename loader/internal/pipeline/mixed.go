package pipeline

import (
	"slices"

	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// mixed deals the samples of a batch out to their sources.
func (a *Assembler) mixed(u *PlannedBatch, samples []int64) (parts int64) {
	index := column.AsSlice[int64](u.Batch.Tensors[a.Schema.DatasetIndexTensor].Data)
	u.Parts = slices.Grow(u.Parts[:0], len(a.Sources))
	own := make([][]int64, len(a.Sources))
	slots := make([][]int32, len(a.Sources))
	for i, s := range samples {
		src, number := a.SourceOf(s)
		own[src.Index] = append(own[src.Index], number)
		slots[src.Index] = append(slots[src.Index], int32(i))
		index[i] = int64(src.Index)
	}
	for _, src := range a.Sources {
		if len(own[src.Index]) == 0 {
			continue
		}
		u.Parts = append(u.Parts, column.Part{Build: &u.BatchBuild, Source: &src.DataSource, Slots: slots[src.Index]})
		p := &u.Parts[len(u.Parts)-1]
		parts += p.Begin(own[src.Index])
		p.ClearAbsent()
	}
	return parts
}
