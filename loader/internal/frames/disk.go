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

// diskCache stores decoded frames in a cache directory. It stores the decoder's planes, from which
// every image size can be rendered, or pixels. Safe for concurrent use.
type diskCache struct {
	dir *cache.Dir

	mu       sync.Mutex
	prefixes map[fileKey]cache.Key // key prefixes of files

	hits, misses atomic.Int64
}

// headerBytes is the size of the header before stored planes. It holds video.PlaneInfo and is
// padded with zeros so that the planes begin at a cache line.
const headerBytes = 64

// diskPrefix returns the key prefix that all frames of a file share. The first call opens the file.
// The prefix is zero if the file cannot be opened or its frames are not cached.
func (w *Worker) diskPrefix(col *Stream, path string) cache.Key {
	d := w.store.disk
	name := fileKey{col.ID, path}
	d.mu.Lock()
	k, ok := d.prefixes[name]
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
		// The stream's frames are not cached in a directory.
	} else if id == ([32]byte{}) {
		w.store.warn("the store gives no versions of its files (ETag or time): " +
			"their frames are not cached in a directory")
	} else {
		h := sha256.New()
		h.Write(id[:])
		if w.store.planar {
			fmt.Fprint(h, "planes 1")
		} else {
			fmt.Fprint(h, recipe)
		}
		copy(k[:], h.Sum(nil))
	}
	d.mu.Lock()
	d.prefixes[name] = k
	d.mu.Unlock()
	return k
}

// diskKey returns the key of one frame of a file. It mixes the number as SplitMix64 does, so that
// neighboring frames have distant keys.
func diskKey(prefix cache.Key, ordinal int) cache.Key {
	x := uint64(ordinal) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	binary.LittleEndian.PutUint64(prefix[:8], binary.LittleEndian.Uint64(prefix[:8])^x)
	binary.LittleEndian.PutUint64(
		prefix[8:],
		binary.LittleEndian.Uint64(prefix[8:])+uint64(ordinal),
	)
	return prefix
}

// hasFrame reports whether a frame is in the directory. If not, it counts n misses.
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

// writeToDisk stores planes, or pixels if the store keeps pixels. A frame that cannot be written is
// skipped; the cache directory counts the reason.
func (w *Worker) writeToDisk(
	r *request, ordinal int, f video.Frame, planes video.PlanarFrame, pixels []byte,
) {
	d := w.store.disk
	prefix := w.diskPrefix(r.stream, r.path)
	if prefix == (cache.Key{}) || !d.dir.Accepts() || planes == nil && w.store.planar {
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
	if bytes := growScratch(&w.planeScratch, info.Bytes()); planes.CopyPlanes(bytes) == nil {
		_ = d.dir.Put(k, head[:], bytes)
	}
}

// copyFromDisk renders a frame of the cache directory into its slot. ok is false if the frame was
// evicted or is damaged.
func (w *Worker) copyFromDisk(col *Stream, c *keptFrame) (ok bool, err error) {
	d := w.store.disk
	e, ok := d.dir.Get(diskKey(w.diskPrefix(col, c.path), int(c.ordinal)))
	if !ok {
		d.misses.Add(1)
		return false, nil
	}
	defer e.Release()
	dst := c.target.Buffer(w, int(c.slot))
	if !w.store.planar {
		if len(e.Data) != len(dst) {
			return false, nil
		}
		video.CopyPixels(dst, e.Data)
	} else {
		if len(e.Data) < headerBytes {
			return false, nil
		}
		info, err := video.ParsePlaneInfo(e.Data[:16]) // the rest of the header is zero
		if err != nil {
			return false, nil
		}
		if err := col.Renderer.RenderPlanes(info, e.Data[headerBytes:], dst); err != nil {
			return true, err
		}
	}
	d.hits.Add(1)
	c.target.Put(int(c.slot), dst)
	return true, nil
}
