package store

import (
	"context"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Spool is a Writer of a store that takes whole objects only: what is written lies in an unnamed
// temporary file until Commit uploads it.
func Spool(
	ctx context.Context,
	uri, name string,
	upload func(ctx context.Context, body *io.SectionReader) error,
) (Writer, error) {
	f, err := os.CreateTemp("", tempPrefix)
	if err != nil {
		return nil, fail("create", uri, name, err)
	}
	os.Remove(f.Name()) // the handle keeps it; a killed process leaves nothing
	return &spool{ctx: ctx, uri: uri, name: name, upload: upload, f: f}, nil
}

type spool struct {
	ctx       context.Context // of Create: its end stops further writes
	uri, name string
	upload    func(ctx context.Context, body *io.SectionReader) error

	mu    sync.RWMutex // writers share it; Commit and Abort have it alone
	f     *os.File     // nil when ended
	ended error        // why it ended
}

func (w *spool) Write(p []byte) (int, error) {
	return w.write(func(f *os.File) (int, error) { return f.Write(p) })
}

func (w *spool) WriteAt(p []byte, off int64) (int, error) {
	return w.write(func(f *os.File) (int, error) { return f.WriteAt(p, off) })
}

func (w *spool) write(do func(*os.File) (int, error)) (n int, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.f == nil {
		return 0, w.ended
	}
	if err = w.ctx.Err(); err == nil {
		n, err = do(w.f)
	}
	return n, fail("write", w.uri, w.name, err)
}

// end gives back the temporary file; later calls fail with ended.
func (w *spool) end(ended error) {
	if w.f != nil {
		w.f.Close()
		w.f, w.ended = nil, ended
	}
}

func (w *spool) Commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.f == nil {
		return w.ended
	}
	info, err := w.f.Stat()
	if err == nil {
		err = w.ctx.Err()
	}
	if err == nil {
		err = w.upload(w.ctx, io.NewSectionReader(w.f, 0, info.Size()))
	}
	err = fail("commit", w.uri, w.name, err)
	if err != nil {
		w.end(err)
	} else {
		w.end(fail("write", w.uri, w.name, fs.ErrClosed))
	}
	return err
}

func (w *spool) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(fail("write", w.uri, w.name, robocache.Misuse("", nil, "used after Abort")))
}
