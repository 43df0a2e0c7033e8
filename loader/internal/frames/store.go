// Package frames finds, decodes and keeps frames of videos for batches.
//
// # Contract
//
//	F1  There is one store: frames of episodes that are resident in a pool stay until their last use, those of the RAM cache for good, both in one
//	    arena; behind it lies the cache directory. A place asks for its frame once (Worker.Want) and is served once: Put and Done, or Lose.
//	F2  There is one decode path. What no store has is decoded in tasks: neighbouring frames of one file. Whether somebody waits for a frame, or it
//	    only becomes resident, decides how urgent its task is, and nothing else.
//	F3  Whether a frame can be had does not depend on its neighbours: what a task did not get is tried alone, for its own error.
//	F4  A frame of the store is to the bit what decoding gives. What has no room is decoded again when it is wanted.
//	F5  Of files that are far away packets are read ahead within a budget; waiting for a store holds no core and no decoder.
//	F6  Of a column on a device, planes and pixels stay there, within a budget of its own; what has no room is as on the host.
package frames

import (
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/video"
)

// Stream is one stream of frames and how its frames become pixels.
type Stream struct {
	ID        int32 // unique among the streams of all sources
	Files     Files
	FrameSize int    // bytes of a frame that is kept as pixels
	Recipe    string // what decides the pixels besides the file; "": not kept in a cache directory
	Renderer  Renderer
	Device    DeviceRenderer // pixels are in its memory; nil: on the host

	// Check rejects a frame for a place before the frame is looked up, since the store does not record
	// who has checked a frame that it keeps. nil: every frame is accepted.
	Check func(w *Worker, f File, to Target, k, ordinal int) error
}

// A Renderer writes frames as pixels, where Target.Into says. It rejects frames of a size that cannot be
// used. Its methods are safe for concurrent use.
type Renderer interface {
	// Render writes a decoded frame.
	Render(f video.Frame, dst []byte) error
	// RenderPlanes writes a frame whose planes were kept on the host.
	RenderPlanes(info video.PlaneInfo, planes, dst []byte) error
}

// A DeviceRenderer also makes pixels of planes that are in the memory of its device.
type DeviceRenderer interface {
	Renderer
	// Memory returns the memory of the device.
	Memory() video.DeviceMemory
	// RendersPlanes reports whether the device makes pixels of planes of this form.
	RendersPlanes(info video.PlaneInfo) bool
	// RenderKept writes several frames of one form, whose planes are in the device's memory.
	RenderKept(info video.PlaneInfo, planes, dst [][]byte) error
}

// Target is where frames of one column go: what one source gives to one batch.
type Target interface {
	BatchNumber() int64                              // of the batch
	Epoch() int64                                    // of the batch; those that are asked for together are of one
	Buffer(w *Worker, k int) []byte                  // where the frame of place k is made: the place itself, or scratch where it is changed on the way
	Put(k int, pixels []byte)                        // brings a frame that was made to place k
	Complete(n int)                                  // counts places that have their frames
	Fail(k int, path string, ordinal int, err error) // counts a place whose frame cannot be had
}

// Config is what a store is made of.
type Config struct {
	KeptBytes      int64             // bytes of memory for frames of residents and of the RAM cache; 0: neither
	DeviceBytes    int64             // likewise, of a device's memory
	DeviceMemory   buffers.Allocator // which that is
	CacheBytes     int64             // of them, for the cache
	KeepPlanes     bool              // keep the decoder's planes where they can be kept; else pixels
	Dir            *cache.Dir        // of decoded frames; may be nil
	Cores          int               // files may be far away: so many workers decode at once, the others read; 0: none is
	ReadAheadBytes int64             // bytes that may be read ahead
	Warn           func(string)
}

// Counters are what statistics sum up. Times are nanoseconds.
type Counters struct {
	Plan, Decode, Convert, Copy, Fetch atomic.Int64
	Frames, Unique                     atomic.Int64
}

// Store keeps decoded frames, and decodes what it does not have.
type Store struct {
	Counters    Counters
	planar      bool
	cacheLimit  int64        // for the cache; 0 = no cache
	arena       *arena       // nil: nothing is kept in memory
	deviceArena *arena       // on a device, before arena; nil: none is
	disk        *diskCache   // nil: no cache directory of frames
	remote      *remoteReads // nil: all files are at hand
	warn        func(string)

	mu sync.Mutex
	contents
}

// contents is what a store has. It is guarded by Store.mu.
type contents struct {
	frames      map[frameKey]*frame
	files       map[fileKey]int32
	cachedBytes int64 // bytes of the cache
	counts      struct {
		hits, misses int64 // places whose frames were, or were not, there or on their way
		refused      int64 // frames for which there was no room
		full         int64 // frames that the cache had no room for
	}
}

// New makes a store.
func New(c Config) *Store {
	s := &Store{planar: c.KeepPlanes, cacheLimit: c.CacheBytes, warn: c.Warn}
	s.contents = contents{frames: map[frameKey]*frame{}, files: map[fileKey]int32{}}
	if c.KeptBytes > 0 || c.DeviceBytes > 0 {
		s.arena = newArena(c.KeptBytes, buffers.Mappings{})
		if c.DeviceBytes > 0 {
			s.deviceArena = newArena(c.DeviceBytes, c.DeviceMemory)
		}
	}
	if c.Dir != nil {
		s.disk = &diskCache{dir: c.Dir, files: map[fileKey]cache.Key{}}
	}
	if c.Cores > 0 {
		s.remote = &remoteReads{cores: make(chan struct{}, c.Cores), bytes: semaphore.NewWeighted(c.ReadAheadBytes)}
	}
	return s
}

// TakeCore takes a core where there are more workers than cores; the function that it gives hands it back.
func (s *Store) TakeCore() func() { return s.remote.takeCore() }

// frameKey names a frame: which file of which column, which frame there.
type frameKey struct{ column, file, ordinal int32 }

type fileKey struct {
	column int32
	path   string
}

type frameState uint8

const (
	pending frameState = iota // a task will bring it
	ready
	unavailable // it cannot be had
)

// frame is one frame. Its fields are guarded by Store.mu; its bytes are written before it is ready, and not after.
type frame struct {
	key        frameKey
	state      frameState
	isIndexed  bool // in Store.have
	isPlanar   bool
	isOnDevice bool // its bytes are a device's
	isCached   bool // stays when nobody wants it any more
	uses       uses
	pins       int32 // who is reading its bytes
	info       video.PlaneInfo
	memory     piece
	size       int
	err        error
	waiters    []waiter
	task       *task // that will bring it
}

// uses counts the samples of a pool that are still to take a frame: of even epochs, and of odd ones, since an epoch begins before the last has ended.
type uses [2]int32

func (u *uses) release(epoch int64, n int32) { u[epoch&1] = max(u[epoch&1]-n, 0) }

// waiter is a place that a frame goes to when it comes.
type waiter struct {
	target Target
	place  int32
}

// fileNumber gives the number of a file. s.mu is held.
func (s *Store) fileNumber(column int32, path string) int32 {
	k := fileKey{column, path}
	n, ok := s.files[k]
	if !ok {
		n = int32(len(s.files))
		s.files[k] = n
	}
	return n
}

// indexFrame notes that a frame will come. s.mu is held.
func (s *Store) indexFrame(x *frame) {
	x.isIndexed = true
	s.frames[x.key] = x
}

func (s *Store) unindexFrame(x *frame) {
	if x.isIndexed {
		x.isIndexed = false
		delete(s.frames, x.key)
	}
}

// unpin ends reading of a frame.
func (s *Store) unpin(x *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.pins--
	s.releaseIfUnused(x)
}

// releaseIfUnused lets go of a frame that nobody will want. s.mu is held.
func (s *Store) releaseIfUnused(x *frame) {
	if x.uses == (uses{}) && x.pins == 0 && len(x.waiters) == 0 && !x.isCached && x.state != pending {
		s.unindexFrame(x)
		s.freeMemory(x)
	}
}

func (s *Store) freeMemory(x *frame) {
	if x.isCached {
		s.cachedBytes -= ArenaBytes(x.size)
		x.isCached = false
	}
	if x.memory.slab != nil {
		x.memory.own.arena.freePiece(x.memory)
		x.memory = piece{}
	}
}

// reserveCache says whether a frame of so many bytes stays behind its waiters: in the cache, or for samples of a pool.
func (s *Store) reserveCache(x *frame, size int) bool {
	if s.arena == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.isIndexed {
		return false
	}
	x.size = size
	if s.cacheLimit > 0 && s.cachedBytes+ArenaBytes(size) <= s.cacheLimit {
		x.isCached = true
		s.cachedBytes += ArenaBytes(size)
	} else if s.cacheLimit > 0 {
		s.counts.full++
	}
	return x.isCached || x.uses != (uses{})
}

// allocateOnDevice gives a frame room on the device; false where there is none: its memory is others' too.
func (s *Store) allocateOnDevice(x *frame) bool {
	if s.deviceArena == nil || x.memory.slab != nil {
		return x.isOnDevice
	}
	at, have, err := s.deviceArena.allocate(x.size)
	if err != nil || !have {
		return false
	}
	x.memory, x.isOnDevice = at, true
	return true
}

// storeOnDevice is fill on the device that a column's pixels are on.
func (s *Store) storeOnDevice(x *frame, col *Stream, planes video.PlanarFrame, pixels []byte) (bool, error) {
	if planes == nil {
		if pixels == nil || !s.allocateOnDevice(x) {
			return false, nil
		}
		return true, col.Device.Memory().Copy([][]byte{x.memory.mem[:x.size]}, [][]byte{pixels})
	}
	info, _ := planes.PlaneInfo()
	if !col.Device.RendersPlanes(info) || !s.allocateOnDevice(x) {
		return false, nil
	}
	x.isPlanar, x.info = true, info
	if own, is := planes.(video.DeviceFrame); is {
		return true, own.KeepPlanes(x.memory.mem[:x.size])
	}
	room := uploads.Get().(*[]byte)
	defer uploads.Put(room)
	*room = slices.Grow((*room)[:0], x.size)[:x.size]
	if err := planes.CopyPlanes(*room); err != nil {
		return true, err
	}
	return true, col.Device.Memory().UploadPlanes(info, x.memory.mem[:x.size], *room)
}

// uploads are planes on their way from the host to a device.
var uploads = sync.Pool{New: func() any { return new([]byte) }}

// storeFrame writes a frame into memory of an arena: planes, or, where planes is nil, pixels. It is false where there is no room.
func (s *Store) storeFrame(x *frame, col *Stream, planes video.PlanarFrame, pixels []byte) (bool, error) {
	if col.Device != nil {
		if stored, err := s.storeOnDevice(x, col, planes, pixels); stored {
			return err == nil, err
		}
		if planes == nil { // pixels that the host cannot read, or none
			return s.countRefused(), nil
		}
	}
	at, have, err := s.arena.allocate(x.size)
	if err != nil || !have {
		return s.countRefused(), err
	}
	x.memory = at
	if planes == nil {
		video.CopyPixels(at.mem[:x.size], pixels)
		return true, nil
	}
	x.isPlanar = true
	x.info, _ = planes.PlaneInfo()
	err = planes.CopyPlanes(at.mem[:x.size])
	return err == nil, err
}

// countRefused counts a frame that there is no room for.
func (s *Store) countRefused() (stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.refused++
	return false
}

// publish publishes a frame that was pending, and gives those who wait for it. The caller serves them, and then calls done: the frame is pinned
// for it. Where stored is false the frame is only for those who wait: the next who wants it decodes it anew.
func (s *Store) publish(x *frame, stored bool) []waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := x.waiters
	x.waiters, x.task, x.state = nil, nil, ready
	x.pins++
	if !stored {
		x.uses = uses{}
		s.unindexFrame(x)
		s.freeMemory(x)
	}
	return wait
}

// markFailed says that a frame cannot be had, and gives those who wait for it.
func (s *Store) markFailed(x *frame, err error) []waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := x.waiters
	x.waiters, x.task = nil, nil
	x.state, x.err = unavailable, err
	s.releaseIfUnused(x)
	return wait
}

// Reset forgets all but the cache. Nobody works at any batch.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.frames {
		x.waiters, x.uses, x.pins, x.task = nil, uses{}, 0, nil
		if x.state != ready || !x.isCached {
			s.unindexFrame(x)
			s.freeMemory(x)
		}
	}
}

// Close unmaps the memory.
func (s *Store) Close() {
	if s.arena != nil {
		s.arena.unmapAll()
	}
	if s.deviceArena != nil {
		s.deviceArena.unmapAll()
	}
}

// Stats is what a store holds and did.
type Stats struct {
	Limit, Bytes, Peak int64 // of memory for frames
	// of a device's memory
	DeviceLimit, DeviceBytes, DevicePeak int64

	Resident int64 // frames
	Refused  int64 // for which there was no room: decoded again when wanted
	Cache    *CacheStats
}

// CacheStats is what a cache did. Frames that are wanted are hits or misses.
type CacheStats struct {
	Where  string  `json:"where"`  // "ram" or the directory
	Format string  `json:"format"` // "yuv", "rgb" or "encoded"
	Hits   int64   `json:"hits"`
	Misses int64   `json:"misses"`
	Rate   float64 `json:"hit_rate"`
	Bytes  int64   `json:"bytes"`
	Budget int64   `json:"budget_bytes"`
	Full   bool    `json:"full,omitempty"`  // what came last found no room
	Error  string  `json:"error,omitempty"` // why nothing more is written
}

// WithHitRate fills in the rate.
func (c *CacheStats) WithHitRate() *CacheStats {
	if n := c.Hits + c.Misses; n > 0 {
		c.Rate = float64(c.Hits) / float64(n)
	}
	return c
}

// DirectoryStats is what a cache directory says of itself.
func DirectoryStats(dir *cache.Dir, where, format string) *CacheStats {
	d := dir.Stats()
	return &CacheStats{Where: where, Format: format, Hits: d.Hits, Misses: d.Misses, Bytes: d.Bytes, Budget: d.Budget, Full: d.Full, Error: d.Stopped}
}

// Stats says what was done so far. where is what the cache is called: "ram", "device", or its directory.
func (s *Store) Stats(where string) (out Stats) {
	format := "rgb"
	if s.planar {
		format = "yuv"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena != nil {
		out.Bytes, _, out.Peak = s.arena.usage()
		out.Limit, out.Resident, out.Refused = s.arena.limit, int64(len(s.frames)), s.counts.refused
	}
	if s.deviceArena != nil {
		out.DeviceBytes, _, out.DevicePeak = s.deviceArena.usage()
		out.DeviceLimit = s.deviceArena.limit
	}
	if s.cacheLimit > 0 {
		out.Cache = (&CacheStats{Where: where, Format: format, Hits: s.counts.hits, Misses: s.counts.misses, Bytes: s.cachedBytes, Budget: s.cacheLimit, Full: s.counts.full > 0}).WithHitRate()
	}
	if s.disk != nil {
		out.Cache = DirectoryStats(s.disk.dir, where, format)
		out.Cache.Hits, out.Cache.Misses = s.disk.hits.Load(), s.disk.misses.Load()
		out.Cache.WithHitRate()
	}
	return out
}

// sortByOrdinal lists frames of one file by their numbers.
func sortByOrdinal(list []*frame) []*frame {
	slices.SortFunc(list, byOrdinal)
	return list
}

func byOrdinal(a, b *frame) int { return int(a.key.ordinal) - int(b.key.ordinal) }

// findFrame finds a frame among some of one file.
func findFrame(list []*frame, ordinal int) *frame {
	i, ok := slices.BinarySearchFunc(list, ordinal, func(x *frame, o int) int { return int(x.key.ordinal) - o })
	if !ok {
		return nil
	}
	return list[i]
}
