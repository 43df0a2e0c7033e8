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
		u, err := s.readJournal(entryUndoJournal)
		if err != nil {
			return "", err
		}
		holds3 := u != nil
		if holds3 {
			inode, err := s.inodeOf("")
			if err != nil {
				return "", err
			}
			holds3 = inode == 0
		}
		holds2 := holds3
		if holds2 {
			inode, err := s.inodeOf(entryMovedOut)
			if err != nil {
				return "", err
			}
			holds2 = inode == u.New
		}
		holds := holds2
		if holds {
			inode, err := s.inodeOf(entryUndo)
			if err != nil {
				return "", err
			}
			holds = inode == u.Old
		}
		if holds { // an undo was killed between two renames
			if err := s.renameEntry(entryUndo, ""); err != nil {
				return "", err
			}
		}
		holds4 := u != nil
		if holds4 {
			inode, err := s.inodeOf("")
			if err != nil {
				return "", err
			}
			holds4 = inode == u.Old
		}
		if holds4 { // an undo was killed after its exchange
			if err := s.removeUndo(); err != nil {
				return "", err
			}
			return messageUndone, nil
		}
		return "", nil
	}
	inode, err := s.inodeOf("")
	if err != nil {
		return "", err
	}
	if inode == 0 { // killed between two renames
		inodeValue, err := s.inodeOf(entryNew)
		if err != nil {
			return "", err
		}
		holds := inodeValue != j.New
		if !holds {
			inodeValue2, err := s.inodeOf(entryMovedOut)
			if err != nil {
				return "", err
			}
			holds = inodeValue2 != j.Old
		}
		if holds {
			return "", robocache.Malformed(
				"edit",
				robocache.Where{"dataset": s.entryPath("")},
				"an interrupted edit cannot be ended: the folders beside the dataset are not "+
					"those of its journal",
			).
				WithHint("look at %s", s.entryPath("*"))
		}
		if err := s.renameEntry(entryNew, ""); err != nil {
			return "", err
		}
	}
	inodeValue, err := s.inodeOf(entryMovedOut)
	if err != nil {
		return "", err
	}
	if inodeValue != 0 {
		if err := s.renameEntry(entryMovedOut, entryNew); err != nil {
			return "", err
		}
	}
	inodeValue2, err := s.inodeOf("")
	if err != nil {
		return "", err
	}
	switch inodeValue2 {
	case j.New:
		inodeValue3, err := s.inodeOf(entryNew)
		if err != nil {
			return "", err
		}
		if inodeValue3 == j.Old {
			if err := s.keepForUndo(); err != nil {
				return "", err
			}
		} else { // the old dataset is already at its undo path
			if err := s.renameEntry(entryJournal, entryUndoJournal); err != nil {
				return "", err
			}
			if err := s.syncFileSystem(); err != nil {
				return "", err
			}
		}
		return messageDone, nil
	}
	if err := s.removeEntry(entryNew); err != nil {
		return "", err
	}
	if err := s.removeEntry(entryJournal); err != nil {
		return "", err
	}
	if err := s.syncFileSystem(); err != nil {
		return "", err
	}
	return messageRolledBack, nil
}

// removeUndo removes the data for Undo.
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
	recover, err := s.recoverEdit()
	if err != nil {
		return what, err
	}
	return cmp.Or(recover, "no interrupted edit"), nil
}

// Undo restores the dataset as it was before its last edit in place. It returns an error if the
// kept files were changed since, for example through hard links.
func Undo(dir string) (err error) {
	s, err := lockSite(dir)
	if err != nil {
		return err
	}
	defer s.unlock()
	recover, err := s.recoverEdit()
	if err != nil {
		return err
	}
	if recover == messageUndone {
		return nil
	}
	j, err := s.readJournal(entryUndoJournal)
	if err != nil {
		return err
	}
	where := robocache.Where{"dataset": s.entryPath("")}
	holds := j == nil
	if !holds {
		inode, err := s.inodeOf(entryUndo)
		if err != nil {
			return err
		}
		holds = inode != j.Old
	}
	if holds {
		return robocache.NotFound("undo", where, "there is no edit in place to take back")
	}
	now, err := checksums(s.entryPath(entryUndo))
	if err != nil {
		return err
	}
	for name, sum := range j.Files {
		if now[name] != sum {
			where["file"] = name
			return robocache.Malformed("undo", where, "the file was changed since the edit, as "+
				"another program can through a hard link").
				WithHint("what is left lies in %s", s.entryPath(entryUndo))
		}
	}
	if len(now) != len(j.Files) {
		return robocache.Malformed(
			"undo",
			where,
			"%d files are kept, there were %d",
			len(now),
			len(j.Files),
		).
			WithHint("what is left lies in %s", s.entryPath(entryUndo))
	}
	if err := s.exchangeWith(entryUndo); err != nil {
		return err
	}
	beforeStep("undone")
	if err := s.removeUndo(); err != nil {
		return err
	}
	return nil
}
