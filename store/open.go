package store

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Open opens the store at uri: a path, file://, http(s)://, or a registered scheme. It checks a
// local folder, but sends no network request.
func Open(uri string) (Store, error) { return OpenFor(uri, robocache.OpenOptions{}) }

// OpenFor is Open with the options that the caller gave to robocache.Open.
func OpenFor(uri string, opt robocache.OpenOptions) (_ Store, err error) {
	scheme, rest, err := splitScheme(uri)
	if err != nil {
		return nil, err
	}
	switch scheme {
	case "":
		return openLocal(uri, opt.FollowLinks)
	case "file":
		p, err := fileURIPath(rest)
		if err != nil {
			return nil, err
		}
		return openLocal(p, opt.FollowLinks)
	case "http", "https":
		return NewHTTP(uri, HTTPOptions{})
	}
	schemesMu.RLock()
	open := schemes[scheme]
	schemesMu.RUnlock()
	if open != nil {
		return open(rest)
	}
	return nil, unsupportedError(
		"open",
		robocache.Redact(uri),
		"no store for "+quoteName(scheme)+"://",
		"known: a path, file://, http(s)://"+knownSchemes(),
	)
}

var (
	schemesMu sync.RWMutex
	schemes   = map[string]func(rest string) (Store, error){}
)

// Register adds a URI scheme, or replaces the one of the same name. open receives the part after
// "scheme://".
func Register(scheme string, open func(rest string) (Store, error)) {
	schemesMu.Lock()
	defer schemesMu.Unlock()
	schemes[scheme] = open
}

// knownSchemes returns the registered schemes as text.
func knownSchemes() (list string) {
	schemesMu.RLock()
	defer schemesMu.RUnlock()
	for _, s := range slices.Sorted(maps.Keys(schemes)) {
		list += ", " + s + "://"
	}
	return list
}

// OpenWritable is Open for writing. It creates a missing local folder. If the store is read-only,
// the error is ErrUnsupported.
func OpenWritable(uri string) (_ Writable, err error) {
	scheme, rest, err := splitScheme(uri)
	if err != nil {
		return nil, err
	}
	dir := uri
	switch scheme {
	case "file":
		if dir, err = fileURIPath(rest); err != nil {
			return nil, err
		}
		fallthrough
	case "":
		if err := makeFolder(dir); err != nil {
			return nil, err
		}
	}
	s, err := Open(uri)
	if err != nil {
		return nil, err
	}
	w, ok := s.(Writable)
	if !ok {
		Close(s)
		return nil, unsupportedError(
			"open",
			s.URI(),
			"this store cannot be written",
			"write to a local folder and copy it",
		)
	}
	return w, nil
}

// Close releases the resources of a store, such as a folder handle or idle connections. It does
// nothing for a store without a Close method.
func Close(s Store) error {
	if c, ok := s.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// splitScheme splits a URI into its scheme, in lower case, and the rest. The scheme of a path is
// "". Only "scheme://" and "file:/" begin a URI, so "pipe:cat x" is the name of a file and never a
// command.
func splitScheme(uri string) (scheme, rest string, err error) {
	switch {
	case uri == "":
		return scheme, rest, robocache.Misuse("open", nil, "empty URI")
	case strings.IndexByte(uri, 0) >= 0 || len(uri) > 16*MaxName:
		return scheme, rest, robocache.Malformed(
			"open",
			robocache.Where{"dataset": quoteName(robocache.Redact(uri))},
			"NUL in the URI, or the URI is too long",
		)
	}
	head, tail, ok := strings.Cut(uri, "://")
	if !ok {
		if after, ok := strings.CutPrefix(uri, "file:/"); ok {
			return "file", "/" + after, nil
		}
		return "", uri, nil
	}
	for i, c := range []byte(head) {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !isLetter && (i == 0 || !strings.ContainsRune("0123456789+-.", rune(c))) {
			return "", uri, nil // "dir/with://" is a path
		}
	}
	if head == "" {
		return "", uri, nil
	}
	return strings.ToLower(head), tail, nil
}

// fileURIPath returns the path of the part after "file://".
func fileURIPath(rest string) (string, error) {
	host, p, _ := strings.Cut(rest, "/")
	if host != "" && !strings.EqualFold(host, "localhost") {
		return "", robocache.Unsupported("open", robocache.Where{
			"dataset": quoteName("file://" + rest),
		}, "a file URI that names another host").
			WithHint("Write three slashes: file:///absolute/path.")
	}
	p, err := url.PathUnescape("/" + p)
	if err != nil || strings.IndexByte(p, 0) >= 0 {
		return "", robocache.Malformed(
			"open",
			robocache.Where{"dataset": quoteName("file://" + rest)},
			"bad escape in the URI",
		)
	}
	return p, nil
}

// Locate opens the store of a dataset that may be a single file. accept reports whether a name is
// the name of such a file. If the URI ends with one, Locate opens the folder above and returns the
// name as file. For all other URIs, and for a local folder with such a name, it opens the URI itself
// and file is "".
func Locate(
	uri string,
	opt robocache.OpenOptions,
	accept func(name string) bool,
) (s Store, file string, err error) {
	folder, name := Above(uri)
	if !accept(name) {
		s, err = OpenFor(uri, opt)
		return s, "", err
	}
	if !strings.Contains(uri, "://") {
		if s, err = OpenFor(uri, opt); err == nil { // it is a folder
			return s, "", nil
		}
	}
	s, err = OpenFor(folder, opt)
	return s, name, err
}

// Above splits a URI into the URI of the folder above and the last name. A query stays with the
// folder.
func Above(uri string) (folder, name string) {
	scheme, _, remote := strings.Cut(uri, "://")
	query := ""
	if remote && scheme != "file" && scheme != "mem" {
		if i := strings.IndexAny(uri, "?#"); i >= 0 {
			uri, query = uri[:i], uri[i:]
		}
	}
	uri = strings.TrimRight(uri, "/")
	i := strings.LastIndexByte(uri, '/') + 1
	folder = uri[:i]
	name = uri[i:]
	if remote {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
	} else if folder == "" {
		folder = "."
	}
	return folder + query, name
}
