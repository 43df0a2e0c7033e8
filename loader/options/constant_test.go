package options

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// FuzzConstant checks that a constant is read or rejected, and that its row has its numbers.
func FuzzConstant(f *testing.F) {
	for text, size := range map[string]int{
		`24`: 8, `[1, 2]`: 16, ` [1, 2.5]`: 8, `-1e3`: 4, `[]`: 0, `"5"`: 0, `null`: 0, `[null]`: 0,
		`{}`: 0, `[[1]]`: 0, `true`: 0, `9223372036854775808`: 0, `1e39`: 0, `["1"]`: 0,
	} {
		if row := readConstant(f, []byte(text)); len(row) != size {
			f.Errorf("%s: a row of %d bytes, want %d", text, len(row), size)
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { readConstant(t, text) })
}

// readConstant returns the row of a constant, or nil if it is rejected as Misuse.
func readConstant(t testing.TB, text []byte) []byte {
	var c Constant
	if !json.Valid(text) {
		return nil
	}
	err := json.Unmarshal(text, &c)
	var row []byte
	if err == nil {
		row, err = c.Row()
	}
	if err != nil && !errors.Is(err, robocache.ErrMisuse) {
		t.Errorf("%s: %v", text, err)
	}
	if err == nil && len(row) != len(c.Numbers)*c.DType().Size() {
		t.Errorf("%s: a row of %d bytes", text, len(row))
	}
	if err != nil {
		return nil
	}
	return row
}
