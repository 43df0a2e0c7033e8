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
	"github.com/goatnote-inc/robocache/format/internal/h5set"
	"github.com/goatnote-inc/robocache/format/internal/raster"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// sourceAttribute of a demo is the recording that it was made from (robocache.Origin), as JSON.
const sourceAttribute = "robocache_source"

// blockBytes is about how much of a stream is held at once.
const blockBytes = 32 << 20

// demo writes an episode. One that fails is taken out again: its room in the file stays unused.
func (w *writer) demo(data *h5.GroupWriter, e int) {
	rows := w.src.Len(e)
	if rows == 0 {
		w.find(robocache.SeverityWarning, "episode-skipped", robocache.Where{"episode": w.info.EpisodeIndex(e)}, 0, "the episode has no rows: robomimic wants one at least", "")
		return
	}
	meta := guard.Must(w.src.Episode(w.ctx, e))
	if !w.clocks {
		w.timestamps(e, rows)
	}
	name := fmt.Sprintf("demo_%d", w.report.Episodes)
	demo := guard.Must(data.Group(name))
	before := w.acts
	if err := guard.Try(func() { w.fill(demo, e, rows, meta) }); err != nil {
		w.acts = before
		demo.Drop()
		guard.Fail(err)
	}
	guard.Check(demo.Close())
	w.demos[e] = name
	w.report.Episodes++
	w.report.Frames += int64(rows)
}

func (w *writer) fill(demo *h5.GroupWriter, e, rows int, meta robocache.Episode) {
	guard.Check(demo.Attribute("num_samples", rows))
	if len(meta.Tasks) > 0 && meta.Tasks[0] != "" {
		guard.Check(demo.Attribute("ep_meta", string(guard.Must(json.Marshal(map[string]string{"lang": meta.Tasks[0]})))))
		if len(meta.Tasks) > 1 {
			w.manyTask++
		}
	}
	if text := guard.Must(w.origins.Text(w.ctx, e)); text != "" {
		guard.Check(demo.Attribute(sourceAttribute, text))
	}
	groups := map[string]*h5.GroupWriter{"": demo}
	var order []*h5.GroupWriter
	group := func(name string) *h5.GroupWriter {
		if groups[name] == nil {
			groups[name] = guard.Must(demo.Group(name))
			order = append(order, groups[name])
		}
		return groups[name]
	}
	clocks := map[string]*h5.DatasetWriter{}
	for i := range w.streams {
		s := &w.streams[i]
		g := group(s.group)
		rows := rows
		if w.clocks {
			rows = w.clock(g, s, e, clocks)
		}
		var next *h5.GroupWriter
		if w.next && s.group == "obs" && rows > 0 {
			next = group("next_obs")
		}
		guard.Check(robocache.At(guard.Try(func() { w.stream(s, g, next, reader.Rows(e, 0, rows)) }), robocache.Where{"stream": s.Key}))
	}
	for _, g := range order {
		guard.Check(g.Close())
	}
}

// clock writes the timestamps of a stream beside it, once for all streams on its clock, and says how many there are: as seconds where those keep
// every nanosecond, else as integers.
func (w *writer) clock(g *h5.GroupWriter, s *outStream, e int, written map[string]*h5.DatasetWriter) int {
	at := guard.Must(w.src.Times(w.ctx, e, s.Key))
	name := s.name + h5set.TimestampsSuffix
	if d := written[s.Clock]; d != nil {
		guard.Check(g.Link(name, d))
		return len(at)
	}
	spec := h5.Spec{DType: robocache.Float64, Shape: []int64{int64(len(at))}, Names: w.sharing[s.Clock]}
	if slices.ContainsFunc(at, func(t int64) bool { return int64(math.RoundToEven(float64(t)/1e9*1e9)) != t }) {
		spec.DType = robocache.Int64
	}
	b := make([]byte, 0, 8*len(at))
	for _, t := range at {
		v := uint64(t)
		if spec.DType == robocache.Float64 {
			v = math.Float64bits(float64(t) / 1e9)
		}
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	d := guard.Must(g.Dataset(name, spec))
	guard.Check(errors.Join(d.Write(b), d.Close()))
	written[s.Clock] = d
	return len(at)
}

// stream writes one stream of an episode, and where next is given the same a step later.
func (w *writer) stream(s *outStream, g, next *h5.GroupWriter, all []robocache.Row) {
	rows := len(all)
	spec := h5.Spec{DType: s.DType, Shape: []int64{int64(rows)}}
	var size int
	read := func(rows []robocache.Row, dst []byte) error { return w.src.Gather(w.ctx, s.Key, rows, dst) }
	switch s.Kind {
	case robocache.KindNumeric:
		if s.group != "" || s.name == "actions" || !s.Scalar() {
			for _, n := range s.Shape {
				spec.Shape = append(spec.Shape, int64(n))
			}
			if len(s.Shape) == 0 {
				spec.Shape = append(spec.Shape, 1)
			}
		}
		if size = s.RowBytes(); s.Feature == w.acts.f {
			spec.DType = w.acts.dtype()
		}
	case robocache.KindImage, robocache.KindVideo:
		images := guard.Must(raster.Open(w.ctx, w.src, s.Feature, all, w.opt.Threads))
		defer images.Close()
		spec.DType, spec.Shape = images.DType, append(spec.Shape, int64(images.Height), int64(images.Width), int64(images.Channels))
		if w.deflate > 0 {
			spec.ChunkRows, spec.Deflate = 1, w.deflate
		}
		size = images.RowBytes()
		read = func(rows []robocache.Row, dst []byte) error { return images.Read(w.ctx, rows, dst) }
	default: // text; events are their JSON
		list := guard.Must(w.src.Text(w.ctx, s.Key, all))
		texts(g, s.name, h5.Spec{DType: robocache.String}, list)
		if next != nil {
			texts(next, s.name, h5.Spec{DType: robocache.String}, append(list[1:rows:rows], list[rows-1]))
		}
		return
	}
	d := guard.Must(g.Dataset(s.name, spec))
	var after *h5.DatasetWriter
	if next != nil {
		after = guard.Must(next.Dataset(s.name, spec))
	}
	block := min(max(blockBytes/size, 1), rows)
	buf := make([]byte, block*size)
	for at := 0; at < rows; at += block {
		n := min(block, rows-at)
		part := buf[:n*size]
		guard.Check(read(all[at:at+n], part))
		w.rows.Advance(all[at].Episode, float64(n)/float64(rows*len(w.streams)))
		if s.Feature == w.acts.f {
			part = w.acts.take(part)
		}
		guard.Check(d.Write(part))
		if after == nil {
			continue
		}
		last := part[(n-1)*size:]
		if at == 0 {
			part = part[size:]
		}
		guard.Check(after.Write(part))
		if at+n == rows { // the last step has none after it
			guard.Check(after.Write(last))
		}
	}
	if after != nil {
		guard.Check(after.Close())
	}
	guard.Check(d.Close())
}

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
		_ = w.bearable(robocache.Where{"episode": w.info.EpisodeIndex(e), "stream": f.Key}, func() {
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
