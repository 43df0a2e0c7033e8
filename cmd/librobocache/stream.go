//go:build cgo

package main

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/loader"
)

type streamArgs struct {
	episodeArgs
	Key     string `json:"key"`
	Times   bool   `json:"times"`
	Values  bool   `json:"values"`
	Encoded bool   `json:"encoded"`
}

// stream gives times and, for numeric and text features, the values of one stream of an episode; or its images as they are stored.
func (s *shared) stream(ctx context, a *streamArgs) any {
	e := s.at(a.Position)
	return answers(func(ans *answer) {
		defer guard.At(robocache.Where{"dataset": s.Info().URI, "episode": s.Info().EpisodeIndex(e), "stream": a.Key})
		if a.Encoded {
			s.encoded(ctx, ans, e, a)
		} else {
			s.plainStream(ctx, ans, e, a)
		}
	})
}

func (s *shared) plainStream(ctx context, ans *answer, episode int, a *streamArgs) {
	f := s.Info().Feature(a.Key)
	own := f != nil && f.Clock != "" // its own clock: its own number of rows
	rows := s.Len(episode)
	switch {
	case a.Times:
		t := guard.Must(s.Times(ctx, episode, a.Key))
		if own {
			rows = len(t)
		}
		copy(ans.ints("times", len(t)), t)
	case own:
		rows = guard.Must(robocache.RowsIn(ctx, s.Dataset, episode, f))
	}
	isTask := a.Key == "task" && f == nil
	switch {
	case !a.Values && a.Times:
	case f == nil && !isTask:
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "stream", Msg: "there is no such stream"})
	case !a.Values:
		ans.ints("rows", 1)[0] = int64(rows)
	case isTask || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		dtype := robocache.String
		if f != nil { // JSON values or plain text
			dtype = f.DType
		}
		ans.text("values", dtype, guard.Must(s.Text(ctx, a.Key, robocache.RowsOf(episode, 0, rows))))
	case f.Ragged():
		counts := s.ragged(ctx, ans, "values", f, robocache.RowsOf(episode, 0, rows))
		lengths := ans.ints("lengths", len(counts))
		for i, n := range counts {
			lengths[i] = int64(n)
		}
	case f.Kind != robocache.KindNumeric:
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "stream", Msg: "a stream of kind " + string(f.Kind) + " is read through a map", Hint: "use MapDataset(…, keys=[…])"})
	default:
		guard.Check(s.Gather(ctx, a.Key, robocache.RowsOf(episode, 0, rows), ans.add("values", f.DType, rowShape(rows, f.Shape, f)...)))
	}
}

// encoded gives the images of an episode as they are stored, one after the other, and the bytes of each; −1 where a row has none.
func (s *shared) encoded(ctx context, ans *answer, episode int, a *streamArgs) {
	f := s.Info().Feature(a.Key)
	if f == nil || f.Kind != robocache.KindImage {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "stream", Msg: "there is no such stream of images"})
	}
	rows := robocache.RowsOf(episode, 0, s.Len(episode))
	refs := make([]robocache.FrameRef, len(rows))
	guard.Check(s.Frames(ctx, a.Key, rows, refs))
	total := 0
	for i := range refs {
		if !refs[i].Missing && refs[i].Encoded == nil {
			guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "stream", Msg: "the images are not stored as files are"})
		}
		total += len(refs[i].Encoded)
	}
	b, lengths := ans.add("values", robocache.Uint8, total), ans.ints("lengths", len(refs))
	for i := range refs {
		lengths[i] = int64(copy(b, refs[i].Encoded))
		if b = b[len(refs[i].Encoded):]; refs[i].Missing {
			lengths[i] = -1
		}
	}
}

// ragged adds the entries of rows of varying length, and gives how many each row has.
func (s *shared) ragged(ctx context, ans *answer, key string, f *robocache.Feature, rows []robocache.Row) []int {
	data, counts, err := robocache.GatherRagged(ctx, s.Dataset, f.Key, rows)
	guard.Check(err)
	size := f.Elements() * f.DType.Size()
	if len(counts) != len(rows) || size == 0 || len(data)%size != 0 {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "stream", Msg: "the dataset gave another number of entries than it says"})
	}
	copy(ans.add(key, f.DType, append([]int{len(data) / size}, f.Shape[1:]...)...), data)
	return counts
}

// rowShape is the shape of rows as they are delivered: of a scalar column one axis.
func rowShape(rows int, shape []int, f *robocache.Feature) []int {
	if f != nil && f.Scalar() {
		return []int{rows}
	}
	return append([]int{rows}, shape...)
}

type alignArgs struct {
	episodeArgs
	Align     alignConfig `json:"align"`
	ImageSize []int       `json:"image_size"`
}

// alignConfig reads an align.Config by its own rules; Config is nil where none was given.
type alignConfig struct{ *align.Config }

func (c *alignConfig) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	cfg, err := align.ParseConfig(json.RawMessage(b))
	c.Config = &cfg
	return err
}

// align brings streams of an episode onto one timeline: "times", the streams, and `<key>_is_pad` of each.
func (s *shared) align(ctx context, a *alignArgs) any {
	e := s.at(a.Position)
	var cfg align.Config
	if a.Align.Config != nil {
		cfg = *a.Align.Config
	}
	guard.Check(s.checkGrid(ctx, nil, &cfg))
	got := guard.Must(align.Episode(ctx, s.Dataset, e, cfg))
	return answers(func(ans *answer) {
		defer guard.At(robocache.Where{"dataset": s.Info().URI, "episode": s.Info().EpisodeIndex(e)})
		s.aligned(ctx, ans, e, got, a.ImageSize)
	})
}

// aligned copies what was aligned into memory for the client, and decodes the frames that it names.
func (s *shared) aligned(ctx context, ans *answer, episode int, got *align.Aligned, imageSize []int) {
	rows := len(got.Times)
	copy(ans.ints("times", rows), got.Times)
	for i := range got.Streams {
		s.alignedStream(ctx, ans, episode, &got.Streams[i], rows, imageSize)
	}
	for i := range got.Streams {
		pad := ans.add(got.Streams[i].Key+"_is_pad", robocache.Bool, rows)
		for k, valid := range got.Streams[i].Valid {
			pad[k] = 1 - valid
		}
	}
}

func (s *shared) alignedStream(ctx context, ans *answer, episode int, st *align.Stream, rows int, imageSize []int) {
	defer guard.In("stream", st.Key)
	f := s.Info().Feature(st.Key)
	switch {
	case st.Text != nil || st.Kind == robocache.KindText || st.Kind == robocache.KindEvent:
		ans.text(st.Key, st.DType, st.Text)
	case len(st.Shape) > 0 && st.Shape[0] < 0:
		s.alignedRagged(ctx, ans, episode, f, st)
	case st.Kind == robocache.KindNumeric:
		copy(ans.add(st.Key, st.DType, rowShape(rows, st.Shape, f)...), st.Data)
	default:
		s.frames(ctx, ans, episode, f, st, imageSize)
	}
}

// alignedRagged reads rows of varying length: their entries one after the other, and `<key>_lengths`. A row of none has no entries.
func (s *shared) alignedRagged(ctx context, ans *answer, episode int, f *robocache.Feature, st *align.Stream) {
	var rows []robocache.Row
	for _, r := range st.Rows {
		if r >= 0 {
			rows = append(rows, robocache.Row{Episode: episode, Index: int(r)})
		}
	}
	counts := s.ragged(ctx, ans, st.Key, f, rows)
	lengths := ans.ints(st.Key+"_lengths", len(st.Rows))
	for i, r := range st.Rows {
		if r >= 0 {
			lengths[i], counts = int64(counts[0]), counts[1:]
		}
	}
}

// frames decodes the rows of a frame stream; a row without one (policy mask) is black.
func (s *shared) frames(ctx context, ans *answer, episode int, f *robocache.Feature, st *align.Stream, imageSize []int) {
	cfg := loader.Config{Windows: loader.Windows{Keys: []string{st.Key}}, Order: loader.Order{Episodes: s.Info().EpisodeIndices([]int{episode})}, Frames: loader.Frames{ImageSize: imageSize}}
	if f != nil {
		cfg.DepthUnit = loader.DepthUnit(s.depthOf(f))
		if f.Clock != "" {
			cfg.Anchor = st.Key // its rows are counted on its own clock
		}
	}
	m := guard.Must(loader.NewMap(ctx, s.Dataset, cfg))
	defer func() { _ = m.Close() }()
	rows := make([]int64, len(st.Rows))
	for i, r := range st.Rows {
		rows[i] = int64(max(r, 0))
	}
	b := guard.Must(m.Items(ctx, rows))
	t := b.Tensor(st.Key)
	for i, r := range st.Rows {
		if size := len(t.Data) / len(st.Rows); r < 0 {
			clear(t.Data[i*size : (i+1)*size])
		}
	}
	ans.batch(b)
}
