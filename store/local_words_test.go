package store

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestWords checks that the error of a folder is readable without names of system calls, and that
// it still wraps the system's error.
func TestWords(t *testing.T) {
	s, err := OpenLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, opened := s.Open(t.Context(), "a/b.txt")
	_, looked := s.Stat(t.Context(), "a/b.txt")
	_, folder := OpenLocal(t.TempDir() + "/none")
	for _, err := range []error{opened, looked, folder} {
		if !errors.Is(err, robocache.ErrNotFound) || !errors.Is(err, fs.ErrNotExist) ||
			strings.Contains(err.Error(), "statat") ||
			strings.Contains(err.Error(), "openat") ||
			strings.Count(err.Error(), "no such file") != 1 {
			t.Errorf("%v", err)
		}
	}
}
