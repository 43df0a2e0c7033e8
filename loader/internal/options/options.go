// Package options holds the options of loaders that name keys, and how they are read from JSON: Python's keywords.
package options

import (
	"bytes"
	"encoding/json"
	"github.com/goatnote-inc/robocache"
	"maps"
	"slices"
)

// Misuse is the error of an option's value.
func Misuse(option, want, got string) error {
	return &robocache.Error{Class: robocache.ErrMisuse, Op: "loader", Msg: option, Want: want, Got: got}
}

// orderedObject walks a JSON object in its order.
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

// Clip shortens a text for an error.
func Clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// Keys are the keys of a map, sorted.
func Keys[T any](m map[string]T) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Only is the part of a map whose keys are had.
func Only[T any](m map[string]T, has func(k string) bool) map[string]T {
	if m == nil {
		return nil
	}
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(k string, _ T) bool { return !has(k) })
	return m
}
