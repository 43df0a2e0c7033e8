package transport_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live/transport"
	_ "github.com/goatnote-inc/robocache/live/transport/all"
)

func TestOpenNamesSchemes(t *testing.T) {
	_, err := transport.Open("rosbridge://user:secret@robot")
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "mcap://") ||
		!strings.Contains(err.Error(), "foxglove://") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// TestErrorsOmitsRepeats checks that an error which repeats is reported once, until the transport
// works again.
func TestErrorsOmitsRepeats(t *testing.T) {
	var e transport.Errors
	e.Recovered(errors.New("before OnError"))
	var got []string
	e.OnError(func(err error) { got = append(got, err.Error()) })
	for _, err := range []error{
		errors.New("a"), errors.New("a"), errors.New("b"), nil, errors.New("b"), nil, nil,
	} {
		e.Recovered(err)
	}
	if want := "[a b b]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
