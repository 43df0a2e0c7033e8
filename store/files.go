package store

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// fileFinder is a Store in which a file's name may belong to something other than a regular file.
// findFiles is List with two additions: entries of any type for whose names accept returns true,
// and links that may lead to whole folders.
type fileFinder interface {
	findFiles(ctx context.Context, prefix string, accept func(name string) bool) ([]Entry, error)
}

// Files returns the entries below prefix for whose names accept returns true, sorted by name. An
// entry that is not a regular file (a dangling link, a link that leaves the root, a FIFO, a folder)
// has the error of Open in its Err. A dataset therefore never omits it silently. links holds the
// other links that may lead to whole folders of files, each with its Err. Formats that list their
// files use this function.
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
