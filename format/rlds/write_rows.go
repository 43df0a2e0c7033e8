package rlds

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/stills"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// encodeEpisode returns the record of the first n rows of an episode.
func (w *writing) encodeEpisode(
	ctx context.Context,
	p *stills.Reader,
	e, n int,
) (_ []byte, err error) {
	defer guard.Recover("rlds", &err)
	ep := guard.Must(w.src.Episode(ctx, e))
	if w.options.Renumber {
		ep.Index = int64(e)
	}
	var times []int64
	if !w.timeless {
		times = guard.Must(w.src.Times(ctx, e, ""))
	}
	if len(times) < n && !w.timeless {
		return nil, robocache.Malformed("write rlds", nil, "timestamps").
			Expected(fmt.Sprint(n), fmt.Sprint(len(times)))
	}
	rows := reader.Rows(e, 0, n)
	x := newExample()
	for i := range w.leaves {
		l := &w.leaves[i]
		err := guard.Try(func() { w.addLeaf(ctx, x, l, p, rows, times, &ep) })
		guard.Check(robocache.At(err, robocache.Where{"stream": l.key}))
		if l.how != outImage && l.how != outDepth { // images advance one by one
			w.rows.Advance(e, 1/float64(len(w.leaves)))
		}
	}
	return x.bytes()
}

// addLeaf adds one feature to the record.
func (w *writing) addLeaf(
	ctx context.Context,
	x *exampleWriter,
	l *outLeaf,
	p *stills.Reader,
	rows []robocache.Row,
	times []int64,
	ep *robocache.Episode,
) {
	if !l.step && l.how != outIndex {
		rows = rows[:min(1, len(rows))]
	}
	n := len(rows)
	switch l.how {
	case outNumbers, outBytes:
		size := l.feature.RowBytes()
		b := make([]byte, n*size)
		if !l.step && n == 0 {
			// an episode of no steps still has one row of each episode value
			b, n = make([]byte, size), 1
		}
		if len(rows) > 0 {
			guard.Check(w.src.Gather(ctx, l.feature.Key, rows, b))
		}
		if l.how == outNumbers {
			x.numbers(l.name, l.feature.DType, b)
			return
		}
		values := make([][]byte, n)
		for i := range values {
			values[i] = b[i*size : (i+1)*size]
		}
		x.strings(l.name, values)
	case outRagged, outOpen:
		w.addRagged(ctx, x, l, rows)
	case outImage, outDepth:
		w.addImages(ctx, x, l, p, rows)
	case outText, outTask:
		key := "task"
		if l.how == outText {
			key = l.feature.Key
		}
		texts := guard.Must(w.src.Text(ctx, key, rows))
		values := make([][]byte, len(texts))
		for i, t := range texts {
			values[i] = []byte(t)
		}
		if !l.step && len(values) == 0 {
			values = [][]byte{nil}
		}
		x.strings(l.name, values)
	case outMask:
		valid := make([]uint8, n)
		guard.Check(robocache.Valid(ctx, w.src, l.mask, rows, valid))
		x.numbers(l.name, robocache.Bool, valid)
	case outFlag:
		v := make([]int64, n)
		if n > 0 && l.key == "is_first" {
			v[0] = 1
		}
		if n > 0 && l.key == "is_last" {
			v[n-1] = 1
		}
		x.ints(l.name, v)
	case outTimestamp:
		x.ints(l.name, times[:n])
		for k, t := range times[:n] {
			if w.info.FPS.Zero() || t != w.info.FPS.Nanos(int64(k)) {
				w.mu.Lock()
				w.uneven = true
				w.mu.Unlock()
				break
			}
		}
	case outIndex:
		x.ints(l.name, []int64{ep.Index})
	case outOrigin:
		x.strings(l.name, [][]byte{[]byte(guard.Must(w.origins.Text(ctx, ep.Position)))})
	}
}

// numbers sets a feature of numbers, converted to the type of the list. The list must hold them
// exactly.
func (w *exampleWriter) numbers(name string, d robocache.DType, b []byte) {
	switch {
	case d == robocache.Float32:
		w.floats(name, b)
	case d.Float():
		le := binary.LittleEndian
		out := make([]byte, 0, len(b)*2)
		for i := 0; i+2 <= len(b); i += 2 {
			h := le.Uint16(b[i:])
			if d == robocache.BFloat16 {
				out = le.AppendUint32(out, uint32(h)<<16)
			} else {
				out = le.AppendUint32(out, math.Float32bits(robocache.HalfToFloat32(h)))
			}
		}
		w.floats(name, out)
	default:
		w.ints(name, robocache.Int64s(nil, d, b))
	}
}

// addRagged adds a stream whose rows vary in length.
func (w *writing) addRagged(
	ctx context.Context,
	x *exampleWriter,
	l *outLeaf,
	rows []robocache.Row,
) {
	data, counts, err := robocache.GatherRagged(ctx, w.src, l.feature.Key, rows)
	guard.Check(err)
	if l.how == outOpen {
		size := l.feature.Elements() * l.feature.DType.Size()
		values := make([][]byte, len(counts))
		at := 0
		for i, n := range counts {
			values[i] = data[at : at+n*size]
			at += n * size
		}
		x.strings(l.name, values)
		return
	}
	x.numbers(l.name+"/ragged_flat_values", l.feature.DType, data)
	lengths := make([]int64, len(counts))
	for i, n := range counts {
		lengths[i] = int64(n)
	}
	x.ints(l.name+"/ragged_row_lengths_0", lengths)
}

// addImages adds the encoded images of a stream.
func (w *writing) addImages(
	ctx context.Context,
	x *exampleWriter,
	l *outLeaf,
	p *stills.Reader,
	rows []robocache.Row,
) {
	values := make([][]byte, len(rows))
	guard.Check(p.Each(ctx, l.feature, rows, func(i int, ref *robocache.FrameRef) error {
		b, err := encodeImage(l, ref)
		values[i] = b
		w.rows.Advance(rows[i].Episode, 1/float64(len(rows)*len(w.leaves)))
		return robocache.At(err, robocache.Where{"row": i})
	}))
	if len(values) > 0 {
		format := "png"
		if len(values[0]) > 2 && values[0][0] == 0xff {
			format = "jpeg"
		}
		w.mu.Lock()
		if w.format[l.key] == "" {
			w.format[l.key] = format
		}
		w.mu.Unlock()
	}
	x.strings(l.name, values)
}
