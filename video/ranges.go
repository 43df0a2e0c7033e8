package video

import (
	"cmp"
	"slices"
)

// Range is a run of bytes in a file.
type Range struct{ Off, Len int64 }

func (r Range) endOffset() int64 { return r.Off + r.Len }

// Coalesce merges ranges into reads. Neighbors become one read if at most gap bytes are between
// them and the read has at most maxLen bytes. A longer single range is not split. The result is
// sorted, covers every range that is not empty, and reuses the memory of ranges. Offsets and
// lengths must not be negative, and their sums must not overflow.
func Coalesce(ranges []Range, gap, maxLen int64) []Range {
	slices.SortFunc(
		ranges,
		func(a, b Range) int {
			return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(b.Len, a.Len))
		},
	)
	out := ranges[:0]
	for _, r := range ranges {
		if r.Len <= 0 {
			continue
		}
		if n := len(out); n > 0 {
			last := &out[n-1]
			end := r.endOffset()
			if end <= last.endOffset() {
				continue
			}
			if r.Off-last.endOffset() <= gap && end-last.Off <= maxLen {
				last.Len = end - last.Off
				continue
			}
		}
		out = append(out, r)
	}
	return out
}
