package rosbag2

import (
	"slices"
	"strings"
	"testing"
)

// TestMetadataWords checks that errors about metadata.yaml name the line and the value, and no type
// of Go.
func TestMetadataWords(t *testing.T) {
	const head = "rosbag2_bagfile_information:\n"
	for text, want := range map[string]string{
		"  relative_file_paths: a.db3\n":                 `line 2: expected a list, found "a.db3"`,
		"  version: [5]\n":                               `line 2: expected a text, found a list`,
		"  custom_data: 7\n":                             `line 2: expected an object, found "7"`,
		"  topics_with_message_count:\n    a: 1\n":       `line 3: expected a list, found an object`,
		"  topics_with_message_count:\n    - 5\n":        `line 3: expected an object, found "5"`,
		"  relative_file_paths:\n    - [a.db3, b.db3]\n": `line 3: expected a text, found a list`,
	} {
		m, err := parseMetadata([]byte(head+text), "x")
		if err != nil || m == nil || !slices.Equal(m.wrongTypes, []string{want}) {
			t.Errorf("%q: %+v, %v, want %s", text, m, err, want)
		}
	}
	m, err := parseMetadata(
		[]byte(head+"  version: 5\n  message_count: 7\n  custom_data: {a: b}\n"),
		"x",
	)
	if err != nil || m.wrongTypes != nil || m.messages != 7 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := parseMetadata([]byte(head+"\t a: 1\n"), "x"); err == nil ||
		strings.Contains(err.Error(), "(yaml: ") {
		t.Errorf("tabs: %v", err)
	}
}
