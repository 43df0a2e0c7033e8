package options

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// ParseSeconds parses a time like robocache.ParseDuration and returns it in seconds. It keeps all
// digits of a number.
func ParseSeconds(token []byte) (float64, error) {
	ns, err := robocache.ParseDuration(token)
	if err != nil {
		return 0, err
	}
	var seconds float64
	if json.Unmarshal(token, &seconds) == nil {
		return seconds, nil
	}
	return float64(ns) / 1e9, nil
}

// TimeError returns err with the name of the option if err is about an implausible time. Otherwise
// it returns fallback.
func TimeError(err error, name string, fallback error) error {
	var e *robocache.Error
	if !errors.As(err, &e) || e.Msg == "" {
		return fallback
	}
	named := *e
	named.Op, named.Msg = "loader", name+": "+e.Msg
	return &named
}

// readSeconds reads a list of times. It returns nil for null.
func readSeconds(raw json.RawMessage) ([]float64, error) {
	var tokens []json.RawMessage
	if err := json.Unmarshal(raw, &tokens); err != nil || tokens == nil {
		return nil, err
	}
	out := make([]float64, len(tokens))
	for i, token := range tokens {
		var err error
		if out[i], err = ParseSeconds(token); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// maxSeconds is the maximum of a time in an option, about 127 years. The difference of two such times
// in nanoseconds fits into an int64.
const maxSeconds = 4e9

// writeSeconds returns a list of times in a form that readSeconds accepts. A number above one day is
// written as text with a unit, because ParseSeconds rejects it as a number.
func writeSeconds(offsets []float64) []any {
	const secondsPerDay = 86_400
	out := make([]any, len(offsets))
	for i, s := range offsets {
		out[i] = s
		if math.Abs(s) > secondsPerDay && math.Abs(s) <= maxSeconds {
			out[i] = robocache.NanosText(Seconds(s))
		}
	}
	return out
}

// tolerancesInSeconds returns the JSON of a Config in which tolerances are numbers of seconds. text
// may hold them with units. raw holds the members of text and is changed.
func tolerancesInSeconds(text []byte, raw map[string]json.RawMessage) ([]byte, error) {
	found := false
	for _, name := range []string{"tolerance_s", "offset_tolerance_s"} {
		token := raw[name]
		if token == nil || string(token) == "null" {
			continue
		}
		seconds, err := ParseSeconds(token)
		if err != nil {
			return nil, TimeError(err, name, Misuse(name, "seconds above 0", Clip(string(token))))
		}
		found, raw[name] = true, json.RawMessage(strconv.FormatFloat(seconds, 'g', -1, 64))
	}
	if !found {
		return text, nil
	}
	return json.Marshal(raw)
}
