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
	name string // "rgb_static"
	file string // "rgb_static.npy"
	// what stands before its bytes in the first frame: where it is the same, nothing is parsed
	// again
	header  []byte
	typ     npy.Type
	shape   []int
	bytes   int64
	fortran bool // in Fortran order in the first frame that has it
	flat    bool // in C order and little-endian already
	offset  int  // of a number's bytes in frame.numbers; -1 for images
}

// channels is the size of the last dimension of an image.
func (m *member) channels() int {
	if len(m.shape) < 3 {
		return 1
	}
	return m.shape[2]
}

// stream is a feature made of a member.
type stream struct {
	feature *robocache.Feature
	member  int // -1: of the annotations
	from    int // first channel of the member's last dimension
}

// frame is what is kept of a frame's file: where its members lie, and its numbers.
type frame struct {
	dir     *zipdir.Dir
	files   []*zipdir.File // of each member; nil if the frame does not have it
	numbers []byte
	bad     []error // why a member cannot be read; nil if all can
}

// check ends the work if a member of the frame cannot be read.
func (f *frame) check(member int) error {
	if f.bad != nil {
		if err := f.bad[member]; err != nil {
			return err
		}
	}
	return nil
}

func (f *frame) size() int64 { return int64(len(f.dir.Files))*112 + int64(len(f.numbers)) + 200 }

// frameID is an episode's frame as a key of the cache: validation follows training.
func (d *Dataset) frameID(e episode, row int) int64 {
	return int64(slices.Index(splits, e.split))<<60 | (e.first + int64(row))
}

// open gives a frame's directory and, where hold says so, its open file, which goes back by
// d.files.Put. The cache keeps what was found.
func (d *Dataset) open(
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
	name := d.name(e, row)
	defer robocache.LocateIn(&err, "file", name)
	if h, err = d.files.Get(id, func() (*opened, error) {
		r, err := d.Bytes.Open(ctx, name)
		return &opened{Ranged: r, arrays: make([][]byte, len(d.members))}, err
	}); err != nil {
		return f, h, err
	}
	err = func() error {
		load, err := d.cache.Load(ctx, id, func() (*frame, int64, error) {
			f, err := d.read(ctx, h.Value)
			if err != nil {
				return nil, 0, err
			}
			return f, f.size(), nil
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

// opened is an open frame, and those of its arrays that several streams are made of: each is read
// once.
type opened struct {
	robocache.Ranged
	mu     sync.Mutex
	arrays [][]byte // by member, in memory of the lease
	lease  *lease.Lease
}

// Close gives the file and the arrays back.
func (o *opened) Close() error {
	if o.lease != nil {
		o.lease.Done()
	}
	return o.Ranged.Close()
}

// shared gives an array that several streams are made of, which load reads: good until the handle's
// Put.
func (d *Dataset) shared(
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

// read reads a frame's directory and its numbers.
func (d *Dataset) read(ctx context.Context, r robocache.Ranged) (*frame, error) {
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
				robocache.Malformed("calvin frame", nil, "the frame does not have this array, other frames have it").
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
			data, err := m.data(contents[k])
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

// data gives the bytes of an array of a frame, C order and little-endian (C3).
func (m *member) data(content []byte) ([]byte, error) {
	if m.flat && bytes.HasPrefix(content, m.header) &&
		int64(len(content)-len(m.header)) >= m.bytes {
		return content[len(m.header):][:m.bytes:m.bytes], nil
	}
	a, err := npy.Decode(content)
	want := m.typ
	want.Big = false
	if err == nil && (a.Type != want || !slices.Equal(a.Shape, m.shape)) {
		err = robocache.Malformed("calvin frame", nil, "the array is not like those of most episodes").
			Expected(fmt.Sprintf("%s %v", want, m.shape), fmt.Sprintf("%s %v", a.Type, a.Shape)).
			WithHint("%s", robocache.LeaveOutHint())
	}
	if err := robocache.At(err, robocache.Where{"member": m.file}); err != nil {
		return nil, err
	}
	return a.Data, nil
}

// remoteAtOnce is how many frames are asked for at the same time where each is a request.
const remoteAtOnce = 16

func (d *Dataset) get(key string, kind robocache.Kind) (*stream, error) {
	s, ok := d.streams[key]
	if !ok {
		return nil, op.NoStream(key)
	}
	if err := op.Kind(key, s.feature.Kind, kind); err != nil {
		return nil, err
	}
	return s, nil
}

// each runs fn for rows on all cores: frames are files of their own.
func (d *Dataset) each(
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
	s, err := d.get(key, robocache.KindNumeric)
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
			d.lang.embedding(d.eps[r.Episode], r.Index, dst[i*size:(i+1)*size])
		}
		return nil
	}
	if err := d.checkLacking(s, rows); err != nil {
		return err
	}
	m := &d.members[s.member]
	// What is kept is copied at once; files are opened for the rest alone.
	var missing []robocache.Row
	var positions []int
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
		if f, ok := d.cache.Peek(d.frameID(d.eps[r.Episode], r.Index)); ok && f.bad == nil {
			copy(dst[i*size:(i+1)*size], f.numbers[m.offset:])
			continue
		}
		missing, positions = append(missing, r), append(positions, i)
	}
	if err := d.each(ctx, missing, func(ctx context.Context, k int) (err error) {
		e, row := d.eps[missing[k].Episode], missing[k].Index
		f, _, err := d.open(ctx, e, row, false)
		if err != nil {
			return err
		}
		defer robocache.LocateIn(&err, "file", d.name(e, row))
		if err := f.check(s.member); err != nil {
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

// Frames gives the pixels of images: of stored members they are the file's bytes, as they were
// read.
func (d *Dataset) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	return d.frames(ctx, key, rows, out, func(n int64) []byte { return make([]byte, n) })
}

// LeaseFrames is Frames without garbage: pixels lie in memory that is used again after done.
func (d *Dataset) LeaseFrames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (done func(), err error) {
	l := lease.Get()
	if err := d.frames(ctx, key, rows, out, l.Room); err != nil {
		l.Done()
		return nil, err
	}
	return l.Done, nil
}

func (d *Dataset) frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
	room func(n int64) []byte,
) (err error) {
	defer crash.Recover("calvin frames", &err)
	s, err := d.get(key, robocache.KindImage)
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
	if err := d.each(ctx, rows, func(ctx context.Context, i int) error {
		ft := s.feature
		image, err := d.image(ctx, d.eps[rows[i].Episode], rows[i].Index, s, room)
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

// image gives the pixels of a stream in a frame.
func (d *Dataset) image(
	ctx context.Context,
	e episode,
	row int,
	s *stream,
	room func(n int64) []byte,
) (_ []byte, err error) {
	f, h, err := d.open(ctx, e, row, true)
	if err != nil {
		return nil, err
	}
	defer d.files.Put(h)
	if f.bad != nil {
		defer robocache.LocateIn(&err, "file", d.name(e, row))
		if err := f.check(s.member); err != nil {
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
			data, err := m.data(byteIn)
			if err != nil {
				return err
			}
			array = data
			return nil
		}()
		if err != nil {
			return array, robocache.At(err, robocache.Where{"file": d.name(e, row)})
		}
		return array, nil
	}
	if ft.Channels == m.channels() {
		return load(room)
	}
	size := ft.DType.Size()
	part := room(int64(ft.Height * ft.Width * ft.Channels * size))
	shared, err := d.shared(h, s.member, load)
	if err != nil {
		return nil, err
	}
	channels(part, shared[s.from*size:], m.channels()*size, ft.Channels*size)
	return part, nil
}

// channels copies width bytes of every step bytes of src.
func channels(dst, src []byte, step, width int) {
	// CALVIN's own arrays, by pixels side by side. Of three bytes four are written: the next
	// pixel's are written over the last.
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
