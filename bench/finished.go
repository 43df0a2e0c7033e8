package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Finished keeps what is over as lines of a file, so that an interrupted measurement goes on with what is missing.
type Finished struct {
	file *os.File
	done map[string]json.RawMessage
	err  error // of writing: nothing more is run
}

type finishedLine struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// OpenFinished opens the file; without resume it begins anew.
func OpenFinished(path string, resume bool) (f *Finished, err error) {
	defer guard.Into(&err)
	defer guard.In("file", path)
	f = &Finished{done: map[string]json.RawMessage{}}
	guard.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	if !resume {
		f.file = guard.Must(os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644))
		return f, nil
	}
	f.file = guard.Must(os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644))
	text := guard.Must(io.ReadAll(f.file))
	for line := range bytes.Lines(text) {
		var l finishedLine
		if json.Unmarshal(line, &l) == nil { // a line that a kill cut short is not one
			f.done[l.Key] = l.Value
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		guard.Must(f.file.WriteString("\n"))
	}
	return f, nil
}

// Close closes the file; f may be nil.
func (f *Finished) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// failed says why nothing more can be kept; f may be nil.
func (f *Finished) failed() error {
	if f == nil {
		return nil
	}
	return f.err
}

// forget has a run made again.
func (f *Finished) forget(key any) { delete(f.done, nameOf(key)) }

func nameOf(key any) string {
	sum := sha256.Sum256(guard.Must(json.Marshal(key)))
	return hex.EncodeToString(sum[:16])
}

// Once runs what is not in the file, and keeps it there when it did not fail. f may be nil: then it runs.
func Once[T any](f *Finished, key any, run func() (T, error)) (v T, err error) {
	if f == nil {
		return run()
	}
	if f.err != nil {
		return v, f.err
	}
	defer guard.Into(&err)
	name := nameOf(key)
	if kept, ok := f.done[name]; ok && json.Unmarshal(kept, &v) == nil {
		return v, nil
	}
	if v, err = run(); err != nil {
		return v, err
	}
	line := guard.Must(json.Marshal(finishedLine{name, guard.Must(json.Marshal(v))}))
	if _, err = f.file.Write(append(line, '\n')); err == nil {
		err = f.file.Sync()
	}
	f.err = robocache.At(err, robocache.Where{"file": f.file.Name()})
	return v, f.err
}
