package edit

import (
	"cmp"
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
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// freeBytes is what is free at a folder; 0 where nobody says.
func freeBytes(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

// site is a dataset that is edited in place, and what lies beside it meanwhile.
type site struct {
	parent, name string
	lock         *os.File
}

func (s *site) path(what string) string {
	if what == "" {
		return filepath.Join(s.parent, s.name)
	}
	if what == isNew { // writers look at the end of a name
		what += filepath.Ext(s.name)
	}
	return filepath.Join(s.parent, "."+s.name+".robocache-"+what)
}

// The names of what lies beside a dataset.
const (
	isNew   = "new"       // the result, while it is built; the old dataset, between the exchange and the end
	isOut   = "out"       // the old dataset between two renames, where folders cannot be exchanged
	journal = "journal"   // which is which, from before the exchange to the end
	isUndo  = "undo"      // the dataset as it was
	undoLog = "undo.json" // the journal of that edit
)

// swap is the journal of an edit: who is who by their inodes, and what the old dataset's files are.
type swap struct {
	Old   uint64            `json:"old_inode"`
	New   uint64            `json:"new_inode"`
	Files map[string]string `json:"files"` // of the old dataset: size, time of change and checksum
}

// renameat2 is the system's; tests take it away.
var renameat2 = unix.Renameat2

// step is called before each step that changes what a kill would leave; tests kill the process there.
var step = func(string) {}

// lockSite makes the caller the only editor of a local dataset.
func lockSite(uri string) *site {
	dir, ok := store.LocalPath(uri)
	if !ok {
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "edit", Where: robocache.Where{"dataset": robocache.Redact(uri)}, Msg: "in place: the dataset is not on this machine's disks", Hint: "write to a new place"})
	}
	dir = guard.Must(filepath.Abs(dir))
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	s := &site{parent: filepath.Dir(dir), name: filepath.Base(dir)}
	f, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	guard.Check(robocache.At(err, robocache.Where{"file": s.path("lock")}))
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var st unix.Stat_t
	if err == nil && (unix.Fstat(int(f.Fd()), &st) != nil || st.Ino != s.inode("lock")) {
		err = unix.EWOULDBLOCK // its last holder took the file away meanwhile
	}
	if err != nil {
		f.Close()
		guard.Fail(&robocache.Error{Class: robocache.ErrTemporary, Op: "edit", Where: robocache.Where{"dataset": dir}, Msg: "another process edits the dataset", Err: err})
	}
	s.lock = f
	return s
}

func (s *site) unlock() {
	_ = os.Remove(s.path("lock"))
	_ = s.lock.Close()
}

// inode is that of what lies at a place; 0 where nothing does.
func (s *site) inode(what string) uint64 {
	var st unix.Stat_t
	err := unix.Lstat(s.path(what), &st)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	guard.Check(robocache.At(err, robocache.Where{"file": s.path(what)}))
	return st.Ino
}

func (s *site) remove(what string) {
	guard.Check(robocache.At(os.RemoveAll(s.path(what)), robocache.Where{"file": s.path(what)}))
}

func (s *site) rename(from, to string) {
	step("rename " + from + " " + to)
	guard.Check(robocache.At(os.Rename(s.path(from), s.path(to)), robocache.Where{"file": s.path(from)}))
}

// exchange swaps what lies at two places at once; where the file system cannot, the dataset is moved out first, and recover knows.
func (s *site) exchange(what string) {
	step("exchange")
	err := renameat2(unix.AT_FDCWD, s.path(what), unix.AT_FDCWD, s.path(""), unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		s.rename("", isOut)
		s.rename(what, "")
		s.rename(isOut, what)
		err = nil
	}
	guard.Check(robocache.At(err, robocache.Where{"file": s.path("")}))
	s.sync()
}

// sync makes what was done durable: all of the file system, because a result has many files and folders.
func (s *site) sync() {
	d := guard.Must(os.Open(s.parent))
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil && !errors.Is(err, syscall.ENOSYS) {
		guard.Fail(robocache.At(err, robocache.Where{"file": s.parent}))
	}
}

func (s *site) read(what string) *swap {
	b, err := os.ReadFile(s.path(what))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	guard.Check(robocache.At(err, robocache.Where{"file": s.path(what)}))
	j := &swap{}
	if err := json.Unmarshal(b, j); err != nil {
		guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "edit", Where: robocache.Where{"file": s.path(what)}, Err: err})
	}
	return j
}

// lock makes this the only editor of the dataset, before it is opened: what another does meanwhile would be lost.
func (e *editor) lock(uri string) {
	e.site = lockSite(uri)
	if what := e.site.recover(); what != "" {
		guard.Fail(&robocache.Error{Class: robocache.ErrTemporary, Op: "edit", Where: robocache.Where{"dataset": e.site.path("")}, Msg: "an interrupted edit was ended just now, and " + what, Hint: "look at the dataset, and run the edit again"})
	}
}

// inPlace builds the result beside the dataset, looks at it, and exchanges the two (E5).
func (e *editor) inPlace(ctx context.Context, p *Plan) *Report {
	s := e.site
	if p.Format == robocache.DefaultFormat() && e.srcs[0].Info().Format == p.Format {
		e.link = s.path("")
	}
	done := false
	defer func() {
		if !done {
			_ = os.RemoveAll(s.path(isNew))
		}
	}()
	step("build")
	out := e.one(ctx, p, s.path(isNew), false)
	step("verify")
	if a, b := guard.Must(os.Stat(s.path(""))), guard.Must(os.Stat(s.path(isNew))); a.IsDir() != b.IsDir() {
		guard.Fail(&robocache.Error{Class: robocache.ErrUnsupported, Op: "edit", Where: robocache.Where{"dataset": s.path("")}, Msg: "in place: a file would become a folder, or a folder a file", Hint: "write to a new place"})
	}
	e.verify(ctx, s)
	j := swap{Old: s.inode(""), New: s.inode(isNew), Files: sums(s.path(""))}
	s.sync()
	step("journal")
	guard.Check(store.WriteFile(context.WithoutCancel(ctx), s.parent, filepath.Base(s.path(journal)), guard.Must(json.Marshal(j))))
	done = true // from here on recover decides
	if err := guard.Try(func() { s.exchange(isNew) }); err != nil {
		s.recover()
		guard.Fail(err)
	}
	if s.inode(isUndo) != 0 {
		out.Notes = append(slices.Clone(out.Notes), "the copy from before the earlier edit in place "+
			"is deleted: 'robocache edit undo' takes back this edit alone")
	}
	s.finish()
	if lost := s.lost(j.Files); p.Format == robocache.DefaultFormat() && len(lost) > 0 {
		out.Notes = append(slices.Clone(out.Notes), fmt.Sprintf("%d files that are no part of a dataset are in %s alone, until the next edit: %s", len(lost), s.path(isUndo), strings.Join(lost[:min(5, len(lost))], ", ")))
	}
	out.DST, out.InPlace, out.Undo, out.DryRun = s.path(""), true, s.path(isUndo), false
	return out
}

// lost are the files of the old dataset that a writer of LeRobot does not know, and that the new one does not have.
func (s *site) lost(files map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		top, rest, _ := strings.Cut(filepath.ToSlash(name), "/")
		if slices.Contains([]string{"data", "videos", "images"}, top) || top == "meta" && (strings.HasPrefix(rest, "episodes") || strings.HasPrefix(rest, "tasks") || strings.HasPrefix(rest, "stats")) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.path(""), name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// finish makes of the old dataset what undo takes.
func (s *site) finish() {
	step("finish")
	s.remove(isUndo)
	s.rename(isNew, isUndo)
	s.rename(journal, undoLog)
	s.sync()
}

// verify looks at a result before it takes the dataset's place: the doctor finds no error in it that the old one does not have.
func (e *editor) verify(ctx context.Context, s *site) {
	errs := func(ds robocache.Dataset) map[string]string {
		out := map[string]string{}
		if own, ok := robocache.As[robocache.Diagnoser](ds); ok {
			for _, f := range guard.Must(own.Diagnose(ctx, robocache.DiagnoseOptions{})) {
				if f.Severity == robocache.SeverityError {
					out[f.Code] = f.Message
				}
			}
		}
		return out
	}
	ds := guard.Must(robocache.Open(ctx, s.path(isNew), robocache.OpenOptions{Format: e.srcs[0].Info().Format}))
	defer ds.Close()
	found := errs(ds)
	if len(found) == 0 {
		return
	}
	was := errs(e.srcs[0])
	for code, msg := range found {
		if _, ok := was[code]; !ok {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "edit", Where: robocache.Where{"dataset": s.path("")}, Msg: "the result has an error that the dataset has not, and did not take its place: " + code + ": " + msg})
		}
	}
}

// What recover found and did.
const (
	isDone   = "the edit is done; 'robocache edit undo' takes it back"
	isBack   = "the edit is taken back: the dataset is as it was"
	isUndone = "the undo is done: the dataset is as it was before the edit"
)

// recover ends what an interrupted edit or undo began: after the exchange it is finished, before it is forgotten. It says what it did; "" = there was none.
func (s *site) recover() string {
	j := s.read(journal)
	if j == nil {
		s.remove(isNew)
		u := s.read(undoLog)
		if u != nil && s.inode("") == 0 && s.inode(isOut) == u.New && s.inode(isUndo) == u.Old { // an undo that was killed between two renames
			s.rename(isUndo, "")
		}
		if u != nil && s.inode("") == u.Old { // or behind its exchange
			s.forget()
			return isUndone
		}
		return ""
	}
	if s.inode("") == 0 { // killed between two renames
		if s.inode(isNew) != j.New || s.inode(isOut) != j.Old {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "edit", Where: robocache.Where{"dataset": s.path("")}, Msg: "an interrupted edit cannot be ended: the folders beside the dataset are not those of its journal", Hint: "look at " + s.path("*")})
		}
		s.rename(isNew, "")
	}
	if s.inode(isOut) != 0 {
		s.rename(isOut, isNew)
	}
	switch s.inode("") {
	case j.New:
		if s.inode(isNew) == j.Old {
			s.finish()
		} else { // the old one is at its place already
			s.rename(journal, undoLog)
			s.sync()
		}
		return isDone
	}
	s.remove(isNew)
	s.remove(journal)
	s.sync()
	return isBack
}

// forget removes what undo would take.
func (s *site) forget() {
	s.remove(isUndo)
	s.remove(isOut)
	s.remove(undoLog)
}

// Recover ends an edit in place that was interrupted, and says what is there now.
func Recover(dir string) (what string, err error) {
	defer guard.Into(&err)
	s := lockSite(dir)
	defer s.unlock()
	return cmp.Or(s.recover(), "no interrupted edit"), nil
}

// Undo gives the dataset back as it was before its last edit in place. Where its files were changed since, through hard links say, it refuses.
func Undo(dir string) (err error) {
	defer guard.Into(&err)
	s := lockSite(dir)
	defer s.unlock()
	if s.recover() == isUndone {
		return nil
	}
	j := s.read(undoLog)
	where := robocache.Where{"dataset": s.path("")}
	if j == nil || s.inode(isUndo) != j.Old {
		return &robocache.Error{Class: robocache.ErrNotFound, Op: "undo", Where: where, Msg: "there is no edit in place to take back"}
	}
	now := sums(s.path(isUndo))
	for name, sum := range j.Files {
		if now[name] != sum {
			where["file"] = name
			return &robocache.Error{Class: robocache.ErrMalformed, Op: "undo", Where: where, Msg: "the file was changed since the edit, as another program can through a hard link", Hint: "what is left lies in " + s.path(isUndo)}
		}
	}
	if len(now) != len(j.Files) {
		return &robocache.Error{Class: robocache.ErrMalformed, Op: "undo", Where: where, Msg: fmt.Sprintf("%d files are kept, there were %d", len(now), len(j.Files)), Hint: "what is left lies in " + s.path(isUndo)}
	}
	s.exchange(isUndo)
	step("undone")
	s.forget()
	return nil
}

// Of a dataset up to wholeBytes, checksums are of whole files; of a larger one, of blocks of each file, evenly spaced: an edit that copies nothing is not to
// wait for all of it to be read.
const (
	wholeBytes   = 8 << 30
	sampleBlocks = 64
	sampleBytes  = 64 << 10
)

// sums gives file → size, time of change and checksum of all below a folder.
func sums(dir string) map[string]string {
	type file struct {
		fs.FileInfo
		path, sum string
	}
	var files []*file
	var total int64
	guard.Check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files, total = append(files, &file{FileInfo: info, path: path}), total+info.Size()
		}
		return err
	}))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		g.Go(guard.Func("edit", func() {
			h := sha256.New()
			if f.Mode().IsRegular() {
				in := guard.Must(os.Open(f.path))
				defer in.Close()
				if step := f.Size() / sampleBlocks; total > wholeBytes && step > sampleBytes {
					for k := range int64(sampleBlocks) {
						guard.Must(io.Copy(h, io.NewSectionReader(in, k*step, sampleBytes)))
					}
					guard.Must(io.Copy(h, io.NewSectionReader(in, f.Size()-sampleBytes, sampleBytes)))
				} else {
					guard.Must(io.Copy(h, in))
				}
			} else {
				target, _ := os.Readlink(f.path)
				fmt.Fprint(h, target)
			}
			f.sum = fmt.Sprintf("%d %d %s", f.Size(), f.ModTime().UnixNano(), hex.EncodeToString(h.Sum(nil)[:16]))
		}))
	}
	guard.Check(g.Wait())
	out := map[string]string{}
	for _, f := range files {
		out[guard.Must(filepath.Rel(dir, f.path))] = f.sum
	}
	return out
}
