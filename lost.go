package robocache

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Whole returns an error if opening found that some of the episodes cannot be read (Finding.Lost).
// Callers call it unless bad episodes are to be skipped. episodes are positions; nil is all. hint
// states how the user can skip bad episodes.
func Whole(ds Dataset, episodes []int, op, hint string) error {
	info := ds.Info()
	var first *Error
	more := 0
	for i := range info.Findings {
		f := &info.Findings[i]
		if !f.Lost {
			continue
		}
		if position, named := info.PositionIn(f.Where); named {
			if position < 0 || episodes != nil && !slices.Contains(episodes, position) {
				continue // of another split, or not chosen
			}
		}
		if first != nil {
			more++
			continue
		}
		where := Where{"dataset": info.URI}
		maps.Copy(where, f.Where)
		first = Malformed(op, where, "%s", f.Message).WithHint("%s", hint)
		if f.Hint != "" && !strings.Contains(f.Message, f.Hint) {
			first.Hint += "; or: " + f.Hint
		}
	}
	if first == nil {
		return nil
	}
	if more > 0 {
		first.Msg += fmt.Sprintf(" (and %d more such findings)", more)
	}
	return first
}
