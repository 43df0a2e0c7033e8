package zipdir

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// Store presents an archive as a store. Stored members are read in place. Deflated members are
// inflated when they are opened.
type Store struct {
	r      robocache.Ranged
	uri    string
	prefix string
	dir    *Dir
	byName map[string]int
}

// NewStore returns a store of the members below the folder prefix. Close of the store closes r.
func NewStore(
	ctx context.Context,
	r robocache.Ranged,
	uri, prefix string,
	limit int64,
) (s *Store, err error) {
	defer guard.Into(&err)
	d := guard.Must(Read(ctx, r, limit))
	s = &Store{r: r, uri: uri, dir: d, byName: make(map[string]int, len(d.Files))}
	s.Root(prefix)
	return s, nil
}

// Root changes the root of the store to a folder of the archive.
func (s *Store) Root(prefix string) {
	if s.prefix = prefix; prefix != "" {
		s.prefix += "/"
	}
	clear(s.byName)
	for i, f := range s.dir.Files {
		if rest, ok := strings.CutPrefix(f.Name, s.prefix); ok {
			s.byName[rest] = i
		}
	}
}

// URI returns the URI of the archive.
func (s *Store) URI() string { return s.uri }

// Close closes the archive.
func (s *Store) Close() error { return s.r.Close() }

func (s *Store) findMember(op, name string) *File {
	name = guard.Must(store.CleanName(name))
	i, ok := s.byName[name]
	if !ok {
		guard.Fail(
			robocache.NotFound(op, robocache.Where{"dataset": s.uri, "file": s.prefix + name}, "").
				WithCause(fs.ErrNotExist),
		)
	}
	return &s.dir.Files[i]
}

func (s *Store) memberEntry(name string, f *File) store.Entry {
	return store.Entry{
		Name:    name,
		Size:    f.Size,
		Version: strconv.FormatUint(uint64(f.CRC), 16) + "-" + s.r.Version(),
	}
}

// Stat returns the entry of a member.
func (s *Store) Stat(_ context.Context, name string) (_ store.Entry, err error) {
	defer guard.Into(&err)
	return s.memberEntry(name, s.findMember("stat", name)), nil
}

// List returns the members below a folder, sorted by name.
func (s *Store) List(_ context.Context, prefix string) ([]store.Entry, error) {
	if prefix != "" {
		prefix = strings.TrimSuffix(prefix, "/") + "/"
	}
	var out []store.Entry
	for name, i := range s.byName {
		if strings.HasPrefix(name, prefix) {
			out = append(out, s.memberEntry(name, &s.dir.Files[i]))
		}
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Open opens a member.
func (s *Store) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	defer guard.Into(&err)
	f := s.findMember("open", name)
	m := &member{r: s.r, size: f.Size, version: s.memberEntry(name, f).Version}
	if f.Method == Stored {
		m.off = guard.Must(s.dir.Section(ctx, s.r, f))
	} else {
		m.whole = guard.Must(s.dir.ByteIn(ctx, s.r, f, newBuffer))
	}
	return m, nil
}

// ReadMember returns a whole member after checking its CRC.
func (s *Store) ReadMember(ctx context.Context, name string, limit int64) (_ []byte, err error) {
	defer guard.Into(&err)
	f := s.findMember("read", name)
	if f.Size > limit {
		return nil, robocache.ResourceLimit(
			"read",
			robocache.Where{"dataset": s.uri, "file": name},
			"",
		).
			Expected(
				"at most "+strconv.FormatInt(limit, 10)+" bytes",
				strconv.FormatInt(f.Size, 10),
			)
	}
	b, err := s.dir.ByteIn(ctx, s.r, f, newBuffer)
	return b, robocache.At(err, robocache.Where{"dataset": s.uri})
}

// member is an open member: a section of the archive, or its inflated bytes.
type member struct {
	r         robocache.Ranged
	off, size int64
	whole     []byte
	version   string
}

func (m *member) Size() int64     { return m.size }
func (m *member) Version() string { return m.version }
func (m *member) Close() error    { return nil }
func (m *member) Remote() bool    { return m.whole == nil && store.Remote(m.r) }

func (m *member) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > m.size || int64(len(p)) > m.size-off {
		return robocache.Malformed(
			"read",
			robocache.Where{"offset": off},
			"a range outside the member",
		).
			WithCause(io.ErrUnexpectedEOF)
	}
	if m.whole != nil {
		copy(p, m.whole[off:])
		return ctx.Err()
	}
	return m.r.ReadAt(ctx, p, m.off+off)
}
