package store

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// MaxName is the longest name in bytes that a store takes: the path length at which POSIX systems
// stop.
const MaxName = 4 << 10

// CleanName brings a name to its one spelling ("a//b/./c" is "a/b/c") and refuses, as malformed
// input, what could leave the root or cut a path short: "..", a leading "/", NUL, over MaxName
// bytes, and the root itself.
func CleanName(name string) (string, error) {
	if msg := badName(name); msg != "" {
		return "", robocache.Malformed("name", robocache.Where{"file": show(name)}, "%s", msg).
			WithHint("a file is named relative to the dataset's root, with / between the parts")
	}
	return path.Clean(name), nil
}

// clean is CleanName for an operation of a store.
func clean(ctx context.Context, uri, op, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	name, err := CleanName(name)
	if err := fail(op, uri, "", err); err != nil {
		return "", err
	}
	return name, nil
}

func badName(name string) string {
	switch {
	case name == "":
		return "empty name"
	case len(name) > MaxName:
		return "the name has " + strconv.Itoa(
			len(name),
		) + " bytes, over the " + strconv.Itoa(
			MaxName,
		) + " allowed"
	case name[0] == '/':
		return "absolute name"
	case strings.IndexByte(name, 0) >= 0:
		return "NUL in the name"
	}
	onlyDots := true
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return `".." in the name`
		}
		if part != "" && part != "." {
			onlyDots = false
		}
	}
	if onlyDots {
		return "the name is the root itself"
	}
	return ""
}

// cleanPrefix is CleanName for List and Sub, where "" (and ".") is the whole store.
func cleanPrefix(prefix string) (string, error) {
	if prefix == "" || prefix == "." || prefix == "./" {
		return "", nil
	}
	return CleanName(prefix)
}

// show makes a name fit for a message: names come from files, and a line break in one must not
// forge a log line.
func show(name string) string {
	const most = 200
	short := name
	if len(short) > most {
		short = short[:most] + "…"
	}
	if q := strconv.Quote(short); q[1:len(q)-1] != short {
		return q
	}
	return short
}
