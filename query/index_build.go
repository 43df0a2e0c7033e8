package query

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/goatnote-inc/robocache"
)

// IndexOptions are the choices of BuildIndex.
type IndexOptions struct {
	// Budget is the largest size of the file in bytes. Columns that exceed it are left out, in the
	// order of the dataset.
	Budget   int64
	Threads  int // episodes that are read at once; 0: the number of CPUs
	Progress func(done, total int64)
}

// BuildIndex writes the index of a dataset to a local file, which is replaced when the new one is
// complete. It returns the keys of numeric columns that were left out: they exceed the budget or
// have a clock of their own.
func BuildIndex(
	ctx context.Context, path string, ds robocache.Dataset, opt IndexOptions,
) (leftOut []string, err error) {
	defer robocache.LocateIn(&err, "file", path)
	h, leftOut, err := planIndex(ctx, ds, opt.Budget)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".find-*.incomplete")
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	w := &indexWriter{file: file, header: h, starts: make([]uint64, h.Episodes+1)}
	for e := range h.Episodes {
		w.starts[e+1] = w.starts[e] + uint64(ds.Len(e))
	}
	if err := w.write(ctx, ds, opt); err != nil {
		return nil, err
	}
	return leftOut, errors.Join(file.Chmod(0o644), file.Sync())
}

// planIndex returns the header of an index that is within the budget.
func planIndex(
	ctx context.Context, ds robocache.Dataset, budget int64,
) (h *indexHeader, leftOut []string, err error) {
	info := ds.Info()
	h = &indexHeader{Dataset: robocache.Redact(info.URI), Episodes: info.Episodes, Grid: info.FPS}
	if h.Fingerprint, err = Fingerprint(ctx, ds); err != nil {
		return nil, nil, err
	}
	for e := range info.Episodes {
		h.Rows += ds.Len(e)
	}
	if h.HasTimes, err = h.examineTimes(ctx, ds); err != nil {
		return nil, nil, err
	}
	for _, f := range info.Features {
		if f.Kind != robocache.KindNumeric || f.Ragged() {
			continue
		}
		columns := h.Columns
		h.Columns = append(columns, indexColumn{
			Key: f.Key, DType: storedType(f.DType), Channels: f.Elements(),
		})
		if h.layOut(0); f.Clock != "" || h.Size > budget {
			h.Columns = columns
			leftOut = append(leftOut, f.Key)
		}
	}
	if len(h.Columns) == 0 && len(leftOut) > 0 {
		return nil, nil, robocache.ResourceLimit("find", nil,
			"no column fits into an index of %d bytes", budget).
			WithHint("Raise %s.", robocache.Option("index_budget"))
	}
	return h, leftOut, nil
}

// examineTimes reports whether the dataset has timestamps. It clears Grid unless the timestamps of
// all episodes lie on it.
func (h *indexHeader) examineTimes(ctx context.Context, ds robocache.Dataset) (bool, error) {
	for e := range h.Episodes {
		times, err := ds.Times(ctx, e, "")
		if errors.Is(err, robocache.ErrUnsupported) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for i, t := range times {
			if h.Grid.Zero() || t != times[0]+h.Grid.Nanos(int64(i)) {
				h.Grid = robocache.Rate{}
				return true, nil
			}
		}
	}
	return true, nil
}

// storedType returns float32 if it holds all values of a type, else float64.
func storedType(d robocache.DType) robocache.DType {
	if d == robocache.Bool || d.Size() < 4 || d == robocache.Float32 {
		return robocache.Float32
	}
	return robocache.Float64
}

// indexWriter writes an index file.
type indexWriter struct {
	file   *os.File
	header *indexHeader
	starts []uint64
}

// write writes all parts of the file.
func (w *indexWriter) write(ctx context.Context, ds robocache.Dataset, opt IndexOptions) error {
	text, err := w.headerText()
	if err != nil {
		return err
	}
	if err := w.file.Truncate(w.header.Size); err != nil {
		return err
	}
	if _, err := w.file.Write(text); err != nil {
		return err
	}
	if err := writeSection(w.file, w.header.Starts, w.starts); err != nil {
		return err
	}
	const block = 256 // episodes that are written at once
	var blocks []int
	for e := 0; e < w.header.Episodes; e += block {
		blocks = append(blocks, e)
	}
	s := &source{ds: ds, info: ds.Info(), threads: opt.Threads}
	done := make(chan int, 1)
	done <- 0
	return s.forEachBlock(ctx, len(blocks), 1, func(x *episodeRun, i int) error {
		to := min(blocks[i]+block, w.header.Episodes)
		if err := w.writeEpisodes(x, blocks[i], to); err != nil {
			return err
		}
		n := <-done + to - blocks[i]
		if opt.Progress != nil {
			opt.Progress(int64(n), int64(w.header.Episodes))
		}
		done <- n
		return nil
	})
}

// headerText lays out the file and returns its first bytes.
func (w *indexWriter) headerText() ([]byte, error) {
	const fixed = len(indexMagic) + 8
	var text []byte
	// Offsets have more digits than zeros: the header grows until it is stable.
	for size := -1; size != len(text); {
		size = len(text)
		w.header.layOut(int64(fixed + size))
		var err error
		if text, err = json.Marshal(w.header); err != nil {
			return nil, err
		}
	}
	head := binary.LittleEndian.AppendUint64([]byte(indexMagic), uint64(len(text)))
	return append(head, text...), nil
}

// bytesOf returns the memory of a slice.
func bytesOf[T any](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice(
		(*byte)(unsafe.Pointer(&values[0])),
		len(values)*int(unsafe.Sizeof(values[0])),
	)
}

// writeSection writes values at an offset.
func writeSection[T any](file *os.File, offset int64, values []T) error {
	_, err := file.WriteAt(bytesOf(values), offset)
	return err
}

// writeEpisodes writes the timestamps and columns of the episodes [from, to).
func (w *indexWriter) writeEpisodes(x *episodeRun, from, to int) error {
	h := w.header
	if err := w.writeTimes(x, from, to); err != nil {
		return err
	}
	rows := int(w.starts[to] - w.starts[from])
	for i := range h.Columns {
		c := &h.Columns[i]
		f := x.source.info.Feature(c.Key)
		channels := make([][]float64, c.Channels)
		bounds := make([][][2]float64, c.Channels)
		marks := make([][]uint8, c.Channels)
		for e := from; e < to; e++ {
			if err := x.ctx.Err(); err != nil {
				return err
			}
			x.start(e)
			read, err := x.gather(f)
			if err != nil {
				return robocache.At(err, robocache.Where{"episode": x.source.info.EpisodeIndex(e)})
			}
			for k, values := range read {
				if channels[k] == nil {
					channels[k] = make([]float64, 0, rows)
				}
				channels[k] = append(channels[k], values...)
				b, mark := boundsOf(values)
				bounds[k], marks[k] = append(bounds[k], b), append(marks[k], mark)
			}
		}
		for k := range channels {
			if err := w.writeChannel(c, k, from, channels[k]); err != nil {
				return err
			}
			at := int64(k*h.Episodes + from)
			if err := writeSection(w.file, c.Bounds+16*at, bounds[k]); err != nil {
				return err
			}
			if err := writeSection(w.file, c.Marks+at, marks[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeChannel writes the values of a channel for episodes that begin with the episode from.
func (w *indexWriter) writeChannel(c *indexColumn, channel, from int, values []float64) error {
	at := c.Values + int64(
		c.DType.Size(),
	)*(int64(channel)*int64(w.header.Rows)+int64(w.starts[from]))
	if c.DType == robocache.Float64 {
		return writeSection(w.file, at, values)
	}
	narrow := make([]float32, len(values))
	for i, v := range values {
		narrow[i] = float32(v)
		if v != v {
			narrow[i] = float32(math.NaN())
		}
	}
	return writeSection(w.file, at, narrow)
}

// writeTimes writes the timestamps of the episodes [from, to).
func (w *indexWriter) writeTimes(x *episodeRun, from, to int) error {
	h := w.header
	if !h.HasTimes {
		return nil
	}
	var out []int64
	for e := from; e < to; e++ {
		times, err := x.source.ds.Times(x.ctx, e, "")
		if err != nil {
			return err
		}
		switch {
		case h.Grid.Zero():
			out = append(out, times...)
		case len(times) > 0:
			out = append(out, times[0])
		default:
			out = append(out, 0)
		}
	}
	if h.Grid.Zero() {
		return writeSection(w.file, h.Times+8*int64(w.starts[from]), out)
	}
	return writeSection(w.file, h.Times+8*int64(from), out)
}
