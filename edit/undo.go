package edit

import (
	"cmp"

	"github.com/goatnote-inc/robocache"
)

// recover ends what an interrupted edit or undo began: after the exchange it is finished, before it
// is forgotten. It says what it did; "" = there was none.
func (s *site) recover() (string, error) {
	j, err := s.read(journal)
	if err != nil {
		return "", err
	}
	if j == nil {
		if err := s.remove(isNew); err != nil {
			return "", err
		}
		u, err := s.read(undoLog)
		if err != nil {
			return "", err
		}
		holds3 := u != nil
		if holds3 {
			inode, err := s.inode("")
			if err != nil {
				return "", err
			}
			holds3 = inode == 0
		}
		holds2 := holds3
		if holds2 {
			inode, err := s.inode(isOut)
			if err != nil {
				return "", err
			}
			holds2 = inode == u.New
		}
		holds := holds2
		if holds {
			inode, err := s.inode(isUndo)
			if err != nil {
				return "", err
			}
			holds = inode == u.Old
		}
		if holds { // an undo that was killed between two renames
			if err := s.rename(isUndo, ""); err != nil {
				return "", err
			}
		}
		holds4 := u != nil
		if holds4 {
			inode, err := s.inode("")
			if err != nil {
				return "", err
			}
			holds4 = inode == u.Old
		}
		if holds4 { // or behind its exchange
			if err := s.forget(); err != nil {
				return "", err
			}
			return isUndone, nil
		}
		return "", nil
	}
	inode, err := s.inode("")
	if err != nil {
		return "", err
	}
	if inode == 0 { // killed between two renames
		inodeValue, err := s.inode(isNew)
		if err != nil {
			return "", err
		}
		holds := inodeValue != j.New
		if !holds {
			inodeValue2, err := s.inode(isOut)
			if err != nil {
				return "", err
			}
			holds = inodeValue2 != j.Old
		}
		if holds {
			return "", robocache.Malformed("edit", robocache.Where{"dataset": s.path("")}, "an interrupted edit cannot be ended: the folders beside the dataset are not those of its journal").
				WithHint("look at %s", s.path("*"))
		}
		if err := s.rename(isNew, ""); err != nil {
			return "", err
		}
	}
	inodeValue, err := s.inode(isOut)
	if err != nil {
		return "", err
	}
	if inodeValue != 0 {
		if err := s.rename(isOut, isNew); err != nil {
			return "", err
		}
	}
	inodeValue2, err := s.inode("")
	if err != nil {
		return "", err
	}
	switch inodeValue2 {
	case j.New:
		inodeValue3, err := s.inode(isNew)
		if err != nil {
			return "", err
		}
		if inodeValue3 == j.Old {
			if err := s.finish(); err != nil {
				return "", err
			}
		} else { // the old one is at its place already
			if err := s.rename(journal, undoLog); err != nil {
				return "", err
			}
			if err := s.sync(); err != nil {
				return "", err
			}
		}
		return isDone, nil
	}
	if err := s.remove(isNew); err != nil {
		return "", err
	}
	if err := s.remove(journal); err != nil {
		return "", err
	}
	if err := s.sync(); err != nil {
		return "", err
	}
	return isBack, nil
}

// forget removes what undo would take.
func (s *site) forget() error {
	if err := s.remove(isUndo); err != nil {
		return err
	}
	if err := s.remove(isOut); err != nil {
		return err
	}
	return s.remove(undoLog)
}

// Recover ends an edit in place that was interrupted, and says what is there now.
func Recover(dir string) (what string, err error) {
	s, err := lockSite(dir)
	if err != nil {
		return what, err
	}
	defer s.unlock()
	recover, err := s.recover()
	if err != nil {
		return what, err
	}
	return cmp.Or(recover, "no interrupted edit"), nil
}

// Undo gives the dataset back as it was before its last edit in place. Where its files were changed
// since, through hard links say, it refuses.
func Undo(dir string) (err error) {
	s, err := lockSite(dir)
	if err != nil {
		return err
	}
	defer s.unlock()
	recover, err := s.recover()
	if err != nil {
		return err
	}
	if recover == isUndone {
		return nil
	}
	j, err := s.read(undoLog)
	if err != nil {
		return err
	}
	where := robocache.Where{"dataset": s.path("")}
	holds := j == nil
	if !holds {
		inode, err := s.inode(isUndo)
		if err != nil {
			return err
		}
		holds = inode != j.Old
	}
	if holds {
		return robocache.NotFound("undo", where, "there is no edit in place to take back")
	}
	now, err := sums(s.path(isUndo))
	if err != nil {
		return err
	}
	for name, sum := range j.Files {
		if now[name] != sum {
			where["file"] = name
			return robocache.Malformed("undo", where, "the file was changed since the edit, as another program can through a hard link").
				WithHint("what is left lies in %s", s.path(isUndo))
		}
	}
	if len(now) != len(j.Files) {
		return robocache.Malformed("undo", where, "%d files are kept, there were %d", len(now), len(j.Files)).
			WithHint("what is left lies in %s", s.path(isUndo))
	}
	if err := s.exchange(isUndo); err != nil {
		return err
	}
	step("undone")
	if err := s.forget(); err != nil {
		return err
	}
	return nil
}
