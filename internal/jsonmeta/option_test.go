package jsonmeta_test

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

func TestOptionErrorsNameOptionAndValue(t *testing.T) {
	for _, c := range []struct{ name, text, message, want, got string }{
		{"augment", `{"length": "5"}`, "augment.length", "an integer", `the text "5"`},
		{
			"augment",
			`{"inner": {"list": [{"N": 1}, {"N": "x"}]}}`,
			"augment.inner.list.1.N",
			"an integer",
			`the text "x"`,
		},
		{"", `{"parts": {"a/b": 5}}`, "parts.a/b", "a list", "5"},
		{"augment", `40`, "augment", "an object", "40"},
		{"augment", `{"lenght": 5}`, "augment: unknown name lenght", "", ""},
		{"", `{"lenght": 5}`, "unknown name lenght", "", ""},
		{"augment", `{"length"`, "augment: not valid JSON", "more", "the end"},
		{"augment", `{length: 5}`, "augment: not valid JSON", "a key in double quotes", "'l'"},
	} {
		err := jsonmeta.Option("test", c.name, []byte(c.text), &line{})
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrMisuse) || e.Msg != c.message ||
			e.Want != c.want ||
			e.Got != c.got {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
