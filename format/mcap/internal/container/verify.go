package container

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Verify compares the check sums that reading messages does not touch: of the data section
// (DataEnd) and of attachments. A sum of 0 was not given. It reads all of the file.
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
	end, want := f.dataEnd(ctx)
	if want != 0 {
		have := f.sum(ctx, 0, end)
		if have != want {
			found(end, "the data section", want, have)
		}
	}
	for _, p := range f.Attachments {
		if p.Length < headSize+4 || p.Offset > f.r.Size()-p.Length {
			continue // opening said so
		}
		var tail [4]byte
		guard.Check(f.r.ReadAt(ctx, tail[:], p.Offset+p.Length-4))
		want := le32(tail[:])
		if want == 0 {
			continue
		}
		have := f.sum(ctx, p.Offset+headSize, p.Offset+p.Length-4)
		if have != want {
			found(p.Offset, fmt.Sprintf("the attachment %.80q", p.Name), want, have)
		}
	}
	return out, nil
}

// dataEnd finds the DataEnd record: behind the last data, or before the summary. Its sum is 0 where
// there is none.
func (f *File) dataEnd(ctx context.Context) (off int64, crc uint32) {
	var b [headSize + 4]byte
	for _, at := range []int64{f.end, f.end - int64(len(b))} {
		if at < f.begin || at > f.r.Size()-int64(len(b)) {
			continue
		}
		guard.Check(f.r.ReadAt(ctx, b[:], at))
		if Op(b[0]) == OpDataEnd && le64(b[1:]) == 4 {
			return at, binary.LittleEndian.Uint32(b[headSize:])
		}
	}
	return 0, 0
}

// sum is the check sum of a part of the file.
func (f *File) sum(ctx context.Context, from, to int64) (crc uint32) {
	b := raws.borrow(1 << 20)
	defer raws.Put(b)
	for from < to {
		part := (*b)[:min(to-from, 1<<20)]
		guard.Check(f.r.ReadAt(ctx, part, from))
		crc = crc32.Update(crc, crc32.IEEETable, part)
		from += int64(len(part))
	}
	return crc
}
