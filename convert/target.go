package convert

import (
	"context"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// staleAge is how long nobody has written to an unfinished file before it counts as left behind.
const staleAge = time.Hour

// openTarget opens a destination and refuses one that holds anything, but for what an interrupted conversion left.
// made says that the folder was not there.
func openTarget(ctx context.Context, dst string, resume bool) (w store.Writable, made bool, err error) {
	misuse := func(msg, hint string) error {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Where: robocache.Where{"dataset": dst}, Msg: msg, Hint: hint}
	}
	if dst == "" {
		return nil, false, misuse("no destination", "")
	}
	if path, ok := localPath(dst); ok {
		_, err := os.Stat(path)
		made = os.IsNotExist(err)
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
		return nil, made, err
	}
	journal := false
	for _, f := range files {
		journal = journal || f.Name == journalName
		if f.Name == "meta/info.json" {
			return nil, made, misuse("there is a dataset here already", "choose an empty destination")
		}
	}
	switch {
	case len(files) == 0:
	case !journal:
		return nil, made, misuse("the destination is not empty", "choose an empty destination")
	case !resume:
		return nil, made, misuse("an interrupted conversion lies here", "resume it, or empty the destination")
	}
	if l, ok := w.(*store.Local); ok && !made {
		// What a kill left unfinished. Where there is a journal or the caller resumes, nobody else writes here; a kill while the first
		// journal was written leaves none, and then only what is old is surely nobody's.
		age := staleAge
		if journal || resume {
			age = 0
		}
		if _, err := l.Sweep(ctx, age); err != nil {
			return nil, made, err
		}
	}
	return w, made, nil
}

// localPath gives the path of a destination on this machine.
func localPath(dst string) (string, bool) {
	if strings.HasPrefix(dst, "file://") {
		u, err := url.Parse(dst)
		if err != nil {
			return "", false
		}
		return u.Path, true
	}
	return dst, !strings.Contains(dst, "://")
}
