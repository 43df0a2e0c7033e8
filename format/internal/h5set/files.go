package h5set

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/handles"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// Extensions lists the file name extensions of HDF5 files.
var Extensions = []string{".hdf5", ".h5", ".hdf", ".he5"}

// IsFile reports whether a name has the extension of an HDF5 file.
func IsFile(name string) bool {
	return slices.Contains(Extensions, strings.ToLower(path.Ext(name)))
}

// listFiles returns the HDF5 files of a store. The list includes files that cannot be opened. If the
// store cannot list (http), listFiles probes episode_0.hdf5, episode_1.hdf5 and so on.
func listFiles(
	ctx context.Context,
	s store.Store,
	loose *reader.Loose,
) (list reader.Listing, err error) {
	list, err = reader.Files(ctx, s, func(name string) bool {
		is := IsFile(name)
		if !is {
			loose.Add(name)
		}
		return is
	})
	if errors.Is(err, robocache.ErrUnsupported) {
		list.Names, err = guessFiles(ctx, s)
		list.HasIndex = len(list.Names) > 1 // it is looked for
	}
	return list, err
}

func guessFiles(ctx context.Context, s store.Store) ([]string, error) {
	var out []string
	for {
		name := fmt.Sprintf("episode_%d.hdf5", len(out))
		if _, err := s.Stat(ctx, name); errors.Is(err, robocache.ErrNotFound) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
}

// maxOpen limits the number of files that are open at once.
const maxOpen = 64

// filePool keeps a limited number of files open.
type filePool struct {
	st   store.Store
	open *handles.Pool[string, robocache.Ranged]
	shut atomic.Bool
}

func newPool(st store.Store) *filePool {
	return &filePool{st: st, open: handles.New[string, robocache.Ranged](maxOpen, math.MaxInt64)}
}

func (p *filePool) close() error {
	p.shut.Store(true)
	return p.open.Close()
}

// lazyFile opens its file when it is read. The pool may close the file between reads. A read fails
// if the version of the file differs from the first one.
type lazyFile struct {
	pool    *filePool
	name    string
	size    int64
	version string
	remote  bool
}

func (p *filePool) openLazily(ctx context.Context, name string) (*lazyFile, error) {
	f := &lazyFile{pool: p, name: name}
	h, err := f.openHandle(ctx)
	if err != nil {
		return nil, err
	}
	defer p.open.Put(h)
	f.size, f.version, f.remote = h.Value.Size(), h.Value.Version(), store.Remote(h.Value)
	return f, nil
}

func (f *lazyFile) openHandle(
	ctx context.Context,
) (*handles.Handle[string, robocache.Ranged], error) {
	if f.pool.shut.Load() {
		return nil, robocache.Misuse(
			"hdf5",
			robocache.Where{"file": f.name},
			"the dataset is closed",
		)
	}
	h, err := f.pool.open.Get(
		f.name,
		func() (robocache.Ranged, error) { return f.pool.st.Open(ctx, f.name) },
	)
	if err == nil && f.version != "" && h.Value.Version() != f.version {
		defer f.pool.open.Put(h)
		return nil, robocache.Malformed(
			"hdf5",
			robocache.Where{"file": f.name},
			"the file changed while it was read",
		).
			Expected(f.version, h.Value.Version()).
			WithHint("open the dataset again")
	}
	return h, err
}

// ReadAt fills b from offset off of the file.
func (f *lazyFile) ReadAt(ctx context.Context, b []byte, off int64) error {
	h, err := f.openHandle(ctx)
	if err != nil {
		return err
	}
	defer f.pool.open.Put(h)
	return h.Value.ReadAt(ctx, b, off)
}

// ReadRanges joins close spans into one request if the store supports it.
func (f *lazyFile) ReadRanges(ctx context.Context, spans []store.Span) (err error) {
	h, err := f.openHandle(ctx)
	if err != nil {
		return err
	}
	defer f.pool.open.Put(h)
	return store.ReadRanges(ctx, h.Value, spans)
}

// Size returns the length of the file.
func (f *lazyFile) Size() int64 { return f.size }

// Version returns the version of the file.
func (f *lazyFile) Version() string { return f.version }

// Remote reports whether reads use a network.
func (f *lazyFile) Remote() bool { return f.remote }

// Close does nothing, because the pool closes the file.
func (f *lazyFile) Close() error { return nil }

// OpenFile opens a file of the set's store as HDF5.
func (s *Set) OpenFile(ctx context.Context, name string) (*h5.File, error) {
	file, err := s.pool.openLazily(ctx, name)
	if err != nil {
		return nil, err
	}
	return h5.Open(ctx, file, name, s.cache)
}

// ReadFiles finds the episodes of several files in parallel, and the common rate in the attributes
// of the files. If there are several files, an unreadable one is a finding. If stand is set, an
// empty episode represents it.
func (s *Set) ReadFiles(
	ctx context.Context,
	names []string,
	stand bool,
	find func(ctx context.Context, f *h5.File, root *h5.Object) ([]Episode, error),
) error {
	given := !s.About.FPS.Zero()
	per := make([][]Episode, len(names))
	bad := make([]error, len(names))
	rates := make([]robocache.Rate, len(names))
	open := make([]bool, len(names))
	if err := Each(
		ctx,
		s.About.Format+" open",
		len(names),
		func(ctx context.Context, i int) (err error) {
			defer robocache.LocateIn(&err, "file", names[i])
			read := func() error {
				f, err := s.OpenFile(ctx, names[i])
				if err != nil {
					return err
				}
				open[i] = f.Open
				root, err := f.Root(ctx)
				if err != nil {
					return err
				}
				if rates[i], err = rateOf(ctx, root); err != nil {
					return err
				}
				episodes, err := find(ctx, f, root)
				if err != nil {
					return err
				}
				per[i] = episodes // an unreadable file contributes no episodes
				return nil
			}
			if len(names) == 1 {
				if err := read(); err != nil {
					return err
				}
			} else {
				if bad[i], err = Tolerate(read); err != nil {
					return err
				}
			}
			return nil
		},
	); err != nil {
		return err
	}
	for i, name := range names {
		if open[i] {
			s.FindUnclosed(name)
		}
		switch r := rates[i]; {
		case bad[i] != nil && stand:
			per[i] = []Episode{{File: h5.Named(name)}}
		case bad[i] != nil:
			s.Lose(
				"unreadable-file",
				robocache.Where{"file": name},
				bad[i],
				"fetch the file again, or leave it out",
			)
		case !r.Zero() && !given:
			if err := s.Rate(name, r); err != nil {
				return err
			}
		}
		s.Episodes = append(s.Episodes, per[i]...)
	}
	s.numberEpisodes(len(names) == 1)
	for i := range s.Episodes {
		e := &s.Episodes[i]
		if k := slices.Index(names, e.File.Name()); stand && bad[k] != nil {
			s.Lose("unreadable-episode", robocache.Where{"episode": e.Index, "file": names[k]},
				bad[k], "fetch the file again, or leave it out")
		}
	}
	return nil
}

// numberedName matches the name of an episode with a number: demo_3, episode7, traj-12.
var numberedName = regexp.MustCompile(
	`^(?i:demo|episode|ep|traj|trajectory|rollout|sample|run)?[_-]?(\d{1,18})$`,
)

// numberEpisodes sets the indices of the episodes to the numbers in their names. The names are
// those of the groups if all episodes are in one file, or of the files if each episode has its own
// file. If a name has no number, or two have the same, the indices are the positions.
func (s *Set) numberEpisodes(oneFile bool) {
	byGroup := func(e *Episode) string { return path.Base(e.Path) }
	if !(oneFile && s.numberBy(byGroup)) {
		s.NumberByFile()
	}
}

// NumberByFile sets the indices of the episodes to the numbers in the names of their files, if each
// episode has its own file and the numbers differ. Otherwise the indices are the positions.
func (s *Set) NumberByFile() {
	byFile := func(e *Episode) string {
		base := path.Base(e.File.Name())
		return strings.TrimSuffix(base, path.Ext(base))
	}
	if s.haveOwnFiles() && s.numberBy(byFile) {
		return
	}
	for i := range s.Episodes {
		s.Episodes[i].Index = int64(i)
	}
}

// numberBy sets the indices to the numbers in names. It returns false if a number is missing or
// occurs twice.
func (s *Set) numberBy(name func(e *Episode) string) bool {
	seen := map[int64]bool{}
	for i := range s.Episodes {
		m := numberedName.FindStringSubmatch(name(&s.Episodes[i]))
		if m == nil {
			return false
		}
		index, _ := strconv.ParseInt(m[1], 10, 64)
		s.Episodes[i].Index, seen[index] = index, true
	}
	return len(seen) == len(s.Episodes)
}

// haveOwnFiles reports whether no two episodes share a file.
func (s *Set) haveOwnFiles() bool {
	files := map[string]bool{}
	for i := range s.Episodes {
		files[s.Episodes[i].File.Name()] = true
	}
	return len(files) == len(s.Episodes)
}

// startsAsHDF5 reports whether uri is a local file that begins with the HDF5 signature.
func startsAsHDF5(uri string) bool { return store.FileStartsWith(uri, "\x89HDF\r\n\x1a\n") }

// FindUnclosed adds a finding for a file that its writer has not closed.
func (s *Set) FindUnclosed(name string) {
	s.Find(robocache.SeverityWarning, "not-closed", robocache.Where{"file": name},
		"the file says that its writer has not closed it: the end of the recording may be lost",
		"Run h5clear -s FILE once no program writes it")
}

// Each calls do for 0 to n-1, several calls in parallel.
func Each(ctx context.Context, op string, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(crash.Func(op, func() error { return do(ctx, i) }))
	}
	return g.Wait()
}

// Rate sets the rate that a file contains. It returns an error if another file has another rate.
func (s *Set) Rate(file string, r robocache.Rate) error {
	if have := s.About.FPS; !have.Zero() && have != r {
		return robocache.Malformed(
			s.About.Format,
			robocache.Where{"file": file},
			"files of one folder have different rates",
		).
			Expected(have.String(), r.String()).
			WithHint(
				"open them one by one, or name the rate of the rows: %s",
				robocache.Option("rows_hz"),
			)
	}
	s.About.FPS = r
	return nil
}

// rateOf returns the rate from the attributes of a file's root group.
func rateOf(ctx context.Context, root *h5.Object) (rate robocache.Rate, err error) {
	attributes, err := root.Attributes(ctx)
	if err != nil {
		return rate, err
	}
	for _, a := range attributes {
		switch a.Name {
		case "fps", "hz", "frequency", "control_freq":
			if v, ok := a.Float(); ok {
				if r, err := robocache.RateOf(strconv.FormatFloat(v, 'f', -1, 64)); err == nil {
					rate = r
				}
			}
		}
	}
	return rate, nil
}

// Find opens the store of a URI and lists its HDF5 files: the file that the URI names, or the files
// of the folder. found has a finding for each link that may hide other files.
func Find(
	ctx context.Context,
	uri string,
	opt robocache.OpenOptions,
) (_ store.Store, list reader.Listing, found []robocache.Finding, err error) {
	s, file, err := store.Locate(
		uri,
		opt,
		func(name string) bool { return IsFile(name) || startsAsHDF5(uri) },
	)
	if err != nil {
		return nil, list, nil, err
	}
	var loose reader.Loose
	if file == "" {
		list, err = listFiles(ctx, s, &loose)
	} else {
		list.Names = []string{file}
		loose.AddTwins(ctx, s, file)
	}
	links := list.Links
	if err == nil && len(list.Names) == 0 && len(links) > 0 {
		err = links[0].Err
	}
	if err == nil && len(list.Names) == 0 {
		err = robocache.NotFound(
			"open",
			robocache.Where{"dataset": robocache.Redact(uri)},
			"no HDF5 files here",
		)
	}
	if err != nil {
		store.Close(s)
		return nil, list, nil, err
	}
	list.IsFolder = file == ""
	return s, list, append(store.Findings(links, "link-not-followed"), loose.Findings()...), nil
}

// Detect reports whether the first HDF5 file at a URI that can be opened satisfies is. It returns
// false without an error if there is no HDF5 file.
func Detect(
	ctx context.Context,
	uri string,
	opt robocache.OpenOptions,
	is func(f *h5.File) (bool, error),
) (ok bool, err error) {
	defer crash.Recover("hdf5 detect", &err)
	if !strings.Contains(uri, "://") && !mayHoldHDF5(uri) {
		return false, nil
	}
	s, list, _, err := Find(ctx, uri, opt)
	names := list.Names
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrMisuse) {
		return false, nil
	}
	if err != nil {
		return ok, err
	}
	defer store.Close(s)
	name := names[0]
	r, err := s.Open(ctx, name)
	// the first file may be a dangling link or a FIFO: try the other files
	for i := 1; err != nil && i < len(names) && errors.Is(err, robocache.ErrMalformed); i++ {
		if other, e := s.Open(ctx, names[i]); e == nil {
			r, name, err = other, names[i], nil
		}
	}
	if errors.Is(err, robocache.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return ok, err
	}
	defer r.Close()
	detect, err := h5.Detect(ctx, r)
	if err != nil {
		return ok, err
	}
	if !detect {
		return false, nil
	}
	f, err := h5.Open(ctx, r, name, h5.NewCache(4<<20))
	if err != nil {
		return ok, err
	}
	ok, err = is(f)
	if errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported) {
		return false, nil
	}
	return ok && err == nil, err
}

// maxEntriesChecked limits the number of names that are checked for HDF5 files in a folder. Folders
// of other formats can have millions of files.
const maxEntriesChecked = 4096

// mayHoldHDF5 reports whether a local path may contain HDF5 files. It does not follow links.
func mayHoldHDF5(path string) bool {
	if IsFile(path) || startsAsHDF5(path) {
		return true
	}
	folders := []string{path}
	for left := maxEntriesChecked; len(folders) > 0 && left > 0; {
		dir := folders[0]
		folders = folders[1:]
		found, inside := false, []string(nil)
		if found, inside, left = checkFolder(dir, left); found {
			return true
		}
		folders = append(folders, inside...)
	}
	return false
}

// checkFolder reports whether the first left entries of a folder have the name of an HDF5 file. It
// returns the folders among them, and the number of entries that may still be checked. It does not
// sort or read the other entries, because there may be a very large number of them.
func checkFolder(dir string, left int) (found bool, folders []string, rest int) {
	const namesRead = 512 // at once
	d, err := os.Open(dir)
	if err != nil {
		return false, nil, left
	}
	defer d.Close()
	for left > 0 {
		entries, err := d.ReadDir(min(namesRead, left))
		for _, e := range entries {
			if IsFile(e.Name()) { // also true for a folder with the name of a file
				return true, nil, left
			}
			if e.IsDir() {
				folders = append(folders, filepath.Join(dir, e.Name()))
			}
		}
		left -= len(entries)
		if err != nil {
			break // io.EOF, or a folder that cannot be read
		}
	}
	return false, folders, left
}
