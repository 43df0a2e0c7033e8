package convert

import (
	"os"
	"path/filepath"

	"github.com/goatnote-inc/robocache/store"
)

// absent lists the folders at and above a destination that are not there, the deepest first.
func absent(dst string) (out []string) {
	dir, ok := store.LocalPath(dst)
	if !ok || dst == "" {
		return nil
	}
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			return out
		}
		out = append(out, dir)
	}
}

// clearFolders removes the empty folders that a run left at a destination, and those of made, which it made.
func clearFolders(dst string, made []string) {
	if dir, ok := store.LocalPath(dst); ok {
		removeEmpty(dir)
	}
	for _, dir := range made {
		if i, err := os.Lstat(dir); err != nil || !i.IsDir() || os.Remove(dir) != nil {
			return // it holds something, and so do those above it
		}
	}
}

// removeEmpty removes the empty folders below a folder.
func removeEmpty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			sub := filepath.Join(dir, e.Name())
			removeEmpty(sub)
			_ = os.Remove(sub) // fails where something is left, as it should
		}
	}
}
