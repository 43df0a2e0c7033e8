// Package frames finds, decodes and caches the video frames of batches.
//
// # Contract
//
//	frames.F1  There is one store. Frames of episodes in a shuffle pool stay until their last use;
//	           frames of the RAM cache stay for good. Both are in one arena. A cache directory
//	           is looked up after it. A slot requests its frame once (Worker.RequestFrames) and
//	           is served once: by Put and Complete, or by Fail.
//	frames.F2  There is one decode path. Frames that no store holds are decoded in tasks of
//	           neighboring frames of one file. A waiting slot only raises a task's priority.
//	frames.F3  Whether a frame can be decoded does not depend on its neighbors. A frame that its
//	           task did not deliver is decoded alone and fails with its own error.
//	frames.F4  A stored frame is bit-identical to a decoded one. A frame for which there is no
//	           memory is decoded again at its next request.
//	frames.F5  Packets of remote files are read ahead within a byte budget. A read that waits for
//	           a store occupies no core and no decoder.
//	frames.F6  Planes and pixels of a column on a device stay in device memory, within a separate
//	           budget. Frames above that budget are stored as on the host.
//
// A frame changes from pending to ready or failed once, and its waiters are served at that moment.
// Pixels are written before a frame is ready and never after, so a reader needs only a pin. All
// other bookkeeping is guarded by Store.mu.
package frames

import (
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/buffers"
	"github.com/goatnote-inc/robocache/video"
)

// Stream is one column's sequence of frames and the rule that turns them into pixels.
type Stream struct {
	ID        int32 // unique among the streams of all sources
	Files     Files
	FrameSize int // bytes of a frame that is stored as pixels
	// identifies the pixel format and size; "" keeps frames out of the cache directory
	Recipe   string
	Renderer Renderer
	Device   DeviceRenderer // holds the pixels in its memory; nil: pixels are on the host

	// Check rejects a frame for a slot. It runs before each lookup, because a stored frame does not
	// record for which slots it was checked. nil accepts every frame.
	Check func(w *Worker, f File, to Target, k, ordinal int) error
}

// A Renderer writes frames as pixels into the memory that Target.Buffer returns. It rejects frames
// whose size cannot be used. Safe for concurrent use.
type Renderer interface {
	// Render writes the pixels of a decoded frame to dst.
	Render(f video.Frame, dst []byte) error
	// RenderPlanes writes the pixels of a frame whose planes are stored on the host.
	RenderPlanes(info video.PlaneInfo, planes, dst []byte) error
}

// A DeviceRenderer also renders planes that are in the memory of its device. Safe for concurrent
// use.
type DeviceRenderer interface {
	Renderer
	// Memory returns the memory of the device.
	Memory() video.DeviceMemory
	// RendersPlanes reports whether the device can render planes of this layout.
	RendersPlanes(info video.PlaneInfo) bool
	// RenderKept renders several frames of one plane layout. Planes and destinations are device
	// memory.
	RenderKept(info video.PlaneInfo, planes, dst [][]byte) error
}

// Target receives the frames of one column for one source's part of a batch. Safe for concurrent
// use.
type Target interface {
	// BatchNumber returns the number of the batch. It is the priority of the batch's jobs.
	BatchNumber() int64
	// Epoch returns the batch's epoch. All targets of one RequestFrames call have the same epoch.
	Epoch() int64
	// Buffer returns the memory that the frame of slot k is rendered into: the slot itself, or w's
	// scratch if the frame is transformed later.
	Buffer(w *Worker, k int) []byte
	// Put stores rendered pixels in slot k.
	Put(k int, pixels []byte)
	// Complete marks n slots as finished.
	Complete(n int)
	// Fail marks slot k as finished with err. path and ordinal name the frame.
	Fail(k int, path string, ordinal int, err error)
}

// Config holds the options of a store.
type Config struct {
	// bytes of host memory for pool frames and the RAM cache; 0 stores none
	KeptBytes    int64
	DeviceBytes  int64             // the same of device memory
	DeviceMemory buffers.Allocator // allocates device memory
	CacheBytes   int64             // bytes of KeptBytes or DeviceBytes that the cache may use
	KeepPlanes   bool              // store the decoder's planes if possible, else pixels
	Dir          *cache.Dir        // cache directory of decoded frames; may be nil
	// workers that decode at once if files are remote; 0: no file is remote
	Cores          int
	ReadAheadBytes int64 // budget of packets that are read ahead
	Warn           func(string)
}

// Store holds decoded frames and decodes the frames that it does not hold. Safe for concurrent use.
type Store struct {
	Counters    Counters
	planar      bool         // Config.KeepPlanes
	cacheLimit  int64        // bytes of the cache; 0: no cache
	arena       *arena       // nil: no frame is stored in host memory
	deviceArena *arena       // tried before arena; nil: no device
	disk        *diskCache   // nil: no cache directory of frames
	remote      *remoteReads // nil: no file is remote
	warn        func(string)

	mu sync.Mutex
	contents
}

// contents is the index of a store. Guarded by Store.mu.
type contents struct {
	frames      map[frameKey]*frame
	files       map[fileKey]int32
	cachedBytes int64 // bytes of cached frames
	counts      struct {
		// slots whose frames were stored or pending, and slots whose frames were not
		hits, misses int64
		refused      int64 // frames that were not stored for lack of memory
		full         int64 // frames that exceeded the cache budget
	}
}

// New returns an empty store. The caller must call Close.
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
		s.disk = &diskCache{dir: c.Dir, prefixes: map[fileKey]cache.Key{}}
	}
	if c.Cores > 0 {
		s.remote = &remoteReads{
			coreTokens:     make(chan struct{}, c.Cores),
			readAheadBytes: semaphore.NewWeighted(c.ReadAheadBytes),
		}
	}
	return s
}

// TakeCore blocks until one of Config.Cores is free. The caller must call the returned function to
// release it. TakeCore does not block if no file is remote.
func (s *Store) TakeCore() func() { return s.remote.takeCore() }

// frameKey identifies a frame by column, file and number in the file.
type frameKey struct{ column, file, ordinal int32 }

type fileKey struct {
	column int32
	path   string
}

type frameState uint8

const (
	pending frameState = iota // a task decodes it
	ready
	failed // its error is in frame.err
)

// frame is one frame of a store. Its fields are guarded by Store.mu. Its bytes are written before
// state becomes ready, and never after.
type frame struct {
	key        frameKey
	state      frameState
	isIndexed  bool // in Store.frames
	isPlanar   bool
	isOnDevice bool  // its bytes are device memory
	isCached   bool  // stays without users
	uses       uses  // samples of a pool that still need it
	pins       int32 // readers of its bytes
	info       video.PlaneInfo
	memory     piece
	size       int
	err        error
	waiters    []waiter
	task       *task // decodes it; nil: not planned yet, or done
}

// uses counts the samples of a pool that still need a frame. Index 0 counts samples of even epochs
// and index 1 samples of odd epochs, because an epoch begins before the previous one has ended.
type uses [2]int32

func (u *uses) subtractUses(epoch int64, n int32) { u[epoch&1] = max(u[epoch&1]-n, 0) }

// waiter is a slot that waits for a pending frame.
type waiter struct {
	target Target
	slot   int32
}

// fileNumber returns the number of a column's file and assigns one at the first call. Caller must
// hold s.mu.
func (s *Store) fileNumber(column int32, path string) int32 {
	k := fileKey{column, path}
	n, ok := s.files[k]
	if !ok {
		n = int32(len(s.files))
		s.files[k] = n
	}
	return n
}

// indexFrame adds x to the index, so that later requests find it. Caller must hold s.mu.
func (s *Store) indexFrame(x *frame) {
	x.isIndexed = true
	s.frames[x.key] = x
}

// unindexFrame removes x from the index if it is there. Caller must hold s.mu.
func (s *Store) unindexFrame(x *frame) {
	if x.isIndexed {
		x.isIndexed = false
		delete(s.frames, x.key)
	}
}

// unpin ends a read of x's bytes.
func (s *Store) unpin(x *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.pins--
	s.releaseIfUnused(x)
}

// releaseIfUnused frees x if it is not pending or cached and has no uses, pins or waiters. Caller
// must hold s.mu.
func (s *Store) releaseIfUnused(x *frame) {
	if x.uses == (uses{}) && x.pins == 0 && len(x.waiters) == 0 && !x.isCached &&
		x.state != pending {
		s.unindexFrame(x)
		s.freeMemory(x)
	}
}

// freeMemory releases the memory of x. Caller must hold s.mu.
func (s *Store) freeMemory(x *frame) {
	if x.isCached {
		s.cachedBytes -= ArenaBytes(x.size)
		x.isCached = false
	}
	if x.memory.slab != nil {
		x.memory.class.arena.freePiece(x.memory)
		x.memory = piece{}
	}
}

// reserveCache reports whether a frame of size bytes stays stored after its waiters are served. It
// stays if the cache has space for it, which reserveCache then reserves, or if samples of a pool
// need it.
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

// allocateOnDevice allocates device memory for x and reports whether x has some. It returns false
// if the driver fails, because other processes share the device's memory.
func (s *Store) allocateOnDevice(x *frame) bool {
	if s.deviceArena == nil || x.memory.slab != nil {
		return x.isOnDevice
	}
	memory, ok, err := s.deviceArena.allocate(x.size)
	if err != nil || !ok {
		return false
	}
	x.memory, x.isOnDevice = memory, true
	return true
}

// storeOnDevice writes a frame into device memory. It returns false if x must be stored on the
// host.
func (s *Store) storeOnDevice(
	x *frame, col *Stream, planes video.PlanarFrame, pixels []byte,
) (bool, error) {
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
	if frame, isOnDevice := planes.(video.DeviceFrame); isOnDevice {
		return true, frame.KeepPlanes(x.memory.mem[:x.size])
	}
	buf := uploadBuffers.Get().(*[]byte)
	defer uploadBuffers.Put(buf)
	*buf = slices.Grow((*buf)[:0], x.size)[:x.size]
	if err := planes.CopyPlanes(*buf); err != nil {
		return true, err
	}
	return true, col.Device.Memory().UploadPlanes(info, x.memory.mem[:x.size], *buf)
}

// uploadBuffers holds host copies of planes that are uploaded to a device.
var uploadBuffers = sync.Pool{New: func() any { return new([]byte) }}

// storeFrame writes planes into memory of an arena, or pixels if planes is nil. It returns false if
// there is no memory for them.
func (s *Store) storeFrame(
	x *frame, col *Stream, planes video.PlanarFrame, pixels []byte,
) (bool, error) {
	if col.Device != nil {
		if stored, err := s.storeOnDevice(x, col, planes, pixels); stored {
			return err == nil, err
		}
		if planes == nil { // no pixels, or pixels in device memory, which the host cannot read
			return s.countRefused(), nil
		}
	}
	memory, ok, err := s.arena.allocate(x.size)
	if err != nil || !ok {
		return s.countRefused(), err
	}
	x.memory = memory
	if planes == nil {
		video.CopyPixels(memory.mem[:x.size], pixels)
		return true, nil
	}
	x.isPlanar = true
	x.info, _ = planes.PlaneInfo()
	err = planes.CopyPlanes(memory.mem[:x.size])
	return err == nil, err
}

// countRefused counts a frame that is not stored for lack of memory. It always returns false.
func (s *Store) countRefused() (stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.refused++
	return false
}

// publish marks a pending frame as ready, pins it and returns its waiters. The caller must serve
// them and then call unpin. If stored is false, x leaves the index, and the next request decodes
// the frame again.
func (s *Store) publish(x *frame, stored bool) []waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := x.waiters
	x.waiters, x.task, x.state = nil, nil, ready
	x.pins++
	if !stored {
		x.uses = uses{}
		s.unindexFrame(x)
		s.freeMemory(x)
	}
	return slots
}

// markFailed marks a pending frame as failed and returns its waiters. The caller must call
// failWaiters.
func (s *Store) markFailed(x *frame, err error) []waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := x.waiters
	x.waiters, x.task = nil, nil
	x.state, x.err = failed, err
	s.releaseIfUnused(x)
	return slots
}

// Reset removes every frame that is not cached. No batch may be in progress.
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

// Close unmaps all memory. No batch may be in progress.
func (s *Store) Close() {
	if s.arena != nil {
		s.arena.unmapAll()
	}
	if s.deviceArena != nil {
		s.deviceArena.unmapAll()
	}
}

// sortByOrdinal sorts frames of one file by their numbers, in place, and returns them.
func sortByOrdinal(list []*frame) []*frame {
	slices.SortFunc(list, compareOrdinals)
	return list
}

func compareOrdinals(a, b *frame) int { return int(a.key.ordinal) - int(b.key.ordinal) }

// searchOrdinal returns the position of a frame number in a sorted list and whether it is there.
func searchOrdinal(list []*frame, ordinal int) (int, bool) {
	return slices.BinarySearchFunc(list, ordinal, func(x *frame, o int) int {
		return int(x.key.ordinal) - o
	})
}

// findFrame returns the frame of a number from a sorted list, or nil.
func findFrame(list []*frame, ordinal int) *frame {
	i, ok := searchOrdinal(list, ordinal)
	if !ok {
		return nil
	}
	return list[i]
}
