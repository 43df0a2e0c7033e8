package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Local is a folder of this machine. All access uses os.Root, so names and links cannot leave the
// folder, unless followLinks is set. Writing never follows such a link.
type Local struct {
	root        *os.Root
	prefix      string // path of the dataset below root; "" or clean
	base        string // path of root
	uri         string
	followLinks bool
}

// OpenLocal opens an existing folder.
//
// A snapshot in Hugging Face's hub cache (datasets--owner--name/snapshots/<commit>) contains links
// to ../../blobs. For a snapshot, the folder of the repository is the root, so that these links
// work.
func OpenLocal(dir string) (*Local, error) { return openLocal(dir, false) }

// openLocal is OpenLocal. With follow, links may leave the root.
func openLocal(dir string, follow bool) (_ *Local, err error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return nil, robocache.Malformed(
			"open",
			robocache.Where{"dataset": quoteName(dir)},
			"NUL in the path",
		)
	}
	dir = filepath.Clean(dir)
	// Check first, because opening a FIFO blocks until its other end is opened.
	info, err := os.Stat(dir)
	if err := storeError("open", dir, "", err); err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, robocache.Misuse("open", robocache.Where{"dataset": dir}, "").
			Expected("a folder", modeName(info.Mode())).WithHint("name the folder that holds it")
	}
	base, prefix := hubRepository(dir)
	root, err := os.OpenRoot(base)
	if err := storeError("open", dir, "", err); err != nil {
		return nil, err
	}
	return &Local{root: root, prefix: prefix, base: base, uri: dir, followLinks: follow}, nil
}

// hubKinds are the prefixes of repository names in the hub cache.
var hubKinds = []string{"datasets--", "models--", "spaces--"}

// hubRepository splits the path of a snapshot, …/datasets--owner--name/snapshots/commit/…, into the
// folder of the repository (base) and the rest (prefix). It also recognizes a relative path and a
// path with links to a snapshot. For any other path, base is the path and prefix is "".
func hubRepository(dir string) (base, prefix string) {
	spellings := []string{dir}
	if abs, err := filepath.Abs(dir); err == nil {
		spellings = append(spellings, abs)
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			spellings = append(spellings, real)
		}
	}
	for _, spelling := range spellings {
		parts := strings.Split(filepath.ToSlash(spelling), "/")
		for i := len(parts) - 3; i >= 0; i-- {
			isHubFolder := func(kind string) bool { return strings.HasPrefix(parts[i], kind) }
			if parts[i+1] != "snapshots" || !slices.ContainsFunc(hubKinds, isHubFolder) {
				continue
			}
			root := filepath.FromSlash(strings.Join(parts[:i+1], "/"))
			return root, strings.Join(parts[i+1:], "/")
		}
	}
	return dir, ""
}

// URI returns the path of the folder.
func (l *Local) URI() string { return l.uri }

// Close closes the handle of the folder. Open files stay usable.
func (l *Local) Close() error { return l.root.Close() }

// rootPath returns the path of a name relative to the os.Root.
func (l *Local) rootPath(name string) string { return path.Join(l.prefix, name) }

// statName returns the FileInfo of a name. It follows links.
func (l *Local) statName(name string) (fs.FileInfo, error) {
	if l.followLinks {
		return os.Stat(l.systemPath(name))
	}
	return l.root.Stat(path.Join(".", l.rootPath(name)))
}

// openFile opens a file by its name. It follows links that leave the root only if followLinks is
// set.
func (l *Local) openFile(name string, flag int) (*os.File, error) {
	if l.followLinks {
		return os.OpenFile(l.systemPath(name), flag, 0)
	}
	return l.root.OpenFile(path.Join(".", l.rootPath(name)), flag, 0)
}

// systemPath returns the path of a name for calls that do not use the os.Root.
func (l *Local) systemPath(name string) string {
	return filepath.Join(l.base, filepath.FromSlash(l.rootPath(name)))
}

// openError is storeError with a special case: a dangling link is malformed and not ErrNotFound,
// because callers may ignore ErrNotFound.
func (l *Local) openError(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		if link, ok := l.findDanglingLink(name); ok {
			return robocache.Malformed(op, robocache.Where{
				"dataset": l.uri,
				"file":    quoteName(name),
			}, "").
				Expected("a regular file", "a link that leads nowhere: "+l.linkTarget(link)).
				WithHint("fetch its target: git annex get, dvc pull, or download the file again")
		}
	}
	return storeError(op, l.uri, name, err)
}

// findDanglingLink searches a name and the folders above it for a link without a target.
func (l *Local) findDanglingLink(name string) (link string, ok bool) {
	for i := range len(name) + 1 {
		isPart := i == len(name) || name[i] == '/' // name[:i] is a folder of name, or name itself
		if !isPart {
			continue
		}
		part := name[:i]
		info, err := l.root.Lstat(l.rootPath(part))
		if l.followLinks {
			info, err = os.Lstat(l.systemPath(part))
		}
		if err != nil {
			break
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := l.statName(part); errors.Is(err, fs.ErrNotExist) {
			return part, true
		}
	}
	return "", false
}

// linkTarget describes the target of a link.
func (l *Local) linkTarget(name string) string {
	to, err := os.Readlink(l.systemPath(name))
	if err != nil {
		return quoteName(name)
	}
	return quoteName(name) + " -> " + quoteName(to)
}

// statRegular returns the FileInfo of a name, which must be a regular file.
func (l *Local) statRegular(ctx context.Context, op, name string) (string, fs.FileInfo, error) {
	var err error
	if name, err = cleanFor(ctx, l.uri, op, name); err != nil {
		return "", nil, err
	}
	info, err := l.statName(name)
	if err != nil {
		return "", nil, l.openError(op, name, err)
	}
	if !info.Mode().IsRegular() {
		return "", nil, l.notRegular(op, name, info.Mode())
	}
	return name, info, nil
}

// Open opens a regular file for ranged reads.
func (l *Local) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	// Check before opening, because opening a device may have effects (a tape rewinds) and opening
	// a FIFO blocks. O_NONBLOCK covers a FIFO that replaced the file since the check.
	if name, _, err = l.statRegular(ctx, "open", name); err != nil {
		return nil, err
	}
	f, err := l.openFile(name, os.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return nil, l.openError("open", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = l.notRegular("open", name, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, storeError("open", l.uri, name, err)
	}
	return &localFile{
		file:   f,
		uri:    l.uri,
		name:   name,
		size:   info.Size(),
		mtime:  info.ModTime().UnixNano(),
		opened: time.Now(),
	}, nil
}

// Stat returns the size and version of a regular file.
func (l *Local) Stat(ctx context.Context, name string) (_ Entry, err error) {
	name, info, err := l.statRegular(ctx, "stat", name)
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Name:    name,
		Size:    info.Size(),
		Version: localVersion(info.Size(), info.ModTime().UnixNano()),
	}, nil
}

// notRegular returns the error of a name that is not a regular file. It is malformed when reading
// and misuse when writing.
func (l *Local) notRegular(op, name string, mode fs.FileMode) error {
	e := robocache.Malformed(op, robocache.Where{"dataset": l.uri, "file": quoteName(name)}, "").
		Expected("a regular file", modeName(mode))
	if op == "create" || op == "remove" {
		e.Class = robocache.ErrMisuse
	} else {
		e.Hint = "put the file itself there, or leave it out"
	}
	if mode.IsDir() {
		e.Err = syscall.EISDIR
	}
	return e
}

const (
	maxDepth = 64 // limit for nested folders, such as in a loop of links
	// maxFollowed limits the links to folders that are followed inside linked folders. If each
	// folder has two links to the next one, the number of paths is 2^depth.
	maxFollowed = 1 << 15
)

// List returns the regular files below the folder prefix. It follows links inside the root. It
// omits temporary files of this package, and everything that is not a regular file: dangling links,
// links that leave the root, FIFOs and devices. Files lists those too.
func (l *Local) List(ctx context.Context, prefix string) ([]Entry, error) {
	return l.findFiles(ctx, prefix, nil)
}

func (l *Local) findFiles(
	ctx context.Context,
	prefix string,
	accept func(name string) bool,
) (_ []Entry, err error) {
	prefix, err = cleanPrefix(prefix)
	if err := storeError("list", l.uri, "", err); err != nil {
		return nil, err
	}
	w := fileWalk{l: l, wanted: accept}
	if err := w.walkFolder(ctx, prefix, nil, false); err != nil {
		return nil, err
	}
	slices.SortFunc(w.entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return w.entries, nil
}

// fileWalk lists files recursively. If wanted is set, it also lists other entries whose
// names wanted accepts.
type fileWalk struct {
	l        *Local
	wanted   func(name string) bool
	entries  []Entry
	followed int // number of followed links to folders inside linked folders
}

// walkFolder lists dir. above holds its parent folders. belowLink reports whether a link leads to
// dir or a parent.
func (w *fileWalk) walkFolder(
	ctx context.Context,
	dir string,
	above []fs.FileInfo,
	belowLink bool,
) error {
	l := w.l
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(above) > maxDepth {
		return robocache.ResourceLimit(
			"list",
			robocache.Where{"dataset": l.uri, "file": quoteName(dir)},
			"folders nested deeper than %d",
			maxDepth,
		)
	}
	self, err := l.statName(dir)
	if !isFolder(self, err) {
		return nil // as in an object store, a missing name has no files below it
	}
	if err != nil {
		return storeError("list", l.uri, dir, err)
	}
	for _, a := range above {
		if os.SameFile(a, self) {
			return nil // a link to a parent, whose files are already listed
		}
	}
	above = append(above, self)
	var entries []fs.DirEntry
	d, err := l.openFile(dir, os.O_RDONLY)
	if err == nil {
		entries, err = d.ReadDir(-1)
		d.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by another process
	}
	if err != nil {
		return storeError("list", l.uri, dir, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		name := path.Join(dir, e.Name())
		if err := w.walkEntry(ctx, name, e.Type(), above, belowLink); err != nil {
			return err
		}
	}
	return nil
}

// walkEntry lists a file, or the files below a folder. mode is the type of the entry itself. If it
// is a link, the target decides. above and belowLink are those of walkFolder for the entry's
// folder.
func (w *fileWalk) walkEntry(
	ctx context.Context,
	name string,
	mode fs.FileMode,
	above []fs.FileInfo,
	belowLink bool,
) error {
	isLink := mode&fs.ModeSymlink != 0
	if isLink || mode.IsRegular() {
		info, err := w.l.statName(name)
		if err != nil {
			if isLink {
				w.addIrregular(name, w.l.openError("list", name, err))
				return nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return storeError("list", w.l.uri, name, err)
		}
		mode = info.Mode().Type()
		if mode.IsRegular() {
			w.entries = append(w.entries, Entry{
				Name:    name,
				Size:    info.Size(),
				Version: localVersion(info.Size(), info.ModTime().UnixNano()),
			})
			return nil
		}
	}
	if !mode.IsDir() {
		w.addIrregular(name, w.l.notRegular("list", name, mode))
		return nil
	}
	if isLink && belowLink {
		w.followed++
		if w.followed > maxFollowed {
			return robocache.ResourceLimit("list", robocache.Where{
				"dataset": w.l.uri,
				"file":    quoteName(name),
			}, "more than %d links below links", maxFollowed).
				WithHint("folders that link to each other: remove links")
		}
	}
	before := len(w.entries)
	if err := w.walkFolder(ctx, name, above, belowLink || isLink); err != nil {
		return err
	}
	if w.wanted == nil || !w.wanted(name) {
		return nil
	}
	// The folder has a name like a wanted file. Report it, unless it contains wanted files.
	isWanted := func(e Entry) bool { return w.wanted(e.Name) }
	if !slices.ContainsFunc(w.entries[before:], isWanted) {
		w.entries = append(w.entries, Entry{Name: name, Err: w.l.notRegular("list", name, mode)})
	}
	return nil
}

// addIrregular lists an entry that is not a regular file. It does so only if the caller wants a
// file of that name, or if the entry is a link that may lead to a folder with wanted files.
func (w *fileWalk) addIrregular(name string, err error) {
	if w.wanted == nil || !w.wanted(name) && !w.l.mayHideFolder(name) {
		return
	}
	w.entries = append(w.entries, Entry{Name: name, Err: err})
}

// mayHideFolder reports whether a link that is not followed may lead to a folder. A dangling link
// may, if its name has no extension, because the files of datasets have one. Names that begin with a
// dot are never data.
func (l *Local) mayHideFolder(name string) bool {
	if strings.HasPrefix(path.Base(name), ".") {
		return false
	}
	if info, err := os.Lstat(l.systemPath(name)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	info, err := os.Stat(l.systemPath(name))
	return err == nil && info.IsDir() || errors.Is(err, fs.ErrNotExist) && path.Ext(name) == ""
}

func localVersion(size, mtime int64) string {
	return strconv.FormatInt(size, 10) + "-" + strconv.FormatInt(mtime, 10)
}

// modeName returns the type of a file as text.
func modeName(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something that is not a file (" + m.Type().String() + ")"
}
