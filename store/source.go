package store

import (
	"net/url"
	"strings"
)

// Source is a dataset that gives the bytes below it (robocache.As).
type Source interface {
	// Store is closed with the dataset.
	Store() Store
}

// LocalPath gives the path of a destination on this machine.
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
