// Package origin names the recordings that the episodes of a written dataset come from.
package origin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// synthetic is the format of datasets that package synth makes.
const synthetic = "synth"

// Tracer finds the origins of a source's episodes. Safe for concurrent use.
type Tracer struct {
	src      robocache.Dataset
	replaced string
	sums     sync.Map // checksums of recordings, by name: func() string
}

// NewTracer returns a tracer of a source that is written with some options.
func NewTracer(src robocache.Dataset, opt robocache.WriteOptions) *Tracer {
	return &Tracer{src: src, replaced: robocache.Redact(opt.Replaces)}
}

// Of returns the recording that an episode (a position) comes from, with its checksum. It returns nil if package
// synth made the episode, or if the episode comes from the dataset that the result replaces.
func (t *Tracer) Of(ctx context.Context, episode int) (*robocache.Origin, error) {
	o, err := robocache.OriginOf(ctx, t.src, episode)
	if err != nil {
		return nil, err
	}
	if o.Format == synthetic || t.replaced != "" && o.Dataset == t.replaced {
		return nil, nil
	}
	s, ok := robocache.As[store.Source](t.src)
	if ok && o.Checksum == "" && o.File != "" && o.Dataset == robocache.Redact(t.src.Info().URI) {
		file := o.File
		sum, _ := t.sums.LoadOrStore(file, sync.OnceValue(func() string { return checksum(ctx, s.Store(), file) }))
		o.Checksum = sum.(func() string)()
	}
	return o, nil
}

// Text returns the origin of an episode as JSON; "" if there is none.
func (t *Tracer) Text(ctx context.Context, episode int) (string, error) {
	o, err := t.Of(ctx, episode)
	if o == nil || err != nil {
		return "", err
	}
	b, err := json.Marshal(o)
	return string(b), err
}

// Parse reads the text of an origin. It returns nil if the text is none.
func Parse(text string) *robocache.Origin {
	o := &robocache.Origin{}
	if json.Unmarshal([]byte(text), o) != nil || o.Dataset == "" {
		return nil
	}
	return o
}

// checksum returns "sha256:" and the SHA-256 of a file. For a folder it is the SHA-256 of the output of sha256sum over its files, sorted by
// name. For a remote file, which is not read again, checksum returns "etag:" and the version. It is empty if the file cannot be read: the
// conversion has read what it needs of it.
func checksum(ctx context.Context, st store.Store, name string) string {
	sum, err := sumOf(ctx, st, name)
	if err == nil {
		return sum
	}
	files, err := st.List(ctx, name)
	if err != nil || len(files) == 0 {
		return ""
	}
	h := sha256.New()
	for _, f := range files {
		sum, err := sumOf(ctx, st, f.Name)
		if err != nil {
			return ""
		}
		fmt.Fprintf(h, "%s  %s\n", sum, f.Name)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func sumOf(ctx context.Context, st store.Store, name string) (string, error) {
	f, err := st.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if robocache.IsRemote(f) {
		return "etag:" + f.Version(), nil
	}
	h := sha256.New()
	err = store.EachBlock(ctx, f, func(b []byte) error { _, err := h.Write(b); return err })
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), err
}
