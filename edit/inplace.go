package edit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
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

// editSite is the location of a dataset that is edited in place, and of the temporary entries next
// to it.
type editSite struct {
	parent, name string
	lock         *os.File
}

// entryPath returns the path of an entry next to the dataset, or of the dataset itself if what is
// empty.
func (s *editSite) entryPath(what string) string {
	if what == "" {
		return filepath.Join(s.parent, s.name)
	}
	if what == entryNew { // some writers need the extension of the dataset
		what += filepath.Ext(s.name)
	}
	return filepath.Join(s.parent, "."+s.name+".robocache-"+what)
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
func (s *editSite) inodeOf(what string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(s.entryPath(what), &st)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.entryPath(what)}); err != nil {
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

func (s *editSite) removeEntry(what string) error {
	return robocache.At(os.RemoveAll(s.entryPath(what)), robocache.Where{"file": s.entryPath(what)})
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
func (s *editSite) exchangeWith(what string) error {
	beforeStep("exchange")
	err := renameat2(
		unix.AT_FDCWD,
		s.entryPath(what),
		unix.AT_FDCWD,
		s.entryPath(""),
		unix.RENAME_EXCHANGE,
	)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		if err := s.renameEntry("", entryMovedOut); err != nil {
			return err
		}
		if err := s.renameEntry(what, ""); err != nil {
			return err
		}
		if err := s.renameEntry(entryMovedOut, what); err != nil {
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

func (s *editSite) readJournal(what string) (*editJournal, error) {
	b, err := os.ReadFile(s.entryPath(what))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.entryPath(what)}); err != nil {
		return nil, err
	}
	j := &editJournal{}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, robocache.Malformed("edit", robocache.Where{"file": s.entryPath(what)}, "").
			WithCause(err)
	}
	return j, nil
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
	s := e.site
	if p.Format == robocache.DefaultFormat() && e.srcs[0].Info().Format == p.Format {
		e.link = s.entryPath("")
	}
	hasJournal := false
	defer func() {
		if !hasJournal {
			_ = os.RemoveAll(s.entryPath(entryNew))
		}
	}()
	beforeStep("build")
	out, err := e.writePlan(ctx, p, s.entryPath(entryNew), false)
	if err != nil {
		return nil, err
	}
	beforeStep("verify")
	if err := s.checkSameType(); err != nil {
		return nil, err
	}
	if err := e.verifyResult(ctx, s); err != nil {
		return nil, err
	}
	files, err := s.writeJournal(ctx)
	if err != nil {
		return nil, err
	}
	hasJournal = true // recoverEdit now decides what is kept
	if err := s.exchangeWith(entryNew); err != nil {
		if _, err := s.recoverEdit(); err != nil {
			return nil, err
		}
		return nil, err
	}
	undoInode, err := s.inodeOf(entryUndo)
	if err != nil {
		return nil, err
	}
	if undoInode != 0 {
		out.Notes = append(
			slices.Clone(out.Notes),
			"the copy from before the earlier edit in place "+
				"is deleted: 'robocache edit undo' undoes only this edit",
		)
	}
	if err := s.keepForUndo(); err != nil {
		return nil, err
	}
	lost := s.filesLeftOut(files)
	if p.Format == robocache.DefaultFormat() && len(lost) > 0 {
		out.Notes = append(
			slices.Clone(out.Notes),
			fmt.Sprintf(
				"%d files that do not belong to the dataset are kept only in %s, until the next "+
					"edit: %s",
				len(lost),
				s.entryPath(entryUndo),
				strings.Join(lost[:min(5, len(lost))], ", "),
			),
		)
	}
	out.DST = s.entryPath("")
	out.InPlace = true
	out.Undo = s.entryPath(entryUndo)
	out.DryRun = false
	return out, nil
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

// The checksums of a dataset of up to wholeBytes cover whole files. In a larger dataset they cover
// evenly spaced blocks of each file, because reading all of it would make a small edit slow.
const (
	wholeBytes   = 8 << 30
	sampleBlocks = 64
	sampleBytes  = 64 << 10
)

// checksumFile is a file below a folder with its checksum.
type checksumFile struct {
	fs.FileInfo
	path string
	sum  string // size, modification time and SHA-256 as text
}

// checksums returns the size, modification time and checksum of every file below a folder, by path.
func checksums(dir string) (map[string]string, error) {
	var files []*checksumFile
	var total int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files = append(files, &checksumFile{FileInfo: info, path: path})
		total += info.Size()
		return nil
	})
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		g.Go(crash.Func("edit", func() error { return f.sumContents(total > wholeBytes) }))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, f := range files {
		rel, err := filepath.Rel(dir, f.path)
		if err != nil {
			return nil, err
		}
		out[rel] = f.sum
	}
	return out, nil
}

// sumContents computes the checksum of a file, or of the target of a link. If sampled is set, it
// covers blocks of a large file instead of the whole file.
func (f *checksumFile) sumContents(sampled bool) error {
	h := sha256.New()
	if f.Mode().IsRegular() {
		in, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer in.Close()
		if err := hashFile(h, in, f.Size(), sampled); err != nil {
			return err
		}
	} else {
		target, _ := os.Readlink(f.path)
		fmt.Fprint(h, target)
	}
	f.sum = fmt.Sprintf(
		"%d %d %s",
		f.Size(),
		f.ModTime().UnixNano(),
		hex.EncodeToString(h.Sum(nil)[:16]),
	)
	return nil
}

// hashFile adds a file of size bytes to a hash: all of it, or evenly spaced blocks and the last
// one.
func hashFile(h io.Writer, in *os.File, size int64, sampled bool) error {
	step := size / sampleBlocks
	if !sampled || step <= sampleBytes {
		_, err := io.Copy(h, in)
		return err
	}
	for k := range int64(sampleBlocks) {
		if _, err := io.Copy(h, io.NewSectionReader(in, k*step, sampleBytes)); err != nil {
			return err
		}
	}
	_, err := io.Copy(h, io.NewSectionReader(in, size-sampleBytes, sampleBytes))
	return err
}
