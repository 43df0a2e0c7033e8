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

// SplitBucket takes what follows "scheme://" apart: bucket/prefix?query, of which the keys known
// are allowed. The prefix has no slash at its ends, and is no way out of the bucket.
func SplitBucket(
	scheme, rest string,
	known ...string,
) (bucket, prefix string, query url.Values, err error) {
	bad := func(msg string) (string, string, url.Values, error) {
		return "", "", nil, robocache.Malformed("open", robocache.Where{"dataset": show(robocache.Redact(scheme + "://" + rest))}, "%s", msg).
			WithHint("%s://bucket/folder", scheme)
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, q, _ := strings.Cut(rest, "?")
	if query, err = url.ParseQuery(q); err != nil {
		return bad("the query is not one of a URL")
	}
	for k := range query {
		if !slices.Contains(known, k) {
			return bad("no option " + show(k) + "; there are " + strings.Join(known, ", "))
		}
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	if bucket == "" || len(bucket) > 255 || strings.ContainsAny(bucket, `@:\ %`) ||
		bucket[0] == '.' {
		return bad("not the name of a bucket")
	}
	if prefix, err = url.PathUnescape(prefix); err != nil {
		return bad("bad escape in the URI (% is written %25)")
	}
	prefix, err = cleanPrefix(strings.Trim(prefix, "/"))
	return bucket, prefix, query, err
}

// KeyName is a key of a bucket as a name below a prefix; "" for what is no name of a file: the mark
// of a folder, "a//b".
func KeyName(key, prefix string) string {
	name, ok := strings.CutPrefix(key, prefix)
	if clean, err := CleanName(name); err != nil || !ok || clean != name {
		return ""
	}
	return name
}

// CleanFolder is CleanName for a folder of the store at uri, where "" is the whole store.
func CleanFolder(uri, dir string) (string, error) {
	clean, err := cleanPrefix(dir)
	return clean, fail("list", uri, "", err)
}

// Holds says whether a file has these bytes: a write that failed may have been done.
func Holds(ctx context.Context, s Store, name string, want *io.SectionReader) bool {
	f, err := s.Open(ctx, name)
	if err != nil || f.Size() != want.Size() {
		return false
	}
	defer f.Close()
	a, b := make([]byte, min(maxMerged, f.Size())), make([]byte, min(maxMerged, f.Size()))
	for off := int64(0); off < f.Size(); off += int64(len(a)) {
		n := min(int64(len(a)), f.Size()-off)
		if _, err := want.ReadAt(
			a[:n],
			off,
		); err != nil || f.ReadAt(ctx, b[:n], off) != nil ||
			!bytes.Equal(a[:n], b[:n]) {
			return false
		}
	}
	return true
}
