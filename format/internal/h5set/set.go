package h5set

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/recindex"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

const (
	defaultBudget  = 512 << 20
	smallestBudget = 1 << 20
)

// Episode is one episode of a set, stored in a group of a file.
type Episode struct {
	File   *h5.File
	Group  uint64 // address of the group
	Path   string // path of the group, for errors
	Index  int64  // number of the episode in the dataset
	Length int
	// Acts means that Length counts the actions. Observations may have one more row, which follows
	// the last action.
	Acts bool
	// Others means that data sets of other lengths are streams too. Each length is a separate
	// clock.
	Others bool
	Tasks  []string
	// Aliases are other names of the task.
	Aliases []string
	// Times is the path of the data set with timestamps below the group, or "".
	Times string
	// Source is the recording that the episode was made from, or nil if the file does not name it.
	Source *robocache.Origin
}

// SetTask sets the task of the episode, unless task is empty.
func (e *Episode) SetTask(task string) {
	if task != "" {
		e.Tasks = []string{task}
	}
}

// Set is a dataset over groups of HDF5 files. A format fills in About, Streams and Episodes during
// Open.
type Set struct {
	reader.Base
	Streams  []Stream
	Episodes []Episode
	// TimestampUnit is the unit of timestamps in seconds if the caller sets it. If it is 0, the
	// unit is inferred.
	TimestampUnit float64
	// TimesNamed reports that the caller names the timestamps of the rows.
	TimesNamed bool
	// Suffix is the end of the names of timestamps. With the usual suffix, the timestamps of
	// actions are actions_timestamps. It is "" until it is known.
	Suffix string
	// Constant reports whether a data set of one row holds for all rows of its episode; nil: none
	// does.
	Constant func(path string) bool

	units    map[string]unit // by path of the timestamps
	rowTimes string          // timestamps of the rows, found by Suffix; "" if there are none
	// noRowTimes means that rowTimes is constant and the rate is used instead.
	noRowTimes bool

	op          reader.Op
	pool        *filePool
	cache       *h5.Cache
	memoryLimit int64
	byKey       map[string]int
	hz          bool // the caller sets the rate of the rows

	opened    []atomic.Pointer[opened]
	heldBytes atomic.Int64
	keepLow   bool // numbers without filters fit into the cache
	keepAll   bool // numbers and images without filters fit into the cache
}

var _ robocache.Dataset = (*Set)(nil)

// Origin returns the recording that an episode was made from, or nil if the file does not name it.
func (s *Set) Origin(_ context.Context, e int) (*robocache.Origin, error) {
	if e < 0 || e >= len(s.Episodes) {
		return nil, nil
	}
	return s.Episodes[e].Source, nil
}

// Recording returns the name of the file that contains an episode.
func (s *Set) Recording(e int) string {
	if e < 0 || e >= len(s.Episodes) {
		return ""
	}
	return s.Episodes[e].File.Name()
}

// Open opens the dataset at uri. read finds the episodes and streams in the files names.
func Open(
	ctx context.Context,
	format, uri string,
	opt robocache.OpenOptions,
	read func(s *Set, names []string) error,
) (s *Set, err error) {
	defer crash.Recover(format+" open", &err)
	st, list, found, err := Find(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	var index *recindex.Session
	if list.IsFolder {
		if index, err = recindex.Begin(ctx, st, opt, list.HasIndex); err != nil {
			store.Close(st)
			return nil, err
		}
		index.SetListing(list.Files)
		st = index.WrapStore(st)
	}
	limit := reader.Budget(opt, defaultBudget, smallestBudget)
	s = &Set{
		Base: reader.Base{
			About: &robocache.Info{
				URI:      robocache.Redact(uri),
				Format:   format,
				FPS:      opt.HZ,
				Findings: found,
			},
			Bytes: st,
		},
		hz:          !opt.HZ.Zero(),
		op:          reader.Op(format),
		cache:       h5.NewCache(limit - limit/8),
		memoryLimit: limit,
		pool:        newPool(st),
	}
	s.Offered = robocache.Capabilities{
		Diagnose:    s.Diagnose,
		Lacks:       s.Lacks,
		LeaseFrames: s.LeaseFrames,
		LimitMemory: s.LimitMemory,
		Origin:      s.Origin,
		Recording:   s.Recording,
		Rows:        s.Rows,
	}
	err = func() error {
		if err := read(s, list.Names); err != nil {
			return err
		}
		if err := s.inferUnits(ctx); err != nil {
			return err
		}
		if err := s.applyChannelOrder(opt.Options["channel_order"], opt.Map); err != nil {
			return err
		}
		if err := s.finishOpening(); err != nil {
			return err
		}
		s.About.Findings = append(s.About.Findings, index.Finish()...)
		return nil
	}()
	if err != nil {
		s.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return s, nil
}

// finishOpening computes the features, tasks and indices after the streams and episodes are known.
func (s *Set) finishOpening() error {
	s.byKey = map[string]int{}
	for i := range s.Streams {
		f := &s.Streams[i].Feature
		if f.Clock == "" || s.Streams[i].times == "" { // the timestamps of a stream are not a rate
			f.FPS = s.About.FPS
		}
		if _, twice := s.byKey[f.Key]; twice {
			return robocache.Malformed(
				s.About.Format,
				robocache.Where{"stream": f.Key},
				"two data sets would have this name",
			)
		}
		s.byKey[f.Key] = i
		s.About.Features = append(s.About.Features, *f)
	}
	s.About.Episodes = len(s.Episodes)
	indices := make([]int64, len(s.Episodes))
	tasks := map[string]bool{}
	for i := range s.Episodes {
		e := &s.Episodes[i]
		s.About.Frames += int64(e.Length)
		indices[i] = e.Index
		for _, t := range e.Tasks {
			if !tasks[t] {
				tasks[t] = true
				s.About.Tasks = append(
					s.About.Tasks,
					robocache.Task{Index: int64(len(s.About.Tasks)), Text: t},
				)
			}
		}
	}
	s.About.NumberEpisodes(indices)
	s.opened = make([]atomic.Pointer[opened], len(s.Episodes))
	s.planKeeping()
	return nil
}

// planKeeping decides whether rows without filters are cached. They are if all of them fit.
func (s *Set) planKeeping() {
	var low, all int64
	for i := range s.Streams {
		f := &s.Streams[i]
		n := int64(
			float64(f.Elements()*f.DType.Size()) * float64(s.About.Frames) * cmp.Or(f.share, 1),
		)
		if f.How == Numbers {
			low += n
		}
		all += n
	}
	room := s.cache.Budget() / 2
	s.keepLow, s.keepAll = low <= room, all <= room
}

// Len returns the number of rows of an episode.
func (s *Set) Len(episode int) int {
	if episode < 0 || episode >= len(s.Episodes) {
		return 0
	}
	return s.Episodes[episode].Length
}

// Episode returns the metadata of an episode.
func (s *Set) Episode(_ context.Context, episode int) (robocache.Episode, error) {
	if err := s.op.Episode(len(s.Episodes), episode); err != nil {
		return robocache.Episode{}, err
	}
	e := &s.Episodes[episode]
	return robocache.Episode{
		Position: episode,
		Index:    e.Index,
		Length:   e.Length,
		Tasks:    e.Tasks,
		Aliases:  e.Aliases,
	}, nil
}

// Close closes the files and the store.
func (s *Set) Close() error { return errors.Join(s.pool.close(), store.Close(s.Bytes)) }

// CacheStats returns the counters of the cache of chunks and rows.
func (s *Set) CacheStats() h5.CacheStats { return s.cache.Stats() }

// LimitMemory lowers the budget.
func (s *Set) LimitMemory(bytes int64) {
	bytes = max(bytes, smallestBudget)
	if bytes < s.memoryLimit {
		s.memoryLimit = bytes
		s.cache.Limit(bytes - bytes/8)
		s.planKeeping()
		s.closeDataSets()
	}
}

// MemoryBytes returns the memory that the set uses in addition to its cache.
func (s *Set) MemoryBytes() int64 { return int64(len(s.Episodes))*160 + s.heldBytes.Load() }

// opened holds the data sets of an episode, parallel to Streams. A stream without a suitable data
// set has an error instead.
type opened struct {
	sets  []*h5.Dataset
	errs  []error
	bytes int64
}

// closeDataSets releases all open data sets. They are opened again when they are needed.
func (s *Set) closeDataSets() {
	for i := range s.opened {
		if o := s.opened[i].Swap(nil); o != nil {
			s.heldBytes.Add(-o.bytes)
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

// episodeDataset returns the data set of a stream in an episode. The data sets of all streams are
// opened together, because they share groups of their paths.
func (s *Set) episodeDataset(ctx context.Context, episode, stream int) (*h5.Dataset, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := s.opened[episode].Load()
	if o == nil {
		var err error
		o, err = s.openDataSets(ctx, episode)
		if err := robocache.At(err, s.where(episode, "")); err != nil {
			return nil, err
		}
		if s.opened[episode].CompareAndSwap(nil, o) &&
			s.heldBytes.Add(o.bytes) > max(s.memoryLimit/8, 256<<10) {
			s.closeDataSets()
		}
	}
	if err := o.errs[stream]; err != nil {
		return nil, robocache.At(err, s.where(episode, s.Streams[stream].Key))
	}
	return o.sets[stream], nil
}

func (s *Set) openDataSets(ctx context.Context, episode int) (*opened, error) {
	e := &s.Episodes[episode]
	w, err := e.Walker(ctx)
	if err != nil {
		return nil, err
	}
	o := &opened{
		sets:  make([]*h5.Dataset, len(s.Streams)),
		errs:  make([]error, len(s.Streams)),
		bytes: int64(len(s.Streams)) * 24,
	}
	same := map[string]*h5.Dataset{}
	clocks := map[string]clockRows{}
	for i := range s.Streams {
		st := &s.Streams[i]
		if s.lacksStream(i, episode) {
			o.errs[i] = s.op.Lacks(nil)
			continue
		}
		if o.errs[i], err = Tolerate(func() error {
			d := same[st.Path]
			if d == nil {
				var err error
				if d, err = w.Dataset(st.Path); err != nil {
					return err
				}
				same[st.Path] = d
				o.bytes += 600
			}
			length := int64(e.Length)
			if st.Clock != "" || st.times != "" {
				var err error
				if length, err = s.rowsOfClock(w, st, d, clocks); err != nil {
					return err
				}
			}
			if err := st.checkFit(d, length); err != nil {
				return err
			}
			d.Keep = s.keepAll || st.How == Numbers && s.keepLow
			if s.keepAll && st.How == Numbers {
				o.bytes += d.Hold()
			}
			o.sets[i] = d
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// BadData is an error in the data, or in its size, that the caller reports or skips.
type BadData error

// Tolerate runs fn. It returns an error in the data, or in its size, as BadData. Any other error is
// returned as err and ends the work.
func Tolerate(fn func() error) (BadData, error) {
	err := fn()
	if robocache.IsFatal(err) {
		return nil, err
	}
	if err != nil && !robocache.Bad(err) && !errors.Is(err, robocache.ErrResourceLimit) {
		return nil, err
	}
	return err, nil
}

// streamIndex returns the index of the stream key. If kinds are given, it returns an error unless
// the stream has one of them.
func (s *Set) streamIndex(key string, kinds ...robocache.Kind) (int, error) {
	i, ok := s.byKey[key]
	if !ok {
		return 0, robocache.Misuse(s.About.Format, robocache.Where{"stream": key}, "no such stream")
	}
	if len(kinds) > 0 {
		if err := s.op.Kind(key, s.Streams[i].Kind, kinds...); err != nil {
			return 0, err
		}
	}
	return i, nil
}

// openEpisodes opens the data sets of remote episodes in parallel. It ignores errors: they are
// reported when the episode is read.
func (s *Set) openEpisodes(ctx context.Context, rows []robocache.Row) error {
	if !robocache.IsRemote(s.Bytes) {
		return nil
	}
	var list []int
	for _, r := range rows {
		if r.Episode >= 0 && r.Episode < len(s.opened) && s.opened[r.Episode].Load() == nil {
			list = append(list, r.Episode)
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > 1 {
		if err := Each(ctx, s.About.Format, len(list), func(ctx context.Context, i int) error {
			_ = func() error {
				if _, err := s.episodeDataset(ctx, list[i], 0); err != nil {
					return err
				}
				return nil
			}()
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// forEachRun divides rows into runs of consecutive rows of one episode. It calls each with the n
// rows from rows[at] on and their data set. If stream is -1, there is no data set.
func (s *Set) forEachRun(
	ctx context.Context,
	stream int,
	rows []robocache.Row,
	each func(at, n int, d *h5.Dataset) error,
) error {
	if stream >= 0 {
		if err := s.openEpisodes(ctx, rows); err != nil {
			return err
		}
	}
	for at := 0; at < len(rows); {
		r := rows[at]
		if err := s.op.Episode(len(s.Episodes), r.Episode); err != nil {
			return err
		}
		length, err := s.rowCount(ctx, r.Episode, stream)
		if err != nil {
			return err
		}
		if err := s.op.Row(s.About, length, r); err != nil {
			return err
		}
		n := 1
		for at+n < len(rows) && rows[at+n].Episode == r.Episode &&
			rows[at+n].Index == r.Index+n && r.Index+n < length {
			n++
		}
		var d *h5.Dataset
		if stream >= 0 {
			if d, err = s.episodeDataset(ctx, r.Episode, stream); err != nil {
				return err
			}
		}
		if err := each(at, n, d); err != nil {
			return robocache.At(err, s.where(r.Episode, s.Streams[stream].Key))
		}
		at += n
	}
	return nil
}

var pieces = sync.Pool{New: func() any { return new([]h5.Piece) }}

// Gather copies rows of a numeric stream into dst.
func (s *Set) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover(s.About.Format+" gather", &err)
	i, err := s.streamIndex(key, robocache.KindNumeric)
	if err != nil {
		return err
	}
	st := &s.Streams[i]
	size := st.RowBytes()
	if err := s.op.Room(key, "bytes", len(rows)*size, len(dst)); err != nil {
		return err
	}
	list := pieces.Get().(*[]h5.Piece)
	defer func() {
		clear(*list)
		*list = (*list)[:0]
		pieces.Put(list)
	}()
	if err := s.forEachRun(ctx, i, rows, func(at, n int, d *h5.Dataset) error {
		to := dst[at*size : (at+n)*size]
		if st.constant {
			if err := h5.Read(ctx, []h5.Piece{{D: d, N: 1, Dst: to[:size]}}); err != nil {
				return err
			}
			for k := size; k < len(to); k += size {
				copy(to[k:], to[:size])
			}
			return nil
		}
		if st.field != "" {
			return st.extractField(ctx, d, int64(rows[at].Index), to)
		}
		*list = append(*list, h5.Piece{D: d, Row: int64(rows[at].Index), N: int64(n), Dst: to})
		return nil
	}); err != nil {
		return err
	}
	return robocache.At(h5.Read(ctx, *list), robocache.Where{"stream": key})
}

// extractField copies one field out of the elements of a compound.
func (st *Stream) extractField(ctx context.Context, d *h5.Dataset, row int64, dst []byte) error {
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
	field := slices.IndexFunc(d.Type.Fields, func(m h5.Member) bool { return m.Name == st.field })
	d.Type.Fields[field].Type.Native(dst)
	return nil
}

// Text returns the rows of a text stream. For the key "task" it returns the task of the episode.
func (s *Set) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover(s.About.Format+" text", &err)
	out = make([]string, len(rows))
	stream := -1
	if _, own := s.byKey[key]; own || key != "task" {
		if stream, err = s.streamIndex(key, robocache.KindText); err != nil {
			return out, err
		}
	}
	if err := s.forEachRun(ctx, stream, rows, func(at, n int, d *h5.Dataset) error {
		if stream < 0 {
			if t := s.Episodes[rows[at].Episode].Tasks; len(t) > 0 {
				for k := range n {
					out[at+k] = t[0]
				}
			}
			return nil
		}
		b, err := d.Bytes(ctx, int64(rows[at].Index), int64(n))
		for k := range b {
			out[at+k] = string(b[k])
		}
		return err
	}); err != nil {
		return out, err
	}
	return out, nil
}
