package zarr

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// Two entries of consolidated metadata that name one path are an error: one would hide the other, and they would share what is cached.
func TestTwoArraysOfOneName(t *testing.T) {
	one := fmt.Sprintf(arrayMetaV2, "null", "null")
	_, err := readTree(t.Context(), mem(map[string]string{".zmetadata": `{"metadata": {"data/x/.zarray": ` + one + `, "data//x/.zarray": ` + one + `, "data/y/.zarray": ` + one + `}}`}), 1<<20)
	if !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}
