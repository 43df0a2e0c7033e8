package verbs

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// An exception of Python keeps its class, and its text has the class and the hint once.
func TestPythonError(t *testing.T) {
	for _, x := range []struct {
		text, exception, hint, want string
		class                       error
	}{
		{"not found: open: no set", "NotFound", "", "not found: open: no set", robocache.ErrNotFound},
		{
			"malformed input: cut; hint: fetch it", "Malformed", "fetch it",
			"malformed input: cut; hint: fetch it", robocache.ErrMalformed,
		},
		{"key= names a camera", "Misuse", "", "misuse: key= names a camera", robocache.ErrMisuse},
		{"the model failed: E", "", "", "misuse: the model failed: E", robocache.ErrMisuse},
	} {
		err := pythonError(x.text, x.exception, x.hint)
		if err.Error() != x.want || !errors.Is(err, x.class) {
			t.Errorf("%v, want %s", err, x.want)
		}
	}
}
