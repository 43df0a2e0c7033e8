package kernel

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// names are the texts of an enumeration, by number.
type names struct {
	op, what string
	list     []string
}

// of is the name of a number.
func (n *names) of(i uint8) string {
	if int(i) < len(n.list) {
		return n.list[i]
	}
	return n.what + "(" + strconv.Itoa(int(i)) + ")"
}

// text is all of them, for errors.
func (n *names) text() string {
	last := len(n.list) - 1
	return strings.Join(n.list[:last], ", ") + " or " + n.list[last]
}

// before lists the names before a number, for errors.
func (n *names) before(i Mode) string { return strings.Join(n.list[:i], ", ") }

// parse finds a number by its name.
func parse[T ~uint8](n *names, name string) (T, error) {
	if i := slices.Index(n.list, name); i >= 0 {
		return T(i), nil
	}
	return 0, robocache.Misuse(n.op, nil, "Invalid %s", n.what).
		Expected(n.text(), strconv.Quote(name))
}
