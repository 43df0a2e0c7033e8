package write

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/stats"
)

// preparedColumn is the encoded column of one feature of an episode, and its statistics.
type preparedColumn struct {
	chunks    []*pqw.Chunk
	raw       []byte // rows of a numeric feature, for the statistics of the dataset
	stats     *robocache.FeatureStats
	nonFinite int64 // values that are not finite
	pixels    *stats.Pixels
	note      string // why there are no statistics of frames
}

// prepareFeatures encodes the columns of the bookkeeping features, or those of all others,
// concurrently. The caller's goroutine takes part. For an episode of few rows, one goroutine per
// column would cost as much as the columns.
func (w *Writer) prepareFeatures(
	ctx context.Context,
	ep *EpisodeData,
	out []preparedColumn,
	bookkeeping bool,
) error {
	var g errgroup.Group
	var next atomic.Int64 // the next feature to encode, shared by the goroutines
	work := crash.Func("write lerobot", func() error {
		for i := int(next.Add(1)) - 1; i < len(w.features); i = int(next.Add(1)) - 1 {
			if f := &w.features[i]; f.Kind != robocache.KindVideo && f.Default == bookkeeping {
				if err := w.encodeColumn(ctx, f, ep, &out[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if !bookkeeping {
		for range min(w.cfg.Encoders, len(w.features)) - 1 {
			g.Go(work)
		}
	}
	return cmp.Or(work(), g.Wait())
}

// encodeColumn encodes the column of one feature and counts its rows if they are numbers or frames.
// The rows of a bookkeeping column are already in out.
func (w *Writer) encodeColumn(
	ctx context.Context,
	f *writtenFeature,
	ep *EpisodeData,
	out *preparedColumn,
) (err error) {
	defer robocache.LocateIn(&err, "stream", f.Key)
	switch f.Kind {
	case robocache.KindText:
		v := valuesOf(f.leaves)
		for _, s := range ep.Text[f.Key] {
			v[0].Text(s, 0, 1) // level 1: the value is not null
		}
		if out.chunks, err = chunksOf(v); err != nil {
			return err
		}
	case robocache.KindEvent:
		v := valuesOf(f.leaves)
		if err := languageLeaves(f.Key, v, ep.Text[f.Key]); err != nil {
			return err
		}
		if out.chunks, err = chunksOf(v); err != nil {
			return err
		}
	case robocache.KindImage:
		images := ep.Images[f.Key]
		if ep.FrameStats[f.Key] == nil {
			if err := w.countStills(f, images, out); err != nil {
				return err
			}
		}
		if out.chunks, err = imageChunks(f, images); err != nil {
			return err
		}
	default:
		if !f.Default {
			out.raw = ep.Columns[f.Key]
		}
		rows, err := f.leaves[0].Rows(widenInts(f.DType, out.raw), f.repetition)
		if err != nil {
			return err
		}
		out.chunks = []*pqw.Chunk{rows}
		out.stats, out.nonFinite, err = stats.NumericBytes(
			ctx,
			f.DType,
			f.Shape,
			out.raw,
			w.cfg.StatsBudget,
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// imageChunks encodes the bytes and the names of images.
func imageChunks(f *writtenFeature, images [][]byte) ([]*pqw.Chunk, error) {
	names := make([][]byte, len(images))
	for k, b := range images {
		names[k] = []byte(stillName(k, b))
	}
	blobs, err := f.leaves[0].Blobs(images)
	if err != nil {
		return nil, err
	}
	nameChunk, err := f.leaves[1].Blobs(names)
	if err != nil {
		return nil, err
	}
	return []*pqw.Chunk{blobs, nameChunk}, nil
}

// fillBookkeeping computes the rows of the five bookkeeping columns of the next episode.
func (w *Writer) fillBookkeeping(ep *EpisodeData, out []preparedColumn) error {
	littleEndian := binary.LittleEndian
	fps := w.cfg.FPS.Float()
	taskNumber := int64(0)
	lastTask := ""
	for i := range w.features {
		f := &w.features[i]
		if !f.Default {
			continue
		}
		raw := make([]byte, 0, ep.Length*f.DType.Size())
		for row := range ep.Length {
			switch f.Key {
			case "timestamp":
				raw = littleEndian.AppendUint32(raw, math.Float32bits(float32(float64(row)/fps)))
			case "frame_index":
				raw = littleEndian.AppendUint64(raw, uint64(row))
			case "episode_index":
				raw = littleEndian.AppendUint64(raw, uint64(w.written))
			case "index":
				raw = littleEndian.AppendUint64(raw, uint64(w.rows+int64(row)))
			case "task_index":
				if text := ep.Tasks[min(row, len(ep.Tasks)-1)]; row == 0 || text != lastTask {
					task, err := w.taskNumber(text)
					if err != nil {
						return err
					}
					taskNumber, lastTask = task, text
				}
				raw = littleEndian.AppendUint64(raw, uint64(taskNumber))
			}
		}
		out[i] = preparedColumn{raw: raw}
	}
	return nil
}

// taskTexts lists an episode's tasks, those of its rows first, each once.
func taskTexts(ep *EpisodeData) (out []string) {
	listed := map[string]bool{}
	for _, texts := range [][]string{ep.Tasks, ep.Listed} {
		for _, t := range texts {
			if !listed[t] {
				listed[t] = true
				out = append(out, t)
			}
		}
	}
	return out
}

// valuesOf returns a collector of values for each column, in file order. It is for columns whose
// rows have nulls or lists of different lengths.
func valuesOf(columns []*pqw.Leaf) []*pqw.Values {
	out := make([]*pqw.Values, len(columns))
	for i, c := range columns {
		out[i] = c.NewValues()
	}
	return out
}

// chunksOf encodes the collected values.
func chunksOf(values []*pqw.Values) ([]*pqw.Chunk, error) {
	out := make([]*pqw.Chunk, len(values))
	for i, v := range values {
		var err error
		if out[i], err = v.Encode(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// widenInts converts integers narrower than 32 bits to the 32-bit integers that Parquet stores.
// Other numbers are returned unchanged.
func widenInts(d robocache.DType, raw []byte) []byte {
	size := d.Size()
	if !d.Integer() || size > 2 {
		return raw
	}
	out := make([]byte, 0, len(raw)/size*4)
	for ; len(raw) >= size; raw = raw[size:] {
		v := uint32(raw[0])
		if size == 2 {
			v |= uint32(raw[1]) << 8
		}
		if d == robocache.Int8 || d == robocache.Int16 {
			shift := 32 - 8*size // shifting left and back extends the sign
			v = uint32(int32(v<<shift) >> shift)
		}
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

// stillName returns the file name that lerobot's recorder stores with embedded image bytes.
func stillName(k int, b []byte) string {
	ext := "png"
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xd8}):
		ext = "jpg"
	case bytes.HasPrefix(b, []byte("II*\x00")), bytes.HasPrefix(b, []byte("MM\x00*")):
		ext = "tiff"
	}
	return fmt.Sprintf("frame-%06d.%s", k, ext)
}

// stillsAtOnce is the number of frames that justify a goroutine.
const stillsAtOnce = 16

// countStills counts the pixels of embedded frames, several runs of them concurrently. The merged
// counts do not depend on the division into runs.
func (w *Writer) countStills(f *writtenFeature, images [][]byte, out *preparedColumn) error {
	chosen := w.cfg.Frames.Choose(len(images))
	total := w.cfg.Frames.Images(&f.Feature)
	share := max(stillsAtOnce, (len(chosen)+w.cfg.Encoders-1)/w.cfg.Encoders)
	parts := slices.Collect(slices.Chunk(chosen, share))
	counts := make([]*stats.Pixels, len(parts))
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		counts[i] = total.Empty()
		wg.Go(func() {
			errs[i] = crash.Func("write lerobot", func() error {
				for _, k := range part {
					err := counts[i].AddStill(&robocache.FrameRef{Encoded: images[k]})
					if err != nil {
						return robocache.At(err, robocache.Where{"row": k})
					}
				}
				return nil
			})()
		})
	}
	wg.Wait()
	for i, err := range errs {
		if errors.Is(err, robocache.ErrUnsupported) {
			out.note = "no statistics of this camera: " + err.Error()
			return nil
		}
		if err != nil {
			return err
		}
		total.Merge(counts[i])
	}
	out.pixels = total
	return nil
}
