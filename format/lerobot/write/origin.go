package write

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// origin returns the recording that an episode of the source comes from, with its checksum.
func (c *conversion) origin(ctx context.Context, e int) *robocache.Origin {
	o := guard.Must(robocache.OriginOf(ctx, c.src, e))
	if s, ok := robocache.As[store.Source](c.src); ok && o.Checksum == "" && o.File != "" && o.Dataset == robocache.Redact(c.src.Info().URI) {
		sum, _ := c.sums.LoadOrStore(o.File, sync.OnceValue(func() string { return checksum(ctx, s.Store(), o.File) }))
		o.Checksum = sum.(func() string)()
	}
	return o
}

// checksum returns "sha256:" and the SHA-256 of a file. For a folder it is the SHA-256 of the output of sha256sum over its files, sorted by name. For a
// remote file, which is not read again, checksum returns "etag:" and the version. It is empty if the file cannot be read: the
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
