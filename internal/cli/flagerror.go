package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/goatnote-inc/robocache"
)

// valueWords describes the values of pflag's flag types. pflag's own errors are those of strconv.
var valueWords = map[string]string{
	"int":          "an integer",
	"int64":        "an integer",
	"int32":        "an integer",
	"uint":         "an integer of at least 0",
	"uint64":       "an integer of at least 0",
	"float64":      "a number",
	"bool":         "true or false",
	"duration":     "a duration such as 90s",
	"intSlice":     "integers",
	"int64Slice":   "integers",
	"float64Slice": "numbers",
}

// flagError returns the misuse error for a flag that cobra could not parse.
func flagError(err error) error {
	var known *robocache.Error
	// The value was rejected by rejectEmpty.
	if errors.As(err, &known) {
		return known
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		flag := invalid.GetFlag()
		if want := valueWords[flag.Value.Type()]; want != "" {
			return robocache.Misuse("", nil, "--%s", flag.Name).
				Expected(want, strconv.Quote(invalid.GetValue()))
		}
	}
	return misuse(err.Error())
}
