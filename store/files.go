package store

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// RecordingIndex is the name of the index of recordings at the root of a dataset (package
// format/recindex). It says nothing about the content of the dataset.
const RecordingIndex = ".robocache-index"

// fileFinder is a Store that may contain entries that are not regular files. findFiles is List with
// two additions: irregular entries whose names accept accepts, and links that may lead to folders.
type fileFinder interface {
	findFiles(ctx context.Context, prefix string, accept func(name string) bool) ([]Entry, error)
}

// Files returns the entries below prefix whose names accept accepts, sorted by name. Formats that
// list their files use this function, because a dataset must not omit a file silently. An entry that
// cannot be opened has the error of Open in its Err. Such entries are dangling links, links that
// leave the root, FIFOs and folders.
//
// links holds links with other names that cannot be followed and may lead to folders with accepted
// files. Each has its Err.
func Files(
	ctx context.Context,
	s Store,
	prefix string,
	accept func(name string) bool,
) (files, links []Entry, err error) {
	var list []Entry
	if f, ok := s.(fileFinder); ok {
		list, err = f.findFiles(ctx, prefix, accept)
	} else {
		list, err = s.List(ctx, prefix)
	}
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.Name, "_staging/"):
			// package shard is still writing these files
		case accept(e.Name):
			files = append(files, e)
		case e.Err != nil:
			links = append(links, e)
		}
	}
	return files, links, err
}

// Findings returns a finding for each entry with an error.
func Findings(entries []Entry, code string) (out []robocache.Finding) {
	for _, e := range entries {
		if e.Err == nil {
			continue
		}
		f := robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     code,
			Where:    robocache.Where{"file": e.Name},
			Message:  e.Err.Error(),
			Lost:     true,
		}
		var typed *robocache.Error
		if errors.As(e.Err, &typed) {
			f.Hint = typed.Hint
		}
		out = append(out, f)
	}
	return out
}
