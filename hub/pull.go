package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/hf"
)

// Pulled is the result of Pull.
type Pulled struct {
	URI         string `json:"uri"`
	Commit      string `json:"commit,omitempty"`
	Destination string `json:"destination"`
	Files       int    `json:"files"`     // files of the dataset in the destination
	Bytes       int64  `json:"bytes"`     // bytes that were downloaded
	Unchanged   int    `json:"unchanged"` // files that were already present
	LeftOut     int    `json:"left_out"`  // files that hold only other episodes
}

const (
	filesAtOnce  = 4
	pieceBytes   = 8 << 20 // bytes of a file per request
	piecesAtOnce = 4
)

// Pull copies a dataset of the Hub, or a folder of it, into the local folder dst. episodes selects
// episodes by index (Info.ParseEpisodes). If it is empty, all are copied.
func Pull(
	ctx context.Context,
	uri, dst, episodes string,
	progress func(done, total int64),
) (_ *Pulled, err error) {
	if !strings.HasPrefix(uri, "hf://") {
		return nil, robocache.Misuse("pull", robocache.Where{"dataset": robocache.Redact(uri)}, "").
			Expected("hf://datasets/owner/name, optionally with @revision", "another URI")
	}
	hf.Forget()
	src, err := store.Open(uri)
	if err != nil {
		return nil, err
	}
	defer store.Close(src)
	list, err := src.List(ctx, "")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, robocache.NotFound(
			"pull",
			robocache.Where{"dataset": uri},
			"there are no files",
		)
	}
	out := &Pulled{URI: uri, Destination: dst}
	if c, ok := src.(interface {
		Commit(context.Context) (string, error)
	}); ok {
		if out.Commit, err = c.Commit(ctx); err != nil {
			return nil, err
		}
	}
	if episodes != "" {
		other, err := unwantedFiles(ctx, uri, episodes)
		if err != nil {
			return nil, err
		}
		kept := list[:0:0]
		for _, e := range list {
			if !other[e.Name] {
				kept = append(kept, e)
			}
		}
		out.LeftOut, list = len(list)-len(kept), kept
	}
	if err := os.MkdirAll(dst, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var total int64
	for _, e := range list {
		total += e.Size
	}
	p := &pull{source: src, root: root}
	p.progress = func(n int64) {
		if done := p.doneBytes.Add(n); progress != nil {
			progress(done, total)
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	for _, e := range list {
		g.Go(crash.Func("pull", func() (err error) {
			defer robocache.LocateIn(&err, "file", e.Name)
			return p.pullFile(gctx, e)
		}))
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out.Files, out.Bytes, out.Unchanged = len(list), p.readBytes.Load(), int(p.unchanged.Load())
	return out, nil
}

// unwantedFiles returns the names of the files that hold only episodes that are not selected.
func unwantedFiles(ctx context.Context, uri, episodes string) (map[string]bool, error) {
	ds, err := robocache.Open(ctx, uri)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	l, ok := robocache.As[*lerobot.Dataset](ds)
	if !ok {
		return nil, robocache.Unsupported("pull", robocache.Where{
			"dataset": uri,
		}, "episodes of the format %s are not told apart by files", ds.Info().Format).
			WithHint("pull the whole dataset")
	}
	positions, err := ds.Info().ParseEpisodes(episodes)
	if err != nil {
		return nil, err
	}
	t, err := l.EpisodeTable(ctx)
	if err != nil {
		return nil, err
	}
	other := map[string]bool{}
	var kept []string
	for _, files := range append(slices.Collect(maps.Values(t.Videos)), t.Data) {
		for _, name := range files.Names {
			other[name] = true
		}
		for _, e := range positions {
			if files.Of != nil {
				e = int(files.Of[e])
			}
			kept = append(kept, files.Names[e])
		}
	}
	for _, name := range kept {
		delete(other, name)
	}
	return other, nil
}

// pull is the state of a running Pull.
type pull struct {
	source                          store.Store
	root                            *os.Root
	doneBytes, readBytes, unchanged atomic.Int64
	progress                        func(n int64)
}

// hubChecksum returns the hash function of a file on the Hub and the expected hex digits. It is
// SHA-256, or Git's SHA-1 for small files. The hash is nil if the Hub reports no checksum.
func hubChecksum(e store.Entry) (h hash.Hash, want string) {
	want = strings.Trim(strings.TrimPrefix(e.Version, "W/"), `"`)
	switch len(want) {
	case sha256.Size * 2:
		return sha256.New(), want
	case sha1.Size * 2:
		h = sha1.New()
		fmt.Fprintf(h, "blob %d\x00", e.Size)
		return h, want
	}
	return nil, ""
}

// hasChecksum reports whether a local file has the Hub's checksum.
func (p *pull) hasChecksum(name string, e store.Entry) bool {
	h, want := hubChecksum(e)
	f, err := p.root.Open(name)
	if err != nil || h == nil {
		return false
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	return err == nil && n == e.Size && hex.EncodeToString(h.Sum(nil)) == want
}

// pullFile downloads one file unless it is already present.
func (p *pull) pullFile(ctx context.Context, e store.Entry) error {
	if i, err := p.root.Stat(e.Name); err == nil && i.Mode().IsRegular() && i.Size() == e.Size &&
		p.hasChecksum(e.Name, e) {
		p.unchanged.Add(1)
		p.progress(e.Size)
		return nil
	}
	_, want := hubChecksum(e)
	part := e.Name + "." + want[:min(8, len(want))] + ".incomplete"
	if err := p.root.MkdirAll(path.Dir(e.Name), 0o777); err != nil {
		return err
	}
	for again := true; ; again = false {
		resumed, err := p.downloadRest(ctx, e, part)
		if err != nil {
			return err
		}
		if want == "" || p.hasChecksum(part, e) {
			break
		}
		if err := p.root.Remove(part); err != nil {
			return err
		}
		if !resumed || !again {
			return robocache.Temporary("pull", nil, "").
				Expected("the checksum "+want, "other bytes").WithHint("pull again")
		}
		p.progress(-e.Size)
	}
	return p.root.Rename(part, e.Name)
}

// downloadRest downloads the missing bytes of a partial file. resumed reports whether the file
// already had bytes.
func (p *pull) downloadRest(
	ctx context.Context,
	e store.Entry,
	part string,
) (resumed bool, err error) {
	f, err := p.root.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return resumed, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return resumed, err
	}
	off := stat.Size()
	if off > e.Size {
		off = 0
		if err := f.Truncate(0); err != nil {
			return resumed, err
		}
	}
	resumed = off > 0
	p.progress(off)
	src, err := p.source.Open(ctx, e.Name)
	if err != nil {
		return resumed, err
	}
	defer src.Close()
	if src.Size() != e.Size {
		return resumed, robocache.Temporary("pull", nil, "").
			Expected(fmt.Sprintf("%d bytes", e.Size), fmt.Sprint(src.Size())).WithHint("pull again")
	}
	buf := make([]byte, min(pieceBytes*piecesAtOnce, e.Size-off))
	for off < e.Size {
		b := buf[:min(int64(len(buf)), e.Size-off)]
		var spans []store.Span
		for at := int64(0); at < int64(len(b)); at += pieceBytes {
			spans = append(
				spans,
				store.Span{Off: off + at, P: b[at:min(at+pieceBytes, int64(len(b)))]},
			)
		}
		if err := store.ReadRanges(ctx, src, spans); err != nil {
			return resumed, err
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return resumed, err
		}
		off += int64(len(b))
		p.readBytes.Add(int64(len(b)))
		p.progress(int64(len(b)))
	}
	if err := f.Sync(); err != nil {
		return resumed, err
	}
	return resumed, nil
}
