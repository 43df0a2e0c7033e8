// Package scratch provides a temporary file without a name, for decompressed files. The system
// removes the file when the process ends, even after a crash. Other processes cannot see it.
package scratch

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/goatnote-inc/robocache"
)

const blockBytes = 1 << 20

// File is the temporary file, divided into blocks. It is created at the first write.
type File struct {
	limit int64
	full  error
	hint  string

	mu         sync.Mutex
	file       *os.File
	blocksUsed int64   // number of blocks allocated so far
	freeBlocks []int64 // blocks that were freed
}

// New returns a file of at most limit bytes. full is the error of a write above the limit. hint is
// added to errors of the temporary folder.
func New(limit int64, full error, hint string) *File {
	return &File{limit: limit, full: full, hint: hint}
}

// Close closes the file, which removes it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func (f *File) folderError(err error) error {
	return robocache.ResourceLimit(
		"decompress",
		robocache.Where{"file": os.TempDir()},
		"compressed files are decompressed into a temporary file",
	).
		WithCause(err).
		WithHint("%s", f.hint)
}

// allocateBlock returns the number of a free block.
func (f *File) allocateBlock() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.freeBlocks); n > 0 {
		b := f.freeBlocks[n-1]
		f.freeBlocks = f.freeBlocks[:n-1]
		return b, nil
	}
	if (f.blocksUsed+1)*blockBytes > f.limit {
		return 0, f.full
	}
	if f.file == nil {
		file, err := os.CreateTemp("", "robocache-*")
		if err == nil {
			err = os.Remove(file.Name())
		}
		if err != nil {
			return 0, f.folderError(err)
		}
		f.file = file
	}
	f.blocksUsed++
	return f.blocksUsed - 1, nil
}

// Part is a sequence of bytes in the file. It is written sequentially and then read as a
// robocache.Ranged.
type Part struct {
	file    *File
	blocks  []int64
	written int64
	size    int64
	version string
}

// Part begins a part with the given version.
func (f *File) Part(version string) *Part { return &Part{file: f, version: version} }

// Write appends bytes to the part.
func (p *Part) Write(b []byte) (done int, err error) {
	for done < len(b) {
		at := p.written % blockBytes
		if at == 0 {
			k, err := p.file.allocateBlock()
			if err != nil {
				return done, err
			}
			p.blocks = append(p.blocks, k)
		}
		n := min(len(b)-done, int(blockBytes-at))
		if _, err := p.file.file.WriteAt(b[done:done+n], p.blocks[len(p.blocks)-1]*blockBytes+
			at); err != nil {
			return done, p.file.folderError(err)
		}
		done += n
		p.written += int64(n)
	}
	return done, nil
}

// Holds sets the size of the part: the first size bytes can be read.
func (p *Part) Holds(size int64) { p.size = size }

// Free releases the blocks of the part.
func (p *Part) Free() {
	p.file.mu.Lock()
	defer p.file.mu.Unlock()
	p.file.freeBlocks = append(p.file.freeBlocks, p.blocks...)
	p.blocks, p.size = nil, 0
}

// ReadAt fills b from offset off.
func (p *Part) ReadAt(ctx context.Context, b []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if off < 0 || off > p.size-int64(len(b)) {
		return robocache.Malformed(
			"read",
			robocache.Where{"offset": off},
			"a range outside the decompressed file",
		).
			WithCause(io.ErrUnexpectedEOF)
	}
	for len(b) > 0 {
		at := off % blockBytes
		n := min(int64(len(b)), blockBytes-at)
		if _, err := p.file.file.ReadAt(b[:n], p.blocks[off/blockBytes]*blockBytes+at); err != nil {
			return robocache.At(err, robocache.Where{"file": os.TempDir()})
		}
		b, off = b[n:], off+n
	}
	return nil
}

// Size returns the size that Holds set.
func (p *Part) Size() int64 { return p.size }

// Version returns the version that was given to Part.
func (p *Part) Version() string { return p.version }

// Close does nothing, because File.Close closes the file.
func (p *Part) Close() error { return nil }

// Reader reads R from its start. Err is the error of R, which a decompressor may hide.
type Reader struct {
	Ctx context.Context
	R   robocache.Ranged
	Err error
	off int64
}

func (r *Reader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.R.Size()-r.off)
	if n <= 0 {
		return 0, io.EOF
	}
	if r.Err = r.R.ReadAt(r.Ctx, p[:n], r.off); r.Err != nil {
		return 0, r.Err
	}
	r.off += n
	return int(n), nil
}
