package robomimic

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Attributes of data that take a scaling back: action = actions·scale + offset, a number a dimension.
const (
	scaleName  = "actions_scale"
	offsetName = "actions_offset"
)

// actions looks at the values of actions, which robomimic's checker wants in [−1, 1], and scales them where that is asked.
type actions struct {
	f             *robocache.Feature
	scale, offset []float64 // nil: they stay as they are
	beyond        int64
	worst         float64 // of those beyond, the one furthest from 0
	channel       int
	values        []float64
}

// measure finds the range of each dimension in the episodes, and with it what brings it onto [−1, 1].
func (w *writer) measure(f *robocache.Feature, episodes []int) {
	d := f.Elements()
	least, most := slices.Repeat([]float64{math.Inf(1)}, d), slices.Repeat([]float64{math.Inf(-1)}, d)
	block := max(blockBytes/f.RowBytes(), 1)
	for _, e := range episodes {
		if e < 0 || e >= w.info.Episodes {
			continue // the writing says so
		}
		_ = w.bearable(robocache.Where{"episode": e, "stream": f.Key}, func() {
			for part := range slices.Chunk(reader.Rows(e, 0, w.src.Len(e)), block) {
				raw := make([]byte, len(part)*f.RowBytes())
				guard.Check(w.src.Gather(w.ctx, f.Key, part, raw))
				for i, v := range robocache.Float64s(nil, f.DType, raw) {
					if c := i % d; v-v == 0 { // finite
						least[c], most[c] = min(least[c], v), max(most[c], v)
					}
				}
			}
		})
	}
	w.acts.scale, w.acts.offset = make([]float64, d), make([]float64, d)
	for c := range d {
		w.acts.scale[c], w.acts.offset[c] = 1, 0
		if most[c] >= least[c] {
			w.acts.offset[c] = least[c]/2 + most[c]/2
		}
		if half := most[c]/2 - least[c]/2; half > 0 && !math.IsInf(half, 0) {
			w.acts.scale[c] = half
		}
	}
}

// dtype is that of the actions in the file: scaled ones are no integers, and HDF5 readers want no halves.
func (a *actions) dtype() robocache.DType {
	switch t := a.f.DType; {
	case a.scale == nil, t == robocache.Float64:
		return t
	case t == robocache.Int64 || t == robocache.Uint64 || t == robocache.Int32 || t == robocache.Uint32:
		return robocache.Float64
	}
	return robocache.Float32
}

// take looks at rows, and gives them as they are written.
func (a *actions) take(raw []byte) []byte {
	a.values = robocache.Float64s(a.values[:0], a.f.DType, raw)
	d := a.f.Elements()
	if a.scale == nil {
		for i, v := range a.values {
			if !(math.Abs(v) > 1) { // NaN passes the checker, and doctor says it
				continue
			}
			if a.beyond++; math.Abs(v) > math.Abs(a.worst) {
				a.worst, a.channel = v, i%d
			}
		}
		return raw
	}
	out := make([]byte, 0, len(a.values)*a.dtype().Size())
	for i, v := range a.values {
		c := i % d
		if v = (v - a.offset[c]) / a.scale[c]; v-v == 0 {
			v = max(-1, min(1, v)) // rounding
		}
		if a.dtype() == robocache.Float64 {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		} else {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(v)))
		}
	}
	return out
}

// closeActions says what was found, and keeps the scaling beside the demos.
func (w *writer) closeActions(data *h5.GroupWriter) {
	a := &w.acts
	if a.scale != nil {
		w.find(robocache.SeverityInfo, "actions-scaled", robocache.Where{"stream": a.f.Key, "scale": a.scale, "offset": a.offset}, 0,
			"each dimension of the actions is scaled onto [-1, 1]: action = actions·scale + offset, the attributes "+scaleName+" and "+offsetName+" of data", "")
		guard.Check(errors.Join(data.Attribute(scaleName, a.scale), data.Attribute(offsetName, a.offset)))
	} else if a.beyond > 0 {
		w.find(robocache.SeverityWarning, "actions-beyond-one", robocache.Where{"stream": a.f.Key, "channel": a.channel}, a.beyond,
			fmt.Sprintf("%d values of the actions lie beyond [-1, 1], which robomimic's checker refuses; the largest is %.6g, in channel %s", a.beyond, a.worst, a.name()), "--scale-actions scales each dimension onto [-1, 1]")
	}
}

// name is the channel of the worst value, by its name where it has one.
func (a *actions) name() string {
	var names []string
	if json.Unmarshal(a.f.Names, &names) == nil && len(names) == a.f.Elements() {
		return fmt.Sprintf("%d (%s)", a.channel, names[a.channel])
	}
	return fmt.Sprint(a.channel)
}
