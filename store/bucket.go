package store

import (
	"net/url"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// SplitBucket takes what follows "scheme://" apart: bucket/prefix?query. The prefix has no slash at its ends, and is no way out of the bucket.
func SplitBucket(scheme, rest string) (bucket, prefix string, query url.Values, err error) {
	bad := func(msg string) (string, string, url.Values, error) {
		return "", "", nil, &robocache.Error{Class: robocache.ErrMalformed, Op: "open", Where: robocache.Where{"dataset": show(robocache.Redact(scheme + "://" + rest))}, Msg: msg,
			Hint: scheme + "://bucket/folder"}
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, q, _ := strings.Cut(rest, "?")
	if query, err = url.ParseQuery(q); err != nil {
		return bad("the query is not one of a URL")
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	if bucket == "" || len(bucket) > 255 || strings.ContainsAny(bucket, `@:\ %`) || bucket[0] == '.' {
		return bad("not the name of a bucket")
	}
	if prefix, err = url.PathUnescape(prefix); err != nil {
		return bad("bad escape in the URI (% is written %25)")
	}
	prefix, err = cleanPrefix(strings.Trim(prefix, "/"))
	return bucket, prefix, query, err
}
