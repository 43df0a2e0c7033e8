package edit

import (
	"cmp"

	"github.com/goatnote-inc/robocache"
)

// recoverEdit completes or rolls back an interrupted edit or undo. After the exchange the edit is
// completed; before it, the edit is rolled back. It returns a message, or "" if nothing was
// interrupted.
func (s *editSite) recoverEdit() (string, error) {
	j, err := s.readJournal(entryJournal)
	if err != nil {
		return "", err
	}
	if j == nil {
		if err := s.removeEntry(entryNew); err != nil {
			return "", err
		}
		return s.recoverUndo()
	}
	inode, err := s.inodeOf("")
	if err != nil {
		return "", err
	}
	if inode == 0 { // killed between two renames
		isOurs, err := s.hasInodes(entryInode{entryNew, j.New}, entryInode{entryMovedOut, j.Old})
		if err != nil {
			return "", err
		}
		if !isOurs {
			return "", robocache.Malformed(
				"edit",
				robocache.Where{"dataset": s.entryPath("")},
				"an interrupted edit cannot be completed: the folders next to the dataset are not "+
					"those of its journal",
			).WithHint("look at %s", s.entryPath("*"))
		}
		if err := s.renameEntry(entryNew, ""); err != nil {
			return "", err
		}
	}
	movedOut, err := s.inodeOf(entryMovedOut)
	if err != nil {
		return "", err
	}
	if movedOut != 0 {
		if err := s.renameEntry(entryMovedOut, entryNew); err != nil {
			return "", err
		}
	}
	isExchanged, err := s.hasInodes(entryInode{"", j.New})
	if err != nil {
		return "", err
	}
	if isExchanged {
		return messageDone, s.completeEdit(j)
	}
	if err := s.removeEntry(entryNew); err != nil {
		return "", err
	}
	if err := s.removeEntry(entryJournal); err != nil {
		return "", err
	}
	return messageRolledBack, s.syncFileSystem()
}

// completeEdit completes an edit that was interrupted after the exchange.
func (s *editSite) completeEdit(j *editJournal) error {
	isPending, err := s.hasInodes(entryInode{entryNew, j.Old})
	if err != nil {
		return err
	}
	if isPending {
		return s.keepForUndo()
	}
	// The old dataset is already at its undo path.
	if err := s.renameEntry(entryJournal, entryUndoJournal); err != nil {
		return err
	}
	return s.syncFileSystem()
}

// recoverUndo completes an interrupted undo. It returns "" if there was none.
func (s *editSite) recoverUndo() (string, error) {
	u, err := s.readJournal(entryUndoJournal)
	if err != nil || u == nil {
		return "", err
	}
	// The undo may have been killed between two renames.
	isMovedOut, err := s.hasInodes(
		entryInode{"", 0}, entryInode{entryMovedOut, u.New}, entryInode{entryUndo, u.Old},
	)
	if err != nil {
		return "", err
	}
	if isMovedOut {
		if err := s.renameEntry(entryUndo, ""); err != nil {
			return "", err
		}
	}
	// It may have been killed after its exchange.
	isRestored, err := s.hasInodes(entryInode{"", u.Old})
	if err != nil || !isRestored {
		return "", err
	}
	return messageUndone, s.removeUndo()
}

// removeUndo removes the entries that Undo needs.
func (s *editSite) removeUndo() error {
	if err := s.removeEntry(entryUndo); err != nil {
		return err
	}
	if err := s.removeEntry(entryMovedOut); err != nil {
		return err
	}
	return s.removeEntry(entryUndoJournal)
}

// Recover completes or rolls back an interrupted edit in place, and returns a description of the
// result.
func Recover(dir string) (what string, err error) {
	s, err := lockSite(dir)
	if err != nil {
		return what, err
	}
	defer s.unlock()
	what, err = s.recoverEdit()
	if err != nil {
		return "", err
	}
	return cmp.Or(what, "no interrupted edit"), nil
}

// Undo restores the dataset as it was before its last edit in place. It returns an error if the
// kept files were changed since, for example through hard links.
func Undo(dir string) (err error) {
	site, err := lockSite(dir)
	if err != nil {
		return err
	}
	defer site.unlock()
	recovered, err := site.recoverEdit()
	if err != nil {
		return err
	}
	if recovered == messageUndone {
		return nil
	}
	journal, err := site.readJournal(entryUndoJournal)
	if err != nil {
		return err
	}
	where := robocache.Where{"dataset": site.entryPath("")}
	hasUndo := journal != nil
	if hasUndo {
		if hasUndo, err = site.hasInodes(entryInode{entryUndo, journal.Old}); err != nil {
			return err
		}
	}
	if !hasUndo {
		return robocache.NotFound("undo", where, "there is no edit in place to undo")
	}
	now, err := checksums(site.entryPath(entryUndo))
	if err != nil {
		return err
	}
	for name, sum := range journal.Files {
		if now[name] != sum {
			where["file"] = name
			return robocache.Malformed(
				"undo",
				where,
				"the file was changed since the edit, as another program can through a hard link",
			).WithHint("the remaining files are in %s", site.entryPath(entryUndo))
		}
	}
	if len(now) != len(journal.Files) {
		return robocache.Malformed(
			"undo",
			where,
			"%d files are kept, expected %d",
			len(now),
			len(journal.Files),
		).WithHint("the remaining files are in %s", site.entryPath(entryUndo))
	}
	if err := site.exchangeWith(entryUndo); err != nil {
		return err
	}
	beforeStep("undone")
	return site.removeUndo()
}
