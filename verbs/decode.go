package verbs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
)

// Decode fills a request, a pointer to a struct, with the arguments of a verb in order and with its
// options in JSON. It is lenient where a keyword of Python may have several forms: a text option
// takes numbers, lists ("0,3") and objects (their JSON), a list takes one text or the pairs of an
// object, and null leaves an option out.
//
// The error of an unknown option has Where["option"] and Where["known"], from which the caller
// names the nearest.
func Decode(
	verb string, args []string, options map[string]json.RawMessage, request any,
) error {
	value := reflect.ValueOf(request).Elem()
	if err := setArguments(verb, value, args); err != nil {
		return err
	}
	fields, known := optionFields(value)
	for _, name := range slices.Sorted(maps.Keys(options)) {
		text := options[name]
		if name == "options" { // as robocache.open and hints name it
			name = "option"
		}
		field, ok := fields[name]
		if !ok {
			where := robocache.Where{"option": name, "known": known}
			return robocache.Misuse(verb, where, "unknown option")
		}
		if err := setOption(field, name, text); err != nil {
			return err
		}
	}
	return nil
}

// setArguments sets the fields with the tag arg, in order. The tag is the argument's name in usage
// lines: an optional one is in brackets.
func setArguments(verb string, request reflect.Value, args []string) error {
	var names []string
	required, set := 0, 0
	for _, f := range reflect.VisibleFields(request.Type()) {
		name := f.Tag.Get("arg")
		if name == "" {
			continue
		}
		names = append(names, name)
		if !strings.HasPrefix(name, "[") {
			required++
		}
		if set < len(args) {
			if args[set] == "" && name[0] == '[' { // usually a shell variable that is not set
				return robocache.Misuse(verb, nil, "%s is empty", name)
			}
			request.FieldByIndex(f.Index).SetString(args[set])
			set++
		}
	}
	if len(args) < required || len(args) > len(names) {
		return robocache.Misuse(verb, nil, "arguments").
			Expected(strings.Join(names, " "), strconv.Itoa(len(args)))
	}
	return nil
}

// optionFields returns the fields of a request by the option's name, and the names to suggest.
func optionFields(request reflect.Value) (fields map[string]reflect.Value, known []string) {
	fields, known = map[string]reflect.Value{}, []string{}
	for _, f := range reflect.VisibleFields(request.Type()) {
		name := f.Tag.Get("json")
		if name == "" || name == "-" {
			continue
		}
		fields[name] = request.FieldByIndex(f.Index)
		if f.Tag.Get("hidden") == "" {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	return fields, known
}

// setOption sets a field to a value in JSON.
func setOption(field reflect.Value, name string, text json.RawMessage) error {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return misuse("%s: %s", name, err)
	}
	if v == nil {
		return nil // as if it were not given
	}
	if list, ok := v.([]any); ok && len(list) == 0 { // In Go and in flags, an empty list means all.
		return misuse("%s=[]: expected at least one, or the option left out", name)
	}
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	b, isBool := v.(bool)
	switch wantsBool := field.Kind() == reflect.Bool; {
	case isBool && wantsBool:
		field.SetBool(b)
		return nil
	case wantsBool:
		return misuse("%s=%s: expected true or false", name, text)
	case isBool:
		return misuse("%s=%s: expected a value other than true and false", name, text)
	}
	if setValue(field, v, text) {
		return nil
	}
	return robocache.Misuse("", nil, "%s", name).Expected(valueWords[field.Kind()], string(text))
}

// valueWords describes the values of a field that not every value fits.
var valueWords = map[reflect.Kind]string{
	reflect.Int:     "an integer",
	reflect.Uint64:  "an integer of at least 0",
	reflect.Float64: "a number",
	reflect.Int64:   "a duration such as 90s",
	reflect.Map:     "an object of texts",
}

// setValue sets a field that is not a bool, and reports whether the value fits.
func setValue(field reflect.Value, v any, text json.RawMessage) bool {
	switch field.Kind() {
	case reflect.Slice:
		field.Set(reflect.ValueOf(valueTexts(v)))
	case reflect.Map:
		object, ok := v.(map[string]any)
		if !ok {
			return false
		}
		texts := map[string]string{}
		for k, x := range object {
			texts[k] = fmt.Sprint(x)
		}
		field.Set(reflect.ValueOf(texts))
	case reflect.Int:
		n, err := strconv.ParseInt(strings.Join(valueTexts(v), ","), 0, strconv.IntSize)
		if err != nil {
			return false
		}
		field.SetInt(n)
	case reflect.Uint64:
		n, err := strconv.ParseUint(strings.Join(valueTexts(v), ","), 0, 64)
		if err != nil {
			return false
		}
		field.SetUint(n)
	case reflect.Int64: // of all options a time.Duration
		n, err := time.ParseDuration(strings.Join(valueTexts(v), ","))
		if err != nil {
			return false
		}
		field.SetInt(int64(n))
	case reflect.Float64:
		n, err := strconv.ParseFloat(strings.Join(valueTexts(v), ","), 64)
		if err != nil {
			return false
		}
		field.SetFloat(n)
	default:
		if _, isObject := v.(map[string]any); isObject {
			field.SetString(string(text))
			return true
		}
		field.SetString(strings.Join(valueTexts(v), ","))
	}
	return true
}

// valueTexts returns the parts of a value as text: those of a list, the pairs of an object, or the
// value.
func valueTexts(v any) []string {
	texts := []string{}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			texts = append(texts, fmt.Sprint(x))
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			texts = append(texts, fmt.Sprintf("%s=%v", k, v[k]))
		}
	default:
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}
