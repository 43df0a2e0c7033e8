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
	"github.com/goatnote-inc/robocache/internal/guard"
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
func (w *writing) write(ctx context.Context, base int64) {
	segments := w.segments(ctx, base)
	episodes := reader.Episodes(w.opt.Episodes, w.info.Episodes)
	counter := robocache.NewRowCounter(w.src, episodes, w.opt.Progress)
	left := map[int]int{} // rows of each episode that are not written
	for _, e := range episodes {
		left[e] = w.src.Len(e)
	}
	f := w.newFile()
	for i, s := range segments {
		if i > 0 && segments[i-1].part != s.part {
			w.put(ctx, f, segments[i-1].part)
		}
		w.each(s, func(rows []robocache.Row) {
			w.fill(ctx, f, rows, s.number)
			if f.held >= fileBytes {
				w.put(ctx, f, s.part)
			}
			counter.Advance(s.episode, float64(len(rows))/float64(w.src.Len(s.episode)))
		})
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
		w.put(ctx, f, segments[len(segments)-1].part)
	}
}

// segments divides the episodes into partitions, and brings those together.
func (w *writing) segments(ctx context.Context, base int64) (out []segment) {
	order := map[string]int{}
	for _, e := range reader.Episodes(w.opt.Episodes, w.info.Episodes) {
		n := w.src.Len(e)
		if n == 0 {
			continue
		}
		own := []segment{{episode: e, number: base, to: n}}
		base++
		err := guard.Try(func() {
			if w.opt.SkipBad { // a file has no way back
				w.each(own[0], func(rows []robocache.Row) { w.fill(ctx, w.newFile(), rows, 0) })
			}
			switch w.partition {
			case "source":
				own[0].part = w.source
			case "task":
				texts := guard.Must(w.src.Text(ctx, "task", reader.Rows(e, 0, n)))
				for k, text := range texts {
					if s := &own[len(own)-1]; k == 0 {
						s.part = text
					} else if text != s.part {
						s.to = k
						own = append(own, segment{e, s.number, k, n, text})
					}
				}
			}
		})
		if err = robocache.At(err, robocache.Where{"episode": w.info.EpisodeIndex(e)}); err != nil {
			if !w.opt.SkipBad || !robocache.Bad(err) {
				guard.Fail(err)
			}
			w.report.LeftOut++
			w.report.Findings = append(w.report.Findings, robocache.Finding{Severity: robocache.SeverityError, Code: "episode-skipped", Where: robocache.Where{"episode": w.info.EpisodeIndex(e)}, Message: err.Error()})
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
	return out
}

// each gives the rows of a segment in blocks that memory holds.
func (w *writing) each(s segment, do func(rows []robocache.Row)) {
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
		do(reader.Rows(s.episode, at, min(s.to, at+step)))
	}
}

// dataFile is the rows of one that is not yet written.
type dataFile struct {
	schema  *parquet.Schema
	columns []*column
	values  [][]*pqw.Values // of each column, a collector a leaf
	rows    int64
	held    int // bytes
}

func (w *writing) newFile() *dataFile {
	f := &dataFile{}
	var names []string
	var nodes []parquet.Node
	for i := range w.columns {
		if c := &w.columns[i]; c.Name != w.partition {
			names, nodes, f.columns = append(names, c.Name), append(nodes, c.node()), append(f.columns, c)
		}
	}
	f.schema = parquet.NewSchema("schema", pqw.Group(names, nodes))
	leaves := guard.Must(pqw.Leaves(f.schema))
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
	return f
}

// put writes the file, if it has rows, and empties it.
func (w *writing) put(ctx context.Context, f *dataFile, part string) {
	if f.rows == 0 {
		return
	}
	name := fmt.Sprintf("%s-%05d.parquet", w.prefix, len(w.adds))
	defer guard.In("file", name)
	collectors := slices.Concat(f.values...)
	chunks := make([]*pqw.Chunk, len(collectors))
	var g errgroup.Group
	g.SetLimit(cmp.Or(max(w.opt.Threads, 0), runtime.GOMAXPROCS(0)))
	for i, v := range collectors {
		g.Go(func() (err error) { chunks[i], err = v.Encode(); return err })
	}
	guard.Check(g.Wait())
	s := fileStats{Rows: f.rows, Min: map[string]any{}, Max: map[string]any{}, Nulls: map[string]any{}}
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
	out := guard.Must(w.dst.Create(ctx, name))
	defer out.Abort()
	file := guard.Must(pqw.NewFile(out, f.schema, nil, "RoboCache"))
	guard.Check(file.Append(f.rows, chunks))
	guard.Check(file.Close())
	guard.Check(out.Commit())
	a := &add{Path: name, Partitions: texts{}, Modified: w.modified, DataChange: true, Stats: string(guard.Must(json.Marshal(s)))}
	w.adds = append(w.adds, a)
	a.Size = guard.Must(w.dst.Stat(ctx, name)).Size
	if w.partition != "" {
		a.Partitions[w.partition] = part
	}
	w.report.Bytes += a.Size
	f.rows, f.held = 0, 0
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
func (w *writing) fill(ctx context.Context, f *dataFile, rows []robocache.Row, number int64) {
	for i, c := range f.columns {
		guard.Check(robocache.At(guard.Try(func() { f.held += w.column(ctx, c, rows, number, f.values[i]) }), robocache.Where{"stream": c.Name}))
	}
	f.rows += int64(len(rows))
}

// column adds rows of one column to the collectors of its leaves, and says how many bytes.
func (w *writing) column(ctx context.Context, c *column, rows []robocache.Row, number int64, to []*pqw.Values) (held int) {
	var numbers []byte
	var items []string
	var valid []uint8
	dtype := robocache.Int64
	switch kind := c.kind(); {
	case kind == robocache.KindVideo:
		return w.frames(ctx, c, rows, to)
	case kind == robocache.KindImage:
		refs := make([]robocache.FrameRef, len(rows))
		guard.Check(w.src.Frames(ctx, c.f.Key, rows, refs))
		items, valid = make([]string, len(rows)), make([]uint8, len(rows))
		for i := range refs {
			if !refs[i].Missing {
				items[i], valid[i] = string(guard.Must(video.EncodeImage(&refs[i]))), 1
			}
		}
	case c.Name == "source" && c.f == nil:
		items = slices.Repeat([]string{w.source}, len(rows))
	case kind == robocache.KindText:
		items = guard.Must(w.src.Text(ctx, c.key(), rows))
	case c.f != nil:
		numbers, dtype = make([]byte, len(rows)*c.f.RowBytes()), c.f.DType
		guard.Check(w.src.Gather(ctx, c.f.Key, rows, numbers))
	default:
		var times []int64
		if c.Name == secondsColumn || c.Name == nanosColumn {
			times = guard.Must(w.src.Times(ctx, rows[0].Episode, ""))
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
		valid = guard.Must(robocache.Validity(ctx, w.src, c.f, rows))
	}
	pattern, def, size := pqw.Pattern(c.dims...), 1+2*len(c.dims), 0
	if numbers != nil {
		numbers, size = stored(c.elem, dtype, numbers)
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
	return held + len(numbers)
}

// videoFile is a file of video in the table.
type videoFile struct{ name, checksum string }

// frames adds references to frames of video, whose files it copies into the table.
func (w *writing) frames(ctx context.Context, c *column, rows []robocache.Row, to []*pqw.Values) int {
	refs := make([]robocache.FrameRef, len(rows))
	guard.Check(w.src.Frames(ctx, c.f.Key, rows, refs))
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
			unsupported("rows of video that lie in no file", "convert to lerobot first")
		}
		if in == nil || in.Path != r.Path {
			release()
			in = guard.Must(w.lib.Acquire(ctx, r.Path))
		}
		v, ok := w.videos[r.Path]
		if !ok {
			v = w.copyVideo(ctx, in.Ranged)
			w.videos[r.Path] = v
		}
		if n := in.Index.NumFrames(); r.Ordinal < 0 || r.Ordinal >= n {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: string(op), Where: robocache.Where{"file": r.Path}, Want: fmt.Sprintf("at most %d frames", n), Got: fmt.Sprint("frame ", r.Ordinal)})
		}
		s := in.Index.Sample(in.Index.DecodeIndex(r.Ordinal))
		to[0].Text(v.name, 0, 2)
		to[1].Int64(int64(r.Ordinal), 0, 2)
		to[2].Int64(s.Offset, 0, 2)
		to[3].Int64(int64(s.Size), 0, 2)
		to[4].Text(v.checksum, 0, 2)
	}
	return 32 * len(rows)
}

// copyVideo copies a file under the name that its contents give it (D5).
func (w *writing) copyVideo(ctx context.Context, f robocache.Ranged) videoFile {
	sum := sha256.New()
	guard.Check(store.EachBlock(ctx, f, func(b []byte) error { _, err := sum.Write(b); return err }))
	text := hex.EncodeToString(sum.Sum(nil))
	v := videoFile{videosDir + "/" + text[:32] + ".mp4", "sha256:" + text}
	if e, err := w.dst.Stat(ctx, v.name); err == nil && e.Size == f.Size() {
		return v
	}
	guard.Check(store.Copy(ctx, f, w.dst, v.name))
	w.report.Bytes += f.Size()
	return v
}
