// Package hf is the read-only store behind hf://datasets/owner/name[@revision][/folder]: a dataset
// of the Hugging Face Hub.
//
// A revision (a branch, a tag, a commit; main by default) is resolved to a commit once in a
// process, and everything is read at that commit. Files that huggingface_hub's cache holds of it
// are read from there, others by ranges. Nothing is written into that cache.
//
//	HF_ENDPOINT      the Hub, else https://huggingface.co
//	HF_TOKEN         a token, else the file $HF_TOKEN_PATH, else $HF_HOME/token; it goes to the Hub's host and to no other
//	HF_HUB_CACHE     the cache, else $HF_HOME/hub; HF_HOME is ~/.cache/huggingface by default
//	HF_HUB_OFFLINE   1: the cache alone
package hf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

func init() {
	store.Register(
		"hf",
		func(rest string) (store.Store, error) { return Open(rest, store.HTTPOptions{}) },
	)
}

// repository is a dataset at a commit, which is found when something is first asked for.
type repository struct {
	// path: owner/name; folder: huggingface_hub's cache of it
	uri, endpoint, path, folder, revision string
	opt                                   store.HTTPOptions

	mu sync.Mutex
	at *snapshot // nil until the commit is known
}

// snapshot is a dataset at a commit.
type snapshot struct {
	commit string
	hub    *store.HTTP  // nil: the cache alone
	api    *url.URL     // of the lists of its files
	cached *store.Local // what huggingface_hub has of it; nil: nothing
}

var form = regexp.MustCompile(
	`^(datasets/([\w-][\w.-]*/[\w-][\w.-]*?)(?:@([^/?#]+))?)(?:/([^?#]*))?$`,
)

// Open opens what follows "hf://". It asks the network nothing.
func Open(rest string, opt store.HTTPOptions) (store.Store, error) {
	m := form.FindStringSubmatch(rest)
	bad := func(what string) (store.Store, error) {
		return nil, robocache.Misuse("open", robocache.Where{"dataset": robocache.Redact("hf://" + rest)}, "").
			Expected("hf://datasets/owner/name, with @revision and /folder where wanted", what)
	}
	if m == nil {
		return bad("another form")
	}
	revision, err := url.PathUnescape(cmp.Or(m[3], "main"))
	dir, derr := url.PathUnescape(strings.Trim(m[4], "/"))
	if _, rerr := store.CleanName(revision); cmp.Or(err, derr, rerr) != nil {
		return bad("a bad name or escape")
	}
	r := &repository{
		uri:      "hf://" + m[1],
		path:     m[2],
		revision: revision,
		opt:      opt,
		endpoint: strings.TrimRight(
			cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"),
			"/",
		),
		folder: filepath.Join(
			home("HF_HUB_CACHE", "hub"),
			"datasets--"+strings.Replace(m[2], "/", "--", 1),
		),
	}
	return store.Sub(r, dir)
}

// URI names the dataset, and the revision that was asked for.
func (s *repository) URI() string { return s.uri }

// Remote is true: what is not in the cache is a request.
func (s *repository) Remote() bool { return true }

// Commit is the commit that everything is read at; "" where nothing names it.
func (s *repository) Commit(ctx context.Context) (string, error) {
	at, err := s.open(ctx)
	if err != nil {
		return "", err
	}
	return at.commit, nil
}

// Forget makes revisions be resolved anew by what is opened from now on: the Hub may have been
// written to.
func Forget() { commits.Clear() }

// Keep is for store.Keep: what the Hub sends is read through a cache.
func (s *repository) Keep(c store.BlockCache, block int64) (end func()) {
	if at, err := s.open(context.Background()); err == nil && at.hub != nil {
		return at.hub.Keep(c, block)
	}
	return func() {}
}

// Close gives idle connections back.
func (s *repository) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != nil && s.at.cached != nil {
		s.at.cached.Close()
	}
	if s.at != nil && s.at.hub != nil {
		s.at.hub.Close()
	}
	s.at = nil
	return nil
}

// commits are the revisions that this process has resolved: one run sees one version.
var commits sync.Map

func home(name, below string) string {
	dir := os.Getenv("HF_HOME")
	if dir == "" {
		user, _ := os.UserHomeDir()
		dir = filepath.Join(
			cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(user, ".cache")),
			"huggingface",
		)
	}
	return cmp.Or(os.Getenv(name), filepath.Join(dir, below))
}

func token() string {
	if t := os.Getenv("HF_TOKEN"); t != "" {
		return strings.TrimSpace(t)
	}
	b, _ := os.ReadFile(home("HF_TOKEN_PATH", "token"))
	return strings.TrimSpace(string(b))
}

func truth(name string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(os.Getenv(name)))
}

var commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)

// open resolves the revision, once, and opens what is at its commit.
func (s *repository) open(ctx context.Context) (at *snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return at, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != nil {
		return s.at, nil
	}
	repo := s.endpoint + "/datasets/" + s.path
	opt := s.opt
	opt.URI, opt.VersionHeader, opt.MatchHeader = s.uri, "X-Linked-Etag", "-"
	// the Hub slows down, or refuses (429), who asks for more at once
	opt.Conns = cmp.Or(opt.Conns, 32)
	if t := token(); t != "" {
		opt.Header = http.Header{"Authorization": {"Bearer " + t}}
	}
	links := &links{hub: repo}
	opt.Explain, opt.Wrap, opt.Versions = links.explain, links.wrap, s.List
	commit, offline := s.revision, truth("HF_HUB_OFFLINE")
	if !commitForm.MatchString(commit) {
		b, _ := os.ReadFile(filepath.Join(s.folder, "refs", filepath.FromSlash(s.revision)))
		cached := strings.TrimSpace(string(b))
		known, seen := commits.Load(repo + "@" + s.revision)
		switch {
		case seen && !offline:
			commit = known.(string)
		case offline:
			commit = cached
		default:
			commit, err = s.resolve(ctx, opt)
			if errors.Is(err, robocache.ErrTemporary) && cached != "" {
				commit, offline = cached, true // the Hub cannot be reached
			} else {
				if err != nil {
					return at, err
				}
				commits.Store(repo+"@"+s.revision, commit)
			}
		}
	}
	at = &snapshot{commit: commit}
	if commitForm.MatchString(commit) {
		if local, err := store.OpenLocal(filepath.Join(s.folder, "snapshots", commit)); err == nil {
			at.cached = local
		}
	}
	if offline && at.cached == nil {
		return nil, robocache.NotFound("open", robocache.Where{"dataset": s.uri}, "huggingface_hub's cache holds nothing of it, and the Hub is not asked (HF_HUB_OFFLINE, or it cannot be reached)").
			WithHint("hf download %s --repo-type dataset", s.path)
	}
	if !offline {
		if at.hub, err = store.NewHTTP(repo+"/resolve/"+url.PathEscape(commit), opt); err != nil {
			return at, err
		}
		if at.api, err = url.Parse(
			s.endpoint + "/api/datasets/" + s.path + "/tree/" + commit,
		); err != nil {
			return at, err
		}
	}
	s.at = at
	return at, nil
}

// resolve asks the Hub for the commit of the revision.
func (s *repository) resolve(ctx context.Context, opt store.HTTPOptions) (string, error) {
	h, err := store.NewHTTP(s.endpoint, opt)
	if err != nil {
		return "", err
	}
	defer h.Close()
	u, err := url.Parse(
		s.endpoint + "/api/datasets/" + s.path + "/revision/" + url.PathEscape(s.revision),
	)
	if err != nil {
		return "", err
	}
	a, err := h.Do(ctx, "resolve", "", store.Request{Method: http.MethodGet, URL: u})
	if err != nil {
		return "", err
	}
	var said struct{ SHA string }
	_ = json.Unmarshal(a.Body, &said)
	if commit := cmp.Or(a.Header.Get("X-Repo-Commit"), said.SHA); commitForm.MatchString(commit) {
		return commit, nil
	}
	return "", robocache.Malformed(
		"resolve",
		robocache.Where{"dataset": s.uri},
		"the Hub's answer names no commit",
	)
}

// Open opens a file: of the cache where that holds it.
func (s *repository) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	at, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if at.cached != nil {
		f, err := at.cached.Open(ctx, name)
		if err == nil {
			return cachedFile{f, at.version(path.Clean(name), f.Version())}, nil
		}
		if at.hub == nil {
			return nil, s.placed(err)
		}
	}
	return at.hub.Open(ctx, name)
}

// placed takes the cache's folder out of an error: the dataset is this one.
func (s *repository) placed(err error) error {
	var e *robocache.Error
	if errors.As(err, &e) {
		c := *e
		c.Where = maps.Clone(e.Where)
		c.Where["dataset"] = s.uri
		return &c
	}
	return err
}

// cachedFile is a file of huggingface_hub's cache, under the version that the Hub gives it.
type cachedFile struct {
	robocache.Ranged
	version string
}

func (f cachedFile) Version() string { return f.version }

// version is the ETag of a cached file: the name of the blob that it links to.
func (at *snapshot) version(full, other string) string {
	to, err := os.Readlink(filepath.Join(at.cached.URI(), filepath.FromSlash(full)))
	if blob := filepath.Base(to); err == nil && len(blob) >= 40 {
		return `"` + blob + `"`
	}
	return other
}

// Stat describes a file.
func (s *repository) Stat(ctx context.Context, name string) (e store.Entry, err error) {
	at, err := s.open(ctx)
	if err != nil {
		return e, err
	}
	if at.cached != nil {
		if e, err = at.cached.Stat(ctx, name); err == nil || at.hub == nil {
			e.Version = at.version(e.Name, e.Version)
			return e, s.placed(err)
		}
	}
	return at.hub.Stat(ctx, name)
}
