package store

import (
	"context"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/goatnote-inc/robocache"
)

// Spool returns a Writer for a store that accepts only whole objects. The bytes are written to an
// unnamed temporary file, which Commit uploads.
func Spool(
	ctx context.Context,
	uri, name string,
	upload func(ctx context.Context, body *io.SectionReader) error,
) (Writer, error) {
	f, err := os.CreateTemp("", tempPrefix)
	if err != nil {
		return nil, storeError("create", uri, name, err)
	}
	os.Remove(f.Name()) // the open handle keeps the file, so a killed process leaves nothing
	return &spoolWriter{ctx: ctx, uri: uri, name: name, upload: upload, f: f}, nil
}

type spoolWriter struct {
	ctx       context.Context // context of Create; its end stops further writes
	uri, name string
	upload    func(ctx context.Context, body *io.SectionReader) error

	mu    sync.RWMutex // writers share it; Commit and Abort hold it exclusively
	f     *os.File     // nil after Commit or Abort
	ended error        // error of later calls
}

func (w *spoolWriter) Write(p []byte) (int, error) {
	return w.writeSpooled(func(f *os.File) (int, error) { return f.Write(p) })
}

func (w *spoolWriter) WriteAt(p []byte, off int64) (int, error) {
	return w.writeSpooled(func(f *os.File) (int, error) { return f.WriteAt(p, off) })
}

// writeSpooled calls do with the temporary file, or returns the error of an ended writer.
func (w *spoolWriter) writeSpooled(do func(*os.File) (int, error)) (n int, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.f == nil {
		return 0, w.ended
	}
	if err = w.ctx.Err(); err == nil {
		n, err = do(w.f)
	}
	return n, storeError("write", w.uri, w.name, err)
}

// closeTemp closes the temporary file. Later calls return ended.
func (w *spoolWriter) closeTemp(ended error) {
	if w.f != nil {
		w.f.Close()
		w.f, w.ended = nil, ended
	}
}

func (w *spoolWriter) Commit() error {
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
	err = storeError("commit", w.uri, w.name, err)
	if err != nil {
		w.closeTemp(err)
	} else {
		w.closeTemp(storeError("write", w.uri, w.name, fs.ErrClosed))
	}
	return err
}

func (w *spoolWriter) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeTemp(storeError("write", w.uri, w.name, robocache.Misuse("", nil, "used after Abort")))
}
