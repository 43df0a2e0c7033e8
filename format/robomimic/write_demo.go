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

// blockBytes is about how much of a stream is held at once.
const blockBytes = 32 << 20

// demo writes an episode. One that fails is taken out again: its room in the file stays unused.
func (w *writer) demo(data *h5.GroupWriter, e int) {
	rows := w.src.Len(e)
	if rows == 0 {
		w.find(robocache.SeverityWarning, "episode-skipped", robocache.Where{"episode": e}, 0, "the episode has no rows: robomimic wants one at least", "")
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
