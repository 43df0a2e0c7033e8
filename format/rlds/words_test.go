package rlds

import (
	"errors"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestMetadataWords checks that errors about metadata name the file, the place and the value, but
// no Go type.
func TestMetadataWords(t *testing.T) {
	for name, c := range map[string]struct {
		features bool // the text is that of features.json, otherwise of dataset_info.json
		text     string
		want     []string
	}{
		"name": {false, `{"name": 5}`, []string{infoName, "/name", "a text", "5"}},
		"splits": {
			false,
			`{"name": "x", "splits": {"train": 1}}`,
			[]string{infoName, "/splits", "a list", "an object"},
		},
		"template": {
			false,
			`{"name": "x", "splits": [{"filepathTemplate": []}]}`,
			[]string{infoName, "/splits/0/filepathTemplate", "a text"},
		},
		"lengths": {
			false,
			`{"name": "x", "splits": [{"shardLengths": ["two"]}]}`,
			[]string{infoName, "an integer", "two"},
		},
		"cut": {false, `{"name": "x",`, []string{infoName, "not valid JSON", "the end"}},
		"dtype": {
			true,
			`{"featuresDict": {"features": {"steps": {"tensor": {"dtype": 7}}}}}`,
			[]string{featuresName, "/featuresDict/features/steps/tensor/dtype", "a text", "7"},
		},
		"features": {
			true,
			`{"featuresDict": []}`,
			[]string{featuresName, "/featuresDict", "an object"},
		},
		"dimension": {
			true,
			`{"featuresDict": {"features": {"a": {"tensor": {"shape": {"dimensions": ["x"]}}}}}}`,
			[]string{featuresName, "an integer", "x"},
		},
	} {
		var err error
		if c.features {
			_, err = parseFeatures([]byte(c.text))
		} else {
			_, err = parseInfo([]byte(c.text))
		}
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %s", name, err, want)
			}
		}
		for _, word := range []string{
			"Go ",
			" json:",
			"unmarshal",
			"rlds.",
			"struct",
			"the JSON that was expected",
		} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v says %q", name, err, word)
			}
		}
	}
	if f, err := parseInfo(
		[]byte(`{"name": "x", "splits": [{"name": "train", "shardLengths": ["2", 3.0]}]}`),
	); err != nil ||
		f.Splits[0].ShardLengths[1] != 3 {
		t.Errorf("a length of 3.0: %+v, %v", f, err)
	}
}
