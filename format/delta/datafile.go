package delta

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/parquet-go/parquet-go"
	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

const (
	fileBytes = 64 << 20 // of values: a data file, which is one row group, ends here
	videosDir = "videos"
)

// segment is rows of an episode that lie in one partition.
type segment struct {
	episode  int   // position in the source
	number   int64 // in the table
	from, to int
	part     string
}

// write makes the data files of the episodes, numbered from base on.
func (w *writing) write(ctx context.Context, base int64) error {
	segments, err := w.segments(ctx, base)
	if err != nil {
		return err
	}
	episodes := reader.Episodes(w.opt.Episodes, w.info.Episodes)
	counter := robocache.NewRowCounter(w.src, episodes, w.opt.Progress)
	left := map[int]int{} // rows of each episode that are not written
	for _, e := range episodes {
		left[e] = w.src.Len(e)
	}
	f, err := w.newFile()
	if err != nil {
		return err
	}
	for i, s := range segments {
		if i > 0 && segments[i-1].part != s.part {
			if err := w.put(ctx, f, segments[i-1].part); err != nil {
				return err
			}
		}
		if err := w.each(s, func(rows []robocache.Row) error {
			if err := w.fill(ctx, f, rows, s.number); err != nil {
				return err
			}
			if f.held >= fileBytes {
				if err := w.put(ctx, f, s.part); err != nil {
					return err
				}
			}
			counter.Advance(s.episode, float64(len(rows))/float64(w.src.Len(s.episode)))
			return nil
		}); err != nil {
			return err
		}
		if left[s.episode] -= s.to - s.from; left[s.episode] == 0 {
			counter.Finish(s.episode)
		}
	}
	for _, e := range episodes { // those without rows, and those that were left out
		if left[e] > 0 || w.src.Len(e) == 0 {
			counter.Finish(e)
		}
	}
	if len(segments) > 0 {
		if err := w.put(ctx, f, segments[len(segments)-1].part); err != nil {
			return err
		}
	}
	return nil
}

// segments divides the episodes into partitions, and brings those together.
func (w *writing) segments(ctx context.Context, base int64) (out []segment, err error) {
	order := map[string]int{}
	for _, e := range reader.Episodes(w.opt.Episodes, w.info.Episodes) {
		n := w.src.Len(e)
		if n == 0 {
			continue
		}
		own := []segment{{episode: e, number: base, to: n}}
		base++
		err := func() error {
			if w.opt.SkipBad { // a file has no way back
				if err := w.each(own[0], func(rows []robocache.Row) error {
					content, err := w.newFile()
					if err != nil {
						return err
					}
					return w.fill(ctx, content, rows, 0)
				}); err != nil {
					return err
				}
			}
			switch w.partition {
			case "source":
				own[0].part = w.source
			case "task":
				texts, err := w.src.Text(ctx, "task", reader.Rows(e, 0, n))
				if err != nil {
					return err
				}
				for k, text := range texts {
					if s := &own[len(own)-1]; k == 0 {
						s.part = text
					} else if text != s.part {
						s.to = k
						own = append(own, segment{e, s.number, k, n, text})
					}
				}
			}
			return nil
		}()
		if err = robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}); err != nil {
			if !w.opt.SkipBad || !robocache.Bad(err) {
				return out, err
			}
			w.report.LeftOut++
			w.report.Findings = append(
				w.report.Findings,
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "episode-skipped",
					Where:    robocache.Where{"episode": w.info.EpisodeIndex(e)},
					Message:  err.Error(),
				},
			)
			continue
		}
		for _, s := range own {
			if _, ok := order[s.part]; !ok {
				order[s.part] = len(order)
			}
		}
		out = append(out, own...)
		w.report.Episodes, w.report.Frames = w.report.Episodes+1, w.report.Frames+int64(n)
	}
	slices.SortStableFunc(out, func(a, b segment) int { return order[a.part] - order[b.part] })
	return out, nil
}

// each gives the rows of a segment in blocks that memory holds.
func (w *writing) each(s segment, do func(rows []robocache.Row) error) error {
	size := 1
	for _, c := range w.columns {
		if c.f != nil {
			size += c.f.RowBytes()
			if c.f.Kind == robocache.KindImage {
				size += c.f.Width * c.f.Height * max(1, c.f.Channels)
			}
		}
	}
	for at, step := s.from, max(1, fileBytes/2/size); at < s.to; at += step {
		if err := do(reader.Rows(s.episode, at, min(s.to, at+step))); err != nil {
			return err
		}
	}
	return nil
}

// dataFile is the rows of one that is not yet written.
type dataFile struct {
	schema  *parquet.Schema
	columns []*column
	values  [][]*pqw.Values // of each column, a collector a leaf
	rows    int64
	held    int // bytes
}

func (w *writing) newFile() (*dataFile, error) {
	f := &dataFile{}
	var names []string
	var nodes []parquet.Node
	for i := range w.columns {
		if c := &w.columns[i]; c.Name != w.partition {
			names, nodes, f.columns = append(
				names,
				c.Name,
			), append(
				nodes,
				c.node(),
			), append(
				f.columns,
				c,
			)
		}
	}
	f.schema = parquet.NewSchema("schema", pqw.Group(names, nodes))
	leaves, err := pqw.Leaves(f.schema)
	if err != nil {
		return nil, err
	}
	for _, c := range f.columns {
		n := 1
		if c.elem == "struct" {
			n = len(videoFields)
		}
		var own []*pqw.Values
		for _, l := range leaves[:n] {
			own = append(own, l.NewValues())
		}
		f.values, leaves = append(f.values, own), leaves[n:]
	}
	return f, nil
}

// put writes the file, if it has rows, and empties it.
func (w *writing) put(ctx context.Context, f *dataFile, part string) (err error) {
	if f.rows == 0 {
		return nil
	}
	name := fmt.Sprintf("%s-%05d.parquet", w.prefix, len(w.adds))
	defer robocache.LocateIn(&err, "file", name)
	collectors := slices.Concat(f.values...)
	chunks := make([]*pqw.Chunk, len(collectors))
	var g errgroup.Group
	g.SetLimit(cmp.Or(max(w.opt.Threads, 0), runtime.GOMAXPROCS(0)))
	for i, v := range collectors {
		g.Go(func() (err error) { chunks[i], err = v.Encode(); return err })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	s := fileStats{
		Rows:  f.rows,
		Min:   map[string]any{},
		Max:   map[string]any{},
		Nulls: map[string]any{},
	}
	at := 0
	for i, c := range f.columns {
		least, greatest, nulls := chunks[at].Bounds()
		if at += len(f.values[i]); c.elem != "struct" {
			s.Nulls[c.Name] = nulls
		}
		if lo, hi := c.bound(least), c.bound(greatest); lo != nil && hi != nil {
			s.Min[c.Name], s.Max[c.Name] = lo, hi
		}
	}
	out, err := w.dst.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	file, err := pqw.NewFile(out, f.schema, nil, "RoboCache")
	if err != nil {
		return err
	}
	if err := file.Append(f.rows, chunks); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return err
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		return err
	}
	a := &add{
		Path:       name,
		Partitions: texts{},
		Modified:   w.modified,
		DataChange: true,
		Stats:      string(encoded),
	}
	w.adds = append(w.adds, a)
	stat, err := w.dst.Stat(ctx, name)
	if err != nil {
		return err
	}
	a.Size = stat.Size
	if w.partition != "" {
		a.Partitions[w.partition] = part
	}
	w.report.Bytes += a.Size
	f.rows, f.held = 0, 0
	return nil
}

// bound is a value as statistics state it: of numbers and texts of one value a row.
func (c *column) bound(b []byte) any {
	switch {
	case b == nil || c.dims != nil:
	case c.elem == "string":
		return string(b)
	case dtypes[c.elem].Float():
		if v := robocache.Float64s(nil, dtypes[c.elem], b)[0]; !math.IsInf(v, 0) {
			return v
		}
	case dtypes[c.elem].Size() > 0 && c.elem != "boolean":
		return robocache.Int64s(nil, map[int]robocache.DType{4: robocache.Int32, 8: robocache.Int64}[len(b)], b)[0]
	}
	return nil
}

// fill adds rows to a file; all of it comes after what may fail for what is in the source.
func (w *writing) fill(ctx context.Context, f *dataFile, rows []robocache.Row, number int64) error {
	for i, c := range f.columns {
		if err := robocache.At(func() error {
			columnValue, err := w.column(ctx, c, rows, number, f.values[i])
			if err != nil {
				return err
			}
			f.held += columnValue
			return nil
		}(), robocache.Where{"stream": c.Name}); err != nil {
			return err
		}
	}
	f.rows += int64(len(rows))
	return nil
}

// column adds rows of one column to the collectors of its leaves, and says how many bytes.
func (w *writing) column(
	ctx context.Context,
	c *column,
	rows []robocache.Row,
	number int64,
	to []*pqw.Values,
) (held int, err error) {
	var numbers []byte
	var items []string
	var valid []uint8
	dtype := robocache.Int64
	switch kind := c.kind(); {
	case kind == robocache.KindVideo:
		return w.frames(ctx, c, rows, to)
	case kind == robocache.KindImage:
		refs := make([]robocache.FrameRef, len(rows))
		if err := w.src.Frames(ctx, c.f.Key, rows, refs); err != nil {
			return held, err
		}
		items, valid = make([]string, len(rows)), make([]uint8, len(rows))
		for i := range refs {
			if !refs[i].Missing {
				encodeImage, err := video.EncodeImage(&refs[i])
				if err != nil {
					return held, err
				}
				items[i], valid[i] = string(encodeImage), 1
			}
		}
	case c.Name == "source" && c.f == nil:
		items = slices.Repeat([]string{w.source}, len(rows))
	case c.Name == sourceColumn && c.f == nil:
		items, valid = make([]string, len(rows)), make([]uint8, len(rows))
		if rows[0].Index == 0 {
			if items[0], err = w.origins.Text(ctx, rows[0].Episode); err != nil {
				return held, err
			}
			valid[0] = uint8(min(1, len(items[0])))
		}
	case kind == robocache.KindText:
		if items, err = w.src.Text(ctx, c.key(), rows); err != nil {
			return held, err
		}
	case c.f != nil:
		numbers, dtype = make([]byte, len(rows)*c.f.RowBytes()), c.f.DType
		if err := w.src.Gather(ctx, c.f.Key, rows, numbers); err != nil {
			return held, err
		}
	default:
		var times []int64
		if c.Name == secondsColumn || c.Name == nanosColumn {
			if times, err = w.src.Times(ctx, rows[0].Episode, ""); err != nil {
				return held, err
			}
		}
		for _, r := range rows {
			v := number
			switch {
			case c.Name == "frame_index":
				v = int64(r.Index)
			case times != nil:
				v = times[r.Index]
			}
			if c.Name == secondsColumn {
				dtype, v = robocache.Float64, int64(math.Float64bits(float64(v)/1e9))
			}
			numbers = binary.LittleEndian.AppendUint64(numbers, uint64(v))
		}
	}
	if c.f != nil && valid == nil {
		if valid, err = robocache.Validity(ctx, w.src, c.f, rows); err != nil {
			return held, err
		}
	}
	pattern, def, size := pqw.Pattern(c.dims...), 1+2*len(c.dims), 0
	if numbers != nil {
		if numbers, size, err = stored(c.elem, dtype, numbers); err != nil {
			return held, err
		}
	}
	for i := range rows {
		switch {
		case valid != nil && valid[i] == 0:
			to[0].Null(0, 0)
		case numbers == nil:
			to[0].Text(items[i], 0, def)
			held += len(items[i])
		default:
			for k, rep := range pattern {
				to[0].Add(numbers[(i*len(pattern)+k)*size:][:size], int(rep), def)
			}
		}
	}
	return held + len(numbers), nil
}

// videoFile is a file of video in the table.
type videoFile struct{ name, checksum string }

// frames adds references to frames of video, whose files it copies into the table.
func (w *writing) frames(
	ctx context.Context,
	c *column,
	rows []robocache.Row,
	to []*pqw.Values,
) (int, error) {
	refs := make([]robocache.FrameRef, len(rows))
	if err := w.src.Frames(ctx, c.f.Key, rows, refs); err != nil {
		return 0, err
	}
	var in *video.File
	release := func() {
		if in != nil {
			in.Release()
		}
		in = nil
	}
	defer release()
	for _, r := range refs {
		if r.Missing {
			for _, leaf := range to {
				leaf.Null(0, 0)
			}
			continue
		}
		if r.Path == "" || w.lib == nil {
			return 0, unsupported("rows of video that lie in no file", "convert to lerobot first")
		}
		if in == nil || in.Path != r.Path {
			release()
			var err error
			if in, err = w.lib.Acquire(ctx, r.Path); err != nil {
				return 0, err
			}
		}
		v, ok := w.videos[r.Path]
		if !ok {
			var err error
			if v, err = w.copyVideo(ctx, in.Ranged); err != nil {
				return 0, err
			}
			w.videos[r.Path] = v
		}
		if n := in.Index.NumFrames(); r.Ordinal < 0 || r.Ordinal >= n {
			return 0, robocache.Malformed(string(op), robocache.Where{"file": r.Path}, "").
				Expected(fmt.Sprintf("at most %d frames", n), fmt.Sprint("frame ", r.Ordinal))
		}
		s := in.Index.Sample(in.Index.DecodeIndex(r.Ordinal))
		to[0].Text(v.name, 0, 2)
		to[1].Int64(int64(r.Ordinal), 0, 2)
		to[2].Int64(s.Offset, 0, 2)
		to[3].Int64(int64(s.Size), 0, 2)
		to[4].Text(v.checksum, 0, 2)
	}
	return 32 * len(rows), nil
}

// copyVideo copies a file under the name that its contents give it (D5).
func (w *writing) copyVideo(ctx context.Context, f robocache.Ranged) (videoFile, error) {
	sum := sha256.New()
	if err := store.EachBlock(
		ctx,
		f,
		func(b []byte) error { _, err := sum.Write(b); return err },
	); err != nil {
		return videoFile{}, err
	}
	text := hex.EncodeToString(sum.Sum(nil))
	v := videoFile{videosDir + "/" + text[:32] + ".mp4", "sha256:" + text}
	if e, err := w.dst.Stat(ctx, v.name); err == nil && e.Size == f.Size() {
		return v, nil
	}
	if err := store.Copy(ctx, f, w.dst, v.name); err != nil {
		return videoFile{}, err
	}
	w.report.Bytes += f.Size()
	return v, nil
}
