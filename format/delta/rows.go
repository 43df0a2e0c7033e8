package delta

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
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
	groupBytes = 32 << 20  // a row group ends here
	fileBytes  = 256 << 20 // and a file
	videosDir  = "videos"
)

// segment is rows of an episode that lie in one partition.
type segment struct {
	episode  int // position in the source
	number   int64
	from, to int
}

// write makes the data files of the episodes, numbered from base on.
func (w *writing) write(ctx context.Context, base int64) {
	var parts []string
	segments := map[string][]segment{}
	list := reader.Episodes(w.opt.Episodes, w.info.Episodes)
	for i, e := range list {
		n := w.src.Len(e)
		if w.opt.Progress != nil {
			w.opt.Progress(i, len(list))
		}
		if n == 0 {
			continue
		}
		number := base
		base++
		err := guard.Try(func() {
			if w.opt.SkipBad { // a file has no way back
				w.each(e, n, func(rows []robocache.Row) { w.gather(ctx, rows, number) })
			}
			split := []segment{{e, number, 0, n}}
			names := []string{w.source}
			if w.partition == "task" {
				split, names = split[:0], names[:0]
				for k, text := range guard.Must(w.src.Text(ctx, "task", reader.Rows(e, 0, n))) {
					if k == 0 || text != names[len(names)-1] {
						split, names = append(split, segment{e, number, k, k}), append(names, text)
					}
					split[len(split)-1].to = k + 1
				}
			}
			for k, s := range split {
				name := names[k]
				if w.partition == "" {
					name = ""
				}
				if segments[name] == nil {
					parts = append(parts, name)
				}
				segments[name] = append(segments[name], s)
			}
		})
		if err = robocache.At(err, robocache.Where{"episode": e}); err != nil {
			bad := errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported)
			if !w.opt.SkipBad || !bad {
				guard.Fail(err)
			}
			w.report.LeftOut++
			w.report.Findings = append(w.report.Findings, robocache.Finding{Severity: robocache.SeverityError, Code: "episode-skipped", Where: robocache.Where{"episode": e}, Message: err.Error()})
			continue
		}
		w.report.Episodes, w.report.Frames = w.report.Episodes+1, w.report.Frames+int64(n)
	}
	for _, p := range parts {
		f := &dataFile{w: w, partition: p}
		err := guard.Try(func() {
			for _, s := range segments[p] {
				w.each(s.episode, s.to, func(rows []robocache.Row) {
					if rows = rows[min(len(rows), max(0, s.from-rows[0].Index)):]; len(rows) > 0 {
						f.add(ctx, rows, s.number)
					}
				})
			}
			f.close(ctx)
		})
		if f.out != nil {
			f.out.Abort()
		}
		guard.Check(err)
	}
}

// each gives the first n rows of an episode in blocks that memory holds.
func (w *writing) each(e, n int, do func(rows []robocache.Row)) {
	size := 1
	for _, c := range w.columns {
		if c.f != nil && c.f.Kind == robocache.KindImage {
			size += c.f.Width * c.f.Height * max(1, c.f.Channels)
		} else if c.f != nil {
			size += c.f.RowBytes()
		}
	}
	step := max(1, groupBytes/size)
	for at := 0; at < n; at += step {
		do(reader.Rows(e, at, min(n, at+step)))
	}
}

// cells are the values of a column in some rows.
type cells struct {
	numbers []byte // as they are stored
	dtype   robocache.DType
	items   [][]byte // of texts and images; nil is null
	frames  []frameAt
	valid   []uint8 // nil: all
}

// frameAt is a row of a column of video.
type frameAt struct {
	file                  *videoFile // nil: none
	frame, offset, length int64
}

// gather reads rows of all columns; it is all that may fail for what is in the source.
func (w *writing) gather(ctx context.Context, rows []robocache.Row, number int64) []cells {
	out := make([]cells, len(w.columns))
	for i := range w.columns {
		c := &w.columns[i]
		guard.Check(robocache.At(guard.Try(func() { out[i] = w.cells(ctx, c, rows, number) }), robocache.Where{"stream": c.Name}))
	}
	return out
}

func (w *writing) cells(ctx context.Context, c *column, rows []robocache.Row, number int64) (out cells) {
	texts := func(list []string) {
		for _, t := range list {
			out.items = append(out.items, append([]byte{}, t...))
		}
	}
	if c.f == nil {
		var longs []int64
		floats := c.Name == secondsColumn && dtypes[c.elem].Float()
		switch c.Name {
		case "source":
			texts(slices.Repeat([]string{w.source}, len(rows)))
		case "task":
			texts(guard.Must(w.src.Text(ctx, "task", rows)))
		case "episode_index":
			longs = slices.Repeat([]int64{number}, len(rows))
		case "frame_index":
			for _, r := range rows {
				longs = append(longs, int64(r.Index))
			}
		default:
			longs = guard.Must(w.src.Times(ctx, rows[0].Episode, ""))[rows[0].Index:][:len(rows)]
		}
		var b []byte
		for _, v := range longs {
			if floats {
				v = int64(math.Float64bits(float64(v) / 1e9))
			}
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		from := robocache.Int64
		if floats {
			from = robocache.Float64
		}
		if longs != nil {
			out.numbers, out.dtype = stored(c.elem, from, b)
		}
		return out
	}
	switch f := c.f; f.Kind {
	case robocache.KindNumeric:
		b := make([]byte, len(rows)*f.RowBytes())
		guard.Check(w.src.Gather(ctx, f.Key, rows, b))
		out.numbers, out.dtype = stored(c.elem, f.DType, b)
		out.valid = guard.Must(robocache.Validity(ctx, w.src, f, rows))
	case robocache.KindText, robocache.KindEvent:
		texts(guard.Must(w.src.Text(ctx, f.Key, rows)))
		out.valid = guard.Must(robocache.Validity(ctx, w.src, f, rows))
	default:
		refs := make([]robocache.FrameRef, len(rows))
		guard.Check(w.src.Frames(ctx, f.Key, rows, refs))
		if f.Kind == robocache.KindVideo {
			out.frames = w.frames(ctx, refs)
			return out
		}
		out.items = make([][]byte, len(rows))
		for i := range refs {
			if !refs[i].Missing {
				out.items[i] = guard.Must(video.EncodeImage(&refs[i]))
			}
		}
	}
	return out
}

// videoFile is a file of video in the table.
type videoFile struct{ name, checksum string }

// frames refers to frames of video, and copies their files into the table.
func (w *writing) frames(ctx context.Context, refs []robocache.FrameRef) []frameAt {
	out := make([]frameAt, len(refs))
	var in *video.File
	defer func() {
		if in != nil {
			in.Release()
		}
	}()
	for i, r := range refs {
		if r.Missing {
			continue
		}
		if r.Path == "" || w.lib == nil {
			unsupported("rows of video that lie in no file", "convert to lerobot first")
		}
		if in == nil || in.Path != r.Path {
			if in != nil {
				in.Release()
			}
			in = nil
			in = guard.Must(w.lib.Acquire(ctx, r.Path))
			if _, ok := w.videos[r.Path]; !ok {
				w.videos[r.Path] = w.copyVideo(ctx, in.Ranged)
			}
		}
		v := w.videos[r.Path]
		if r.Ordinal < 0 || r.Ordinal >= in.Index.NumFrames() {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "write delta", Where: robocache.Where{"file": r.Path}, Want: fmt.Sprintf("at most %d frames", in.Index.NumFrames()), Got: fmt.Sprint("frame ", r.Ordinal)})
		}
		s := in.Index.Sample(in.Index.DecodeIndex(r.Ordinal))
		out[i] = frameAt{&v, int64(r.Ordinal), s.Offset, int64(s.Size)}
	}
	return out
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
	out := guard.Must(w.dst.Create(ctx, v.name))
	defer out.Abort()
	guard.Check(store.EachBlock(ctx, f, func(b []byte) error { _, err := out.Write(b); return err }))
	guard.Check(out.Commit())
	w.report.Bytes += f.Size()
	return v
}

// dataFile is one that is being written, and those of the same partition after it.
type dataFile struct {
	w         *writing
	partition string
	columns   []column
	leaves    []*pqw.Leaf
	values    []*pqw.Values
	out       store.Writer // nil: none is open
	name      string
	file      *pqw.File
	tallies   []tally
	rows      int64 // of the file
	group     int64 // rows that no row group has yet
	held      int   // bytes of these
	size      int64 // of the file's row groups
}

// add adds rows.
func (f *dataFile) add(ctx context.Context, rows []robocache.Row, number int64) {
	all := f.w.gather(ctx, rows, number)
	if f.out == nil {
		f.open(ctx)
	}
	leaf, k := 0, 0
	for i := range f.w.columns {
		c := &f.w.columns[i]
		if c.Name == f.w.partition {
			continue
		}
		if c.elem == "struct" {
			f.frames(f.values[leaf:leaf+len(videoFields)], all[i].frames)
			leaf += len(videoFields)
		} else {
			f.put(f.values[leaf], c, &all[i], len(rows), &f.tallies[k])
			leaf++
		}
		k++
	}
	f.rows, f.group = f.rows+int64(len(rows)), f.group+int64(len(rows))
	if f.held >= groupBytes {
		f.flush()
	}
	if f.size >= fileBytes {
		f.close(ctx)
	}
}

func (f *dataFile) put(v *pqw.Values, c *column, in *cells, rows int, t *tally) {
	pattern := pqw.Pattern(c.dims...)
	def := 1 + 2*len(c.dims)
	size := in.dtype.Size()
	for i := range rows {
		switch {
		case in.valid != nil && in.valid[i] == 0 || in.numbers == nil && in.items[i] == nil:
			v.Null(0, 0)
			t.nulls++
		case in.numbers == nil:
			v.Add(in.items[i], 0, def)
			if c.elem == "string" {
				t.add(string(in.items[i]))
			}
		default:
			for k, rep := range pattern {
				v.Add(in.numbers[(i*len(pattern)+k)*size:][:size], int(rep), def)
			}
			if one := in.numbers[i*size:]; c.dims == nil && in.dtype.Float() {
				t.add(robocache.Float64s(nil, in.dtype, one[:size])[0])
			} else if c.dims == nil && in.dtype != robocache.Bool {
				t.add(robocache.Int64s(nil, in.dtype, one[:size])[0])
			}
		}
	}
	f.held += len(in.numbers)
	for _, b := range in.items {
		f.held += len(b)
	}
}

func (f *dataFile) frames(v []*pqw.Values, rows []frameAt) {
	for _, r := range rows {
		if r.file == nil {
			for _, leaf := range v {
				leaf.Null(0, 0)
			}
			continue
		}
		v[0].Text(r.file.name, 0, 2)
		v[1].Int64(r.frame, 0, 2)
		v[2].Int64(r.offset, 0, 2)
		v[3].Int64(r.length, 0, 2)
		v[4].Text(r.file.checksum, 0, 2)
		f.held += 32
	}
}

func (f *dataFile) open(ctx context.Context) {
	var names []string
	var nodes []parquet.Node
	f.columns, f.values = nil, nil
	for _, c := range f.w.columns {
		if c.Name != f.w.partition {
			names, nodes, f.columns = append(names, c.Name), append(nodes, c.node()), append(f.columns, c)
		}
	}
	schema := parquet.NewSchema("schema", pqw.Group(names, nodes))
	f.leaves = guard.Must(pqw.Leaves(schema))
	for _, l := range f.leaves {
		f.values = append(f.values, l.NewValues())
	}
	f.tallies, f.rows, f.size = make([]tally, len(f.columns)), 0, 0
	f.name = fmt.Sprintf("%s-%05d.parquet", f.w.prefix, len(f.w.adds))
	f.out = guard.Must(f.w.dst.Create(ctx, f.name))
	f.file = guard.Must(pqw.NewFile(f.out, schema, nil, "RoboCache"))
}

// flush writes the row group.
func (f *dataFile) flush() {
	chunks := make([]*pqw.Chunk, len(f.values))
	var g errgroup.Group
	g.SetLimit(cmp.Or(max(f.w.opt.Threads, 0), runtime.GOMAXPROCS(0)))
	for i, v := range f.values {
		g.Go(func() (err error) {
			chunks[i], err = v.Encode()
			return err
		})
	}
	guard.Check(g.Wait())
	for _, c := range chunks {
		f.size += c.Size()
	}
	guard.Check(f.file.Append(f.group, chunks))
	f.group, f.held = 0, 0
}

// close ends the file, if one is open.
func (f *dataFile) close(ctx context.Context) {
	if f.out == nil {
		return
	}
	if f.group > 0 {
		f.flush()
	}
	guard.Check(f.file.Close())
	guard.Check(f.out.Commit())
	f.out = nil
	w := f.w
	w.made = append(w.made, f.name)
	e := guard.Must(w.dst.Stat(ctx, f.name))
	a := &add{Path: filePath(f.name), Partitions: texts{}, Size: e.Size, Modified: w.modified, DataChange: true, Stats: statsOf(f.rows, f.columns, f.tallies)}
	if w.partition != "" {
		a.Partitions[w.partition] = f.partition
	}
	w.adds = append(w.adds, a)
	w.report.Bytes += e.Size
}
