package robocache

import (
	"context"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for uri, want := range map[string]string{
		"https://u:p@h/x?s=1#f": "https://h/x",
		"http://u:a/b@h:1/x":    "http://h:1/x",
		"/a?b":                  "/a?b",
		"file:///a?b":           "file:///a?b",
		"s3://k:s@b/x?y":        "s3://b/x",
		"https://h":             "https://h",
	} {
		if got := Redact(uri); got != want {
			t.Errorf("%s: %s, want %s", uri, got, want)
		}
	}
}

// TestOpenTellsNoSecrets: what is mistyped most often is a URI that holds a password or a
// signature.
func TestOpenTellsNoSecrets(t *testing.T) {
	uri := "https://user:secret@127.0.0.1:1/nowhere?signature=secret#secret"
	for name, opt := range map[string][]OpenOptions{
		"no format here": nil,
		"unknown format": {{Format: "no such format"}},
		"two options":    {{}, {}},
	} {
		_, err := Open(context.Background(), uri, opt...)
		if err == nil || strings.Contains(err.Error(), "secret") ||
			!strings.Contains(err.Error(), "127.0.0.1:1/nowhere") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
