package write

import (
	"context"
	"slices"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// staleAge is how long nobody has written to an unfinished file before it counts as left behind.
const staleAge = time.Hour

// openTarget opens a destination and refuses one that holds anything, but for what an interrupted conversion left. whole says that only its end is
// missing: the dataset is there, and its journal.
func openTarget(ctx context.Context, dst string, resume bool) (w store.Writable, whole bool, err error) {
	misuse := func(msg, hint string) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Where: robocache.Where{"dataset": robocache.Redact(dst)}, Msg: msg, Hint: hint}
	}
	if dst == "" {
		return nil, false, misuse("no destination", "")
	}
	if w, err = store.OpenWritable(dst); err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			_ = store.Close(w)
		}
	}()
	files, err := w.List(ctx, "")
	if err != nil {
		return nil, false, err
	}
	journal := false
	for _, f := range files {
		journal = journal || f.Name == journalName
		whole = whole || f.Name == "meta/info.json"
	}
	switch whole = whole && journal && resume; {
	case len(files) == 0, whole:
	case !journal && slices.ContainsFunc(files, func(f store.Entry) bool { return f.Name == "meta/info.json" }):
		return nil, false, misuse("there is a dataset here already", "choose an empty destination")
	case !journal:
		return nil, false, misuse("the destination is not empty", "choose an empty destination")
	case !resume:
		return nil, false, misuse("an interrupted conversion lies here", "resume it, or empty the destination")
	}
	if l, ok := w.(*store.Local); ok {
		// What a kill left unfinished. Where there is a journal or the caller resumes, nobody else writes here; a kill while the first
		// journal was written leaves none, and then only what is old is surely nobody's.
		age := staleAge
		if journal || resume {
			age = 0
		}
		if _, err := l.Sweep(ctx, age); err != nil {
			return nil, false, err
		}
	}
	return w, whole, nil
}
