package shard_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/shard"
	"github.com/goatnote-inc/robocache/store"
	_ "github.com/goatnote-inc/robocache/store/s3"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"
)

// checksum matches the checksum or the version of a file in a report.
var checksumFile = regexp.MustCompile(`(sha256|etag):[^"]+`)

// TestObjectStore checks that a source and a destination in a bucket of a real server yield the
// same files as a run in folders.
func TestObjectStore(t *testing.T) {
	dir, endpoint := servers.S3(t)
	t.Setenv("AWS_ENDPOINT_URL_S3", endpoint)
	src := source(t, 5, synth.Options{})
	copied := filepath.Join(dir, "lab", "src")
	from, err := store.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	to, err := store.OpenWritable(copied)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range contents(t, from) {
		if err := store.Put(t.Context(), to, name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	result := func(source, destination string) map[string]string {
		job := shard.Job{
			Name:        "convert",
			Source:      source,
			Destination: destination,
			To:          "lerobot",
			Convert:     images,
		}
		all(t, plan(t, job, 3))
		st, err := store.Open(destination)
		if err != nil {
			t.Fatal(err)
		}
		out := contents(t, st)
		delete(out, "_commit.json") // contains the destination
		// Reports contain the source, and the checksum or the version of its files.
		for name, text := range out {
			out[name] = checksumFile.ReplaceAllString(
				strings.ReplaceAll(text, source, "SOURCE"),
				"CHECKSUM",
			)
		}
		return out
	}
	want, got := result(src, filepath.Join(t.TempDir(), "out")),
		result("s3://lab/src", "s3://lab/out")
	if d := differences(want, got); len(want) < 8 || d != nil {
		t.Errorf("%d files, %v", len(want), d)
	}
	same(t, open(t, src), open(t, "s3://lab/out"))
}
