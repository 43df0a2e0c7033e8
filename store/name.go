package store

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// MaxName is the longest name in bytes that a store accepts. It is the path length limit of POSIX
// systems.
const MaxName = 4 << 10

// CleanName returns the canonical spelling of a name: "a//b/./c" becomes "a/b/c". It rejects names
// that could leave the root or truncate a path as malformed: "..", a leading "/", NUL, more than
// MaxName bytes, and the root itself.
func CleanName(name string) (string, error) {
	if msg := badName(name); msg != "" {
		return "", robocache.Malformed("name", robocache.Where{"file": quoteName(name)}, "%s", msg).
			WithHint("a file is named relative to the dataset's root, with / between the parts")
	}
	return path.Clean(name), nil
}

// cleanFor is CleanName for an operation of a store.
func cleanFor(ctx context.Context, uri, op, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	name, err := CleanName(name)
	if err := storeError(op, uri, "", err); err != nil {
		return "", err
	}
	return name, nil
}

// badName returns why a name is invalid, or "" if it is valid.
func badName(name string) string {
	switch {
	case name == "":
		return "empty name"
	case len(name) > MaxName:
		return "the name has " + strconv.Itoa(len(name)) + " bytes, over the " +
			strconv.Itoa(MaxName) + " allowed"
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

// cleanPrefix is CleanName for List and Sub, where "" and "." are the whole store.
func cleanPrefix(prefix string) (string, error) {
	if prefix == "" || prefix == "." || prefix == "./" {
		return "", nil
	}
	return CleanName(prefix)
}

// quoteName returns a name for use in a message. Names come from files, and a line break in one
// must not forge a log line.
func quoteName(name string) string {
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
