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
)

// Finished keeps what is over as lines of a file, so that an interrupted measurement goes on with
// what is missing.
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
	defer robocache.Locate(&err, robocache.Where{"file": path})
	f = &Finished{done: map[string]json.RawMessage{}}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return f, err
	}
	if !resume {
		if f.file,
			err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644); err !=
			nil {
			return f, err
		}
		return f, nil
	}
	if f.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return f, err
	}
	text, err := io.ReadAll(f.file)
	if err != nil {
		return f, err
	}
	for line := range bytes.Lines(text) {
		var l finishedLine
		if json.Unmarshal(line, &l) == nil { // a line that a kill cut short is not one
			f.done[l.Key] = l.Value
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		if _, err := f.file.WriteString("\n"); err != nil {
			return f, err
		}
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
func (f *Finished) forget(key any) error {
	name, err := nameOf(key)
	if err == nil {
		delete(f.done, name)
	}
	return err
}

func nameOf(key any) (string, error) {
	encoded, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16]), nil
}

// Once runs what is not in the file, and keeps it there when it did not fail. f may be nil: then it
// runs.
func Once[T any](f *Finished, key any, run func() (T, error)) (v T, err error) {
	if f == nil {
		return run()
	}
	if f.err != nil {
		return v, f.err
	}
	name, err := nameOf(key)
	if err != nil {
		return v, err
	}
	if kept, ok := f.done[name]; ok && json.Unmarshal(kept, &v) == nil {
		return v, nil
	}
	if v, err = run(); err != nil {
		return v, err
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	line, err := json.Marshal(finishedLine{name, encoded})
	if err != nil {
		return v, err
	}
	if _, err = f.file.Write(append(line, '\n')); err == nil {
		err = f.file.Sync()
	}
	f.err = robocache.At(err, robocache.Where{"file": f.file.Name()})
	return v, f.err
}
