package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/goatnote-inc/robocache"
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
func OpenFinished(path string, resume bool) (*Finished, error) {
	f := &Finished{done: map[string]json.RawMessage{}}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	how := os.O_APPEND | os.O_CREATE | os.O_WRONLY
	if !resume {
		how |= os.O_TRUNC
	}
	var text []byte
	if err == nil && resume {
		if text, err = os.ReadFile(path); os.IsNotExist(err) {
			err = nil
		}
	}
	for line := range strings.Lines(string(text)) {
		var l finishedLine
		if json.Unmarshal([]byte(line), &l) == nil { // a line that a kill cut short is not one
			f.done[l.Key] = l.Value
		}
	}
	if err == nil {
		f.file, err = os.OpenFile(path, how, 0o644)
	}
	if err == nil && len(text) > 0 && text[len(text)-1] != '\n' {
		_, err = f.file.WriteString("\n")
	}
	return f, robocache.At(err, robocache.Where{"file": path})
}

// Close closes the file.
func (f *Finished) Close() error { return f.file.Close() }

// failed says why nothing more can be kept; f may be nil.
func (f *Finished) failed() error {
	if f == nil {
		return nil
	}
	return f.err
}

// forget has a run made again.
func (f *Finished) forget(key any) {
	if name, err := nameOf(key); err == nil && f != nil {
		delete(f.done, name)
	}
}

func nameOf(key any) (string, error) {
	text, err := json.Marshal(key)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), err
}

// Once runs what is not in the file, and keeps it there when it did not fail. f may be nil: then it runs.
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
	value, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	line, err := json.Marshal(finishedLine{name, value})
	if err == nil {
		_, err = f.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = f.file.Sync()
	}
	f.err = robocache.At(err, robocache.Where{"file": f.file.Name()})
	return v, f.err
}
