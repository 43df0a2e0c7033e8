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

// Finished saves completed results as lines of a file. A resumed measurement runs only the missing
// ones.
type Finished struct {
	file    *os.File
	results map[string]json.RawMessage
	err     error // the first write error; no further runs are started
}

type finishedLine struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

// OpenFinished opens the file at path. Without resume it discards the existing results.
func OpenFinished(path string, resume bool) (f *Finished, err error) {
	defer robocache.Locate(&err, robocache.Where{"file": path})
	f = &Finished{results: map[string]json.RawMessage{}}
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
		if json.Unmarshal(line, &l) == nil { // ignore an incomplete last line of an interrupted run
			f.results[l.Key] = l.Value
		}
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		if _, err := f.file.WriteString("\n"); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Close closes the file. f may be nil.
func (f *Finished) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// writeError returns the first write error. f may be nil.
func (f *Finished) writeError() error {
	if f == nil {
		return nil
	}
	return f.err
}

// forgetRun removes a saved result, so that it is measured again.
func (f *Finished) forgetRun(key any) error {
	name, err := keyHash(key)
	if err == nil {
		delete(f.results, name)
	}
	return err
}

// keyHash returns the name under which the result of key is saved.
func keyHash(key any) (string, error) {
	encoded, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:16]), nil
}

// Once returns the saved result of key. If there is none, it calls run and saves the result, unless
// run fails. f may be nil; then nothing is saved.
func Once[T any](f *Finished, key any, run func() (T, error)) (v T, err error) {
	if f == nil {
		return run()
	}
	if f.err != nil {
		return v, f.err
	}
	name, err := keyHash(key)
	if err != nil {
		return v, err
	}
	if kept, ok := f.results[name]; ok && json.Unmarshal(kept, &v) == nil {
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
