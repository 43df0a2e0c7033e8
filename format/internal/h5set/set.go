package h5set

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

const (
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20
)

// Episode is one episode of a set: a group of a file.
type Episode struct {
	File   *h5.File
	Group  uint64 // address of its group
	Path   string // of the group, for errors
	Index  int64  // its number in the dataset
	Length int
	// Acts says that the length is that of the actions: what was observed may have one row more, that after the last action.
	Acts bool
	// Others says that data sets of another length are streams too, each length a clock of its own.
	Others bool
	Tasks  []string
	// Aliases are other names of the task.
	Aliases []string
	// Times are timestamps that the file holds: the data set below the group; "" where it holds none.
	Times string
}

// Set is a dataset made of groups of HDF5 files. A format makes one, fills in Info, Streams and Episodes, and calls Ready.
type Set struct {
	Info_    *robocache.Info
	Streams  []Stream
	Episodes []Episode
	// StampUnit is what a number of Episode.Times stands for, in seconds.
	TimestampUnit float64

	st    store.Store
	pool  *pool
	cache *h5.Cache
	limit int64
	byKey map[string]int

	opened  []atomic.Pointer[opened]
	held    atomic.Int64
	keepLow bool // numbers that are stored plainly fit into the cache
	keepAll bool // and so do images
}

var _ interface {
	robocache.Dataset
	robocache.FrameLeaser
} = (*Set)(nil)

// New makes a set over a store, which it closes.
func New(s store.Store, format, uri string, opt robocache.OpenOptions) *Set {
	budget := opt.MemoryBudget
	if budget <= 0 {
		budget = defaultBudget
	}
	budget = max(budget, smallestBudget)
	return &Set{Info_: &robocache.Info{URI: uri, Format: format, FPS: opt.HZ}, st: s, cache: h5.NewCache(budget - budget/8), limit: budget, pool: newPool(s), TimestampUnit: 1}
}

// Ready ends the making of a set.
func (s *Set) Ready() error {
	s.byKey = map[string]int{}
	for i := range s.Streams {
		f := &s.Streams[i].Feature
		f.FPS = s.Info_.FPS
		if _, twice := s.byKey[f.Key]; twice {
			return &robocache.Error{Class: robocache.ErrMalformed, Op: s.Info_.Format, Where: robocache.Where{"stream": f.Key}, Msg: "two data sets would have this name"}
		}
		s.byKey[f.Key] = i
		s.Info_.Features = append(s.Info_.Features, *f)
	}
	s.Info_.Episodes = len(s.Episodes)
	s.Info_.Frames = 0
	tasks := map[string]bool{}
	for i := range s.Episodes {
		e := &s.Episodes[i]
		s.Info_.Frames += int64(e.Length)
		for _, t := range e.Tasks {
			if !tasks[t] {
				tasks[t] = true
				s.Info_.Tasks = append(s.Info_.Tasks, robocache.Task{Index: int64(len(s.Info_.Tasks)), Text: t})
			}
		}
	}
	s.opened = make([]atomic.Pointer[opened], len(s.Episodes))
	s.plan()
	return nil
}

// plan decides what of the data that is stored plainly is worth keeping: what fits.
func (s *Set) plan() {
	var low, all int64
	for i := range s.Streams {
		f := &s.Streams[i]
		n := int64(f.Elements()*f.DType.Size()) * s.Info_.Frames
		if f.How == Numbers {
			low += n
		}
		all += n
	}
	room := s.cache.Budget() / 2
	s.keepLow, s.keepAll = low <= room, all <= room
}

// Info is what the set says of itself.
func (s *Set) Info() *robocache.Info { return s.Info_ }

// Len is the number of rows of an episode.
func (s *Set) Len(episode int) int {
	if episode < 0 || episode >= len(s.Episodes) {
		return 0
	}
	return s.Episodes[episode].Length
}

// Episode gives the metadata of an episode.
func (s *Set) Episode(_ context.Context, episode int) (robocache.Episode, error) {
	if err := s.check(episode); err != nil {
		return robocache.Episode{}, err
	}
	e := &s.Episodes[episode]
	return robocache.Episode{Position: episode, Index: e.Index, Length: e.Length, Tasks: e.Tasks, Aliases: e.Aliases}, nil
}

func (s *Set) check(episode int) error {
	if episode < 0 || episode >= len(s.Episodes) {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format, Where: robocache.Where{"episode": episode}, Want: fmt.Sprintf("an episode from 0 to %d", len(s.Episodes)-1), Got: fmt.Sprint(episode)}
	}
	return nil
}

// Stats is nil: such files bring none.
func (s *Set) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close closes the files and the store.
func (s *Set) Close() error { return errors.Join(s.pool.close(), store.Close(s.st)) }

// Store gives the bytes below the dataset.
func (s *Set) Store() store.Store { return s.st }

// CacheStats says what the cache of chunks and rows holds and did.
func (s *Set) CacheStats() h5.CacheStats { return s.cache.Stats() }

// LimitMemory lowers the budget.
func (s *Set) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	if bytes < s.limit {
		s.limit = bytes
		s.cache.Limit(bytes - bytes/8)
		s.plan()
		s.forget()
	}
}

// MemoryBytes is what the set holds besides its cache.
func (s *Set) MemoryBytes() int64 { return int64(len(s.Episodes))*160 + s.held.Load() }

// opened are the data sets of an episode, parallel to Streams. An error stands where there is none that fits.
type opened struct {
	sets  []*h5.Dataset
	errs  []error
	bytes int64
}

// of opens the data sets of an episode: all at once, because they share the groups on the way.
func (s *Set) of(ctx context.Context, episode int) (*opened, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o := s.opened[episode].Load(); o != nil {
		return o, nil
	}
	o, err := s.open(ctx, episode)
	if err != nil {
		return nil, robocache.At(err, s.where(episode, ""))
	}
	if s.opened[episode].CompareAndSwap(nil, o) && s.held.Add(o.bytes) > max(s.limit/8, 256<<10) {
		s.forget()
	}
	return o, nil
}

// forget lets go of all open data sets: they are read again when they are wanted.
func (s *Set) forget() {
	for i := range s.opened {
		if o := s.opened[i].Swap(nil); o != nil {
			s.held.Add(-o.bytes)
		}
	}
}

func (s *Set) where(episode int, key string) robocache.Where {
	e := &s.Episodes[episode]
	w := robocache.Where{"episode": e.Index, "file": e.File.Name()}
	if key != "" {
		w["stream"] = key
	}
	return w
}

func (s *Set) open(ctx context.Context, episode int) (*opened, error) {
	e := &s.Episodes[episode]
	w, err := e.Walker(ctx)
	if err != nil {
		return nil, err
	}
	o := &opened{sets: make([]*h5.Dataset, len(s.Streams)), errs: make([]error, len(s.Streams)), bytes: int64(len(s.Streams)) * 24}
	same := map[string]*h5.Dataset{}
	clocks := map[string]int64{}
	for i := range s.Streams {
		st := &s.Streams[i]
		d := same[st.Path]
		if d == nil {
			if d, err = w.Dataset(ctx, st.Path); err != nil {
				if !Data(err) {
					return nil, err
				}
				o.errs[i] = err
				continue
			}
			same[st.Path] = d
			o.bytes += 600
		}
		length := int64(e.Length)
		if st.Clock != "" {
			if _, ok := clocks[st.Clock]; !ok {
				clocks[st.Clock] = d.Rows()
			}
			length = clocks[st.Clock]
		}
		if err := fits(st, d, length); err != nil {
			o.errs[i] = err
			continue
		}
		d.Keep = s.keepAll || st.How == Numbers && s.keepLow
		if s.keepAll && st.How == Numbers {
			o.bytes += d.Hold()
		}
		o.sets[i] = d
	}
	return o, nil
}

// Data says that an error is of the data, and not of the way to it.
func Data(err error) bool {
	return errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrUnsupported) || errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrResourceLimit)
}

// fits says whether a data set is a stream's, as the first episode had it, and has as many rows as the episode.
func fits(st *Stream, d *h5.Dataset, length int64) error {
	bad := func(want, got string) error {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "hdf5", Where: robocache.Where{"pointer": d.Name()}, Want: want, Got: got}
	}
	if err := d.Readable(); err != nil {
		return err
	}
	if err := st.matches(d); err != nil {
		return bad("rows as in the first episode", err.Error())
	}
	if st.After {
		length++
	}
	if d.Rows() != length {
		return bad(fmt.Sprintf("%d rows, as the episode has", length), fmt.Sprint(d.Rows()))
	}
	return nil
}

// dataset gives the data set of a stream in an episode.
func (s *Set) dataset(ctx context.Context, episode, stream int) (*h5.Dataset, error) {
	if err := s.check(episode); err != nil {
		return nil, err
	}
	o, err := s.of(ctx, episode)
	if err != nil {
		return nil, err
	}
	if err := o.errs[stream]; err != nil {
		return nil, robocache.At(err, s.where(episode, s.Streams[stream].Key))
	}
	return o.sets[stream], nil
}

func (s *Set) get(key string, kinds ...robocache.Kind) (int, error) {
	i, ok := s.byKey[key]
	if !ok {
		return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format, Where: robocache.Where{"stream": key}, Msg: "no such stream"}
	}
	for _, k := range kinds {
		if s.Streams[i].Kind == k {
			return i, nil
		}
	}
	if len(kinds) == 0 {
		return i, nil
	}
	return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format, Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("a stream of kind %s", kinds[0]), Got: string(s.Streams[i].Kind)}
}

// run says how many rows of a stream (-1: the episode's) from the first on follow each other in one episode, and checks that they are there.
func (s *Set) run(ctx context.Context, stream int, rows []robocache.Row) (int, error) {
	r := rows[0]
	if err := s.check(r.Episode); err != nil {
		return 0, err
	}
	length, err := s.length(ctx, r.Episode, stream)
	if err != nil {
		return 0, err
	}
	if r.Index < 0 || r.Index >= length {
		return 0, &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format, Where: robocache.Where{"episode": s.Episodes[r.Episode].Index, "row": r.Index}, Want: fmt.Sprintf("a row from 0 to %d", length-1), Got: fmt.Sprint(r.Index)}
	}
	n := 1
	for n < len(rows) && rows[n].Episode == r.Episode && rows[n].Index == r.Index+n && rows[n].Index < length {
		n++
	}
	return n, nil
}

var pieces = sync.Pool{New: func() any { return new([]h5.Piece) }}

// Gather copies rows of a stream of numbers into dst.
func (s *Set) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) (err error) {
	defer guard.Malformed(s.Info_.Format+" gather", &err)
	i, err := s.get(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	st := &s.Streams[i]
	size := st.RowBytes()
	if len(dst) != len(rows)*size {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: s.Info_.Format + " gather", Where: robocache.Where{"stream": key}, Want: fmt.Sprintf("%d bytes for %d rows", len(rows)*size, len(rows)), Got: fmt.Sprint(len(dst))}
	}
	var piece h5.Piece
	list := pieces.Get().(*[]h5.Piece)
	defer func() {
		clear(*list)
		*list = (*list)[:0]
		pieces.Put(list)
	}()
	for at := 0; at < len(rows); {
		n, err := s.run(ctx, i, rows[at:])
		if err != nil {
			return err
		}
		d, err := s.dataset(ctx, rows[at].Episode, i)
		if err != nil {
			return err
		}
		if st.field != "" {
			if err := st.extract(ctx, d, int64(rows[at].Index), dst[at*size:(at+n)*size]); err != nil {
				return s.placed(err, rows[at].Episode, key)
			}
		} else {
			piece = h5.Piece{D: d, Row: int64(rows[at].Index), N: int64(n), Dst: dst[at*size : (at+n)*size]}
			// The common case, all there: a copy.
			done, err := piece.Quick(ctx)
			if err != nil {
				return s.placed(err, rows[at].Episode, key)
			}
			if !done {
				*list = append(*list, piece)
			}
		}
		at += n
	}
	if err := h5.Read(ctx, *list); err != nil {
		return robocache.At(err, robocache.Where{"stream": key})
	}
	return nil
}

func (s *Set) placed(err error, episode int, key string) error {
	return robocache.At(err, s.where(episode, key))
}

// extract copies a field out of the elements of a compound.
func (st *Stream) extract(ctx context.Context, d *h5.Dataset, row int64, dst []byte) error {
	var field *h5.Type
	for _, m := range d.Type.Fields {
		if m.Name == st.field {
			field = m.Type
		}
	}
	for all := dst; len(all) > 0; {
		b, n, err := d.View(ctx, row, int64(len(all)/st.len))
		if err != nil {
			return err
		}
		for k := range int(n) {
			from := k*d.Type.Size + st.offset
			copy(all[k*st.len:], b[from:from+st.len])
		}
		all, row = all[int(n)*st.len:], row+n
	}
	field.Native(dst)
	return nil
}

// Text gives the rows of a text stream, and of "task" the episode's tasks.
func (s *Set) Text(ctx context.Context, key string, rows []robocache.Row) (out []string, err error) {
	defer guard.Malformed(s.Info_.Format+" text", &err)
	out = make([]string, len(rows))
	stream := -1
	if _, own := s.byKey[key]; own || key != "task" {
		if stream, err = s.get(key, robocache.KindText); err != nil {
			return nil, err
		}
	}
	for at := 0; at < len(rows); {
		n, err := s.run(ctx, stream, rows[at:])
		if err != nil {
			return nil, err
		}
		e := rows[at].Episode
		if stream < 0 {
			for k := range n {
				if t := s.Episodes[e].Tasks; len(t) > 0 {
					out[at+k] = t[0]
				}
			}
			at += n
			continue
		}
		d, err := s.dataset(ctx, e, stream)
		if err != nil {
			return nil, err
		}
		b, err := d.Bytes(ctx, int64(rows[at].Index), int64(n))
		if err != nil {
			return nil, s.placed(err, e, key)
		}
		for k := range b {
			out[at+k] = string(b[k])
		}
		at += n
	}
	return out, nil
}
