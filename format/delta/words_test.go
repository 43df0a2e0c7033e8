package delta

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestLogWords checks that errors about the log name the line, the place and the value, but no Go
// type.
func TestLogWords(t *testing.T) {
	read := func(text string) error {
		tb := &table{files: map[string]*add{}}
		return func() error {
			if err := tb.apply([]byte(text)); err != nil {
				return err
			}
			return tb.checkProtocol()
		}()
	}
	const protocol = `{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}` + "\n"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"version": {
			protocol + `{"protocol": {"minReaderVersion": "one"}}`,
			[]string{"line 2", "/protocol/minReaderVersion", "an integer", `"one"`},
		},
		"size": {
			`{"add": {"path": "a.parquet", "size": "big"}}`,
			[]string{"line 1", "/add/size", "an integer", `"big"`},
		},
		"add": {`{"add": [1]}`, []string{"/add", "an object", "[1]"}},
		"cut": {`{"add": {"path": "a.pa`, []string{"line 1", "not valid JSON", "the end"}},
		"schema": {
			protocol + `{"metaData": {"schemaString": "{\"fields\": 3}"}}`,
			[]string{"metaData.schemaString", "/fields", "a list", "3"},
		},
	} {
		err := read(c.text)
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %s", name, err, want)
			}
		}
		for _, word := range []string{"Go ", "json:", "unmarshal", "delta.", "struct "} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says %q", name, err, word)
			}
		}
	}
}
