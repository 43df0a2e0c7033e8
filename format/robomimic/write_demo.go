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
)

// sourceAttribute is the attribute of a demo with the recording from which it was made
// (robocache.Origin as JSON).
const sourceAttribute = "robocache_source"

// blockBytes is the approximate size of the part of a stream that is in memory at once.
const blockBytes = 32 << 20

// writeDemo writes an episode. A failed episode is removed again, but its space in the file stays
// unused.
func (w *writer) writeDemo(data *h5.GroupWriter, e int) error {
	rows := w.src.Len(e)
	if rows == 0 {
		w.addFinding(
			robocache.SeverityWarning,
			"episode-skipped",
			robocache.Where{"episode": w.info.EpisodeIndex(e)},
			0,
			"the episode has no rows, but robomimic needs at least one",
			"",
		)
		return nil
	}
	meta, err := w.src.Episode(w.ctx, e)
	if err != nil {
		return err
	}
	if !w.keepClocks {
		if err := w.countOffGrid(e, rows); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("demo_%d", w.report.Episodes)
	demo, err := data.Group(name)
	if err != nil {
		return err
	}
	before := w.actions
	if err := w.fillDemo(demo, e, rows, meta); err != nil {
		w.actions = before
		demo.Drop()
		return err
	}
	if err := demo.Close(); err != nil {
		return err
	}
	w.demos[e] = name
	w.report.Episodes++
	w.report.Frames += int64(rows)
	return nil
}

func (w *writer) fillDemo(demo *h5.GroupWriter, e, rows int, meta robocache.Episode) error {
	if err := demo.Attribute("num_samples", rows); err != nil {
		return err
	}
	if len(meta.Tasks) > 0 && meta.Tasks[0] != "" {
		encoded, err := json.Marshal(map[string]string{"lang": meta.Tasks[0]})
		if err != nil {
			return err
		}
		if err := demo.Attribute("ep_meta", string(encoded)); err != nil {
			return err
		}
		if len(meta.Tasks) > 1 {
			w.manyTask++
		}
	}
	if text, err := w.origins.Text(w.ctx, e); err != nil {
		return err
	} else if text != "" {
		if err := demo.Attribute(sourceAttribute, text); err != nil {
			return err
		}
	}
	groups := map[string]*h5.GroupWriter{"": demo}
	var order []*h5.GroupWriter
	group := func(name string) (*h5.GroupWriter, error) {
		if groups[name] == nil {
			var err error
			if groups[name], err = demo.Group(name); err != nil {
				return nil, err
			}
			order = append(order, groups[name])
		}
		return groups[name], nil
	}
	streams := w.streamsOf(e)
	clocks := map[string]*clockNames{}
	for _, s := range streams {
		if clocks[s.Clock] == nil {
			clocks[s.Clock] = &clockNames{}
		}
		clocks[s.Clock].count++
	}
	for _, s := range streams {
		g, err := group(s.group)
		if err != nil {
			return err
		}
		rows := rows
		if w.keepClocks {
			if rows, err = w.writeTimestamps(g, s, e, clocks[s.Clock]); err != nil {
				return err
			}
		}
		var next *h5.GroupWriter
		if w.next && s.group == "obs" && rows > 0 {
			if next, err = group("next_obs"); err != nil {
				return err
			}
		}
		if err := robocache.At(w.writeStream(s, g, next, reader.Rows(e, 0, rows)),
			robocache.Where{"stream": s.Key}); err != nil {
			return err
		}
	}
	for _, g := range order {
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}

// streamsOf returns the streams that an episode has.
func (w *writer) streamsOf(e int) []*outStream {
	var list []*outStream
	for i := range w.streams {
		if s := &w.streams[i]; !robocache.Lacks(w.src, e, s.Key) {
			list = append(list, s)
		}
	}
	return list
}

// clockNames is a clock of a demo: the number of its streams, and its timestamps after they are
// written.
type clockNames struct {
	count   int
	written *h5.DatasetWriter
}

// writeTimestamps writes the timestamps of a stream next to it, once for all streams of a clock,
// and returns their number. They are written as float seconds if that keeps every nanosecond,
// otherwise as integers.
func (w *writer) writeTimestamps(
	g *h5.GroupWriter,
	s *outStream,
	e int,
	clock *clockNames,
) (int, error) {
	at, err := w.src.Times(w.ctx, e, s.Key)
	if err != nil {
		return 0, err
	}
	name := s.name + h5set.TimestampsSuffix
	if d := clock.written; d != nil {
		if err := g.Link(name, d); err != nil {
			return 0, err
		}
		return len(at), nil
	}
	spec := h5.Spec{DType: robocache.Float64, Shape: []int64{int64(len(at))}, Names: clock.count}
	if slices.ContainsFunc(
		at,
		func(t int64) bool { return int64(math.RoundToEven(float64(t)/1e9*1e9)) != t },
	) {
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
	d, err := g.Dataset(name, spec)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(d.Write(b), d.Close()); err != nil {
		return 0, err
	}
	clock.written = d
	return len(at), nil
}

// writeStream writes one stream of an episode. If next is not nil, it also writes the stream
// shifted by one step to next.
func (w *writer) writeStream(s *outStream, g, next *h5.GroupWriter, all []robocache.Row) error {
	rows := len(all)
	spec := h5.Spec{DType: s.DType, Shape: []int64{int64(rows)}}
	var size int
	read := func(rows []robocache.Row, dst []byte) error {
		return w.src.Gather(w.ctx, s.Key, rows, dst)
	}
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
		if size = s.RowBytes(); s.Feature == w.actions.feature {
			spec.DType = w.actions.storedType()
		}
	case robocache.KindImage, robocache.KindVideo:
		images, err := raster.Open(w.ctx, w.src, s.Feature, all, w.opt.Threads)
		if err != nil {
			return err
		}
		defer images.Close()
		spec.DType, spec.Shape = images.DType, append(
			spec.Shape,
			int64(images.Height),
			int64(images.Width),
			int64(images.Channels),
		)
		if w.deflate > 0 {
			spec.ChunkRows, spec.Deflate = 1, w.deflate
		}
		size = images.RowBytes()
		read = func(rows []robocache.Row, dst []byte) error { return images.Read(w.ctx, rows, dst) }
	default: // text; events are JSON
		list, err := w.src.Text(w.ctx, s.Key, all)
		if err != nil {
			return err
		}
		if err := writeTexts(g, s.name, h5.Spec{DType: robocache.String}, list); err != nil {
			return err
		}
		if next != nil {
			if err := writeTexts(next, s.name, h5.Spec{DType: robocache.String},
				append(list[1:rows:rows], list[rows-1])); err != nil {
				return err
			}
		}
		return nil
	}
	d, err := g.Dataset(s.name, spec)
	if err != nil {
		return err
	}
	var after *h5.DatasetWriter
	if next != nil {
		if after, err = next.Dataset(s.name, spec); err != nil {
			return err
		}
	}
	block := min(max(blockBytes/size, 1), rows)
	buf := make([]byte, block*size)
	for at := 0; at < rows; at += block {
		n := min(block, rows-at)
		part := buf[:n*size]
		if err := read(all[at:at+n], part); err != nil {
			return err
		}
		w.rows.Advance(all[at].Episode, float64(n)/float64(rows*len(w.streams)))
		if s.Feature == w.actions.feature {
			part = w.actions.checkAndScale(part)
		}
		if err := d.Write(part); err != nil {
			return err
		}
		if after == nil {
			continue
		}
		last := part[(n-1)*size:]
		if at == 0 {
			part = part[size:]
		}
		if err := after.Write(part); err != nil {
			return err
		}
		if at+n == rows { // the last step has no successor, so it is repeated
			if err := after.Write(last); err != nil {
				return err
			}
		}
	}
	if after != nil {
		if err := after.Close(); err != nil {
			return err
		}
	}
	return d.Close()
}

// Attributes of data that reverse the scaling: action = actions·scale + offset, one number per
// dimension.
const (
	scaleName  = "actions_scale"
	offsetName = "actions_offset"
)

// actions checks the values of actions, which robomimic's checker requires in [−1, 1], and scales
// them on request.
type actions struct {
	feature       *robocache.Feature
	scale, offset []float64 // nil if the actions are not scaled
	beyond        int64
	worst         float64 // the value with the largest magnitude
	channel       int
	values        []float64
}

// measureRange determines the range of each dimension in the episodes, and the scale and offset
// that map it to [−1, 1].
func (w *writer) measureRange(f *robocache.Feature, episodes []int) error {
	d := f.Elements()
	least := slices.Repeat([]float64{math.Inf(1)}, d)
	most := slices.Repeat([]float64{math.Inf(-1)}, d)
	block := max(blockBytes/f.RowBytes(), 1)
	for _, e := range episodes {
		if robocache.Lacks(w.src, e, f.Key) {
			continue
		}
		if _, err := w.tolerate(
			robocache.Where{"episode": w.info.EpisodeIndex(e), "stream": f.Key},
			func() error {
				for part := range slices.Chunk(reader.Rows(e, 0, w.src.Len(e)), block) {
					raw := make([]byte, len(part)*f.RowBytes())
					if err := w.src.Gather(w.ctx, f.Key, part, raw); err != nil {
						return err
					}
					for i, v := range robocache.Float64s(nil, f.DType, raw) {
						if c := i % d; v-v == 0 { // finite
							least[c], most[c] = min(least[c], v), max(most[c], v)
						}
					}
				}
				return nil
			},
		); err != nil {
			return err
		}
	}
	w.actions.scale, w.actions.offset = make([]float64, d), make([]float64, d)
	for c := range d {
		w.actions.scale[c], w.actions.offset[c] = 1, 0
		if most[c] >= least[c] {
			w.actions.offset[c] = least[c]/2 + most[c]/2
		}
		if half := most[c]/2 - least[c]/2; half > 0 && !math.IsInf(half, 0) {
			w.actions.scale[c] = half
		}
	}
	return nil
}

// storedType returns the type of the actions in the file. Scaled actions are floats, and not
// float16, which HDF5 readers do not support well.
func (a *actions) storedType() robocache.DType {
	switch t := a.feature.DType; {
	case a.scale == nil, t == robocache.Float64:
		return t
	case t == robocache.Int64, t == robocache.Uint64, t == robocache.Int32, t == robocache.Uint32:
		return robocache.Float64
	}
	return robocache.Float32
}

// checkAndScale checks rows and returns them as they are written.
func (a *actions) checkAndScale(raw []byte) []byte {
	a.values = robocache.Float64s(a.values[:0], a.feature.DType, raw)
	d := a.feature.Elements()
	if a.scale == nil {
		for i, v := range a.values {
			if !(math.Abs(v) > 1) { // NaN passes the checker, and doctor reports it
				continue
			}
			if a.beyond++; math.Abs(v) > math.Abs(a.worst) {
				a.worst, a.channel = v, i%d
			}
		}
		return raw
	}
	out := make([]byte, 0, len(a.values)*a.storedType().Size())
	for i, v := range a.values {
		c := i % d
		if v = (v - a.offset[c]) / a.scale[c]; v-v == 0 {
			v = max(-1, min(1, v)) // corrects rounding
		}
		if a.storedType() == robocache.Float64 {
			out = binary.LittleEndian.AppendUint64(out, math.Float64bits(v))
		} else {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(v)))
		}
	}
	return out
}

// closeActions reports values outside [−1, 1], or writes the attributes of the scaling.
func (w *writer) closeActions(data *h5.GroupWriter) error {
	a := &w.actions
	if a.scale != nil {
		w.addFinding(
			robocache.SeverityInfo,
			"actions-scaled",
			robocache.Where{"stream": a.feature.Key, "scale": a.scale, "offset": a.offset},
			0,
			"each dimension of the actions is scaled onto [-1, 1]: action = actions·scale + "+
				"offset, the attributes "+scaleName+" and "+offsetName+" of data",
			"",
		)
		if err := errors.Join(data.Attribute(scaleName, a.scale),
			data.Attribute(offsetName, a.offset)); err != nil {
			return err
		}
	} else if a.beyond > 0 {
		w.addFinding(
			robocache.SeverityWarning,
			"actions-beyond-one",
			robocache.Where{"stream": a.feature.Key, "channel": a.channel},
			a.beyond,
			fmt.Sprintf(
				"%d values of the actions lie beyond [-1, 1], which robomimic's checker "+
					"refuses; the largest is %.6g, in channel %s",
				a.beyond,
				a.worst,
				a.channelName(),
			),
			robocache.Option("scale_actions", true)+" scales each dimension onto [-1, 1]",
		)
	}
	return nil
}

// channelName returns the channel of the worst value, with its name if it has one.
func (a *actions) channelName() string {
	var names []string
	if json.Unmarshal(a.feature.Names, &names) == nil && len(names) == a.feature.Elements() {
		return fmt.Sprintf("%d (%s)", a.channel, names[a.channel])
	}
	return fmt.Sprint(a.channel)
}
