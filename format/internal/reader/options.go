package reader

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// Set takes the text of an option; false where it cannot be that.
type Set func(text string) bool

// Text is an option that is a text: one of some, where they are named.
func Text(to *string, known ...string) Set {
	return func(v string) bool { *to = v; return len(known) == 0 || slices.Contains(known, v) }
}

// Whole is an option that is a whole number.
func Whole[T int | int64](to *T, least, most int64) Set {
	return func(v string) bool {
		n, err := strconv.ParseInt(v, 10, 64)
		*to = T(n)
		return err == nil && n >= least && n <= most
	}
}

// Yes is an option that is true or false.
func Yes(to *bool) Set {
	return func(v string) (ok bool) {
		b, err := strconv.ParseBool(cmp.Or(v, "false"))
		*to = b
		return err == nil
	}
}

// Settle gives options to what they set. says describes each: one that it does not name is refused
// with the nearest that it does.
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
