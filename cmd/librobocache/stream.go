//go:build cgo

package main

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader"
)

type streamArgs struct {
	episodeArgs
	Key     string `json:"key"`
	Times   bool   `json:"times"`
	Values  bool   `json:"values"`
	Encoded bool   `json:"encoded"`
}

// stream gives times and, for numeric and text features, the values of one stream of an episode; or
// its images as they are stored.
func (s *shared) stream(ctx context, a *streamArgs) (any, error) {
	e, err := s.at(a.Position)
	if err != nil {
		return nil, err
	}
	return answers(func(ans *answer) (err error) {
		defer robocache.Locate(
			&err,
			robocache.Where{
				"dataset": s.Info().URI,
				"episode": s.Info().EpisodeIndex(e),
				"stream":  a.Key,
			},
		)
		if a.Encoded {
			if err := s.encoded(ctx, ans, e, a); err != nil {
				return err
			}
		} else {
			if err := s.plainStream(ctx, ans, e, a); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *shared) plainStream(ctx context, ans *answer, episode int, a *streamArgs) error {
	f := s.Info().Feature(a.Key)
	own := f != nil && f.Clock != "" // its own clock: its own number of rows
	rows := s.Len(episode)
	switch {
	case a.Times:
		t, err := s.Times(ctx, episode, a.Key)
		if err != nil {
			return err
		}
		if own {
			rows = len(t)
		}
		ints, err := ans.ints("times", len(t))
		if err != nil {
			return err
		}
		copy(ints, t)
	case own:
		var err error
		if rows, err = robocache.RowsIn(ctx, s.Dataset, episode, f); err != nil {
			return err
		}
	}
	isTask := a.Key == "task" && f == nil
	switch {
	case !a.Values && a.Times:
	case f == nil && !isTask:
		return robocache.Misuse("stream", nil, "there is no such stream")
	case !a.Values:
		ints, err := ans.ints("rows", 1)
		if err != nil {
			return err
		}
		ints[0] = int64(rows)
	case isTask || f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		dtype := robocache.String
		if f != nil { // JSON values or plain text
			dtype = f.DType
		}
		text, err := s.Text(ctx, a.Key, robocache.RowsOf(episode, 0, rows))
		if err != nil {
			return err
		}
		ans.text("values", dtype, text)
	case f.Ragged():
		counts, err := s.ragged(ctx, ans, "values", f, robocache.RowsOf(episode, 0, rows))
		if err != nil {
			return err
		}
		lengths, err := ans.ints("lengths", len(counts))
		if err != nil {
			return err
		}
		for i, n := range counts {
			lengths[i] = int64(n)
		}
	case f.Kind != robocache.KindNumeric:
		return robocache.Unsupported("stream", nil, "a stream of kind %s is read through a map", string(f.Kind)).
			WithHint("use MapDataset(…, keys=[…])")
	default:
		added, err := ans.add("values", f.DType, rowShape(rows, f.Shape, f)...)
		if err != nil {
			return err
		}
		if err := s.Gather(ctx, a.Key, robocache.RowsOf(episode, 0, rows), added); err != nil {
			return err
		}
	}
	return nil
}

// encoded gives the images of an episode as they are stored, one after the other, and the bytes of
// each; −1 where a row has none.
func (s *shared) encoded(ctx context, ans *answer, episode int, a *streamArgs) error {
	f := s.Info().Feature(a.Key)
	if f == nil || f.Kind != robocache.KindImage {
		return robocache.Misuse("stream", nil, "there is no such stream of images")
	}
	rows := robocache.RowsOf(episode, 0, s.Len(episode))
	refs := make([]robocache.FrameRef, len(rows))
	if err := s.Frames(ctx, a.Key, rows, refs); err != nil {
		return err
	}
	total := 0
	for i := range refs {
		if !refs[i].Missing && refs[i].Encoded == nil {
			return robocache.Unsupported("stream", nil, "the images are not stored as files are")
		}
		total += len(refs[i].Encoded)
	}
	b, err := ans.add("values", robocache.Uint8, total)
	if err != nil {
		return err
	}
	lengths, err := ans.ints("lengths", len(refs))
	if err != nil {
		return err
	}
	for i := range refs {
		lengths[i] = int64(copy(b, refs[i].Encoded))
		if b = b[len(refs[i].Encoded):]; refs[i].Missing {
			lengths[i] = -1
		}
	}
	return nil
}

// ragged adds the entries of rows of varying length, and gives how many each row has.
func (s *shared) ragged(
	ctx context,
	ans *answer,
	key string,
	f *robocache.Feature,
	rows []robocache.Row,
) ([]int, error) {
	data, counts, err := robocache.GatherRagged(ctx, s.Dataset, f.Key, rows)
	if err != nil {
		return nil, err
	}
	size := f.Elements() * f.DType.Size()
	if len(counts) != len(rows) || size == 0 || len(data)%size != 0 {
		return nil, robocache.Malformed(
			"stream",
			nil,
			"the dataset gave another number of entries than it says",
		)
	}
	added, err := ans.add(key, f.DType, append([]int{len(data) / size}, f.Shape[1:]...)...)
	if err != nil {
		return nil, err
	}
	copy(added, data)
	return counts, nil
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

// align brings streams of an episode onto one timeline: "times", the streams, and `<key>_is_pad` of
// each.
func (s *shared) align(ctx context, a *alignArgs) (any, error) {
	e, err := s.at(a.Position)
	if err != nil {
		return nil, err
	}
	var cfg align.Config
	if a.Align.Config != nil {
		cfg = *a.Align.Config
	}
	if err := s.checkGrid(ctx, nil, &cfg); err != nil {
		return nil, err
	}
	got, err := align.Episode(ctx, s.Dataset, e, cfg)
	if err != nil {
		return nil, err
	}
	return answers(func(ans *answer) (err error) {
		defer robocache.Locate(
			&err,
			robocache.Where{"dataset": s.Info().URI, "episode": s.Info().EpisodeIndex(e)},
		)
		return s.aligned(ctx, ans, e, got, a.ImageSize)
	})
}

// aligned copies what was aligned into memory for the client, and decodes the frames that it names.
func (s *shared) aligned(
	ctx context,
	ans *answer,
	episode int,
	got *align.Aligned,
	imageSize []int,
) error {
	rows := len(got.Times)
	ints, err := ans.ints("times", rows)
	if err != nil {
		return err
	}
	copy(ints, got.Times)
	for i := range got.Streams {
		if err := s.alignedStream(ctx, ans, episode, &got.Streams[i], rows, imageSize); err != nil {
			return err
		}
	}
	for i := range got.Streams {
		pad, err := ans.add(got.Streams[i].Key+"_is_pad", robocache.Bool, rows)
		if err != nil {
			return err
		}
		for k, valid := range got.Streams[i].Valid {
			pad[k] = 1 - valid
		}
	}
	return nil
}

func (s *shared) alignedStream(
	ctx context,
	ans *answer,
	episode int,
	st *align.Stream,
	rows int,
	imageSize []int,
) (err error) {
	defer robocache.LocateIn(&err, "stream", st.Key)
	f := s.Info().Feature(st.Key)
	switch {
	case st.Text != nil || st.Kind == robocache.KindText || st.Kind == robocache.KindEvent:
		ans.text(st.Key, st.DType, st.Text)
	case len(st.Shape) > 0 && st.Shape[0] < 0:
		if err := s.alignedRagged(ctx, ans, episode, f, st); err != nil {
			return err
		}
	case st.Kind == robocache.KindNumeric:
		added, err := ans.add(st.Key, st.DType, rowShape(rows, st.Shape, f)...)
		if err != nil {
			return err
		}
		copy(added, st.Data)
	default:
		if err := s.frames(ctx, ans, episode, f, st, imageSize); err != nil {
			return err
		}
	}
	return nil
}

// alignedRagged reads rows of varying length: their entries one after the other, and
// `<key>_lengths`. A row of none has no entries.
func (s *shared) alignedRagged(
	ctx context,
	ans *answer,
	episode int,
	f *robocache.Feature,
	st *align.Stream,
) error {
	var rows []robocache.Row
	for _, r := range st.Rows {
		if r >= 0 {
			rows = append(rows, robocache.Row{Episode: episode, Index: int(r)})
		}
	}
	counts, err := s.ragged(ctx, ans, st.Key, f, rows)
	if err != nil {
		return err
	}
	lengths, err := ans.ints(st.Key+"_lengths", len(st.Rows))
	if err != nil {
		return err
	}
	for i, r := range st.Rows {
		if r >= 0 {
			lengths[i], counts = int64(counts[0]), counts[1:]
		}
	}
	return nil
}

// frames decodes the rows of a frame stream; a row without one (policy mask) is black.
func (s *shared) frames(
	ctx context,
	ans *answer,
	episode int,
	f *robocache.Feature,
	st *align.Stream,
	imageSize []int,
) error {
	cfg := loader.Config{
		Windows: loader.Windows{Keys: []string{st.Key}},
		Order:   loader.Order{Episodes: s.Info().EpisodeIndices([]int{episode})},
		Images:  loader.Images{ImageSize: imageSize},
	}
	if f != nil {
		cfg.DepthUnit = loader.DepthUnit(s.depthOf(f))
		if f.Clock != "" {
			cfg.Anchor = st.Key // its rows are counted on its own clock
		}
	}
	m, err := loader.NewMap(ctx, s.Dataset, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	rows := make([]int64, len(st.Rows))
	for i, r := range st.Rows {
		rows[i] = int64(max(r, 0))
	}
	b, err := m.Items(ctx, rows)
	if err != nil {
		return err
	}
	t := b.Tensor(st.Key)
	for i, r := range st.Rows {
		if size := len(t.Data) / len(st.Rows); r < 0 {
			clear(t.Data[i*size : (i+1)*size])
		}
	}
	ans.batch(b)
	return nil
}
