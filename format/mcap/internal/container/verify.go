package container

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Verify checks the checksums of the data section (DataEnd) and of attachments. Reading messages
// does not check them. It reads the whole file. Checksum 0 means that none was written.
func (f *File) Verify(ctx context.Context) (out []robocache.Finding, err error) {
	defer guard.Recover("mcap verify", &err)
	found := func(off int64, what string, want, have uint32) {
		out = append(out, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "check-sum",
			Where:    robocache.Where{"offset": off},
			Message: fmt.Sprintf(
				"the check sum of %s differs: %08x is written, %08x are its bytes",
				what,
				want,
				have,
			),
			Hint: "fetch the file again",
		})
	}
	end, want := f.findDataEnd(ctx)
	if want != 0 {
		have := f.rangeCRC(ctx, 0, end)
		if have != want {
			found(end, "the data section", want, have)
		}
	}
	for _, p := range f.Attachments {
		if p.Length < headSize+4 || p.Offset > f.ranged.Size()-p.Length {
			continue // opening already reported it
		}
		var tail [4]byte
		guard.Check(f.ranged.ReadAt(ctx, tail[:], p.Offset+p.Length-4))
		want := le32(tail[:])
		if want == 0 {
			continue
		}
		have := f.rangeCRC(ctx, p.Offset+headSize, p.Offset+p.Length-4)
		if have != want {
			found(p.Offset, fmt.Sprintf("the attachment %.80q", p.Name), want, have)
		}
	}
	return out, nil
}

// findDataEnd returns the offset and the checksum of the DataEnd record, which is after the last
// data or before the summary. The checksum is 0 if there is no such record.
func (f *File) findDataEnd(ctx context.Context) (off int64, crc uint32) {
	var b [headSize + 4]byte
	for _, at := range []int64{f.end, f.end - int64(len(b))} {
		if at < f.begin || at > f.ranged.Size()-int64(len(b)) {
			continue
		}
		guard.Check(f.ranged.ReadAt(ctx, b[:], at))
		if Op(b[0]) == OpDataEnd && le64(b[1:]) == 4 {
			return at, binary.LittleEndian.Uint32(b[headSize:])
		}
	}
	return 0, 0
}

// rangeCRC returns the CRC-32 of a range of the file.
func (f *File) rangeCRC(ctx context.Context, from, to int64) (crc uint32) {
	b := rawBuffers.borrowBuffer(1 << 20)
	defer rawBuffers.Put(b)
	for from < to {
		part := (*b)[:min(to-from, 1<<20)]
		guard.Check(f.ranged.ReadAt(ctx, part, from))
		crc = crc32.Update(crc, crc32.IEEETable, part)
		from += int64(len(part))
	}
	return crc
}
