package bag

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/guard"
)

const op = reader.Op("recordings")

// stream is one feature: a field of a topic.
type stream struct {
	topic, field, clock int
	column              int // place in the plan's columns; -1 where it is not numeric
}

// find gives a stream by its key.
func (d *Dataset) find(key string) (*stream, *robocache.Feature, error) {
	i, ok := d.byKey[key]
	if !ok {
		return nil, nil, op.NoStream(key)
	}
	return &d.streams[i], &d.info.Features[i], nil
}

func wrongKind(f *robocache.Feature, want string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "read", Where: robocache.Where{"stream": f.Key}, Want: want, Got: "a stream of kind " + string(f.Kind)}
}

// runs calls fn for each run of rows of one episode.
func runs(rows []robocache.Row, fn func(ep, from, to int) error) error {
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].Episode == rows[from].Episode {
			to++
		}
		if err := fn(rows[from].Episode, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (d *Dataset) checkRow(f *robocache.Feature, r *rows, row robocache.Row) error {
	if err := op.Row(r.n, row); err != nil {
		return robocache.At(err, robocache.Where{"stream": f.Key})
	}
	return nil
}

// Gather copies rows of a numeric stream.
func (d *Dataset) Gather(ctx context.Context, key string, want []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed("gather", &err)
	s, f, err := d.find(key)
	if err != nil {
		return err
	}
	w := f.RowBytes()
	if s.column < 0 {
		return wrongKind(f, "a numeric stream of fixed shape")
	}
	guard.Check(op.Room(key, "bytes", len(want)*w, len(dst)))
	return d.cells(ctx, s, f, want, func(i, n int, b *block, r int) {
		copy(dst[i*w:(i+n)*w], b.cols[s.column][r*w:(r+n)*w])
	})
}

// cells finds the decoded block of each row: fn gets runs of n rows that lie one behind the other in one.
func (d *Dataset) cells(ctx context.Context, s *stream, f *robocache.Feature, want []robocache.Row, fn func(i, n int, b *block, row int)) error {
	size := d.topics[s.topic].plans[s.clock].rows
	return runs(want, func(ep, from, to int) error {
		tr, err := d.track(ctx, ep, s.topic, false)
		if err != nil {
			return err
		}
		r := &tr.clocks[s.clock]
		var b *block
		last := -1
		for i := from; i < to; {
			if err := d.checkRow(f, r, want[i]); err != nil {
				return err
			}
			row := want[i].Index
			k := row / size
			if k != last {
				if b, err = d.block(ctx, ep, s.topic, s.clock, k, tr); err != nil {
					return robocache.At(err, robocache.Where{"episode": ep, "stream": f.Key})
				}
				last = k
			}
			n, most := 1, min(to-i, min((k+1)*size, r.n)-row)
			for n < most && want[i+n].Index == row+n {
				n++
			}
			fn(i, n, b, row-k*size)
			i += n
		}
		return nil
	})
}

// Valid says which rows hold a value.
func (d *Dataset) Valid(ctx context.Context, key string, want []robocache.Row, valid []uint8) (err error) {
	defer guard.Malformed("valid", &err)
	s, f, err := d.find(key)
	if err != nil {
		return err
	}
	guard.Check(op.Room(key, "rows", len(want), len(valid)))
	if f.Kind == robocache.KindVideo {
		return d.videoRows(ctx, s, f, want, func(i int, _ string, image int) {
			valid[i] = 0
			if image >= 0 {
				valid[i] = 1
			}
		})
	}
	if s.column < 0 {
		reader.AllValid(valid)
		return nil
	}
	return d.cells(ctx, s, f, want, func(i, n int, b *block, r int) {
		if b.valid != nil {
			copy(valid[i:i+n], b.valid[s.column][r:r+n])
			return
		}
		reader.AllValid(valid[i : i+n])
	})
}

// messages visits the messages of rows of a stream, each run of an episode in the order of the file: fn gets the row's place in want.
func (d *Dataset) messages(ctx context.Context, s *stream, f *robocache.Feature, want []robocache.Row, fn func(i int, msg []byte, entry int) error) error {
	return runs(want, func(ep, from, to int) error {
		tr, err := d.track(ctx, ep, s.topic, false)
		if err != nil {
			return err
		}
		r := &tr.clocks[s.clock]
		list := make([]wantedMessage, to-from)
		for i := range list {
			row := want[from+i]
			if err := d.checkRow(f, r, row); err != nil {
				return err
			}
			list[i] = wantedMessage{msg: r.message(row.Index), at: int32(i)}
		}
		err = d.visit(ctx, ep, s.topic, list, func(i int, m *Message) error {
			entry := 0
			if r.entry != nil {
				entry = int(r.entry[want[from+i].Index])
			}
			return fn(from+i, m.Data, entry)
		})
		return robocache.At(err, robocache.Where{"episode": ep, "stream": f.Key})
	})
}

// Frames gives the images of rows.
func (d *Dataset) Frames(ctx context.Context, key string, want []robocache.Row, out []robocache.FrameRef) (err error) {
	defer guard.Malformed("frames", &err)
	s, f, err := d.find(key)
	if err != nil {
		return err
	}
	guard.Check(cmp.Or(op.Kind(key, f.Kind, robocache.KindImage, robocache.KindVideo), op.Room(key, "frames", len(want), len(out))))
	if f.Kind == robocache.KindVideo {
		return d.videoRows(ctx, s, f, want, func(i int, path string, image int) {
			if out[i] = (robocache.FrameRef{Path: path, Ordinal: image}); image < 0 {
				out[i] = robocache.FrameRef{Missing: true}
			}
		})
	}
	t := d.topics[s.topic]
	return d.messages(ctx, s, f, want, func(i int, msg []byte, entry int) error {
		ref, err := t.dec.Image(msg, s.field, entry)
		if err != nil {
			return err
		}
		// The image's bytes may be those of a chunk, which is many times as large and would stay with them.
		ref.Encoded = slices.Clone(ref.Encoded)
		if ref.Raw != nil {
			raw := *ref.Raw
			raw.Pix = slices.Clone(raw.Pix)
			ref.Raw = &raw
		}
		out[i] = ref
		return nil
	})
}

// GatherRagged gives rows of clouds and of arrays of varying length.
func (d *Dataset) GatherRagged(ctx context.Context, key string, want []robocache.Row) (data []byte, counts []int, err error) {
	defer guard.Malformed("gather", &err)
	s, f, err := d.find(key)
	if err != nil {
		return nil, nil, err
	}
	if !f.Ragged() || f.Elements() == 0 {
		return nil, nil, wrongKind(f, "a ragged stream")
	}
	t := d.topics[s.topic]
	counts = make([]int, len(want))
	w := f.Elements() * f.DType.Size()
	// Messages come in the file's order: rows that are asked for in another order are put in theirs afterwards.
	ends := make([]int, len(want))
	order := make([]int, 0, len(want))
	err = d.messages(ctx, s, f, want, func(i int, msg []byte, entry int) (err error) {
		at := len(data)
		if data, _, err = t.dec.Ragged(msg, s.field, entry, data); err != nil {
			return err
		}
		if (len(data)-at)%w != 0 {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "gather", Want: fmt.Sprintf("entries of %d bytes", w), Got: fmt.Sprintf("%d bytes", len(data)-at)}
		}
		counts[i], ends[i] = (len(data)-at)/w, len(data)
		order = append(order, i)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if !slices.IsSorted(order) {
		sorted := make([]byte, 0, len(data))
		for i, n := range counts {
			sorted = append(sorted, data[ends[i]-n*w:ends[i]]...)
		}
		data = sorted
	}
	return data, counts, nil
}

// Text gives rows of a text stream, or of the pseudo-feature "task".
func (d *Dataset) Text(ctx context.Context, key string, want []robocache.Row) (out []string, err error) {
	defer guard.Malformed("text", &err)
	if _, ok := d.byKey[key]; !ok && key == "task" {
		return d.taskRows(ctx, want)
	}
	s, f, err := d.find(key)
	if err != nil {
		return nil, err
	}
	guard.Check(op.Kind(key, f.Kind, robocache.KindText, robocache.KindEvent))
	t := d.topics[s.topic]
	out = make([]string, len(want))
	err = d.messages(ctx, s, f, want, func(i int, msg []byte, entry int) (err error) {
		out[i], err = t.dec.Text(msg, s.field, entry)
		return err
	})
	return out, err
}

// Times gives the timestamps of a stream by its clock; "" those of the episode's own rows.
func (d *Dataset) Times(ctx context.Context, ep int, key string) (_ []int64, err error) {
	defer guard.Malformed("times", &err)
	return d.times(ctx, ep, key, "")
}

// TimesBy gives the timestamps of a stream by one of its clocks.
func (d *Dataset) TimesBy(ctx context.Context, ep int, key, clock string) (_ []int64, err error) {
	defer guard.Malformed("times", &err)
	if clock != Header && clock != Publish && clock != Log {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "times", Want: "header, publish or log", Got: fmt.Sprintf("%.40q", clock)}
	}
	if ok := slices.Contains(d.Clocks(key), clock); !ok {
		return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "times", Where: robocache.Where{"stream": key}, Want: fmt.Sprint(d.Clocks(key)), Got: clock}
	}
	return d.times(ctx, ep, key, clock)
}

func (d *Dataset) times(ctx context.Context, ep int, key, clock string) ([]int64, error) {
	topic, c, err := d.clockOf(key)
	if err != nil {
		return nil, err
	}
	if topic < 0 { // no anchor: no rows
		_, err := d.episode(ep)
		return nil, err
	}
	t := d.topics[topic]
	tr, err := d.track(ctx, ep, topic, clock != "" && clock != Log && clock != t.choice)
	if err != nil {
		return nil, err
	}
	r := &tr.clocks[c]
	if tr.full && !d.needsPayload(t) {
		// The rows of the stream are those of the index: what damage took of them has no timestamp.
		own, err := d.track(ctx, ep, topic, false)
		if err != nil {
			return nil, err
		}
		if n := own.clocks[c].n; n != r.n {
			return nil, robocache.At(&robocache.Error{Class: robocache.ErrMalformed, Op: "times", Msg: "messages lie in damaged parts of the recording", Want: fmt.Sprintf("%d timestamps", n), Got: fmt.Sprint(r.n), Hint: "open with ignore_index=true: then such messages are left out from the start"},
				robocache.Where{"episode": ep, "stream": key})
		}
	}
	if clock == "" {
		clock = t.choice
	}
	v := r.by(clock)
	if len(v) != r.n { // a clock that this recording does not keep
		v = r.log
	}
	return slices.Clone(v), nil
}

// clockOf finds topic and clock of a stream; -1 for the rows of a dataset without any.
func (d *Dataset) clockOf(key string) (topic, clock int, err error) {
	if _, ok := d.byKey[key]; key == "" || key == "task" && !ok {
		return d.anchor.topic, d.anchor.clock, nil
	}
	s, _, err := d.find(key)
	if err != nil {
		return 0, 0, err
	}
	return s.topic, s.clock, nil
}

// Clocks lists the clocks of a stream, that of Times first.
func (d *Dataset) Clocks(key string) []string {
	topic, _, err := d.clockOf(key)
	if err != nil || topic < 0 {
		return nil
	}
	t := d.topics[topic]
	out := []string{t.choice}
	for _, c := range []string{Header, Publish, Log} {
		if c != t.choice && (c != Header || t.stamped) && (c != Publish || t.publish) {
			out = append(out, c)
		}
	}
	return out
}
