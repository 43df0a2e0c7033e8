package store

import (
	"context"
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// finder is a Store in which something else than a file can stand in a file's place.
type finder interface {
	files(ctx context.Context, prefix string, is func(name string) bool) ([]Entry, error)
}

// Files lists what stands below prefix under names that is says are files' names, sorted. Where it
// is no regular file (a link that leads nowhere or out of the root, a FIFO, a folder), Entry.Err
// says so, and Open fails with it: a dataset of listed files does not get shorter without a word.
// links are those that may hide whole folders, each with its Err. Formats that list their files do
// it here.
func Files(
	ctx context.Context,
	s Store,
	prefix string,
	is func(name string) bool,
) (files, links []Entry, err error) {
	var list []Entry
	if f, ok := s.(finder); ok {
		list, err = f.files(ctx, prefix, is)
	} else {
		list, err = s.List(ctx, prefix)
	}
	for _, e := range list {
		switch {
		case strings.HasPrefix(e.Name, "_staging/"):
			// of shards that are being made (package shard)
		case is(e.Name):
			files = append(files, e)
		case e.Err != nil:
			links = append(links, e)
		}
	}
	return files, links, err
}

// Findings says why entries are no files.
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
