package loader

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/goatnote-inc/robocache/cache"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/video"
)

// disk is the cache of decoded frames in a directory: planes as the decoder gave them, which any image size can be made of, or
// pixels as they are in the batch.
type disk struct {
	dir    *cache.Dir
	planar bool

	mu    sync.Mutex
	files map[fileKey]cache.Key

	hits, misses, refused atomic.Int64
}

func newDisk(dir *cache.Dir, planar bool) *disk {
	return &disk{dir: dir, planar: planar, files: map[fileKey]cache.Key{}}
}

// headerBytes is what stands before kept planes: their description, and zeros, so that the planes begin at a cache line.
const headerBytes = 64

// prefix is the part of a key that all frames of a file share. The file is opened for it, once; where it cannot be, nothing of it
// is in the cache.
func (w *worker) prefix(src *source, c *column, path string) cache.Key {
	d := w.a.disk
	name := fileKey{src.column(c.number), path}
	d.mu.Lock()
	k, ok := d.files[name]
	d.mu.Unlock()
	if ok {
		return k
	}
	r, err := src.reels.open(w.ctx(), path)
	if err != nil {
		return cache.Key{}
	}
	defer r.release()
	id := r.identity()
	if id == ([32]byte{}) {
		w.a.warn("the store gives no versions of its files (ETag or time): their frames are not cached in a directory")
		d.mu.Lock()
		d.files[name] = k
		d.mu.Unlock()
		return k
	}
	h := sha256.New()
	h.Write(id[:])
	if d.planar {
		fmt.Fprint(h, "planes 1")
	} else {
		fmt.Fprintf(h, "pixels 1 %d %d %d %t %s %+v", c.height, c.width, c.spec.Pixel, c.spec.ChannelsFirst, c.out, c.spec.Depth)
		if c.resize != Stretch {
			fmt.Fprint(h, " ", c.resize)
		}
		if c.norm != nil {
			fmt.Fprintf(h, " %v %v %v %t", c.norm.Kind, c.norm.A, c.norm.B, c.norm.clip)
		}
	}
	copy(k[:], h.Sum(nil))
	d.mu.Lock()
	d.files[name] = k
	d.mu.Unlock()
	return k
}

// key is the key of one frame of a file.
func imageKey(prefix cache.Key, ordinal int) cache.Key {
	x := order.Mix(uint64(ordinal) + 0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(prefix[:8], binary.LittleEndian.Uint64(prefix[:8])^x)
	binary.LittleEndian.PutUint64(prefix[8:], binary.LittleEndian.Uint64(prefix[8:])+uint64(ordinal))
	return prefix
}

func (d *disk) has(prefix cache.Key, ordinal int) bool {
	if prefix == (cache.Key{}) {
		return false
	}
	ok := d.dir.Has(imageKey(prefix, ordinal))
	if !ok {
		d.misses.Add(1)
	}
	return ok
}

// pixels says whether frames are kept as they are in the batch.
func (d *disk) pixels() bool { return d != nil && !d.planar }

// put keeps a frame. What cannot be kept is not: the cache counts why.
func (d *disk) put(w *worker, src *source, c *column, path string, ordinal int, pic video.Frame, pixels []byte) {
	if d == nil {
		return
	}
	prefix := w.prefix(src, c, path)
	if prefix == (cache.Key{}) || !d.dir.Accepts() {
		return
	}
	k := imageKey(prefix, ordinal)
	if !d.planar {
		if d.dir.Put(k, pixels) != nil {
			d.refused.Add(1)
		}
		return
	}
	p, ok := pic.(video.PlanarFrame)
	var info video.PlaneInfo
	if ok {
		info, ok = p.PlaneInfo()
	}
	if !ok || d.dir.Has(k) {
		return
	}
	var head [headerBytes]byte
	info.Append(head[:0])
	planes := w.sideBytes(info.Bytes())
	if p.CopyPlanes(planes) != nil || d.dir.Put(k, head[:], planes) != nil {
		d.refused.Add(1)
	}
}

// get writes a frame of the cache as it is in a batch; ok is false where it is not, or no longer, there.
func (d *disk) get(w *worker, src *source, c *column, path string, ordinal int, dst []byte) (ok bool, err error) {
	e, ok := d.dir.Get(imageKey(w.prefix(src, c, path), ordinal))
	if !ok {
		d.misses.Add(1)
		return false, nil
	}
	defer e.Release()
	if !d.planar {
		if len(e.Data) != len(dst) {
			return false, nil
		}
		video.CopyPixels(dst, e.Data)
		d.hits.Add(1)
		return true, nil
	}
	if len(e.Data) < headerBytes {
		return false, nil
	}
	info, err := video.ParsePlaneInfo(e.Data[:16])
	if err != nil {
		return false, nil
	}
	if shape := info.Shape(); c.spec.Width == 0 && (shape.Width != c.width || shape.Height != c.height) {
		return true, sizeError(c, shape.Width, shape.Height)
	}
	if err := c.fromPlanes(info, e.Data[headerBytes:], dst); err != nil {
		return true, err
	}
	d.hits.Add(1)
	return true, nil
}

// sideBytes gives scratch beside that of bytes.
func (w *worker) sideBytes(n int) []byte {
	if len(w.side)*8 < n {
		w.side = make([]uint64, (n+7)/8)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w.side))), n)
}
