package edit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// editSite is the location of a dataset that is edited in place, and of the temporary entries next
// to it.
type editSite struct {
	parent, name string
	lock         *os.File
}

// entryPath returns the path of an entry next to the dataset, or of the dataset itself if entry is
// empty.
func (s *editSite) entryPath(entry string) string {
	if entry == "" {
		return filepath.Join(s.parent, s.name)
	}
	if entry == entryNew { // some writers need the extension of the dataset
		entry += filepath.Ext(s.name)
	}
	return filepath.Join(s.parent, "."+s.name+".robocache-"+entry)
}

// The names of the entries next to a dataset.
const (
	// entryNew is the result while it is built. After the exchange it is the old dataset, until the
	// edit ends.
	entryNew = "new"
	// entryMovedOut is the old dataset between two renames, if the file system cannot exchange
	// folders.
	entryMovedOut = "out"
	// entryJournal records which dataset is old and which is new. It exists from before the
	// exchange until the edit ends.
	entryJournal     = "journal"
	entryUndo        = "undo"      // the old dataset
	entryUndoJournal = "undo.json" // the journal of the last edit
)

// editJournal identifies the old and the new dataset by their inodes, and lists the files of the
// old one.
type editJournal struct {
	Old uint64 `json:"old_inode"`
	New uint64 `json:"new_inode"`
	// size, modification time and checksum of each file of the old dataset
	Files map[string]string `json:"files"`
}

// renameat2 is a variable so that tests can replace it.
var renameat2 = unix.Renameat2

// beforeStep is called before each step after which recovery from a kill differs. Tests kill the
// process there.
var beforeStep = func(string) {}

// lockSite locks a local dataset for editing. If another process holds the lock, it returns a
// temporary error.
func lockSite(uri string) (*editSite, error) {
	dir, ok := store.LocalPath(uri)
	if !ok {
		return nil, robocache.Unsupported(
			"edit",
			robocache.Where{"dataset": robocache.Redact(uri)},
			"in place: the dataset is not on this machine's disks",
		).WithHint("write to a new place, or copy the dataset to this machine first")
	}
	var err error
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	s := &editSite{parent: filepath.Dir(dir), name: filepath.Base(dir)}
	f, err := os.OpenFile(s.entryPath("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err := robocache.At(err, robocache.Where{"file": s.entryPath("lock")}); err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var st unix.Stat_t
	if err == nil {
		isStale := unix.Fstat(int(f.Fd()), &st) != nil
		if !isStale {
			inode, failed := s.inodeOf("lock")
			if failed != nil {
				f.Close()
				return nil, failed
			}
			isStale = st.Ino != inode
		}
		if isStale {
			err = unix.EWOULDBLOCK // the last holder removed the lock file in between
		}
	}
	if err != nil {
		f.Close()
		return nil, robocache.Temporary(
			"edit",
			robocache.Where{"dataset": dir},
			"another process edits the dataset",
		).WithCause(err)
	}
	s.lock = f
	return s, nil
}

func (s *editSite) unlock() {
	_ = os.Remove(s.entryPath("lock"))
	_ = s.lock.Close()
}

// inodeOf returns the inode of an entry, or 0 if the entry does not exist.
func (s *editSite) inodeOf(entry string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(s.entryPath(entry), &st)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.entryPath(entry)}); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// entryInode is an entry and its expected inode; 0 means that the entry does not exist.
type entryInode struct {
	entry string
	inode uint64
}

// hasInodes reports whether all entries have the expected inodes.
func (s *editSite) hasInodes(expected ...entryInode) (bool, error) {
	for _, want := range expected {
		inode, err := s.inodeOf(want.entry)
		if err != nil || inode != want.inode {
			return false, err
		}
	}
	return true, nil
}

func (s *editSite) removeEntry(entry string) error {
	path := s.entryPath(entry)
	return robocache.At(os.RemoveAll(path), robocache.Where{"file": path})
}

func (s *editSite) renameEntry(from, to string) error {
	beforeStep("rename " + from + " " + to)
	return robocache.At(
		os.Rename(s.entryPath(from), s.entryPath(to)),
		robocache.Where{"file": s.entryPath(from)},
	)
}

// exchangeWith swaps the dataset with an entry atomically. If the file system cannot do this, it
// renames in three steps. recoverEdit handles a kill between them.
func (s *editSite) exchangeWith(entry string) error {
	beforeStep("exchange")
	err := renameat2(
		unix.AT_FDCWD,
		s.entryPath(entry),
		unix.AT_FDCWD,
		s.entryPath(""),
		unix.RENAME_EXCHANGE,
	)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		if err := s.renameEntry("", entryMovedOut); err != nil {
			return err
		}
		if err := s.renameEntry(entry, ""); err != nil {
			return err
		}
		if err := s.renameEntry(entryMovedOut, entry); err != nil {
			return err
		}
		err = nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.entryPath("")}); err != nil {
		return err
	}
	return s.syncFileSystem()
}

// syncFileSystem makes all changes durable. It syncs the whole file system, because a result has
// many files and folders.
func (s *editSite) syncFileSystem() error {
	d, err := os.Open(s.parent)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil && !errors.Is(err, syscall.ENOSYS) {
		return robocache.At(err, robocache.Where{"file": s.parent})
	}
	return nil
}

func (s *editSite) readJournal(entry string) (*editJournal, error) {
	b, err := os.ReadFile(s.entryPath(entry))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.entryPath(entry)}); err != nil {
		return nil, err
	}
	j := &editJournal{}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, robocache.Malformed("edit", robocache.Where{"file": s.entryPath(entry)}, "").
			WithCause(err)
	}
	return j, nil
}
