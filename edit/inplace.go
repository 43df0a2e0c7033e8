package edit

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// freeBytes is what is free at a folder, or at the first above it that is there; 0 where nobody says.
func freeBytes(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

func (e *editor) inPlace(context.Context, *Plan, *Report) *Report {
	guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "edit", Msg: "in place"})
	return nil
}
