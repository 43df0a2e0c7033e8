package calvin

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/lease"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// member is one array of each frame.
type member struct {
	name string // for example "rgb_static"
	file string // for example "rgb_static.npy"
	// Header in the first frame. A frame with the same header is not parsed again.
	header  []byte
	typ     npy.Type
	shape   []int
	bytes   int64
	fortran bool // Fortran order in the first frame that has the array
	flat    bool // C order and little-endian in the file
	offset  int  // offset in frame.numbers; -1 for images
}

// channelCount returns the size of the last dimension of an image.
func (m *member) channelCount() int {
	if len(m.shape) < 3 {
		return 1
	}
	return m.shape[2]
}

// stream is a feature that is made from a member.
type stream struct {
	feature *robocache.Feature
	member  int // -1 for streams of the annotations
	from    int // first channel in the member's last dimension
}

// frame is the cached part of a frame's file: the location of its members, and its numbers.
type frame struct {
	dir     *zipdir.Dir
	files   []*zipdir.File // by member; nil if the frame lacks it
	numbers []byte
	bad     []error // error of each unreadable member; nil if all can be read
}

// checkMember returns an error if a member of the frame cannot be read.
func (f *frame) checkMember(member int) error {
	if f.bad != nil {
		if err := f.bad[member]; err != nil {
			return err
		}
	}
	return nil
}

func (f *frame) memoryBytes() int64 {
	return int64(len(f.dir.Files))*112 + int64(len(f.numbers)) + 200
}

// frameID returns the cache key of an episode's frame.
func (d *Dataset) frameID(e episode, row int) int64 {
	return int64(slices.Index(splits, e.split))<<60 | (e.first + int64(row))
}

// acquireFrame returns a frame from the cache or the store. If hold is set, it also returns the
// open file, which the caller must release with d.files.Put.
func (d *Dataset) acquireFrame(
	ctx context.Context,
	e episode,
	row int,
	hold bool,
) (f *frame, h *handle, err error) {
	id := d.frameID(e, row)
	f, ok := d.cache.Peek(id)
	if ok && hold {
		h = d.files.Peek(id)
	}
	if ok && (h != nil || !hold) {
		return f, h, nil
	}
	name := d.frameName(e, row)
	defer robocache.LocateIn(&err, "file", name)
	if h, err = d.files.Get(id, func() (*openFrameFile, error) {
		r, err := d.Bytes.Open(ctx, name)
		return &openFrameFile{Ranged: r, arrays: make([][]byte, len(d.members))}, err
	}); err != nil {
		return f, h, err
	}
	err = func() error {
		load, err := d.cache.Load(ctx, id, func() (*frame, int64, error) {
			f, err := d.readFrame(ctx, h.Value)
			if err != nil {
				return nil, 0, err
			}
			return f, f.memoryBytes(), nil
		})
		if err != nil {
			return err
		}
		f = load
		return nil
	}()
	if err != nil || !hold {
		d.files.Put(h)
	}
	if err != nil {
		return f, h, err
	}
	return f, h, nil
}

// openFrameFile is an open frame, with its arrays that several streams share. Each shared array is
// read once.
type openFrameFile struct {
	robocache.Ranged
	mu     sync.Mutex
	arrays [][]byte // by member, in memory of the lease
	lease  *lease.Lease
}

// Close releases the arrays and closes the file.
func (o *openFrameFile) Close() error {
	if o.lease != nil {
		o.lease.Done()
	}
	return o.Ranged.Close()
}

// sharedArray returns an array that several streams share. load reads it at the first call. The
// array is valid until Put of the handle.
func (d *Dataset) sharedArray(
	h *handle,
	member int,
	load func(room func(n int64) []byte) ([]byte, error),
) ([]byte, error) {
	o := h.Value
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.arrays[member] != nil {
		return o.arrays[member], nil
	}
	if o.lease == nil {
		o.lease = lease.Get()
	}
	before := o.lease.Bytes()
	defer func() { d.files.Grow(h, o.lease.Bytes()-before) }()
	var err error
	if o.arrays[member], err = load(o.lease.Room); err != nil {
		return nil, err
	}
	return o.arrays[member], nil
}

// readFrame reads the directory and the numbers of a frame.
func (d *Dataset) readFrame(ctx context.Context, r robocache.Ranged) (*frame, error) {
	dir, err := zipdir.Read(ctx, r, maxMember)
	if err != nil {
		return nil, err
	}
	f := &frame{dir: dir, files: make([]*zipdir.File, len(d.members))}
	var files []*zipdir.File
	var members []int
	var total int64
	fail := func(member int, err error) {
		if f.bad == nil {
			f.bad = make([]error, len(d.members))
		}
		f.bad[member] = robocache.At(err, robocache.Where{"member": d.members[member].file})
	}
	for i := range d.members {
		m := &d.members[i]
		if m.offset >= 0 {
			total += m.bytes
		}
		file := dir.Find(m.file)
		if file == nil {
			fail(
				i,
				robocache.Malformed(
					"calvin frame",
					nil,
					"the frame does not have this array, other frames have it",
				).
					WithHint("%s", robocache.LeaveOutHint()),
			)
			continue
		}
		if f.files[i] = file; m.offset >= 0 {
			files, members = append(files, file), append(members, i)
		}
	}
	contents, err := dir.Bytes(ctx, r, files)
	if err != nil {
		return nil, err
	}
	f.numbers = make([]byte, total)
	for k, i := range members {
		m := &d.members[i]
		err := func() error {
			data, err := m.arrayData(contents[k])
			if err != nil {
				return err
			}
			copy(f.numbers[m.offset:], data)
			return nil
		}()
		if robocache.IsFatal(err) {
			return nil, err
		}
		if err != nil {
			fail(i, err)
		}
	}
	return f, nil
}

// arrayData returns the bytes of an array of a frame in C order and little-endian byte order
// (calvin.C3).
func (m *member) arrayData(content []byte) ([]byte, error) {
	if m.flat && bytes.HasPrefix(content, m.header) &&
		int64(len(content)-len(m.header)) >= m.bytes {
		return content[len(m.header):][:m.bytes:m.bytes], nil
	}
	a, err := npy.Decode(content)
	want := m.typ
	want.Big = false
	if err == nil && (a.Type != want || !slices.Equal(a.Shape, m.shape)) {
		err = robocache.Malformed(
			"calvin frame",
			nil,
			"the array is not like those of most episodes",
		).
			Expected(fmt.Sprintf("%s %v", want, m.shape), fmt.Sprintf("%s %v", a.Type, a.Shape)).
			WithHint("%s", robocache.LeaveOutHint())
	}
	if err := robocache.At(err, robocache.Where{"member": m.file}); err != nil {
		return nil, err
	}
	return a.Data, nil
}

// remoteAtOnce is the number of frames of a remote store that are requested in parallel.
const remoteAtOnce = 16

func (d *Dataset) streamOfKind(key string, kind robocache.Kind) (*stream, error) {
	s, ok := d.streams[key]
	if !ok {
		return nil, op.NoStream(key)
	}
	if err := op.Kind(key, s.feature.Kind, kind); err != nil {
		return nil, err
	}
	return s, nil
}

// forEachRow runs fn for all rows in parallel, because each frame is a separate file.
func (d *Dataset) forEachRow(
	ctx context.Context,
	rows []robocache.Row,
	fn func(ctx context.Context, i int) error,
) error {
	for _, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
	}
	workers := runtime.GOMAXPROCS(0)
	if _, local := d.Bytes.(*store.Local); !local {
		workers = max(workers, remoteAtOnce)
	}
	workers = min(workers, len(rows))
	work := func(ctx context.Context, first int) (err error) {
		defer crash.Recover("calvin read", &err)
		for i := first; i < len(rows); i += workers {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(ctx, i); err != nil {
				return robocache.At(
					err,
					robocache.Where{"episode": rows[i].Episode, "row": rows[i].Index},
				)
			}
		}
		return nil
	}
	if workers == 1 {
		if err := work(ctx, 0); err != nil {
			return err
		}
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	for first := range workers {
		g.Go(func() error { return work(ctx, first) })
	}
	return g.Wait()
}

// Gather copies rows of a numeric stream into dst.
func (d *Dataset) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("calvin gather", &err)
	s, err := d.streamOfKind(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	size := s.feature.RowBytes()
	if err := op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	if s.member < 0 {
		for i, r := range rows {
			if err := d.checkRow(r); err != nil {
				return err
			}
			d.language.copyEmbedding(d.episodes[r.Episode], r.Index, dst[i*size:(i+1)*size])
		}
		return nil
	}
	if err := d.checkLacking(s, rows); err != nil {
		return err
	}
	m := &d.members[s.member]
	// Cached rows are copied first. Files are opened only for the others.
	var missing []robocache.Row
	var positions []int
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
		if f, ok := d.cache.Peek(d.frameID(d.episodes[r.Episode], r.Index)); ok && f.bad == nil {
			copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
			continue
		}
		missing, positions = append(missing, r), append(positions, i)
	}
	if err := d.forEachRow(ctx, missing, func(ctx context.Context, k int) (err error) {
		e, row := d.episodes[missing[k].Episode], missing[k].Index
		f, _, err := d.acquireFrame(ctx, e, row, false)
		if err != nil {
			return err
		}
		defer robocache.LocateIn(&err, "file", d.frameName(e, row))
		if err := f.checkMember(s.member); err != nil {
			return err
		}
		i := positions[k]
		copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
		return nil
	}); err != nil {
		return err
	}
	return nil
}

// Frames returns the pixels of images. The pixels of stored members alias the bytes that were read
// from the file.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	return d.readFrames(ctx, key, rows, out, func(n int64) []byte { return make([]byte, n) })
}

// LeaseFrames is like Frames, but the pixels are in memory that is reused after done.
func (d *Dataset) LeaseFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (done func(), err error) {
	l := lease.Get()
	if err := d.readFrames(ctx, key, rows, out, l.Room); err != nil {
		l.Done()
		return nil, err
	}
	return l.Done, nil
}

func (d *Dataset) readFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
	room func(n int64) []byte,
) (err error) {
	defer crash.Recover("calvin frames", &err)
	s, err := d.streamOfKind(key, robocache.KindImage)
	if err != nil {
		return err
	}
	if err := op.Room(key, "frames", len(rows), len(out)); err != nil {
		return err
	}
	if err := d.checkLacking(s, rows); err != nil {
		return err
	}
	raws := make([]robocache.Raw, len(rows))
	if err := d.forEachRow(ctx, rows, func(ctx context.Context, i int) error {
		ft := s.feature
		image, err := d.readImage(ctx, d.episodes[rows[i].Episode], rows[i].Index, s, room)
		if err != nil {
			return err
		}
		raws[i] = robocache.Raw{
			Pix:      image,
			Height:   ft.Height,
			Width:    ft.Width,
			Channels: ft.Channels,
			DType:    ft.DType,
		}
		out[i] = robocache.FrameRef{Raw: &raws[i]}
		return nil
	}); err != nil {
		return err
	}
	return nil
}

// readImage returns the pixels of a stream in a frame.
func (d *Dataset) readImage(
	ctx context.Context,
	e episode,
	row int,
	s *stream,
	room func(n int64) []byte,
) (_ []byte, err error) {
	f, h, err := d.acquireFrame(ctx, e, row, true)
	if err != nil {
		return nil, err
	}
	defer d.files.Put(h)
	if f.bad != nil {
		defer robocache.LocateIn(&err, "file", d.frameName(e, row))
		if err := f.checkMember(s.member); err != nil {
			return nil, err
		}
	}
	ft := s.feature
	m := &d.members[s.member]
	load := func(room func(n int64) []byte) (array []byte, err error) {
		err = func() error {
			byteIn, err := f.dir.ByteIn(ctx, h.Value, f.files[s.member], room)
			if err != nil {
				return err
			}
			data, err := m.arrayData(byteIn)
			if err != nil {
				return err
			}
			array = data
			return nil
		}()
		if err != nil {
			return array, robocache.At(err, robocache.Where{"file": d.frameName(e, row)})
		}
		return array, nil
	}
	if ft.Channels == m.channelCount() {
		return load(room)
	}
	size := ft.DType.Size()
	part := room(int64(ft.Height * ft.Width * ft.Channels * size))
	shared, err := d.sharedArray(h, s.member, load)
	if err != nil {
		return nil, err
	}
	copyChannels(part, shared[s.from*size:], m.channelCount()*size, ft.Channels*size)
	return part, nil
}

// copyChannels copies the first width bytes of every step bytes of src.
func copyChannels(dst, src []byte, step, width int) {
	// Fast paths for CALVIN's arrays of two images. The first one writes four bytes for each pixel
	// of three: the next pixel overwrites the last byte.
	switch {
	case step == 6 && width == 3:
		for ; len(src) >= 4*6 && len(dst) >= 4*3+1; src, dst = src[4*6:], dst[4*3:] {
			s, d := (*[4 * 6]byte)(src), (*[4*3 + 1]byte)(dst)
			binary.LittleEndian.PutUint32(d[0:], binary.LittleEndian.Uint32(s[0:]))
			binary.LittleEndian.PutUint32(d[3:], binary.LittleEndian.Uint32(s[6:]))
			binary.LittleEndian.PutUint32(d[6:], binary.LittleEndian.Uint32(s[12:]))
			binary.LittleEndian.PutUint32(d[9:], binary.LittleEndian.Uint32(s[18:]))
		}
	case step == 8 && width == 4:
		for ; len(src) >= 4*8 && len(dst) >= 4*4; src, dst = src[4*8:], dst[4*4:] {
			s, d := (*[4 * 8]byte)(src), (*[4 * 4]byte)(dst)
			binary.LittleEndian.PutUint32(d[0:], binary.LittleEndian.Uint32(s[0:]))
			binary.LittleEndian.PutUint32(d[4:], binary.LittleEndian.Uint32(s[8:]))
			binary.LittleEndian.PutUint32(d[8:], binary.LittleEndian.Uint32(s[16:]))
			binary.LittleEndian.PutUint32(d[12:], binary.LittleEndian.Uint32(s[24:]))
		}
	}
	for p, d := 0, 0; p+width <= len(src) && d+width <= len(dst); p, d = p+step, d+width {
		copy(dst[d:d+width], src[p:])
	}
}
