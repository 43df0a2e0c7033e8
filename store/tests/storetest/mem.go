package storetest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Mem is a store in memory. A committed file never changes: a handle keeps reading the bytes that
// it opened. Safe for concurrent use.
type Mem struct {
	name     string
	mu       sync.RWMutex
	files    map[string]memObject
	next     int64
	onChange func()
}

// OnChange sets a function that is called after each file that is added or removed, by the
// goroutine that did it. Tests use it to inspect the state that a kill would leave.
func (m *Mem) OnChange(f func()) { m.onChange = f }

func (m *Mem) notifyChange() {
	if m.onChange != nil {
		m.onChange()
	}
}

type memObject struct {
	data    []byte
	version string
}

func init() { store.Register("mem", openMem) }

var mems struct {
	sync.Mutex
	byName map[string]*Mem
}

// NewMem returns an empty store that Open finds as mem://name until Drop. It replaces an older
// store of that name.
func NewMem(name string) *Mem {
	m := &Mem{name: name, files: map[string]memObject{}}
	mems.Lock()
	defer mems.Unlock()
	if mems.byName == nil {
		mems.byName = map[string]*Mem{}
	}
	mems.byName[name] = m
	return m
}

// openMem finds name or name/folder among the registered stores. It prefers the longest name.
func openMem(rest string) (store.Store, error) {
	rest = strings.TrimRight(rest, "/")
	mems.Lock()
	defer mems.Unlock()
	for name := rest; name != ""; {
		if m := mems.byName[name]; m != nil {
			return store.Sub(m, strings.TrimPrefix(rest[len(name):], "/"))
		}
		cut := strings.LastIndexByte(name, '/')
		if cut < 0 {
			break
		}
		name = name[:cut]
	}
	return nil, robocache.NotFound("open", robocache.Where{
		"dataset": "mem://" + rest,
	}, "no store of this name in this process").
		WithCause(fs.ErrNotExist)
}

// URI returns mem://name.
func (m *Mem) URI() string { return "mem://" + m.name }

// Drop removes the store from the register; its holders may continue to use it. It is not named
// Close, because a dataset closes its store, and the next Open of mem://name must still find it.
func (m *Mem) Drop() {
	mems.Lock()
	defer mems.Unlock()
	if mems.byName[m.name] == m {
		delete(mems.byName, m.name)
	}
}

// Put sets a file in one step. It is for tests and panics on a name that store.CleanName rejects.
func (m *Mem) Put(name string, data []byte) {
	name, err := store.CleanName(name)
	if err != nil {
		panic(err)
	}
	m.setFile(name, slices.Clone(data), false)
}

// setFile stores data, which it owns. With onlyNew, it returns false if the name exists.
func (m *Mem) setFile(name string, data []byte, onlyNew bool) bool {
	m.mu.Lock()
	done := m.put(name, data, onlyNew)
	m.mu.Unlock()
	if done {
		m.notifyChange()
	}
	return done
}

func (m *Mem) put(name string, data []byte, onlyNew bool) bool {
	if _, taken := m.files[name]; taken && onlyNew {
		return false
	}
	m.next++
	m.files[name] = memObject{
		data:    data,
		version: strconv.Itoa(len(data)) + "-" + strconv.FormatInt(m.next, 10),
	}
	return true
}

func (m *Mem) find(ctx context.Context, op, name string) (string, memObject, error) {
	if err := ctx.Err(); err != nil {
		return "", memObject{}, err
	}
	name, err := store.CleanName(name)
	if err != nil {
		return "", memObject{}, memError(op, m.URI(), "", err)
	}
	m.mu.RLock()
	o, ok := m.files[name]
	m.mu.RUnlock()
	if !ok {
		return "", memObject{}, memError(op, m.URI(), name, fs.ErrNotExist)
	}
	return name, o, nil
}

// Open opens the current version of a file.
func (m *Mem) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	name, o, err := m.find(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{uri: m.URI(), name: name, data: o.data, version: o.version}, nil
}

// Stat returns the size and version of a file.
func (m *Mem) Stat(ctx context.Context, name string) (store.Entry, error) {
	name, o, err := m.find(ctx, "stat", name)
	if err != nil {
		return store.Entry{}, err
	}
	return store.Entry{Name: name, Size: int64(len(o.data)), Version: o.version}, nil
}

// List returns the files below the folder prefix.
func (m *Mem) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if prefix == "." || prefix == "./" {
		prefix = ""
	}
	if prefix != "" {
		var err error
		if prefix, err = store.CleanName(prefix); err != nil {
			return nil, memError("list", m.URI(), "", err)
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []store.Entry
	for name, o := range m.files {
		if prefix == "" || strings.HasPrefix(name, prefix+"/") {
			out = append(out, store.Entry{Name: name, Size: int64(len(o.data)), Version: o.version})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

// Create begins a file that replaces name at Commit.
func (m *Mem) Create(ctx context.Context, name string) (store.Writer, error) {
	return m.create(ctx, name, false)
}

// CreateNew is Create, but Commit returns store.ErrExists if the name exists by then.
func (m *Mem) CreateNew(ctx context.Context, name string) (store.Writer, error) {
	return m.create(ctx, name, true)
}

func (m *Mem) create(ctx context.Context, name string, onlyNew bool) (store.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name, err := store.CleanName(name)
	if err != nil {
		return nil, memError("create", m.URI(), "", err)
	}
	return &memWriter{m: m, ctx: ctx, name: name, onlyNew: onlyNew}, nil
}

// Remove deletes a file. Open handles keep their bytes.
func (m *Mem) Remove(ctx context.Context, name string) error {
	name, _, err := m.find(ctx, "remove", name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.files, name)
	m.mu.Unlock()
	m.notifyChange()
	return nil
}

// memWriter writes one file of a Mem.
type memWriter struct {
	m       *Mem
	ctx     context.Context
	name    string
	onlyNew bool

	mu    sync.Mutex
	data  []byte
	pos   int64 // position of the next Write; WriteAt does not change it
	ended bool
}

// maxMem is the size of the largest file in a Mem, so that a wrong offset cannot allocate all
// memory.
const maxMem = 1 << 32

func (w *memWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.put(p, w.pos)
	w.pos += int64(n)
	return n, err
}

func (w *memWriter) WriteAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.put(p, off)
}

func (w *memWriter) put(p []byte, off int64) (int, error) {
	if w.ended {
		return 0, memError("write", w.m.URI(), w.name, fs.ErrClosed)
	}
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if off < 0 || off > maxMem-int64(len(p)) {
		return 0, robocache.ResourceLimit(
			"write",
			robocache.Where{"dataset": w.m.URI(), "file": w.name, "offset": off},
			"a file in memory holds at most 4 GiB",
		)
	}
	if end := off + int64(len(p)); end > int64(len(w.data)) {
		have := len(w.data)
		w.data = slices.Grow(w.data, int(end)-have)[:end]
		clear(w.data[have:])
	}
	return copy(w.data[off:], p), nil
}

func (w *memWriter) Commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return memError("commit", w.m.URI(), w.name, fs.ErrClosed)
	}
	w.ended = true
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if !w.m.setFile(w.name, w.data, w.onlyNew) {
		return memError("commit", w.m.URI(), w.name, fs.ErrExist)
	}
	w.data = nil
	return nil
}

func (w *memWriter) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.data = true, nil
}

// Folders returns the names of the folders directly in dir, as store.Folders requires.
func (m *Mem) Folders(ctx context.Context, dir string) ([]string, error) {
	list, err := m.List(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		rest := e.Name
		if dir != "" {
			rest = rest[len(dir)+1:]
		}
		if name, _, ok := strings.Cut(rest, "/"); ok && (len(out) == 0 || out[len(out)-1] != name) {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	n := 0
	for i, name := range out {
		if i == 0 || name != out[n-1] {
			out[n] = name
			n++
		}
	}
	return out[:n], nil
}

// memFile is an open file of a Mem. data is never modified.
type memFile struct {
	uri, name, version string
	data               []byte
	closed             atomic.Bool
}

func (f *memFile) Size() int64     { return int64(len(f.data)) }
func (f *memFile) Version() string { return f.version }
func (f *memFile) Close() error    { f.closed.Store(true); return nil }

func (f *memFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case f.closed.Load():
		return memError("read", f.uri, f.name, fs.ErrClosed)
	case off < 0 || off > f.Size() || int64(len(p)) > f.Size()-off:
		return robocache.Malformed("read", robocache.Where{
			"dataset": f.uri,
			"file":    f.name,
			"offset":  off,
		}, "a range past the end").
			WithCause(io.ErrUnexpectedEOF)
	}
	copy(p, f.data[off:])
	return nil
}

// memError adds a class and a place to an error. Context errors are returned unchanged.
func memError(op, uri, name string, err error) error {
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	where := robocache.Where{"dataset": uri}
	if name != "" {
		where["file"] = name
	}
	var already *robocache.Error
	if errors.As(err, &already) {
		return robocache.At(err, where)
	}
	e := robocache.NewError(robocache.Classify(err), op, where, "").WithCause(err)
	switch {
	case errors.Is(err, fs.ErrExist):
		e.Class, e.Err = robocache.ErrMisuse, errors.Join(store.ErrExists, err)
	case errors.Is(err, fs.ErrClosed):
		e.Class = robocache.ErrMisuse
	}
	return e
}

func unsupported(op, uri, msg, hint string) error {
	return robocache.Unsupported(op, robocache.Where{"dataset": uri}, "%s", msg).
		WithHint("%s", hint)
}
