package jsonmeta

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Option decodes b, an option from the caller, into v. An unknown name is an error. Errors are
// those of OptionError.
func Option(op, name string, b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return OptionError(op, name, b, d.Decode(v))
}

// OptionError turns an error of encoding/json about the option b into an error of class misuse. The
// message begins with the option's name and the keys that lead to the rejected value, joined by
// dots. name is empty if b holds all options. OptionError returns nil for nil. For an
// *robocache.Error it only changes the class malformed to misuse.
func OptionError(op, name string, b []byte, err error) error {
	var known *robocache.Error
	if errors.As(err, &known) && known.Class == robocache.ErrMalformed {
		known.Class = robocache.ErrMisuse
	}
	if err == nil || known != nil {
		return err
	}
	if _, field, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
		return robocache.Misuse(
			op,
			nil,
			"%s",
			joinWords(name, "unknown name "+strings.Trim(field, `"`)),
		)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return robocache.Misuse(op, nil, "%s", joinWords(name, "not valid JSON")).
			Expected("more", "the end")
	}
	cause := err
	err = Explain(op, b, cause)
	var e *robocache.Error
	if !errors.As(err, &e) {
		return err
	}
	e.Class = robocache.ErrMisuse
	if e.Msg != "" {
		e.Msg = joinWords(name, e.Msg)
		return e
	}
	pointer, _ := e.Where["pointer"].(string)
	delete(e.Where, "pointer")
	var wrongType *json.UnmarshalTypeError
	if errors.As(cause, &wrongType) && wrongType.Field != "" {
		// Offsets of custom decoders count from the start of their part, so the value found there
		// may be another one. The name of the field is right.
		fields := strings.Split(wrongType.Field, ".")
		isField := func(key string) bool { return slices.Contains(fields, key) }
		if !slices.ContainsFunc(strings.Split(pointer, "/"), isField) {
			pointer, e.Got = "/"+fields[len(
				fields,
			)-1], kindWords[strings.Fields(wrongType.Value)[0]]
		}
	}
	e.Msg = optionPath(name, pointer)
	return e
}

// optionPath returns the name of the option at a JSON pointer, such as augment.random_crop.size.
func optionPath(name, pointer string) string {
	keys := strings.Split(pointer, "/")
	keys[0] = name
	if name == "" {
		keys = keys[1:]
	}
	for i, key := range keys {
		keys[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
	}
	return strings.Join(keys, ".")
}

func joinWords(name, message string) string {
	if name == "" {
		return message
	}
	return name + ": " + message
}

// Words describes a JSON value in plain words and quotes it if it is short.
func Words(v json.RawMessage) string { return valueWords(v) }
