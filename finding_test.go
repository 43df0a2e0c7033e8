package robocache

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestWithheldHasClassOfFinding checks that the finding's class decides the class of the error of
// asking for a stream that cannot be delivered, and its code does not.
func TestWithheldHasClassOfFinding(t *testing.T) {
	for _, c := range []struct {
		code, class string
		want        error
	}{
		{"bad-video", "malformed", ErrMalformed},
		{"unreadable-topic", "malformed", ErrMalformed},
		{"unreadable-topic", "", ErrUnsupported},
		{"feature-dropped", "unsupported", ErrUnsupported},
		{"array-skipped", "", ErrUnsupported},
		{"bad-frame", "not_found", ErrNotFound},
	} {
		info := &Info{
			Findings: []Finding{
				{Code: c.code, Class: c.class, NotDelivered: "camera", Message: "why"},
			},
		}
		err := info.Withheld("camera")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "why") {
			t.Errorf("%s of class %q: %v, want %v", c.code, c.class, err, c.want)
		}
	}
}

// TestFindingJSON checks that a finding with a class survives JSON, and that one without has no
// such key.
func TestFindingJSON(t *testing.T) {
	want := Finding{
		Severity: SeverityError,
		Code:     "bad-video",
		Message:  "why",
		Hint:     "fetch",
		Class:    "malformed",
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Finding
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s is read as %+v, %v; want %+v", text, got, err, want)
	}
	if text, _ = json.Marshal(Finding{Code: "x"}); strings.Contains(string(text), "class") {
		t.Errorf("a finding without a class: %s", text)
	}
}
