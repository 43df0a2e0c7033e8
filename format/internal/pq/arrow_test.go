package pq

import (
	"encoding/base64"
	"strings"
	"testing"
)

// arrowSchema is the schema that pyarrow 26 writes for a table with a: int64 and b: list<string>,
// where the field b has the metadata {"k": "v"}.
const arrowSchema = "/////xgBAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAACwAAAAGAAAAAAAEgAYAAgABgAHAAwAAAAQABQAEgAAAAAAAQwYAAAASAAAAAgAAAAUAAAAAQAAADwAAAABAAAAYgAAAAEAAAAMAAAACAAMAAQACAAIAAAAEAAAAAQAAAABAAAAdgAAAAEAAABrAAAA2P///9T///8AAAEFEAAAABwAAAAEAAAAAAAAAAQAAABpdGVtAAAAAAQABAAEAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAECEAAAABwAAAAEAAAAAAAAAAEAAABhAAAACAAMAAgABwAIAAAAAAAAAUAAAAAAAAAA"

func TestCheckNames(t *testing.T) {
	whole, err := base64.StdEncoding.DecodeString(arrowSchema)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte) error {
		return CheckNames(
			&File{
				Root:        &Node{Children: []*Node{{Name: "a", Leaf: 0}}},
				arrowSchema: base64.StdEncoding.EncodeToString(b),
			},
		)
	}
	if err := check(whole); err != nil {
		t.Fatal(err)
	}
	found := 0
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0xff
		if check(b) != nil {
			found++
		}
		if i > 0 && check(whole[:i]) == nil {
			t.Errorf("cut at %d of %d: nothing is found", i, len(whole))
		}
	}
	if found < len(whole)/3 {
		t.Errorf("of %d damaged schemas %d are found", len(whole), found)
	}
	for _, f := range []*File{
		{Root: &Node{Children: []*Node{{Name: "a\xff"}}}},
		{Root: &Node{}, arrowSchema: strings.Replace(arrowSchema, "A", "\xbe", 1)},
	} {
		if CheckNames(f) == nil {
			t.Errorf("nothing is found in %+v", f)
		}
	}
}
