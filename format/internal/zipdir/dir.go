package zipdir

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

const (
	endSize     = 22 // end of central directory, without its comment
	end64Size   = 56
	locatorSize = 20
	entrySize   = 46
	localSize   = 30
	maxComment  = 1<<16 - 1
	// read in one request; contains the whole directory of a typical npz file
	tailBytes    = 4 << 10
	maxDirectory = 256 << 20
)

// File is one member.
type File struct {
	Name         string
	Method       uint16
	Flags        uint16
	CRC          uint32
	Packed, Size int64
	Header       int64 // offset of the local header
	Room         int64 // bytes from Header to the next object in the archive
}

// Dir is the directory of an archive.
type Dir struct {
	Files []File // in the order of the directory
	limit int64
}

var le = binary.LittleEndian

func malformed(format string, args ...any) error {
	return robocache.Malformed("zip", nil, format, args...)
}

// failZip fails the read because the archive is malformed.
func failZip(format string, args ...any) { guard.Fail(malformed(format, args...)) }

// Read reads the directory. limit is the maximum size of a member.
func Read(ctx context.Context, r robocache.Ranged, limit int64) (_ *Dir, err error) {
	defer guard.Recover("zip", &err)
	size := r.Size()
	if size < endSize {
		failZip("%d bytes are too few for a zip archive", size)
	}
	b, at := findEnd(ctx, r, size)
	start := size - int64(len(b)) // offset of b in the file
	end := b[at:]
	count := uint64(le.Uint16(end[10:]))
	dirSize, dirOff := uint64(le.Uint32(end[12:])), uint64(le.Uint32(end[16:]))
	if le.Uint16(end[4:]) != 0 && le.Uint16(end[4:]) != 0xffff {
		return nil, robocache.Unsupported("zip", nil, "an archive split over several files")
	}
	stop := start + int64(at) // end of the directory
	if count == 0xffff || dirSize == 0xffffffff || dirOff == 0xffffffff {
		if e, where := findZip64End(ctx, r, stop); e != nil {
			count, dirSize, dirOff = le.Uint64(e[32:]), le.Uint64(e[40:]), le.Uint64(e[48:])
			stop = where
		}
	}
	if dirSize > uint64(stop) || dirOff > uint64(stop)-dirSize {
		failZip(
			"the directory (%d bytes at %d) does not lie in the archive of %d bytes",
			dirSize,
			dirOff,
			size,
		)
	}
	// The archive may follow other data, as in self-extracting archives. All its offsets are then
	// shifted by base. Other readers do the same.
	base := stop - int64(dirSize) - int64(dirOff)
	if count > dirSize/entrySize {
		failZip("%d members declared in a directory of %d bytes", count, dirSize)
	}
	if dirSize > maxDirectory {
		return nil, robocache.ResourceLimit("zip", nil, "the directory").
			Expected(fmt.Sprintf("at most %d bytes", maxDirectory), fmt.Sprint(dirSize))
	}
	from := stop - int64(dirSize)
	dir := b[max(from-start, 0):]
	if from < start {
		dir = bytesAt(ctx, r, from, int64(dirSize))
	}
	dir = dir[:dirSize]
	d := &Dir{limit: limit, Files: make([]File, count)}
	for i := range d.Files {
		dir = d.Files[i].parseRecord(dir, base, from)
	}
	d.checkMembers(from)
	return d, nil
}

func bytesAt(ctx context.Context, r robocache.Ranged, at, n int64) []byte {
	b := make([]byte, n)
	guard.Check(r.ReadAt(ctx, b, at))
	return b
}

// findEnd reads the end of the file and returns it with the position of the end record in it.
func findEnd(ctx context.Context, r robocache.Ranged, size int64) (b []byte, at int) {
	for _, n := range []int64{min(tailBytes, size), min(endSize+maxComment, size)} {
		b = bytesAt(ctx, r, size-n, n)
		// The comment extends to the end of the file. A record whose comment has another length is
		// not an end record.
		for at := len(b) - endSize; at >= 0; at-- {
			if b[at] == 'P' && bytes.HasPrefix(b[at:], []byte("PK\x05\x06")) &&
				int(le.Uint16(b[at+20:])) == len(b)-at-endSize {
				return b, at
			}
		}
	}
	guard.Fail(
		robocache.Malformed(
			"zip",
			nil,
			"no end record: this is not a zip archive, or its end is missing",
		).
			WithHint("fetch the file again"),
	)
	return nil, 0
}

// findZip64End reads the zip64 end record to which the locator before the end record refers. It
// returns nil if there is none.
func findZip64End(ctx context.Context, r robocache.Ranged, end int64) (record []byte, at int64) {
	if end < locatorSize+end64Size {
		return nil, 0
	}
	l := bytesAt(ctx, r, end-locatorSize, locatorSize)
	if string(l[:4]) != "PK\x06\x07" {
		return nil, 0
	}
	off := le.Uint64(l[8:])
	if off > uint64(end-locatorSize-end64Size) {
		failZip("the zip64 end record at %d does not lie in the archive", off)
	}
	record = bytesAt(ctx, r, int64(off), end64Size)
	if string(record[:4]) != "PK\x06\x06" {
		failZip("no zip64 end record at %d", off)
	}
	return record, int64(off)
}

// parseRecord parses one record of the directory and returns the rest of b. base is added to the
// offset of the member.
func (f *File) parseRecord(b []byte, base, dirStart int64) []byte {
	if len(b) < entrySize || string(b[:4]) != "PK\x01\x02" {
		failZip("the directory is truncated or malformed")
	}
	name, extra, comment := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	if len(b)-entrySize < name+extra+comment {
		failZip("a member's record ends after the directory")
	}
	packed, size := uint64(le.Uint32(b[20:])), uint64(le.Uint32(b[24:]))
	off := uint64(le.Uint32(b[42:]))
	*f = File{
		Flags:  le.Uint16(b[8:]),
		Method: le.Uint16(b[10:]),
		CRC:    le.Uint32(b[16:]),
		Name:   string(b[entrySize : entrySize+name]),
	}
	err := readZip64Field(b[entrySize+name:entrySize+name+extra], &size, &packed, &off)
	if err == nil && (off > uint64(dirStart-base) || packed > uint64(dirStart) || size > 1<<62) {
		err = malformed("%d bytes at %d do not lie in the archive", packed, off)
	}
	guard.Check(f.withMember(err))
	f.Packed, f.Size, f.Header = int64(packed), int64(size), int64(off)+base
	return b[entrySize+name+extra+comment:]
}

// withMember adds the name of the member to err.
func (f *File) withMember(err error) error {
	return robocache.At(err, robocache.Where{"member": f.Name})
}

// readZip64Field reads the zip64 extra field. It contains, in this order, the values of the fields
// that are 0xffffffff.
func readZip64Field(x []byte, fields ...*uint64) error {
	for len(x) >= 4 {
		id, n := le.Uint16(x), int(le.Uint16(x[2:]))
		if x = x[4:]; n > len(x) {
			break
		}
		if id != 1 {
			x = x[n:]
			continue
		}
		v := x[:n]
		for _, f := range fields {
			if *f != 0xffffffff {
				continue
			}
			if len(v) < 8 {
				return malformed("the zip64 field is too short")
			}
			*f, v = le.Uint64(v), v[8:]
		}
		return nil
	}
	return nil // 0xffffffff can also be the actual size
}

// checkMembers checks zipdir.Z1 for all members and removes folders from the list.
func (d *Dir) checkMembers(dirStart int64) {
	order := make([]*File, len(d.Files))
	for i := range order {
		order[i] = &d.Files[i]
	}
	slices.SortFunc(order, func(a, b *File) int { return cmp.Compare(a.Header, b.Header) })
	next := dirStart
	for _, f := range slices.Backward(order) {
		f.Room = next - f.Header
		if f.Room < localSize+f.Packed {
			guard.Fail(
				f.withMember(
					malformed(
						"%d bytes at %d reach into what comes next: members overlap",
						f.Packed,
						f.Header,
					),
				),
			)
		}
		next = f.Header
	}
	d.Files = slices.DeleteFunc(
		d.Files,
		func(f File) bool { return strings.HasSuffix(f.Name, "/") },
	)
	seen := make(map[string]bool, len(d.Files))
	for i := range d.Files {
		f := &d.Files[i]
		if f.Name = guard.Must(store.CleanName(f.Name)); seen[f.Name] {
			guard.Fail(f.withMember(malformed("two members of this name")))
		}
		seen[f.Name] = true
	}
}

// Find returns the member with the given name, or nil. It searches linearly; for many lookups,
// build a map.
func (d *Dir) Find(name string) *File {
	for i := range d.Files {
		if d.Files[i].Name == name {
			return &d.Files[i]
		}
	}
	return nil
}
