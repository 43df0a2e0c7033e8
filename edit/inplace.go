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
	// the result, while it is built; the old dataset, between the exchange and the end
	isNew   = "new"
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

// step is called before each step that changes what a kill would leave; tests kill the process
// there.
var step = func(string) {}

// lockSite makes the caller the only editor of a local dataset.
func lockSite(uri string) (*site, error) {
	dir, ok := store.LocalPath(uri)
	if !ok {
		return nil, robocache.Unsupported("edit", robocache.Where{"dataset": robocache.Redact(uri)}, "in place: the dataset is not on this machine's disks").
			WithHint("write to a new place, or copy the dataset to this machine first")
	}
	var err error
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	s := &site{parent: filepath.Dir(dir), name: filepath.Base(dir)}
	f, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err := robocache.At(err, robocache.Where{"file": s.path("lock")}); err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	var st unix.Stat_t
	holds := err == nil
	if holds {
		holds2 := unix.Fstat(int(f.Fd()), &st) != nil
		if !holds2 {
			inode, failed := s.inode("lock")
			if failed != nil {
				return nil, failed
			}
			holds2 = st.Ino != inode
		}
		holds = holds2
	}
	if holds {
		err = unix.EWOULDBLOCK // its last holder took the file away meanwhile
	}
	if err != nil {
		f.Close()
		return nil, robocache.Temporary("edit", robocache.Where{"dataset": dir}, "another process edits the dataset").
			WithCause(err)
	}
	s.lock = f
	return s, nil
}

func (s *site) unlock() {
	_ = os.Remove(s.path("lock"))
	_ = s.lock.Close()
}

// inode is that of what lies at a place; 0 where nothing does.
func (s *site) inode(what string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(s.path(what), &st)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.path(what)}); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

func (s *site) remove(what string) error {
	return robocache.At(os.RemoveAll(s.path(what)), robocache.Where{"file": s.path(what)})
}

func (s *site) rename(from, to string) error {
	step("rename " + from + " " + to)
	return robocache.At(os.Rename(s.path(from), s.path(to)), robocache.Where{"file": s.path(from)})
}

// exchange swaps what lies at two places at once; where the file system cannot, the dataset is
// moved out first, and recover knows.
func (s *site) exchange(what string) error {
	step("exchange")
	err := renameat2(unix.AT_FDCWD, s.path(what), unix.AT_FDCWD, s.path(""), unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		if err := s.rename("", isOut); err != nil {
			return err
		}
		if err := s.rename(what, ""); err != nil {
			return err
		}
		if err := s.rename(isOut, what); err != nil {
			return err
		}
		err = nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.path("")}); err != nil {
		return err
	}
	return s.sync()
}

// sync makes what was done durable: all of the file system, because a result has many files and
// folders.
func (s *site) sync() error {
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

func (s *site) read(what string) (*swap, error) {
	b, err := os.ReadFile(s.path(what))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := robocache.At(err, robocache.Where{"file": s.path(what)}); err != nil {
		return nil, err
	}
	j := &swap{}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, robocache.Malformed("edit", robocache.Where{"file": s.path(what)}, "").
			WithCause(err)
	}
	return j, nil
}

// lock makes this the only editor of the dataset, before it is opened: what another does meanwhile
// would be lost.
func (e *editor) lock(uri string) error {
	var err error
	if e.site, err = lockSite(uri); err != nil {
		return err
	}
	if what, err := e.site.recover(); err != nil {
		return err
	} else if what != "" {
		return robocache.Temporary("edit", robocache.Where{"dataset": e.site.path("")}, "an interrupted edit was ended just now, and %s", what).
			WithHint("look at the dataset, and run the edit again")
	}
	return nil
}

// inPlace builds the result beside the dataset, looks at it, and exchanges the two (E5).
func (e *editor) inPlace(ctx context.Context, p *Plan) (*Report, error) {
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
	out, err := e.one(ctx, p, s.path(isNew), false)
	if err != nil {
		return nil, err
	}
	step("verify")
	{
		a, err := os.Stat(s.path(""))
		if err != nil {
			return nil, err
		}
		b, err := os.Stat(s.path(isNew))
		if err != nil {
			return nil, err
		}
		if a.IsDir() != b.IsDir() {
			return nil, robocache.Unsupported("edit", robocache.Where{"dataset": s.path("")}, "in place: a file would become a folder, or a folder a file").
				WithHint("write to a new place, or copy the dataset to this machine first")
		}
	}
	if err := e.verify(ctx, s); err != nil {
		return nil, err
	}
	inode, err := s.inode("")
	if err != nil {
		return nil, err
	}
	inodeValue, err := s.inode(isNew)
	if err != nil {
		return nil, err
	}
	sumsValue, err := sums(s.path(""))
	if err != nil {
		return nil, err
	}
	j := swap{Old: inode, New: inodeValue, Files: sumsValue}
	if err := s.sync(); err != nil {
		return nil, err
	}
	step("journal")
	encoded, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if err := store.WriteFile(
		context.WithoutCancel(ctx),
		s.parent,
		filepath.Base(s.path(journal)),
		encoded,
	); err != nil {
		return nil, err
	}
	done = true // from here on recover decides
	if err := s.exchange(isNew); err != nil {
		if _, err := s.recover(); err != nil {
			return nil, err
		}
		return nil, err
	}
	inodeValue2, err := s.inode(isUndo)
	if err != nil {
		return nil, err
	}
	if inodeValue2 != 0 {
		out.Notes = append(
			slices.Clone(out.Notes),
			"the copy from before the earlier edit in place "+
				"is deleted: 'robocache edit undo' takes back this edit alone",
		)
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	if lost := s.lost(j.Files); p.Format == robocache.DefaultFormat() && len(lost) > 0 {
		out.Notes = append(
			slices.Clone(out.Notes),
			fmt.Sprintf(
				"%d files that are no part of a dataset are in %s alone, until the next edit: %s",
				len(lost),
				s.path(isUndo),
				strings.Join(lost[:min(5, len(lost))], ", "),
			),
		)
	}
	out.DST, out.InPlace, out.Undo, out.DryRun = s.path(""), true, s.path(isUndo), false
	return out, nil
}

// lost are the files of the old dataset that a writer of LeRobot does not know, and that the new
// one does not have.
func (s *site) lost(files map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		top, rest, _ := strings.Cut(filepath.ToSlash(name), "/")
		if slices.Contains([]string{"data", "videos", "images"}, top) ||
			top == "meta" &&
				(strings.HasPrefix(rest, "episodes") || strings.HasPrefix(rest, "tasks") || strings.HasPrefix(rest, "stats")) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(s.path(""), name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// finish makes of the old dataset what undo takes.
func (s *site) finish() error {
	step("finish")
	if err := s.remove(isUndo); err != nil {
		return err
	}
	if err := s.rename(isNew, isUndo); err != nil {
		return err
	}
	if err := s.rename(journal, undoLog); err != nil {
		return err
	}
	return s.sync()
}

// verify looks at a result before it takes the dataset's place: the doctor finds no error in it
// that the old one does not have.
func (e *editor) verify(ctx context.Context, s *site) error {
	errs := func(ds robocache.Dataset) (map[string]string, error) {
		out := map[string]string{}
		if diagnose := ds.Capabilities().Diagnose; diagnose != nil {
			findings, err := diagnose(ctx, robocache.DiagnoseOptions{})
			if err != nil {
				return nil, err
			}
			for _, f := range findings {
				if f.Severity == robocache.SeverityError {
					out[f.Code] = f.Message
				}
			}
		}
		return out, nil
	}
	ds, err := robocache.Open(
		ctx,
		s.path(isNew),
		robocache.OpenOptions{Format: e.srcs[0].Info().Format},
	)
	if err != nil {
		return err
	}
	defer ds.Close()
	found, err := errs(ds)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return nil
	}
	was, err := errs(e.srcs[0])
	if err != nil {
		return err
	}
	for code, msg := range found {
		if _, ok := was[code]; !ok {
			return robocache.Malformed(
				"edit",
				robocache.Where{"dataset": s.path("")},
				"the result has an error that the dataset has not, and did not take its place: %s: %s",
				code,
				msg,
			)
		}
	}
	return nil
}

// What recover found and did.
const (
	isDone   = "the edit is done; 'robocache edit undo' takes it back"
	isBack   = "the edit is taken back: the dataset is as it was"
	isUndone = "the undo is done: the dataset is as it was before the edit"
)

// Of a dataset up to wholeBytes, checksums are of whole files; of a larger one, of blocks of each
// file, evenly spaced: an edit that copies nothing is not to wait for all of it to be read.
const (
	wholeBytes   = 8 << 30
	sampleBlocks = 64
	sampleBytes  = 64 << 10
)

// sums gives file → size, time of change and checksum of all below a folder.
func sums(dir string) (map[string]string, error) {
	type file struct {
		fs.FileInfo
		path, sum string
	}
	var files []*file
	var total int64
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files, total = append(files, &file{FileInfo: info, path: path}), total+info.Size()
		}
		return err
	}); err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range files {
		g.Go(crash.Func("edit", func() error {
			h := sha256.New()
			if f.Mode().IsRegular() {
				in, err := os.Open(f.path)
				if err != nil {
					return err
				}
				defer in.Close()
				if step := f.Size() / sampleBlocks; total > wholeBytes && step > sampleBytes {
					for k := range int64(sampleBlocks) {
						if _, err := io.Copy(
							h,
							io.NewSectionReader(in, k*step, sampleBytes),
						); err != nil {
							return err
						}
					}
					if _, err := io.Copy(
						h,
						io.NewSectionReader(in, f.Size()-sampleBytes, sampleBytes),
					); err != nil {
						return err
					}
				} else {
					if _, err := io.Copy(h, in); err != nil {
						return err
					}
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
		}))
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
