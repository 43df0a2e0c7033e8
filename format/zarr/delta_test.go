package zarr

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestDeltaUnsigned checks that numcodecs' Delta of unsigned numbers wraps around, so that a step
// down is a step of nearly 2^64.
func TestDeltaUnsigned(t *testing.T) {
	var want, little []byte
	last := uint64(0)
	for _, v := range []uint64{3, math.MaxUint64, 0, 1 << 63, 1<<63 - 1} {
		want = binary.LittleEndian.AppendUint64(want, v)
		little = binary.LittleEndian.AppendUint64(little, v-last)
		last = v
	}
	big := slices.Clone(little)
	for b := range slices.Chunk(big, 8) {
		slices.Reverse(b)
	}
	for order, stored := range map[string][]byte{"<": little, ">": big} {
		dir := t.TempDir()
		meta := fmt.Sprintf(
			`{"zarr_format":2,"shape":[5],"chunks":[5],"dtype":"%su8","compressor":null,"fill_value":0,"order":"C","filters":[{"id":"delta","dtype":"%[1]su8","astype":"%[1]su8"}]}`,
			order,
		)
		for name, b := range map[string][]byte{
			".zgroup":   []byte(`{"zarr_format":2}`),
			"a/.zarray": []byte(meta),
			"a/0":       stored,
		} {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		rows, got := make([]robocache.Row, 5), make([]byte, 40)
		for i := range rows {
			rows[i].Index = i
		}
		if err := open(t, dir, ten).Gather(t.Context(), "a", rows, got); err != nil ||
			!bytes.Equal(got, want) {
			t.Errorf("%s: % x, not % x: %v", order, got, want, err)
		}
	}
}
