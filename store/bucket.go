package store

import (
	"bytes"
	"context"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// SplitBucket parses the part of a URI after "scheme://" as bucket/prefix?query. known lists the
// allowed query keys. The prefix is clean: it has no slash at either end and does not leave the
// bucket.
func SplitBucket(
	scheme, rest string,
	known ...string,
) (bucket, prefix string, query url.Values, err error) {
	bad := func(msg string) (string, string, url.Values, error) {
		return "", "", nil, robocache.Malformed("open", robocache.Where{
			"dataset": quoteName(robocache.Redact(scheme + "://" + rest)),
		}, "%s", msg).
			WithHint("%s://bucket/folder", scheme)
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, q, _ := strings.Cut(rest, "?")
	if query, err = url.ParseQuery(q); err != nil {
		return bad("the query is not one of a URL")
	}
	for k := range query {
		if !slices.Contains(known, k) {
			return bad("no option " + quoteName(k) + "; there are " + strings.Join(known, ", "))
		}
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	isName := bucket != "" && bucket[0] != '.' && !strings.ContainsAny(bucket, `@:\ %`)
	if !isName || len(bucket) > 255 {
		return bad("not the name of a bucket")
	}
	if prefix, err = url.PathUnescape(prefix); err != nil {
		return bad("bad escape in the URI (% is written %25)")
	}
	prefix, err = cleanPrefix(strings.Trim(prefix, "/"))
	return bucket, prefix, query, err
}

// KeyName returns the name of a key relative to a prefix. It returns "" if the key is not a valid
// file name, such as a folder marker or "a//b".
func KeyName(key, prefix string) string {
	name, ok := strings.CutPrefix(key, prefix)
	if clean, err := CleanName(name); err != nil || !ok || clean != name {
		return ""
	}
	return name
}

// CleanFolder is CleanName for a folder of the store at uri. "" is the whole store.
func CleanFolder(uri, dir string) (string, error) {
	clean, err := cleanPrefix(dir)
	return clean, storeError("list", uri, "", err)
}

// Holds reports whether a file has the bytes of want. It is used after a failed write, which may
// still have succeeded on the server.
func Holds(ctx context.Context, s Store, name string, want *io.SectionReader) bool {
	f, err := s.Open(ctx, name)
	if err != nil || f.Size() != want.Size() {
		return false
	}
	defer f.Close()
	block := min(maxMerged, f.Size())
	a := make([]byte, block)
	b := make([]byte, block)
	for off := int64(0); off < f.Size(); off += int64(len(a)) {
		n := min(int64(len(a)), f.Size()-off)
		_, err := want.ReadAt(a[:n], off)
		if err != nil || f.ReadAt(ctx, b[:n], off) != nil || !bytes.Equal(a[:n], b[:n]) {
			return false
		}
	}
	return true
}
