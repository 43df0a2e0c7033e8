//go:build cgo

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// "sources" describes a mixture. The rest is loader.Config, and unknown keys are rejected.
func TestRequests(t *testing.T) {
	w, err := parseRequest(
		[]byte(
			`{"batch_size": 4, "sources": [{"dataset": 7, "weight": 2, "rename": {"a": "b"}, "hz": "30000/1001", "stats": {"b": {"mean": [1, null], "quantiles": {"q01": [2]}}}}, {"dataset": 8}]}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if w.cfg.BatchSize != 4 || len(w.sources) != 2 || w.sources[0].Dataset != 7 ||
		*w.sources[0].Weight != 2 ||
		w.sources[1].Weight != nil ||
		w.sources[0].Hz.String() != "30000/1001" {
		t.Errorf("%+v", w)
	}
	one := w.sources[0].Stats["b"]
	if st := one.toStats(); st.Mean[0] != 1 || !math.IsNaN(st.Mean[1]) ||
		st.Quantiles["q01"][0] != 2 ||
		st.Std != nil {
		t.Errorf("%+v", st)
	}
	if w, err := parseRequest([]byte(`{"batch_size": 4}`)); err != nil || w.sources != nil ||
		w.cfg.BatchSize != 4 {
		t.Error(w, err)
	}
	for _, bad := range []string{
		`{"sources": []}`,
		`{"sources": [{"colour": 1}]}`,
		`{"sources": {}}`,
		`{"sources": [{"dataset": 1}], "colour": 1}`,
		`{"colour": 1}`,
	} {
		if _, err := parseRequest([]byte(bad)); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := w.openLoader(t.Context(), 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Error("datasets that are not there:", err)
	}
}

// TestArgumentErrorsInPlainWords checks that a wrong argument is described in words of JSON.
func TestArgumentErrorsInPlainWords(t *testing.T) {
	for text, want := range map[string]string{
		`{"sources": {}}`:                      "sources: expected a list, found an object",
		`{"sources": [{"dataset": "x"}]}`:      `sources.0.dataset: expected an integer, found the text "x"`,
		`{"sources": [{"colour": 1}]}`:         "sources: unknown name colour",
		`{"pin_memory": 5}`:                    "pin_memory: expected true or false, found 5",
		`{"stats": {"a": {"mean": ["x"]}}}`:    `expected a number, found the text "x"`,
		`{"augment": {"hflip": true}}`:         "augment.hflip: expected an object, found true",
		`{"augment": {"random_crop": [1, 2]}}`: "augment.random_crop: expected an object",
	} {
		_, err := parseRequest([]byte(text))
		if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nexpected %s", text, err, want)
			continue
		}
		for _, word := range []string{
			"Go struct",
			"Go value",
			"cannot unmarshal",
			"strconv",
			"json:",
		} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message has a word of Go: %v", text, err)
			}
		}
	}
}

// If a loader fails to open, its datasets are released.
func TestDatasetsOfAFailedLoader(t *testing.T) {
	c := &closing{}
	d := newShared(c, "", nil)
	h := handles.put(d)
	defer handles.remove(h)
	w := request{sources: []source{{Dataset: h}, {Dataset: 1 << 50}}}
	if _, err := w.openLoader(t.Context(), 0); !errors.Is(err, robocache.ErrMisuse) {
		t.Fatal(err)
	}
	if n := d.n.Load(); n != 1 || c.n != 0 {
		t.Errorf("%d users", n)
	}
}

func TestNumbersFromJSON(t *testing.T) {
	var v []number
	if err := json.Unmarshal([]byte("[1.5,null,1e999,-1e999]"), &v); err != nil ||
		fmt.Sprint(castFloats[float64](v)) != "[1.5 NaN +Inf -Inf]" {
		t.Fatal(v, err)
	}
}
