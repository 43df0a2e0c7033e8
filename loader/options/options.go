// Package options defines the options of loaders and maps, their defaults and their JSON, whose
// names are the keywords of the Python client.
package options

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
)

// Misuse returns the error of an invalid value of an option. The name of an option of
// Config is written in the words of the user's surface, as in hints.
func Misuse(option, want, got string) error {
	if slices.Contains(configNames(), option) {
		option = robocache.Option(option)
	}
	return robocache.Misuse("loader", nil, "%s", option).Expected(want, got)
}

// orderedObject calls each for the members of a JSON object, in their order. A repeated key is an
// error.
func orderedObject(b []byte, name string, each func(key string, raw json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return Misuse(name, "an object", Clip(string(b)))
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		if seen[key] {
			return Misuse(name, "each key once", key)
		}
		seen[key] = true
		if err := each(key, raw); err != nil {
			return err
		}
	}
	return nil
}

// readKeys reads an object as a list that keeps the order of its members. each parses one member.
func readKeys[T any](
	b []byte, option, want string, each func(key string, raw json.RawMessage) (T, error),
) (out []T, err error) {
	if string(b) == "null" {
		return nil, nil
	}
	err = orderedObject(b, option, func(key string, raw json.RawMessage) error {
		x, err := each(key, raw)
		if err != nil {
			fallback := Misuse(option, want+" for "+key, Clip(string(raw)))
			return TimeError(err, option+" of "+key, fallback)
		}
		out = append(out, x)
		return nil
	})
	return out, err
}

// writeKeys writes the form that readKeys reads.
func writeKeys[T any](list []T, of func(x *T) (key string, value any)) ([]byte, error) {
	b := []byte{'{'}
	for i := range list {
		key, value := of(&list[i])
		k, _ := json.Marshal(key)
		v, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, k...), ':'), v...)
	}
	return append(b, '}'), nil
}

// Clip shortens a text to about 80 bytes for an error.
func Clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// Keys returns the keys of a map, sorted.
func Keys[T any](m map[string]T) []string {
	return slices.Sorted(maps.Keys(m))
}

// Only returns a copy of a map without the keys for which has is false.
func Only[T any](m map[string]T, has func(k string) bool) map[string]T {
	if m == nil {
		return nil
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k string, _ T) bool { return !has(k) })
	return m
}
