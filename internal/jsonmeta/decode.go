// Package jsonmeta decodes the JSON of dataset metadata and of options. Its errors name the place
// and the value in words of JSON; they never name a Go type.
package jsonmeta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Unmarshal decodes b into v as json.Unmarshal does, and reads an integer written as 5.0 or 5e0.
//
// Errors are of class malformed with the operation op. A value of the wrong type is located by
// Where["pointer"] (RFC 6901), a syntax error by Where["offset"]. If b has several lines, a syntax
// error has Where["line"] too. The caller adds the file with robocache.At.
func Unmarshal(op string, b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		if whole := integralNumbers(b); !bytes.Equal(whole, b) {
			b, err = whole, json.Unmarshal(whole, v)
		}
	}
	return Explain(op, b, err)
}

// Explain turns an error of encoding/json about b into the error that Unmarshal documents. It
// returns nil for nil and an *robocache.Error unchanged.
func Explain(op string, b []byte, err error) error {
	var known *robocache.Error
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &wrongType):
		return typeError(op, b, wrongType)
	case errors.As(err, &syntax):
		return syntaxError(op, b, syntax)
	}
	return robocache.Malformed(op, nil, "%s", err.Error())
}

func typeError(op string, b []byte, err *json.UnmarshalTypeError) error {
	e := robocache.Malformed(op, robocache.Where{}, "").Expected(typeWords(err.Type), "")
	pointer, value := valueAt(b, err.Offset, strings.Fields(err.Value)[0])
	if e.Got = valueWords(value); value == nil {
		e.Got = kindWords[strings.Fields(err.Value)[0]]
	} else if pointer != "" {
		e.Where["pointer"] = pointer
	}
	return e
}

var kindWords = map[string]string{
	"string": "a text", "number": "a number", "bool": "true or false", "array": "a list",
	"object": "an object",
}

// typeWords describes the JSON values that a Go type holds.
func typeWords(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int, reflect.Int64:
		if t.Bits() == 64 {
			return "an integer"
		}
		limit := int64(1) << (t.Bits() - 1)
		return fmt.Sprintf("an integer from %d to %d", -limit, limit-1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint, reflect.Uint64:
		if t.Bits() == 64 {
			return "an integer of at least 0"
		}
		return fmt.Sprintf("an integer from 0 to %d", int64(1)<<t.Bits()-1)
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// valueWords describes a JSON value and quotes short values.
func valueWords(v json.RawMessage) string {
	switch v = bytes.TrimSpace(v); {
	case len(v) == 0:
		return "nothing"
	case v[0] == '{':
		return "an object"
	case v[0] == '[' && len(v) > 40:
		return "a list"
	case v[0] == '[':
		return "the list " + string(v)
	case v[0] == '"':
		return "the text " + shorten(v)
	}
	return shorten(v)
}

func shorten(v []byte) string {
	const limit = 60
	if len(v) <= limit {
		return string(v)
	}
	return strings.ToValidUTF8(string(v[:limit]), "") + "…"
}

var kindStarts = map[string]string{
	"string": `"`, "number": "-0123456789", "bool": "tf", "array": "[", "object": "{",
}

// valueAt returns the JSON pointer and the text of the value of the given kind that encoding/json
// rejected at offset. It returns nil if there is no such value: offsets of custom decoders count
// from the start of their part.
func valueAt(b []byte, offset int64, kind string) (pointer string, value json.RawMessage) {
	walkValues(b, 0, "", func(at string, start, end int64) bool {
		v := b[start:end]
		// encoding/json reports the end of a scalar, and the position after the bracket of an
		// object or a list.
		if (offset == end || offset == start+1 || offset == start) &&
			strings.ContainsRune(kindStarts[kind], rune(v[0])) {
			pointer, value = at, v
			return false
		}
		return offset >= start && offset <= end
	})
	return pointer, value
}

// walkValues calls visit for the value of b that begins at or after offset start, and, if visit
// returns true, for the values inside it. pointer is the value's JSON pointer.
func walkValues(
	b []byte, start int64, pointer string, visit func(pointer string, start, end int64) bool,
) {
	d := json.NewDecoder(bytes.NewReader(b[start:]))
	var v json.RawMessage
	if d.Decode(&v) != nil || len(v) == 0 {
		return
	}
	end := start + d.InputOffset()
	start = end - int64(len(v))
	// Every level decodes its part again, so deep nesting would cost quadratic time.
	const maxDepth = 64
	if !visit(pointer, start, end) || v[0] != '{' && v[0] != '[' ||
		strings.Count(pointer, "/") >= maxDepth {
		return
	}
	inner := json.NewDecoder(bytes.NewReader(v))
	_, _ = inner.Token()
	for i := 0; inner.More(); i++ {
		key := strconv.Itoa(i)
		if v[0] == '{' {
			t, _ := inner.Token()
			name, _ := t.(string)
			key = EscapePointer(name)
		}
		// The separator before the value is not part of it.
		at := start + inner.InputOffset()
		for at < end && strings.ContainsRune(" \t\r\n:,", rune(b[at])) {
			at++
		}
		walkValues(b, at, pointer+"/"+key, visit)
		var skipped json.RawMessage
		if inner.Decode(&skipped) != nil {
			return
		}
	}
}

// EscapePointer escapes a key for a JSON pointer.
func EscapePointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// grammar maps the end of a message of encoding/json to the tokens that the syntax allows.
var grammar = []struct{ message, expected string }{
	{"looking for beginning of value", "a value"},
	{"looking for beginning of object key string", "a key in double quotes"},
	{"after object key", "':' after the key"},
	{"after object key:value pair", "',' or '}'"},
	{"after array element", "',' or ']'"},
	{"after top-level value", "the end of the JSON"},
	{"in string literal", "a text without control characters"},
	{"in string escape code", `an escape such as \n or \\`},
	{`in \u hexadecimal character escape`, `four hexadecimal digits after \u`},
	{"in numeric literal", "digits"},
}

func syntaxError(op string, b []byte, err *json.SyntaxError) error {
	e := robocache.Malformed(op, robocache.Where{}, "not valid JSON").Expected("a value", "")
	at := min(max(err.Offset-1, 0), int64(len(b)))
	if strings.HasPrefix(err.Error(), "unexpected end") || at == int64(len(b)) {
		e.Want, e.Got = "more", "the end"
		at = int64(len(b))
	} else {
		e.Got = strconv.QuoteRune([]rune(string(b[at:min(at+4, int64(len(b)))]))[0])
		for _, g := range grammar {
			if strings.HasSuffix(err.Error(), g.message) {
				e.Want = g.expected
			}
		}
	}
	e.Where["offset"] = at
	if line := bytes.Count(b[:at], []byte("\n")) +
		1; bytes.Contains(bytes.TrimSpace(b), []byte("\n")) {
		e.Where["line"] = line
	}
	return e
}

// integralNumbers rewrites numbers such as 5.0 and 5e0 as integers. It does not change strings.
func integralNumbers(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			end := stringEnd(b, i)
			out, i = append(out, b[i:end]...), end
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(b) && strings.IndexByte("0123456789.eE+-", b[end]) >= 0 {
				end++
			}
			out, i = append(out, integerText(b[i:end])...), end
		default:
			out, i = append(out, c), i+1
		}
	}
	return out
}

// stringEnd returns the offset after the string that begins at b[start].
func stringEnd(b []byte, start int) int {
	for i := start + 1; i < len(b); i++ {
		if b[i] == '\\' {
			i++
		} else if b[i] == '"' {
			return i + 1
		}
	}
	return len(b)
}

// integerText returns the digits of an integral number; other numbers are returned unchanged.
func integerText(number []byte) []byte {
	n, ok := Integer(number)
	if !ok {
		return number
	}
	return strconv.AppendInt(nil, n, 10)
}

// Integer reads a JSON number that is an integer, also one written as 5.0 or 5e0. Numbers with a
// fraction or an exponent are integers only below 2^53.
func Integer(number []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(number), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(number), 64)
	if err != nil || math.Abs(f) > 1<<53 || f != math.Trunc(f) ||
		!bytes.ContainsAny(number, ".eE") {
		return 0, false
	}
	return int64(f), true
}
