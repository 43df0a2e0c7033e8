package robocache

import "strings"

// Redact is a URI fit for logs and errors: without user, password, query and fragment, where tokens
// and signatures live.
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
	// A password may hold a "/" that was not escaped: everything up to the last "@" goes. In hf://,
	// behind the first part, it is a revision.
	if i := strings.IndexAny(
		tail,
		"/@",
	); strings.EqualFold(head, "hf") && i >= 0 &&
		tail[i] == '/' {
		return head + "://" + tail
	}
	if i := strings.LastIndexByte(tail, '@'); i >= 0 {
		tail = tail[i+1:]
	}
	return head + "://" + tail
}
