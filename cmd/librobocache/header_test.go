//go:build cgo

package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The header declares exactly the exported functions.
func TestHeader(t *testing.T) {
	header, err := os.ReadFile("robocache.h")
	if err != nil {
		t.Fatal(err)
	}
	var told, exported []string
	for _, m := range regexp.MustCompile(
		`(?m)^(?:ROBOCACHE_CALL\(|(?:int32_t|void|DLManagedTensor) \*?)(robocache_\w+)`,
	).FindAllSubmatch(
		header,
		-1,
	) {
		told = append(told, string(m[1]))
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^//export (robocache_\w+)$`).FindAllSubmatch(text,
			-1) {
			exported = append(exported, string(m[1]))
		}
	}
	exported = slices.AppendSeq(append(exported, "robocache_wait"), maps.Keys(handlers))
	text, err := os.ReadFile("batch.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(
		`(?m)^(?:int32_t|void|DLManagedTensor) \*?(robocache_\w+)\(.*\{`,
	).FindAllSubmatch(
		text,
		-1,
	) {
		// used only in the library's own sources
		if name := string(m[1]); !strings.HasPrefix(name, "robocache_batch_") {
			exported = append(exported, name)
		}
	}
	slices.Sort(told)
	slices.Sort(exported)
	if !slices.Equal(told, exported) {
		t.Errorf("header %v\nexported %v", told, exported)
	}
}
