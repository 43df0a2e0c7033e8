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

// op is the source of errors that the readers of all formats have in common.
const op = reader.Op("recordings")

// stream is one feature, which is a field of a topic.
type stream struct {
	// indices in Dataset.topics, and in the fields and clocks of that topic
	topic, field, clock int
	column              int // index in the plan's columns; -1 if the field is not numeric
}

// streamByKey returns the stream with the given key.
func (d *Dataset) streamByKey(key string) (*stream, *robocache.Feature) {
	i, ok := d.byKey[key]
	if !ok {
		guard.Fail(op.NoStream(key))
	}
	return &d.streams[i], &d.About.Features[i]
}

// wrongKind returns the error for a stream that is not of the kind that the call reads.
func wrongKind(f *robocache.Feature, want string) error {
	return robocache.Misuse("read", robocache.Where{"stream": f.Key}, "").
		Expected(want, "a stream of kind "+string(f.Kind))
}

// forEachRun calls fn for each run rows[from:to] of consecutive rows of one episode.
func forEachRun(rows []robocache.Row, fn func(ep, from, to int)) {
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to].Episode == rows[from].Episode {
			to++
		}
		fn(rows[from].Episode, from, to)
		from = to
	}
}

// checkRow fails the call if a requested row is not one of r.
func (d *Dataset) checkRow(f *robocache.Feature, r *rows, row robocache.Row) {
	if err := op.Row(d.About, r.n, row); err != nil {
		guard.Fail(robocache.At(err, robocache.Where{"stream": f.Key}))
	}
}

// Gather copies rows of a numeric stream to dst, in the requested order.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	want []robocache.Row,
	dst []byte,
) (err error) {
	defer guard.Recover("gather", &err)
	s, f := d.streamByKey(key)
	rowBytes := f.RowBytes()
	if s.column < 0 {
		return wrongKind(f, "a numeric stream of fixed shape")
	}
	guard.Check(op.Room(key, "bytes", len(want)*rowBytes, len(dst)))
	d.forEachBlock(ctx, s, f, want, func(i, n int, b *block, row int) {
		from := b.cols[s.column][row*rowBytes : (row+n)*rowBytes]
		copy(dst[i*rowBytes:(i+n)*rowBytes], from)
	})
	return nil
}

// forEachBlock finds the decoded block of each row. It calls fn for runs of n consecutive rows in
// one block: want[i:i+n] are the rows of b from row on.
func (d *Dataset) forEachBlock(
	ctx context.Context,
	s *stream,
	f *robocache.Feature,
	want []robocache.Row,
	fn func(i, n int, b *block, row int),
) {
	size := d.topics[s.topic].plans[s.clock].blockRows
	forEachRun(want, func(ep, from, to int) {
		tr := d.trackOf(ctx, ep, s.topic, false)
		r := &tr.clocks[s.clock]
		var b *block
		loaded := -1 // number of b
		for i := from; i < to; {
			d.checkRow(f, r, want[i])
			row := want[i].Index
			number := row / size
			if number != loaded {
				b = d.loadBlock(ctx, ep, s.topic, s.clock, number, tr, f.Key)
				loaded = number
			}
			// Extend the run to the end of the block or of the request.
			n := 1
			blockEnd := min((number+1)*size, r.n)
			limit := min(to-i, blockEnd-row)
			for n < limit && want[i+n].Index == row+n {
				n++
			}
			fn(i, n, b, row-number*size)
			i += n
		}
	})
}

// Valid sets valid to 1 for rows that have a value, and to 0 for others.
func (d *Dataset) Valid(
	ctx context.Context,
	key string,
	want []robocache.Row,
	valid []uint8,
) (err error) {
	defer guard.Recover("valid", &err)
	s, f := d.streamByKey(key)
	guard.Check(op.Room(key, "rows", len(want), len(valid)))
	if f.Kind == robocache.KindVideo {
		d.videoRows(ctx, s, f, want, func(i int, _ string, image int) {
			valid[i] = 0
			if image >= 0 {
				valid[i] = 1
			}
		})
		return nil
	}
	if s.column < 0 { // only columns can lack values
		reader.AllValid(valid)
		return nil
	}
	d.forEachBlock(ctx, s, f, want, func(i, n int, b *block, row int) {
		reader.AllValid(valid[i : i+n])
		if b.valid != nil {
			copy(valid[i:i+n], b.valid[s.column][row:])
		}
	})
	return nil
}

// forEachRowMessage reads the messages of rows, in file order within each episode. It calls fn with
// the row's position in want, its message, and the number of the row in the message (entry).
func (d *Dataset) forEachRowMessage(
	ctx context.Context,
	s *stream,
	f *robocache.Feature,
	want []robocache.Row,
	fn func(i int, msg []byte, entry int) error,
) {
	forEachRun(want, func(ep, from, to int) {
		tr := d.trackOf(ctx, ep, s.topic, false)
		r := &tr.clocks[s.clock]
		list := make([]wantedMessage, to-from)
		for i := range list {
			row := want[from+i]
			d.checkRow(f, r, row)
			list[i] = wantedMessage{msg: r.messageOf(row.Index), at: int32(i)}
		}
		err := guard.Try(func() {
			d.visitMessages(ctx, ep, s.topic, list, func(i int, m *Message) error {
				return fn(from+i, m.Data, r.entryOf(want[from+i].Index))
			})
		})
		guard.Check(robocache.At(
			err,
			robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": f.Key},
		))
	})
}

// Frames returns the images of rows.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	want []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer guard.Recover("frames", &err)
	s, f := d.streamByKey(key)
	guard.Check(cmp.Or(
		op.Kind(key, f.Kind, robocache.KindImage, robocache.KindVideo),
		op.Room(key, "frames", len(want), len(out)),
	))
	if f.Kind == robocache.KindVideo {
		d.videoRows(ctx, s, f, want, func(i int, path string, image int) {
			if image < 0 {
				out[i] = robocache.FrameRef{Missing: true}
				return
			}
			out[i] = robocache.FrameRef{Path: path, Ordinal: image}
		})
		return nil
	}
	t := d.topics[s.topic]
	d.forEachRowMessage(ctx, s, f, want, func(i int, msg []byte, entry int) error {
		ref, err := t.dec.Image(msg, s.field, entry)
		if err != nil {
			return err
		}
		// Without a copy, the image would keep its whole chunk in memory, which is many times
		// larger.
		ref.Encoded = slices.Clone(ref.Encoded)
		if ref.Raw != nil {
			raw := *ref.Raw
			raw.Pix = slices.Clone(raw.Pix)
			ref.Raw = &raw
		}
		out[i] = ref
		return nil
	})
	return nil
}

// GatherRagged returns rows of clouds and of arrays of variable length. data contains the rows in
// the requested order without gaps, and counts the number of entries of each row.
func (d *Dataset) GatherRagged(
	ctx context.Context,
	key string,
	want []robocache.Row,
) (data []byte, counts []int, err error) {
	defer guard.Recover("gather", &err)
	s, f := d.streamByKey(key)
	if !f.Ragged() || f.Elements() == 0 {
		return nil, nil, wrongKind(f, "a ragged stream")
	}
	t := d.topics[s.topic]
	counts = make([]int, len(want))
	entryBytes := f.Elements() * f.DType.Size()
	// Messages are read in file order. The rows are sorted into the requested order afterwards.
	ends := make([]int, len(want))     // end of each row in data
	order := make([]int, 0, len(want)) // rows in file order
	d.forEachRowMessage(ctx, s, f, want, func(i int, msg []byte, entry int) (err error) {
		start := len(data)
		if data, _, err = t.dec.Ragged(msg, s.field, entry, data); err != nil {
			return err
		}
		size := len(data) - start
		if size%entryBytes != 0 {
			return robocache.Malformed("gather", nil, "").
				Expected(
					fmt.Sprintf("entries of %d bytes", entryBytes),
					fmt.Sprintf("%d bytes", size),
				)
		}
		counts[i] = size / entryBytes
		ends[i] = len(data)
		order = append(order, i)
		return nil
	})
	if !slices.IsSorted(order) {
		sorted := make([]byte, 0, len(data))
		for i, n := range counts {
			start := ends[i] - n*entryBytes
			sorted = append(sorted, data[start:ends[i]]...)
		}
		data = sorted
	}
	return data, counts, nil
}

// Text returns rows of a text stream, or of the pseudo-feature "task".
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	want []robocache.Row,
) (out []string, err error) {
	defer guard.Recover("text", &err)
	if _, ok := d.byKey[key]; !ok && key == "task" {
		return d.taskRows(ctx, want), nil
	}
	s, f := d.streamByKey(key)
	guard.Check(op.Kind(key, f.Kind, robocache.KindText, robocache.KindEvent))
	t := d.topics[s.topic]
	out = make([]string, len(want))
	d.forEachRowMessage(ctx, s, f, want, func(i int, msg []byte, entry int) (err error) {
		out[i], err = t.dec.Text(msg, s.field, entry)
		return err
	})
	return out, nil
}

// Times returns the timestamps of a stream by its clock. The key "" selects the rows of the
// episode.
func (d *Dataset) Times(ctx context.Context, ep int, key string) (_ []int64, err error) {
	defer guard.Recover("times", &err)
	return d.streamTimes(ctx, ep, key, ""), nil
}

// TimesBy returns the timestamps of a stream by one of its clocks.
func (d *Dataset) TimesBy(ctx context.Context, ep int, key, clock string) (_ []int64, err error) {
	defer guard.Recover("times", &err)
	if clock != Header && clock != Publish && clock != Log {
		return nil, robocache.Misuse("times", nil, "").
			Expected("header, publish or log", fmt.Sprintf("%.40q", clock))
	}
	if ok := slices.Contains(d.Clocks(key), clock); !ok {
		return nil, robocache.Misuse("times", robocache.Where{"stream": key}, "").
			Expected(fmt.Sprint(d.Clocks(key)), clock)
	}
	return d.streamTimes(ctx, ep, key, clock), nil
}

// streamTimes returns the timestamps of a stream by a clock. The clock "" is that of the topic. It
// fails the call if the stream's values and these timestamps would be of different rows.
func (d *Dataset) streamTimes(ctx context.Context, ep int, key, clock string) []int64 {
	topic, c := d.clockOf(key)
	if topic < 0 { // without an anchor there are no rows
		d.openEpisode(ep)
		return nil
	}
	t := d.topics[topic]
	// trackOf always reads the times of the topic's clock, and the index holds the log times. For
	// any other clock the payloads must be read.
	full := clock != "" && clock != Log && clock != t.clock
	tr := d.trackOf(ctx, ep, topic, full)
	r := &tr.clocks[c]
	valuesFollowIndex := !d.needsPayload(t)
	if tr.full && valuesFollowIndex {
		// The values of this stream are read by the rows of the index, which include messages that
		// are lost to damage. tr excludes these messages, so its timestamps would belong to other
		// rows.
		if n := d.trackOf(ctx, ep, topic, false).clocks[c].n; n != r.n {
			guard.Fail(
				robocache.Malformed(
					"times",
					robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": key},
					"messages are in damaged parts of the recording",
				).
					Expected(fmt.Sprintf("%d timestamps", n), fmt.Sprint(r.n)).
					WithHint(
						"Open with %s to leave out messages in damaged parts.",
						robocache.Option("options", "ignore_index", true),
					),
			)
		}
	}
	times := r.byClock(cmp.Or(clock, t.clock))
	if len(times) != r.n { // this recording does not store the clock
		times = r.log
	}
	return slices.Clone(times)
}

// clockOf returns the numbers of the topic and the clock of a stream. The keys "" and "task" mean
// the rows of the episode: clockOf returns the anchor, whose topic is -1 if there is none.
func (d *Dataset) clockOf(key string) (topic, clock int) {
	if _, ok := d.byKey[key]; key == "" || key == "task" && !ok {
		return d.anchor.topic, d.anchor.clock
	}
	s, _ := d.streamByKey(key)
	return s.topic, s.clock
}

// Clocks returns the clocks of a stream. The first one is the clock of Times.
func (d *Dataset) Clocks(key string) []string {
	topic := -1
	if guard.Try(func() { topic, _ = d.clockOf(key) }) != nil || topic < 0 {
		return nil
	}
	t := d.topics[topic]
	out := []string{t.clock}
	for _, c := range []string{Header, Publish, Log} {
		if c != t.clock && (c != Header || t.hasHeader) && (c != Publish || t.hasPublish) {
			out = append(out, c)
		}
	}
	return out
}
