package frames

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/video"
)

// diskCache is the cache of decoded frames in a directory: planes as the decoder gave them, which any image size can be made of, or
// pixels.
type diskCache struct {
	dir *cache.Dir

	mu    sync.Mutex
	files map[fileKey]cache.Key

	hits, misses atomic.Int64
}

// headerBytes is what stands before kept planes: their description, and zeros, so that the planes begin at a cache line.
const headerBytes = 64

// diskPrefix is the part of a key that all frames of a file share. The file is opened for it, once; where it cannot be, nothing of it
// is in the cache.
func (w *Worker) diskPrefix(col *Stream, path string) cache.Key {
	d := w.s.disk
	name := fileKey{col.ID, path}
	d.mu.Lock()
	k, ok := d.files[name]
	d.mu.Unlock()
	if ok {
		return k
	}
	file, err := col.Files.Open(w.Ctx(), path)
	if err != nil {
		return cache.Key{}
	}
	defer file.Release()
	if id, recipe := file.Identity(), col.Recipe; recipe == "" {
		// These frames are not kept there.
	} else if id == ([32]byte{}) {
		w.s.warn("the store gives no versions of its files (ETag or time): their frames are not cached in a directory")
	} else {
		h := sha256.New()
		h.Write(id[:])
		if w.s.planar {
			fmt.Fprint(h, "planes 1")
		} else {
			fmt.Fprint(h, recipe)
		}
		copy(k[:], h.Sum(nil))
	}
	d.mu.Lock()
	d.files[name] = k
	d.mu.Unlock()
	return k
}

// diskKey is the key of one frame of a file. The finaliser of SplitMix64 spreads neighbours.
func diskKey(prefix cache.Key, ordinal int) cache.Key {
	x := uint64(ordinal) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	binary.LittleEndian.PutUint64(prefix[:8], binary.LittleEndian.Uint64(prefix[:8])^x)
	binary.LittleEndian.PutUint64(prefix[8:], binary.LittleEndian.Uint64(prefix[8:])+uint64(ordinal))
	return prefix
}

// hasFrame says whether a frame is there, which n places want.
func (d *diskCache) hasFrame(prefix cache.Key, ordinal int32, n int64) bool {
	if prefix == (cache.Key{}) {
		return false
	}
	ok := d.dir.Has(diskKey(prefix, int(ordinal)))
	if !ok {
		d.misses.Add(n)
	}
	return ok
}

// writeToDisk keeps a frame: its planes where they are kept, else its pixels. What cannot be kept is not: the cache counts why.
func (w *Worker) writeToDisk(r *request, ordinal int, f video.Frame, planes video.PlanarFrame, pixels []byte) {
	d := w.s.disk
	prefix := w.diskPrefix(r.stream, r.path)
	if prefix == (cache.Key{}) || !d.dir.Accepts() || planes == nil && w.s.planar {
		return
	}
	k := diskKey(prefix, ordinal)
	if planes == nil {
		_ = d.dir.Put(k, pixels)
		return
	}
	if d.dir.Has(k) {
		return
	}
	info, _ := planes.PlaneInfo()
	var head [headerBytes]byte
	info.Append(head[:0])
	if bytes := growScratch(&w.side, info.Bytes()); planes.CopyPlanes(bytes) == nil {
		_ = d.dir.Put(k, head[:], bytes)
	}
}

// copyFromDisk brings a frame of the cache to a place; ok is false where it is not, or no longer, there.
func (w *Worker) copyFromDisk(col *Stream, c *keptFrame) (ok bool, err error) {
	d := w.s.disk
	e, ok := d.dir.Get(diskKey(w.diskPrefix(col, c.path), int(c.ordinal)))
	if !ok {
		d.misses.Add(1)
		return false, nil
	}
	defer e.Release()
	dst := c.target.Buffer(w, int(c.place))
	if !w.s.planar {
		if len(e.Data) != len(dst) {
			return false, nil
		}
		video.CopyPixels(dst, e.Data)
	} else {
		if len(e.Data) < headerBytes {
			return false, nil
		}
		info, err := video.ParsePlaneInfo(e.Data[:16])
		if err != nil {
			return false, nil
		}
		if err := col.Renderer.RenderPlanes(info, e.Data[headerBytes:], dst); err != nil {
			return true, err
		}
	}
	d.hits.Add(1)
	c.target.Put(int(c.place), dst)
	return true, nil
}
