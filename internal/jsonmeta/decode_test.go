package jsonmeta_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

type line struct {
	Length *int64            `json:"length"`
	Byte   uint8             `json:"byte"`
	Name   string            `json:"name"`
	Parts  map[string][]int8 `json:"parts"`
	On     bool              `json:"on"`
	Rate   float64           `json:"rate"`
	Inner  struct {
		List []struct{ N int } `json:"list"`
	} `json:"inner"`
}

func TestIntegersWithPoint(t *testing.T) {
	for _, text := range []string{"5", "5.0", "5e0", "50e-1", "0.5E1"} {
		var l line
		b := []byte(`{"name": "5.0 \" 6.0", "rate": 5.0, "length": ` + text + `}`)
		err := jsonmeta.Unmarshal("test", b, &l)
		if err != nil || *l.Length != 5 || l.Rate != 5 || l.Name != `5.0 " 6.0` {
			t.Errorf("%s: %v, %+v", text, err, l)
		}
	}
}

func TestErrorsInJSONWords(t *testing.T) {
	for _, c := range []struct{ text, pointer, want, got string }{
		{`{"length": "5"}`, "/length", "an integer", `the text "5"`},
		{`{"length": 5.5}`, "/length", "an integer", "5.5"},
		{`{"length": 1e300}`, "/length", "an integer", "1e300"},
		{`{"length": [1]}`, "/length", "an integer", "the list [1]"},
		{`{"length": {"a": 1}}`, "/length", "an integer", "an object"},
		{`{"length": 99999999999999999999}`, "/length", "an integer", "99999999999999999999"},
		{`{"byte": 300}`, "/byte", "an integer from 0 to 255", "300"},
		{`{"byte": -1}`, "/byte", "an integer from 0 to 255", "-1"},
		{`{"name": 3}`, "/name", "a text", "3"},
		{`{"on": "yes"}`, "/on", "true or false", `the text "yes"`},
		{`{"rate": true}`, "/rate", "a number", "true"},
		{`{"parts": {"a/b": [1, 2, 300]}}`, "/parts/a~1b/2", "an integer from -128 to 127", "300"},
		{`{"parts": {"a": 1}}`, "/parts/a", "a list", "1"},
		{
			`{"inner": {"list": [{"N": 1}, {"N": "x"}]}}`,
			"/inner/list/1/N",
			"an integer",
			`the text "x"`,
		},
		{`{"inner": {"list": 7}}`, "/inner/list", "a list", "7"},
		{`[1, 2]`, "", "an object", "the list [1, 2]"},
		{`"text"`, "", "an object", `the text "text"`},
		{`{"length": 5,}`, "", "a key in double quotes", "'}'"},
		{`{"length": 5`, "", "more", "the end"},
		{`{"length" 5}`, "", "':' after the key", "'5'"},
		{`{"length": 5 "name": "a"}`, "", "',' or '}'", `'"'`},
		{`{"length": 5} {"length": 6}`, "", "the end of the JSON", "'{'"},
		{`{length: 5}`, "", "a key in double quotes", "'l'"},
		{`{"length": NaN}`, "", "a value", "'N'"},
	} {
		var l line
		err := jsonmeta.Unmarshal("test", []byte(c.text), &l)
		var e *robocache.Error
		if !errors.As(err, &e) || !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		pointer, _ := e.Where["pointer"].(string)
		if pointer != c.pointer || e.Want != c.want || e.Got != c.got {
			t.Errorf("%s: pointer %q, expected %q, found %q", c.text, pointer, e.Want, e.Got)
		}
		for _, word := range []string{"Go ", "struct", "int64", "line.", "unmarshal", "json:"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message has a word of Go: %v", c.text, err)
			}
		}
	}
}

func TestSyntaxErrorNamesLine(t *testing.T) {
	err := jsonmeta.Unmarshal("test", []byte("{\n \"a\": 1,\n}\n"), &line{})
	var e *robocache.Error
	if !errors.As(err, &e) || e.Where["line"] != 3 || e.Where["offset"] != int64(11) {
		t.Error(err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"parts": {"a": [1, 2.0, "x"]}}`))
	f.Add([]byte("{\"length\": 5.0, \"name\": \"\xff\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l line
		hostile.Typed(t, jsonmeta.Unmarshal("test", b, &l))
	})
}
