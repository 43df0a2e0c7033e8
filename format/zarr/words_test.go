package zarr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestMetadataWords checks that errors about metadata contain the file, the position and the value,
// and no Go types.
func TestMetadataWords(t *testing.T) {
	good := fmt.Sprintf(arrayMetaV2, "null", "null")
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"shape": {
			"x/.zarray",
			swapField(t, good, "shape", `"three"`),
			[]string{"x/.zarray", "/shape", "a list", `"three"`},
		},
		"order": {
			"x/.zarray",
			swapField(t, good, "order", `7`),
			[]string{"x/.zarray", "/order", "a text", "7"},
		},
		"compressor": {
			"x/.zarray",
			swapField(t, good, "compressor", `5`),
			[]string{"x/.zarray", "a codec", "an object", "5"},
		},
		"syntax": {"x/.zarray", good[:len(good)-1], []string{
			"x/.zarray",
			"not valid JSON",
			"the end",
		}},
		"node type": {
			"zarr.json",
			`{"zarr_format": 3, "node_type": [1]}`,
			[]string{"zarr.json", "/node_type", "a text", "[1]"},
		},
		"attributes": {
			"zarr.json",
			`{"zarr_format": 3, "node_type": "group", "attributes": 4}`,
			[]string{"zarr.json", "/attributes", "an object", "4"},
		},
		"consolidated": {
			".zmetadata",
			`{"metadata": "none"}`,
			[]string{".zmetadata", "/metadata", "an object", `"none"`},
		},
		"chunk grid": {
			"zarr.json",
			`{"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "int64",
			"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": "x"}}, "chunk_key_encoding": {"name": "default"}, "codecs": []}`,
			[]string{"zarr.json", "regular", "a list", `"x"`},
		},
	} {
		_, err := readTree(t.Context(), mem(map[string]string{c.file: c.text}), 1<<20)
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %s", name, err, want)
			}
		}
		for _, word := range []string{"Go ", "json:", "unmarshal", "zarr.metadata", "struct"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says %q", name, err, word)
			}
		}
	}
	// An integer may be written as 3.0.
	whole := swapField(t, good, "zarr_format", "2.0")
	if _, err := readTree(t.Context(), mem(map[string]string{"x/.zarray": whole}), 1<<20); err !=
		nil {
		t.Error(err)
	}
}

// swapField returns text with another value for a field of its outermost object.
func swapField(t *testing.T, text, field, value string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	all[field] = json.RawMessage(value)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
