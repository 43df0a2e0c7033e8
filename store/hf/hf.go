// Package hf implements the read-only store hf://datasets/owner/name[@revision][/folder], a dataset
// of the Hugging Face Hub.
//
// A revision is a branch, a tag or a commit; the default is main. It is resolved to a commit once
// per process, and all reads use that commit. Files in huggingface_hub's cache are read from there,
// and others by ranges. The cache is never written.
//
//	HF_ENDPOINT      URL of the Hub; default https://huggingface.co
//	HF_TOKEN         token; default is the file $HF_TOKEN_PATH, then $HF_HOME/token. It is sent only
//	                 to the Hub's host
//	HF_HUB_CACHE     cache; default $HF_HOME/hub. HF_HOME is ~/.cache/huggingface by default
//	HF_HUB_OFFLINE   1 reads only the cache
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

// repository is a dataset at a commit. The commit is determined at the first access.
type repository struct {
	// path is owner/name; folder is huggingface_hub's cache of the dataset
	uri, endpoint, path, folder, revision string
	options                               store.HTTPOptions

	mu       sync.Mutex
	snapshot *snapshot // nil until the commit is known
}

// snapshot is a dataset at a commit.
type snapshot struct {
	commit string
	hub    *store.HTTP  // nil: read only the cache
	api    *url.URL     // base URL of file listings
	cached *store.Local // files in huggingface_hub's cache; nil if there are none
}

var uriForm = regexp.MustCompile(
	`^(datasets/([\w-][\w.-]*/[\w-][\w.-]*?)(?:@([^/?#]+))?)(?:/([^?#]*))?$`,
)

// Open opens the store of the URI part after "hf://". It sends no network request.
func Open(rest string, opt store.HTTPOptions) (store.Store, error) {
	m := uriForm.FindStringSubmatch(rest)
	bad := func(what string) (store.Store, error) {
		return nil, robocache.Misuse("open", robocache.Where{
			"dataset": robocache.Redact("hf://" + rest),
		}, "").
			Expected("hf://datasets/owner/name, optionally with @revision and /folder", what)
	}
	if m == nil {
		return bad("another form")
	}
	uri, repo, revisionText, folder := m[1], m[2], m[3], m[4]
	revision, err := url.PathUnescape(cmp.Or(revisionText, "main"))
	dir, derr := url.PathUnescape(strings.Trim(folder, "/"))
	if _, rerr := store.CleanName(revision); cmp.Or(err, derr, rerr) != nil {
		return bad("a bad name or escape")
	}
	r := &repository{
		uri:      "hf://" + uri,
		path:     repo,
		revision: revision,
		options:  opt,
		endpoint: strings.TrimRight(
			cmp.Or(os.Getenv("HF_ENDPOINT"), "https://huggingface.co"),
			"/",
		),
		folder: filepath.Join(
			hubPath("HF_HUB_CACHE", "hub"),
			"datasets--"+strings.Replace(repo, "/", "--", 1),
		),
	}
	return store.Sub(r, dir)
}

// URI returns the name of the dataset with the requested revision.
func (s *repository) URI() string { return s.uri }

// Remote returns true, because a file that is not in the cache needs requests.
func (s *repository) Remote() bool { return true }

// Commit returns the commit that all reads use, or "" if it is unknown.
func (s *repository) Commit(ctx context.Context) (string, error) {
	at, err := s.openSnapshot(ctx)
	if err != nil {
		return "", err
	}
	return at.commit, nil
}

// Forget discards all resolved revisions. Stores that are opened later resolve them again, because
// the Hub may have changed.
func Forget() { commits.Clear() }

// Keep implements store.Keep. Files from the Hub are read through the cache.
func (s *repository) Keep(c store.BlockCache, block int64) (end func()) {
	if at, err := s.openSnapshot(context.Background()); err == nil && at.hub != nil {
		return at.hub.Keep(c, block)
	}
	return func() {}
}

// Close closes the folder of the cache and the idle connections.
func (s *repository) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot != nil && s.snapshot.cached != nil {
		s.snapshot.cached.Close()
	}
	if s.snapshot != nil && s.snapshot.hub != nil {
		s.snapshot.hub.Close()
	}
	s.snapshot = nil
	return nil
}

// commits maps resolved revisions to commits, so that one process sees one version.
var commits sync.Map

// hubPath returns the path in an environment variable. If the variable is not set, it returns the
// path of the file or folder fallback in HF_HOME.
func hubPath(variable, fallback string) string {
	dir := os.Getenv("HF_HOME")
	if dir == "" {
		user, _ := os.UserHomeDir()
		dir = filepath.Join(
			cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(user, ".cache")),
			"huggingface",
		)
	}
	return cmp.Or(os.Getenv(variable), filepath.Join(dir, fallback))
}

// readToken returns the token of the Hub, or "" if there is none.
func readToken() string {
	if t := os.Getenv("HF_TOKEN"); t != "" {
		return strings.TrimSpace(t)
	}
	b, _ := os.ReadFile(hubPath("HF_TOKEN_PATH", "token"))
	return strings.TrimSpace(string(b))
}

// envIsTrue reports whether an environment variable is set to true, as huggingface_hub reads it.
func envIsTrue(name string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(os.Getenv(name)))
}

var commitForm = regexp.MustCompile(`^[0-9a-f]{40}$`)

// openSnapshot returns the snapshot that all reads use. Its first call resolves the revision to a
// commit, and opens the files of that commit in the cache and on the Hub.
func (s *repository) openSnapshot(ctx context.Context) (at *snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return at, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot != nil {
		return s.snapshot, nil
	}
	repo := s.endpoint + "/datasets/" + s.path
	opt := s.options
	opt.URI = s.uri
	opt.VersionHeader = "X-Linked-Etag"
	opt.MatchHeader = "-" // files of a commit never change
	// The Hub throttles or rejects (429) more connections.
	opt.Conns = cmp.Or(opt.Conns, 32)
	if t := readToken(); t != "" {
		opt.Header = http.Header{"Authorization": {"Bearer " + t}}
	}
	links := &links{hub: repo}
	opt.Explain = links.explainError
	opt.Wrap = links.wrapTransport
	opt.Versions = s.List
	commit, offline, err := s.chooseCommit(ctx, repo, opt)
	if err != nil {
		return at, err
	}
	at = &snapshot{commit: commit}
	if commitForm.MatchString(commit) {
		if local, err := store.OpenLocal(filepath.Join(s.folder, "snapshots", commit)); err == nil {
			at.cached = local
		}
	}
	if offline && at.cached == nil {
		return nil, robocache.NotFound("open", robocache.Where{
			"dataset": s.uri,
		}, "huggingface_hub's cache does not hold the dataset, and the Hub is not used "+
			"(HF_HUB_OFFLINE is set, or the Hub cannot be reached)").
			WithHint("Run: hf download %s --repo-type dataset", s.path)
	}
	if !offline {
		if at.hub, err = store.NewHTTP(repo+"/resolve/"+url.PathEscape(commit), opt); err != nil {
			return at, err
		}
		at.api, err = url.Parse(s.endpoint + "/api/datasets/" + s.path + "/tree/" + commit)
		if err != nil {
			return at, err
		}
	}
	s.snapshot = at
	return at, nil
}

// chooseCommit returns the commit of the revision. This is the revision itself, an earlier result of
// this process, an entry of the cache, or the answer of the Hub. offline reports that the Hub must
// not or cannot be used.
func (s *repository) chooseCommit(
	ctx context.Context,
	repo string,
	opt store.HTTPOptions,
) (commit string, offline bool, err error) {
	offline = envIsTrue("HF_HUB_OFFLINE")
	if commitForm.MatchString(s.revision) {
		return s.revision, offline, nil
	}
	b, _ := os.ReadFile(filepath.Join(s.folder, "refs", filepath.FromSlash(s.revision)))
	cached := strings.TrimSpace(string(b))
	if offline {
		return cached, true, nil
	}
	key := repo + "@" + s.revision
	if known, ok := commits.Load(key); ok {
		return known.(string), false, nil
	}
	commit, err = s.resolveCommit(ctx, opt)
	if errors.Is(err, robocache.ErrTemporary) && cached != "" {
		return cached, true, nil // the Hub cannot be reached
	}
	if err != nil {
		return "", false, err
	}
	commits.Store(key, commit)
	return commit, false, nil
}

// resolveCommit requests the commit of the revision from the Hub.
func (s *repository) resolveCommit(ctx context.Context, opt store.HTTPOptions) (string, error) {
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
	var parsed struct{ SHA string }
	_ = json.Unmarshal(a.Body, &parsed)
	if commit := cmp.Or(a.Header.Get("X-Repo-Commit"), parsed.SHA); commitForm.MatchString(commit) {
		return commit, nil
	}
	return "", robocache.Malformed(
		"resolve",
		robocache.Where{"dataset": s.uri},
		"the Hub's answer names no commit",
	)
}

// Open opens a file. It prefers huggingface_hub's cache.
func (s *repository) Open(ctx context.Context, name string) (_ robocache.Ranged, err error) {
	at, err := s.openSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	if at.cached != nil {
		f, err := at.cached.Open(ctx, name)
		if err == nil {
			return cachedFile{f, at.blobVersion(path.Clean(name), f.Version())}, nil
		}
		if at.hub == nil {
			return nil, s.withDatasetURI(err)
		}
	}
	return at.hub.Open(ctx, name)
}

// withDatasetURI replaces the folder of the cache in an error by the URI of the dataset.
func (s *repository) withDatasetURI(err error) error {
	var e *robocache.Error
	if errors.As(err, &e) {
		c := *e
		c.Where = maps.Clone(e.Where)
		c.Where["dataset"] = s.uri
		return &c
	}
	return err
}

// cachedFile is a file in huggingface_hub's cache with the version of the Hub.
type cachedFile struct {
	robocache.Ranged
	version string
}

func (f cachedFile) Version() string { return f.version }

// blobVersion returns the ETag of a cached file, which is the name of the blob that it links to. If
// there is no such link, it returns other.
func (at *snapshot) blobVersion(full, other string) string {
	to, err := os.Readlink(filepath.Join(at.cached.URI(), filepath.FromSlash(full)))
	const minBlobName = 40 // a SHA-1 of git in hexadecimal; files in LFS have a SHA-256
	if blob := filepath.Base(to); err == nil && len(blob) >= minBlobName {
		return `"` + blob + `"`
	}
	return other
}

// Stat returns the size and version of a file.
func (s *repository) Stat(ctx context.Context, name string) (e store.Entry, err error) {
	at, err := s.openSnapshot(ctx)
	if err != nil {
		return e, err
	}
	if at.cached != nil {
		if e, err = at.cached.Stat(ctx, name); err == nil || at.hub == nil {
			e.Version = at.blobVersion(e.Name, e.Version)
			return e, s.withDatasetURI(err)
		}
	}
	return at.hub.Stat(ctx, name)
}
