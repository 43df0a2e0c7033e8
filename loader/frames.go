package loader

import (
	"slices"
	"sync"

	"github.com/goatnote-inc/robocache/video"
)

// frames keeps decoded frames: those of episodes that are resident in a pool, until their last sample is given, and those of the
// RAM cache, for good. Both lie in one arena.
type frames struct {
	arena  *arena
	planar bool  // keep the decoder's planes where they can be kept; else pixels as in the batch
	room   int64 // for the cache; 0 = no cache

	mu    sync.Mutex
	have  map[frameKey]*frame
	files map[fileKey]int32
	kept  int64 // bytes of the cache
	n     frameCounts
}

// frameCounts are what the stats of frames sum up.
type frameCounts struct {
	hits, misses int64 // frames wanted that were, or were not, there or on their way
	waited       int64 // of the hits, those on their way
	stored       int64
	refused      int64 // frames for which there was no room
	full         int64 // frames that the cache had no room for
}

// frameKey names a frame: which file of which column, which frame there. A still has no file: -1 − episode, and its row.
type frameKey struct {
	column  int32
	file    int32
	ordinal int32
}

type fileKey struct {
	column int32
	path   string
}

type frameState uint8

const (
	pending frameState = iota // a worker will bring it
	ready
	lost
)

// frame is one frame. Its fields are guarded by frames.mu; its bytes are written before it is ready, and not after.
type frame struct {
	key    frameKey
	state  frameState
	planar bool
	cached bool  // stays when nobody wants it any more
	uses   int32 // places of pool samples that are still to take it
	pins   int32 // who is reading its bytes
	info   video.PlaneInfo
	at     piece
	size   int
	err    error
	wait   []waiter
	chunk  *chunk // that will bring it
}

// room is what the frame takes of the arena.
func (x *frame) room() int64 { return pieceBytes(x.size) }

// waiter is a place that a frame goes to when it comes.
type waiter struct {
	p    *part
	slot int32
}

func newFrames(limit, room int64, planar bool) *frames {
	return &frames{arena: newArena(limit), room: room, planar: planar, have: map[frameKey]*frame{}, files: map[fileKey]int32{}}
}

// file gives the number of a file. f.mu is held.
func (f *frames) file(column int32, path string) int32 {
	k := fileKey{column, path}
	n, ok := f.files[k]
	if !ok {
		n = int32(len(f.files))
		f.files[k] = n
	}
	return n
}

// ask is what a place gets that wants a frame.
type ask uint8

const (
	absent  ask = iota // nobody has it: decode
	here               // read it, and say done
	coming             // the place was noted
	useless            // it cannot be had: err
)

// want asks for a frame for one place. f.mu is held.
func (f *frames) want(k frameKey, p *part, slot int32) (ask, *frame) {
	x := f.have[k]
	if x == nil {
		f.n.misses++
		return absent, nil
	}
	if x.uses > 0 {
		x.uses--
	}
	switch x.state {
	case ready:
		f.n.hits++
		x.pins++
		return here, x
	case lost:
		return useless, x
	}
	f.n.hits++
	f.n.waited++
	x.wait = append(x.wait, waiter{p, slot})
	return coming, x
}

// done ends reading of a frame.
func (f *frames) done(list ...*frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range list {
		x.pins--
		f.settle(x)
	}
}

// settle lets go of a frame that nobody will want. f.mu is held.
func (f *frames) settle(x *frame) {
	if x.uses > 0 || x.pins > 0 || len(x.wait) > 0 || x.cached || x.state == pending {
		return
	}
	if f.have[x.key] == x {
		delete(f.have, x.key)
	}
	f.release(x)
}

func (f *frames) release(x *frame) {
	if x.at.slab != nil {
		f.arena.put(x.at)
		x.at = piece{}
	}
}

// expect notes that a frame will come, or counts more uses of one that is there. f.mu is held.
func (f *frames) expect(k frameKey, uses int32) (x *frame, fresh bool) {
	if x = f.have[k]; x != nil {
		x.uses += uses
		return x, false
	}
	x = &frame{key: k, uses: uses}
	f.have[k] = x
	return x, true
}

// passed takes back uses that will not come.
func (f *frames) passed(k frameKey) {
	if x := f.have[k]; x != nil && x.uses > 0 {
		x.uses--
		f.settle(x)
	}
}

// arrived publishes the bytes of a frame that was pending, and gives those who wait for it. The caller serves them, and then
// calls done once for itself: the frame is pinned for it. Where stored is false, the frame is only for those who wait.
func (f *frames) arrived(x *frame, stored bool) []waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := x.wait
	x.wait, x.chunk = nil, nil
	x.pins++
	if stored {
		x.state = ready
		f.n.stored++
		if f.room > 0 && !x.cached && f.kept+x.room() <= f.room {
			x.cached = true
			f.kept += x.room()
		}
		return wait
	}
	// The next who wants it decodes it anew.
	x.state = ready
	x.uses = 0
	if f.have[x.key] == x {
		delete(f.have, x.key)
	}
	if x.cached {
		x.cached = false
	}
	return wait
}

// failed says that a frame cannot be had, and gives those who wait for it.
func (f *frames) failed(x *frame, err error) []waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := x.wait
	x.wait, x.chunk = nil, nil
	x.state, x.err = lost, err
	f.settle(x)
	return wait
}

// offer keeps a frame that was decoded for a batch, where the cache has room. It gives the frame to be filled, or nil.
func (f *frames) offer(k frameKey, size int) *frame {
	f.mu.Lock()
	if f.room == 0 || f.have[k] != nil || f.kept+pieceBytes(size) > f.room {
		if f.room > 0 && f.have[k] == nil {
			f.n.full++
		}
		f.mu.Unlock()
		return nil
	}
	x := &frame{key: k, size: size, cached: true}
	f.have[k] = x
	f.kept += pieceBytes(size)
	f.mu.Unlock()
	return x
}

// drop takes back an offer that could not be filled, and gives those who came to wait for it.
func (f *frames) drop(x *frame) []waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.cached {
		f.kept -= x.room()
		x.cached = false
	}
	if f.have[x.key] == x {
		delete(f.have, x.key)
	}
	wait := x.wait
	x.wait = nil
	f.release(x)
	return wait
}

// fill writes a frame into memory of the arena: its planes where they are to be kept and can be, else the pixels of the batch.
// It is false where the arena has no room.
func (f *frames) fill(x *frame, pic video.Frame, pixels []byte) (bool, error) {
	planes, ok := pic.(video.PlanarFrame)
	var info video.PlaneInfo
	if ok = ok && f.planar; ok {
		info, ok = planes.PlaneInfo()
	}
	size := len(pixels)
	if ok {
		size = info.Bytes()
	}
	at, have, err := f.arena.get(size)
	if err != nil || !have {
		f.mu.Lock()
		f.n.refused++
		f.mu.Unlock()
		return false, err
	}
	x.at, x.size, x.info, x.planar = at, size, info, ok
	if ok {
		if err := planes.CopyPlanes(at.mem[:size]); err != nil {
			f.arena.put(at)
			x.at = piece{}
			return false, err
		}
		return true, nil
	}
	video.CopyPixels(at.mem[:size], pixels)
	return true, nil
}

// reset forgets all but the cache. Nobody works at any batch.
func (f *frames) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, x := range f.have {
		x.wait, x.uses, x.pins, x.chunk = nil, 0, 0, nil
		if x.state == ready && x.cached {
			continue
		}
		if x.cached {
			f.kept -= x.room()
			x.cached = false
		}
		delete(f.have, k)
		f.release(x)
	}
}

func (f *frames) close() { f.arena.close() }

// counts is a copy of what was counted.
func (f *frames) counts() (n frameCounts, held int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, len(f.have)
}

// keptBytes is what the cache holds.
func (f *frames) keptBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept
}

// sorted lists frames of one file by their ordinals.
func sorted(list []*frame) []*frame {
	slices.SortFunc(list, func(a, b *frame) int { return int(a.key.ordinal) - int(b.key.ordinal) })
	return list
}
