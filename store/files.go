package store

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// fileFinder is a Store in which a file's name may belong to something other than a regular file.
type fileFinder interface {
	findFiles(ctx context.Context, prefix string, is func(name string) bool) ([]Entry, error)
}

// Files returns the entries below prefix whose names are accepted by is, sorted by name. If such an
// entry is not a regular file (a link that is dangling or leaves the root, a FIFO, a folder), its
// Entry.Err is the error of Open. A dataset therefore never omits files silently. links are the
// links that may hide whole folders, each with its Err. Formats that list their files use this
// function.
func Files(
	ctx context.Context,
	s Store,
	prefix string,
	is func(name string) bool,
) (files, links []Entry, err error) {
	var list []Entry
	if f, ok := s.(fileFinder); ok {
		list, err = f.findFiles(ctx, prefix, is)
	} else {
		list, err = s.List(ctx, prefix)
	}
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.Name, "_staging/"):
			// files of shards that are being written (package shard)
		case is(e.Name):
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
