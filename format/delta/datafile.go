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
	fileBytes = 64 << 20 // bytes of values at which a data file (one row group) ends
	videosDir = "videos"
)

// segment is a run of rows of an episode in one partition.
type segment struct {
	episode   int   // position in the source
	number    int64 // episode number in the table
	from, to  int
	partition string
}

// writeEpisodes writes the data files of the episodes, whose numbers begin at base.
func (w *writing) writeEpisodes(ctx context.Context, base int64) error {
	segments, err := w.planSegments(ctx, base)
	if err != nil {
		return err
	}
	episodes := reader.Episodes(w.options.Episodes, w.info.Episodes)
	counter := robocache.NewRowCounter(w.src, episodes, w.options.Progress)
	left := map[int]int{} // rows of each episode that are not yet written
	for _, e := range episodes {
		left[e] = w.src.Len(e)
	}
	f, err := w.newFile()
	if err != nil {
		return err
	}
	for i, s := range segments {
		if i > 0 && segments[i-1].partition != s.partition {
			if err := w.writeFile(ctx, f, segments[i-1].partition); err != nil {
				return err
			}
		}
		if err := w.eachBlock(s, func(rows []robocache.Row) error {
			if err := w.addRows(ctx, f, rows, s.number); err != nil {
				return err
			}
			if f.heldBytes >= fileBytes {
				if err := w.writeFile(ctx, f, s.partition); err != nil {
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
	for _, e := range episodes { // episodes without rows, and episodes that were left out
		if left[e] > 0 || w.src.Len(e) == 0 {
			counter.Finish(e)
		}
	}
	if len(segments) > 0 {
		if err := w.writeFile(ctx, f, segments[len(segments)-1].partition); err != nil {
			return err
		}
	}
	return nil
}

// planSegments divides the episodes into partitions and groups the segments by partition.
func (w *writing) planSegments(ctx context.Context, base int64) (out []segment, err error) {
	order := map[string]int{}
	for _, e := range reader.Episodes(w.options.Episodes, w.info.Episodes) {
		n := w.src.Len(e)
		if n == 0 {
			continue
		}
		own := []segment{{episode: e, number: base, to: n}}
		base++
		err := func() error {
			// Rows of a file cannot be removed again, so the episode is read completely first.
			if w.options.SkipBad {
				if err := w.eachBlock(own[0], func(rows []robocache.Row) error {
					content, err := w.newFile()
					if err != nil {
						return err
					}
					return w.addRows(ctx, content, rows, 0)
				}); err != nil {
					return err
				}
			}
			switch w.partition {
			case "source":
				own[0].partition = w.source
			case "task":
				texts, err := w.src.Text(ctx, "task", reader.Rows(e, 0, n))
				if err != nil {
					return err
				}
				for k, text := range texts {
					if s := &own[len(own)-1]; k == 0 {
						s.partition = text
					} else if text != s.partition {
						s.to = k
						own = append(own, segment{e, s.number, k, n, text})
					}
				}
			}
			return nil
		}()
		if err = robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}); err != nil {
			if !w.options.SkipBad || !robocache.Bad(err) {
				return out, err
			}
			w.report.LeftOut++
			w.report.Findings = append(w.report.Findings, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "episode-skipped",
				Where:    robocache.Where{"episode": w.info.EpisodeIndex(e)},
				Message:  err.Error(),
			})
			continue
		}
		for _, s := range own {
			if _, ok := order[s.partition]; !ok {
				order[s.partition] = len(order)
			}
		}
		out = append(out, own...)
		w.report.Episodes, w.report.Frames = w.report.Episodes+1, w.report.Frames+int64(n)
	}
	slices.SortStableFunc(
		out,
		func(a, b segment) int { return order[a.partition] - order[b.partition] },
	)
	return out, nil
}

// eachBlock calls do for the rows of a segment, in blocks that fit into memory.
func (w *writing) eachBlock(s segment, do func(rows []robocache.Row) error) error {
	size := 1
	for _, c := range w.columns {
		if c.feature != nil {
			size += c.feature.RowBytes()
			if c.feature.Kind == robocache.KindImage {
				size += c.feature.Width * c.feature.Height * max(1, c.feature.Channels)
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

// dataFile collects the rows of a data file before it is written.
type dataFile struct {
	schema    *parquet.Schema
	columns   []*column
	values    [][]*pqw.Values // per column, one collector for each leaf
	rows      int64
	heldBytes int // bytes
}

// newFile returns an empty data file with a collector for each leaf of the columns.
func (w *writing) newFile() (*dataFile, error) {
	f := &dataFile{}
	var names []string
	var nodes []parquet.Node
	for i := range w.columns {
		if c := &w.columns[i]; c.Name != w.partition {
			names = append(names, c.Name)
			nodes = append(nodes, c.node())
			f.columns = append(f.columns, c)
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

// writeFile writes the collected rows to a file, if there are any, and empties f.
func (w *writing) writeFile(ctx context.Context, f *dataFile, part string) (err error) {
	if f.rows == 0 {
		return nil
	}
	name := fmt.Sprintf("%s-%05d.parquet", w.prefix, len(w.addedFiles))
	defer robocache.LocateIn(&err, "file", name)
	collectors := slices.Concat(f.values...)
	chunks := make([]*pqw.Chunk, len(collectors))
	var g errgroup.Group
	g.SetLimit(cmp.Or(max(w.options.Threads, 0), runtime.GOMAXPROCS(0)))
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
		if lo, hi := c.statValue(least), c.statValue(greatest); lo != nil && hi != nil {
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
	w.addedFiles = append(w.addedFiles, a)
	stat, err := w.dst.Stat(ctx, name)
	if err != nil {
		return err
	}
	a.Size = stat.Size
	if w.partition != "" {
		a.Partitions[w.partition] = part
	}
	w.report.Bytes += a.Size
	f.rows, f.heldBytes = 0, 0
	return nil
}

// statValue returns a bound of a column as its statistics state it, or nil. Only numbers and texts
// with one value per row have bounds.
func (c *column) statValue(b []byte) any {
	switch {
	case b == nil || c.dims != nil:
	case c.elem == "string":
		return string(b)
	case dtypes[c.elem].Float():
		if v := robocache.Float64s(nil, dtypes[c.elem], b)[0]; !math.IsInf(v, 0) {
			return v
		}
	case dtypes[c.elem].Size() > 0 && c.elem != "boolean":
		stored := map[int]robocache.DType{4: robocache.Int32, 8: robocache.Int64}
		return robocache.Int64s(nil, stored[len(b)], b)[0]
	}
	return nil
}

// addRows adds rows to a file. Errors of the source occur before anything is added to the episode's
// result.
func (w *writing) addRows(
	ctx context.Context,
	f *dataFile,
	rows []robocache.Row,
	number int64,
) error {
	for i, c := range f.columns {
		if err := robocache.At(func() error {
			bytes, err := w.addColumn(ctx, c, rows, number, f.values[i])
			if err != nil {
				return err
			}
			f.heldBytes += bytes
			return nil
		}(), robocache.Where{"stream": c.Name}); err != nil {
			return err
		}
	}
	f.rows += int64(len(rows))
	return nil
}

// addColumn adds rows of one column to the collectors of its leaves, and returns their size in
// bytes.
func (w *writing) addColumn(
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
		return w.addFrames(ctx, c, rows, to)
	case kind == robocache.KindImage:
		refs := make([]robocache.FrameRef, len(rows))
		if err := w.src.Frames(ctx, c.feature.Key, rows, refs); err != nil {
			return held, err
		}
		items, valid = make([]string, len(rows)), make([]uint8, len(rows))
		for i := range refs {
			if !refs[i].Missing {
				encoded, err := video.EncodeImage(&refs[i])
				if err != nil {
					return held, err
				}
				items[i], valid[i] = string(encoded), 1
			}
		}
	case c.Name == "source" && c.feature == nil:
		items = slices.Repeat([]string{w.source}, len(rows))
	case c.Name == sourceColumn && c.feature == nil:
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
	case c.feature != nil:
		numbers, dtype = make([]byte, len(rows)*c.feature.RowBytes()), c.feature.DType
		if err := w.src.Gather(ctx, c.feature.Key, rows, numbers); err != nil {
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
	if c.feature != nil && valid == nil {
		if valid, err = robocache.Validity(ctx, w.src, c.feature, rows); err != nil {
			return held, err
		}
	}
	pattern, def, size := pqw.Pattern(c.dims...), 1+2*len(c.dims), 0
	if numbers != nil {
		if numbers, size, err = storedNumbers(c.elem, dtype, numbers); err != nil {
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

// videoFile is a video file in the table.
type videoFile struct{ name, checksum string }

// addFrames adds references to frames of video, and copies the video files into the table.
func (w *writing) addFrames(
	ctx context.Context,
	c *column,
	rows []robocache.Row,
	to []*pqw.Values,
) (int, error) {
	refs := make([]robocache.FrameRef, len(rows))
	if err := w.src.Frames(ctx, c.feature.Key, rows, refs); err != nil {
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
		if r.Path == "" || w.library == nil {
			return 0, unsupported(
				"rows of video that are not in a file",
				"convert to lerobot first",
			)
		}
		if in == nil || in.Path != r.Path {
			release()
			var err error
			if in, err = w.library.Acquire(ctx, r.Path); err != nil {
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

// copyVideo copies a video file. Its name is derived from its content (delta.D5).
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
