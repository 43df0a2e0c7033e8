package calvin

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestLyingHeader checks that a shape larger than the bytes of the first frame is an error before
// memory is allocated for it (calvin.C3).
func TestLyingHeader(t *testing.T) {
	for _, shape := range []string{"(9, )", "(1099511627776,)"} {
		dir := made(t, `
import zipfile
def lie(path, **a):
    with zipfile.ZipFile(path, "w") as z:
        for k, v in a.items():
            h = "{'descr': '<f4', 'fortran_order': False, 'shape': `+shape+
			`, }" if k == "actions" else "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (v.dtype.str, v.shape)
            h += "\n"
            z.writestr(k + ".npy", b"\x93NUMPY\x01\x00" + len(h).to_bytes(2, "little") + h.encode() + v.tobytes())
for n in (3, 4): frame(n, 7, save=lie)
ids((3, 4))
`)
		d, err := Open(t.Context(), dir, robocache.OpenOptions{})
		if err == nil {
			err = d.Gather(
				t.Context(),
				"action",
				[]robocache.Row{{}},
				make([]byte, d.About.Feature("action").RowBytes()),
			)
			d.Close()
			t.Errorf("%s: opened; reading: %v", shape, err)
			continue
		}
		if !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s: %v", shape, err)
		}
	}
}
