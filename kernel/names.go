package kernel

import (
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// enumNames holds the names of an enumeration, indexed by number.
type enumNames struct {
	op, what string
	list     []string
}

// nameOf returns the name of number i.
func (n *enumNames) nameOf(i uint8) string {
	if int(i) < len(n.list) {
		return n.list[i]
	}
	return n.what + "(" + strconv.Itoa(int(i)) + ")"
}

// listAll returns all names, for errors.
func (n *enumNames) listAll() string {
	last := len(n.list) - 1
	return strings.Join(n.list[:last], ", ") + " or " + n.list[last]
}

// listBefore returns the names before mode i, for errors.
func (n *enumNames) listBefore(i Mode) string { return strings.Join(n.list[:i], ", ") }

// parseName returns the number with the given name.
func parseName[T ~uint8](n *enumNames, name string) (T, error) {
	if i := slices.Index(n.list, name); i >= 0 {
		return T(i), nil
	}
	return 0, robocache.Misuse(n.op, nil, "Invalid %s", n.what).
		Expected(n.listAll(), strconv.Quote(name))
}
