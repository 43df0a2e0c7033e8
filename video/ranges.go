package video

import (
	"cmp"
	"slices"
)

// Range is a piece of a file.
type Range struct{ Off, Len int64 }

func (r Range) end() int64 { return r.Off + r.Len }

// Coalesce joins ranges: neighbours become one read where the bytes between them are at most gap,
// and the read stays within most bytes. A range that is longer by itself stays whole. What it gives
// is sorted, covers every range, and is in the memory of ranges; empty ranges go. Offsets and
// lengths must not be negative, nor their sum overflow.
func Coalesce(ranges []Range, gap, most int64) []Range {
	slices.SortFunc(
		ranges,
		func(a, b Range) int { return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(b.Len, a.Len)) },
	)
	out := ranges[:0]
	for _, r := range ranges {
		if r.Len <= 0 {
			continue
		}
		if n := len(out); n > 0 {
			last := &out[n-1]
			end := r.end()
			if end <= last.end() {
				continue
			}
			if r.Off-last.end() <= gap && end-last.Off <= most {
				last.Len = end - last.Off
				continue
			}
		}
		out = append(out, r)
	}
	return out
}
