package reader

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Set parses the text of an option. It returns false if the text is invalid.
type Set func(text string) bool

// Text returns a Set for a text option. If known is not empty, the text must be one of them.
func Text(to *string, known ...string) Set {
	return func(v string) bool { *to = v; return len(known) == 0 || slices.Contains(known, v) }
}

// Whole returns a Set for a whole number from least to most.
func Whole[T int | int64](to *T, least, most int64) Set {
	return func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		*to = T(n)
		return err == nil && n >= least && n <= most
	}
}

// Yes returns a Set for a boolean option.
func Yes(to *bool) Set {
	return func(v string) (ok bool) {
		b, err := strconv.ParseBool(cmp.Or(v, "false"))
		*to = b
		return err == nil
	}
}

// Settle applies options to the targets of set. says describes each known option. An unknown option
// is an error that names the nearest known one.
func (op Op) Settle(options, says map[string]string, set map[string]Set) error {
	known := slices.Sorted(maps.Keys(says))
	for _, k := range slices.Sorted(maps.Keys(options)) {
		where := robocache.Where{"option": k}
		if _, ok := says[k]; !ok {
			return robocache.Misuse(string(op), where, "unknown option %q", k).
				WithHint("%s", robocache.Nearest(k, known))
		}
		if fn := set[k]; fn != nil && !fn(options[k]) {
			return robocache.Misuse(string(op), where, "option %s", k).
				Expected(says[k], strconv.Quote(options[k]))
		}
	}
	return nil
}
