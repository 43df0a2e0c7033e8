package store

import (
	"io"
	"net/url"
	"os"
	"strings"
)

// Source is a dataset that provides its underlying store (robocache.As).
type Source interface {
	// Store returns the store. The dataset closes it.
	Store() Store
}

// LocalPath returns the local path of a destination. The result is false for other URIs.
func LocalPath(dst string) (string, bool) {
	if strings.HasPrefix(dst, "file://") {
		u, err := url.Parse(dst)
		if err != nil {
			return "", false
		}
		return u.Path, true
	}
	return dst, !strings.Contains(dst, "://")
}

// FileStartsWith reports whether uri is a regular file of this machine that begins with the bytes
// of prefix.
func FileStartsWith(uri, prefix string) bool {
	name, local := LocalPath(uri)
	if !local {
		return false
	}
	if i, err := os.Stat(name); err != nil || !i.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(prefix))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == prefix
}
