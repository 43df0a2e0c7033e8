//go:build cgo

package main

import (
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

// readStream returns the times of one stream of an episode, and the values of a numeric or text
// stream. With encoded, it returns images as they are stored.
func (s *sharedDataset) readStream(ctx context, a *streamArgs) (any, error) {
	e, err := s.checkPosition(a.Position)
	if err != nil {
		return nil, err
	}
	return buildAnswer(func(ans *answer) (err error) {
		defer robocache.Locate(
			&err,
			robocache.Where{
				"dataset": s.Info().URI,
				"episode": s.Info().EpisodeIndex(e),
				"stream":  a.Key,
			},
		)
		if a.Encoded {
			if err := s.addEncoded(ctx, ans, e, a); err != nil {
				return err
			}
		} else {
			if err := s.addPlainStream(ctx, ans, e, a); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sharedDataset) addPlainStream(ctx context, ans *answer, episode int, a *streamArgs) error {
	f := s.Info().Feature(a.Key)
	own := f != nil && f.Clock != "" // a stream with its own clock has its own number of rows
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
		ints, err := ans.addInts("times", len(t))
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
		ints, err := ans.addInts("rows", 1)
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
		ans.addText("values", dtype, text)
	case f.Ragged():
		counts, err := s.addRagged(ctx, ans, "values", f, robocache.RowsOf(episode, 0, rows))
		if err != nil {
			return err
		}
		lengths, err := ans.addInts("lengths", len(counts))
		if err != nil {
			return err
		}
		for i, n := range counts {
			lengths[i] = int64(n)
		}
	case f.Kind != robocache.KindNumeric:
		return robocache.Unsupported("stream", nil, "a stream of kind %s is read through a map",
			string(f.Kind)).WithHint("use MapDataset(…, keys=[…])")
	default:
		added, err := ans.addTensor("values", f.DType, rowShape(rows, f.Shape, f)...)
		if err != nil {
			return err
		}
		if err := s.Gather(ctx, a.Key, robocache.RowsOf(episode, 0, rows), added); err != nil {
			return err
		}
	}
	return nil
}

// addEncoded adds the images of an episode as they are stored, one after the other, and the size of
// each. The size is −1 if a row has no image.
func (s *sharedDataset) addEncoded(ctx context, ans *answer, episode int, a *streamArgs) error {
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
	b, err := ans.addTensor("values", robocache.Uint8, total)
	if err != nil {
		return err
	}
	lengths, err := ans.addInts("lengths", len(refs))
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

// addRagged adds the entries of rows of varying length, and returns the number of entries of each
// row.
func (s *sharedDataset) addRagged(
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
			"the dataset returned a wrong number of entries",
		)
	}
	added, err := ans.addTensor(key, f.DType, append([]int{len(data) / size}, f.Shape[1:]...)...)
	if err != nil {
		return nil, err
	}
	copy(added, data)
	return counts, nil
}

// rowShape returns the shape of rows as they are delivered. Rows of a scalar have one axis.
func rowShape(rows int, shape []int, f *robocache.Feature) []int {
	if f != nil && f.Scalar() {
		return []int{rows}
	}
	return append([]int{rows}, shape...)
}

type alignArgs struct {
	episodeArgs
	Align     align.Config `json:"align"`
	ImageSize []int        `json:"image_size"`
}

// alignEpisode aligns the streams of an episode to one timeline. The answer holds "times", the
// streams, and `<key>_is_pad` for each.
func (s *sharedDataset) alignEpisode(ctx context, a *alignArgs) (any, error) {
	e, err := s.checkPosition(a.Position)
	if err != nil {
		return nil, err
	}
	if err := s.checkGrid(ctx, nil, &a.Align); err != nil {
		return nil, err
	}
	got, err := align.Episode(ctx, s.Dataset, e, a.Align)
	if err != nil {
		return nil, err
	}
	return buildAnswer(func(ans *answer) (err error) {
		defer robocache.Locate(
			&err,
			robocache.Where{"dataset": s.Info().URI, "episode": s.Info().EpisodeIndex(e)},
		)
		return s.addAligned(ctx, ans, e, got, a.ImageSize)
	})
}

// addAligned copies aligned streams into memory for the client, and decodes the frames that they
// name.
func (s *sharedDataset) addAligned(
	ctx context,
	ans *answer,
	episode int,
	got *align.Aligned,
	imageSize []int,
) error {
	rows := len(got.Times)
	ints, err := ans.addInts("times", rows)
	if err != nil {
		return err
	}
	copy(ints, got.Times)
	for i := range got.Streams {
		if err := s.addAlignedStream(ctx, ans, episode, &got.Streams[i], rows, imageSize); err !=
			nil {
			return err
		}
	}
	for i := range got.Streams {
		pad, err := ans.addTensor(got.Streams[i].Key+"_is_pad", robocache.Bool, rows)
		if err != nil {
			return err
		}
		for k, valid := range got.Streams[i].Valid {
			pad[k] = 1 - valid
		}
	}
	return nil
}

func (s *sharedDataset) addAlignedStream(
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
		ans.addText(st.Key, st.DType, st.Text)
	case len(st.Shape) > 0 && st.Shape[0] < 0:
		if err := s.addAlignedRagged(ctx, ans, episode, f, st); err != nil {
			return err
		}
	case st.Kind == robocache.KindNumeric:
		added, err := ans.addTensor(st.Key, st.DType, rowShape(rows, st.Shape, f)...)
		if err != nil {
			return err
		}
		copy(added, st.Data)
	default:
		if err := s.addFrames(ctx, ans, episode, f, st, imageSize); err != nil {
			return err
		}
	}
	return nil
}

// addAlignedRagged reads rows of varying length. It adds their entries one after the other, and
// `<key>_lengths`. A row with no source row has no entries.
func (s *sharedDataset) addAlignedRagged(
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
	counts, err := s.addRagged(ctx, ans, st.Key, f, rows)
	if err != nil {
		return err
	}
	lengths, err := ans.addInts(st.Key+"_lengths", len(st.Rows))
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

// addFrames decodes the rows of a camera. A row without a frame (policy mask) is black.
func (s *sharedDataset) addFrames(
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
			cfg.Anchor = st.Key // rows are counted on the stream's own clock
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
	ans.addBatch(b)
	return nil
}
