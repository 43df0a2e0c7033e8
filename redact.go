package robocache

import "strings"

// Redact returns a URI for logs and errors: without user, password, query and fragment, which may
// hold tokens and signatures.
func Redact(uri string) string {
	head, tail, ok := strings.Cut(uri, "://")
	if !ok || strings.ContainsAny(head, "/?#@") {
		return uri
	}
	if strings.EqualFold(head, "file") || strings.EqualFold(head, "mem") {
		return uri
	}
	if i := strings.IndexAny(tail, "?#"); i >= 0 {
		tail = tail[:i]
	}
	// In hf:// URIs an "@" after the first part of the path begins a revision.
	i := strings.IndexAny(tail, "/@")
	if strings.EqualFold(head, "hf") && i >= 0 && tail[i] == '/' {
		return head + "://" + tail
	}
	// A password may contain an unescaped "/": everything up to the last "@" is removed.
	if i := strings.LastIndexByte(tail, '@'); i >= 0 {
		tail = tail[i+1:]
	}
	return head + "://" + tail
}
