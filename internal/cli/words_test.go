package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/internal/flags"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/mapping"
)

// TestOptionErrorsInPlainWords checks that errors about options name the option and the value, and
// never a type or a function of Go.
func TestOptionErrorsInPlainWords(t *testing.T) {
	parseLoader := func(text string) error {
		_, err := loader.ParseConfig([]byte(text))
		return err
	}
	parseAlign := func(text string) error { _, err := align.ParseConfig([]byte(text)); return err }
	parseMapping := func(text string) error { _, err := mapping.Parse([]byte(text)); return err }
	parseFlags := func(text string) error { _, err := flags.Parse([]byte(text)); return err }
	command := func(text string) error {
		root := newRoot()
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(strings.Fields(text))
		return root.ExecuteContext(context.Background())
	}
	robocache.SetWords(robocache.GoWords) // an earlier test may have set other words
	for _, c := range []struct {
		read       func(string) error
		text, want string
	}{
		{parseLoader, `{"augment": {"hflip": true}}`, "augment.hflip: expected an object, found " +
			"true"},
		{
			parseLoader, `{"augment": {"random_crop": [40, 40]}}`,
			"augment.random_crop: expected an object, found the list [40, 40]",
		},
		{parseLoader, `{"augment": {"crop": {"size": [8, 8]}}}`, "augment: unknown name crop; " +
			"hint: nearest: random_crop"},
		{
			parseLoader, `{"augment": {"random_crop": {"sise": [8, 8]}}}`,
			"augment.random_crop: unknown name sise; hint: nearest: size, pad, keep",
		},
		{parseLoader, `{"augment": 40}`, "Augment: expected an object, found 40"},
		{
			parseLoader, `{"augment": {"random_crop": {"size": "big"}}}`,
			`augment.random_crop.size: expected a list, found the text "big"`,
		},
		{
			parseLoader, `{"augment": {"random_crop": {"size": ["big"]}}}`,
			`augment.random_crop.size.0: expected an integer, found the text "big"`,
		},
		{
			parseLoader, `{"augment": {"hflip": {"p": 1, "swap": {"a": 5}}}}`,
			"augment.hflip.swap.a: expected a list, found 5",
		},
		{
			parseLoader, `{"augment": {"color_jitter": {"hue": "x"}}}`,
			`expected a number, or [low, high], found the text "x"`,
		},
		{parseLoader, `{"augment": {"noise": {"std": [1]}}}`, "expected a number, or an object " +
			"of numbers, found the list [1]"},
		{parseLoader, `{"batch_size": "x"}`, `batch_size: expected an integer, found the text "x"`},
		{parseLoader, `{"threads": 1.5}`, "threads: expected an integer, found 1.5"},
		{parseLoader, `{"align": {"edge": 5}}`, "edge"},
		{parseLoader, `{"align": 5}`, "align: expected an object, found 5"},
		{parseLoader, `5`, "the configuration: expected an object, found 5"},
		{parseAlign, `{"modes": 5}`, "align.modes: expected an object, found 5"},
		{parseAlign, `{"edge": {"a": 5}}`, "edge"},
		{parseAlign, `{"hz": "x"}`, ""},
		{parseAlign, `{"window": [1]}`, ""},
		{parseAlign, `{"drift": {"a": "x"}}`, ""},
		{parseAlign, `{"rotations": {"a": [5]}}`, ""},
		{parseAlign, `{"rotations": {"a": [{"at": "x"}]}}`, ""},
		{parseMapping, `{"streams": {"a": 5}}`, "streams.a: expected an object, found 5"},
		{parseMapping, `{"streams": [1]}`, "streams: expected an object, found the list [1]"},
		{
			parseMapping, `{"streams": {"a": {"from": ["b"], "scale": "x"}}}`,
			`streams.a.scale: expected a number, found the text "x"`,
		},
		{parseMapping, `5`, "the mapping: expected an object, found 5"},
		{parseMapping, "streams: {1: {from: [a]}}", ""},
		{parseMapping, `{"stream": {}}`, "unknown name stream"},
		{parseMapping, `{"streams": {"a": {"from": ["b"], "drift": true}}}`, "drift"},
		{parseMapping, `{"streams": {"a": {"from": ["b"], "relative": 5}}}`, "relative"},
		{parseFlags, `{"flags": 5}`, "expected a list, found 5"},
		{parseFlags, `["x"]`, `expected an integer, found the text "x"`},
		{parseFlags, `5`, "expected an object, found 5"},
		{command, "inspect --episode x set", `--episode: expected an integer, found "x"`},
	} {
		err := c.read(c.text)
		var e *robocache.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nexpected %s", c.text, err, c.want)
		}
		for _, word := range []string{
			"Go struct",
			"Go value",
			"cannot unmarshal",
			"strconv",
			"json:",
			"interface",
		} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message has a word of Go: %v", c.text, err)
			}
		}
	}
}
