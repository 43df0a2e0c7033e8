package edit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// freeBytes returns the free space at a folder, or 0 if the system does not report it.
func freeBytes(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

// lockInPlace locks the dataset before it is opened. Otherwise the changes of another editor could
// be lost.
func (e *editor) lockInPlace(uri string) error {
	var err error
	if e.site, err = lockSite(uri); err != nil {
		return err
	}
	what, err := e.site.recoverEdit()
	if err != nil {
		return err
	}
	if what != "" {
		return robocache.Temporary(
			"edit",
			robocache.Where{"dataset": e.site.entryPath("")},
			"an interrupted edit was ended just now, and %s",
			what,
		).WithHint("look at the dataset, and run the edit again")
	}
	return nil
}

// editInPlace builds the result next to the dataset, verifies it, and exchanges the two (edit.E5).
func (e *editor) editInPlace(ctx context.Context, p *Plan) (*Report, error) {
	site := e.site
	if p.Format == robocache.DefaultFormat() && e.srcs[0].Info().Format == p.Format {
		e.link = site.entryPath("")
	}
	hasJournal := false
	defer func() {
		if !hasJournal {
			_ = os.RemoveAll(site.entryPath(entryNew))
		}
	}()
	beforeStep("build")
	report, err := e.writePlan(ctx, p, site.entryPath(entryNew), false)
	if err != nil {
		return nil, err
	}
	beforeStep("verify")
	if err := site.checkSameType(); err != nil {
		return nil, err
	}
	if err := e.verifyResult(ctx, site); err != nil {
		return nil, err
	}
	files, err := site.writeJournal(ctx)
	if err != nil {
		return nil, err
	}
	hasJournal = true // recoverEdit now decides what is kept
	if err := site.exchangeWith(entryNew); err != nil {
		if _, err := site.recoverEdit(); err != nil {
			return nil, err
		}
		return nil, err
	}
	undoInode, err := site.inodeOf(entryUndo)
	if err != nil {
		return nil, err
	}
	if undoInode != 0 {
		report.Notes = append(
			slices.Clone(report.Notes),
			"the copy from before the earlier edit in place "+
				"is deleted: 'robocache edit undo' undoes only this edit",
		)
	}
	if err := site.keepForUndo(); err != nil {
		return nil, err
	}
	lost := site.filesLeftOut(files)
	if p.Format == robocache.DefaultFormat() && len(lost) > 0 {
		report.Notes = append(
			slices.Clone(report.Notes),
			fmt.Sprintf(
				"%d files that do not belong to the dataset are kept only in %s, until the next "+
					"edit: %s",
				len(lost),
				site.entryPath(entryUndo),
				strings.Join(lost[:min(5, len(lost))], ", "),
			),
		)
	}
	report.DST = site.entryPath("")
	report.InPlace = true
	report.Undo = site.entryPath(entryUndo)
	report.DryRun = false
	return report, nil
}

// checkSameType returns an error if one of the dataset and its result is a file and the other a
// folder.
func (s *editSite) checkSameType() error {
	before, err := os.Stat(s.entryPath(""))
	if err != nil {
		return err
	}
	after, err := os.Stat(s.entryPath(entryNew))
	if err != nil {
		return err
	}
	if before.IsDir() != after.IsDir() {
		return robocache.Unsupported(
			"edit",
			robocache.Where{"dataset": s.entryPath("")},
			"in place: a file would become a folder, or a folder a file",
		).WithHint("write to a new place, or copy the dataset to this machine first")
	}
	return nil
}

// writeJournal writes the journal of the exchange and returns the checksums of the old dataset.
func (s *editSite) writeJournal(ctx context.Context) (files map[string]string, err error) {
	oldInode, err := s.inodeOf("")
	if err != nil {
		return nil, err
	}
	newInode, err := s.inodeOf(entryNew)
	if err != nil {
		return nil, err
	}
	if files, err = checksums(s.entryPath("")); err != nil {
		return nil, err
	}
	if err := s.syncFileSystem(); err != nil {
		return nil, err
	}
	beforeStep("journal")
	encoded, err := json.Marshal(editJournal{Old: oldInode, New: newInode, Files: files})
	if err != nil {
		return nil, err
	}
	name := filepath.Base(s.entryPath(entryJournal))
	if err := store.WriteFile(context.WithoutCancel(ctx), s.parent, name, encoded); err != nil {
		return nil, err
	}
	return files, nil
}

// isWriterFile reports whether the LeRobot writer writes a file of that name.
func isWriterFile(name string) bool {
	top, rest, _ := strings.Cut(filepath.ToSlash(name), "/")
	if top == "meta" {
		for _, table := range []string{"episodes", "tasks", "stats"} {
			if strings.HasPrefix(rest, table) {
				return true
			}
		}
	}
	return slices.Contains([]string{"data", "videos", "images"}, top)
}

// filesLeftOut returns the files of the old dataset that the LeRobot writer does not know and that
// the new dataset does not have.
func (s *editSite) filesLeftOut(files map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if isWriterFile(name) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.entryPath(""), name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// keepForUndo moves the old dataset and the journal to where Undo finds them.
func (s *editSite) keepForUndo() error {
	beforeStep("finish")
	if err := s.removeEntry(entryUndo); err != nil {
		return err
	}
	if err := s.renameEntry(entryNew, entryUndo); err != nil {
		return err
	}
	if err := s.renameEntry(entryJournal, entryUndoJournal); err != nil {
		return err
	}
	return s.syncFileSystem()
}

// verifyResult examines a result before it replaces the dataset. It returns an error if the result
// has an error that the old dataset does not have.
func (e *editor) verifyResult(ctx context.Context, s *editSite) error {
	ds, err := robocache.Open(
		ctx,
		s.entryPath(entryNew),
		robocache.OpenOptions{Format: e.srcs[0].Info().Format},
	)
	if err != nil {
		return err
	}
	defer ds.Close()
	found, err := errorFindings(ctx, ds)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	oldErrors, err := errorFindings(ctx, e.srcs[0])
	if err != nil {
		return err
	}
	for code, msg := range found {
		if _, ok := oldErrors[code]; !ok {
			return robocache.Malformed(
				"edit",
				robocache.Where{"dataset": s.entryPath("")},
				"the dataset was not replaced, because the result has a new error: %s: %s",
				code,
				msg,
			)
		}
	}
	return nil
}

// errorFindings returns the messages of the doctor's errors by code.
func errorFindings(ctx context.Context, ds robocache.Dataset) (map[string]string, error) {
	out := map[string]string{}
	diagnose := ds.Capabilities().Diagnose
	if diagnose == nil {
		return out, nil
	}
	findings, err := diagnose(ctx, robocache.DiagnoseOptions{})
	if err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Severity == robocache.SeverityError {
			out[f.Code] = f.Message
		}
	}
	return out, nil
}

// Messages that recoverEdit returns.
const (
	messageDone       = "the edit was completed; 'robocache edit undo' undoes it"
	messageRolledBack = "the edit was rolled back: the dataset is unchanged"
	messageUndone     = "the undo was completed: the dataset is as it was before the edit"
)
