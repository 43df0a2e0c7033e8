package h5

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// inMemory is a file in memory.
type inMemory []byte

func (m inMemory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(m)) || int64(len(p)) > int64(len(m))-off {
		return errors.New("a read past the end: the reader should have known")
	}
	copy(p, m[off:])
	return nil
}
func (m inMemory) Size() int64     { return int64(len(m)) }
func (m inMemory) Version() string { return "1" }
func (m inMemory) Close() error    { return nil }

func tiny(t testing.TB) [][]byte {
	var out [][]byte
	for _, name := range []string{"earliest", "latest"} {
		b, err := os.ReadFile("testdata/tiny_" + name + ".hdf5")
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// readAll reads everything in a file and collects the errors. rows maps the path of each data set
// to a digest of its rows.
func readAll(ctx context.Context, f *File) (rows map[string]string, errs []error) {
	rows = map[string]string{}
	seen := map[uint64]bool{}
	objects := 0
	var walk func(o *Object, path string)
	walk = func(o *Object, path string) {
		if seen[o.Address()] || objects > 200 {
			return
		}
		seen[o.Address()] = true
		objects++
		attrs, err := o.Attributes(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		for i := range attrs {
			attrs[i].Raw()
			if _, _, err := attrs[i].Text(ctx); err != nil {
				errs = append(errs, err)
			}
		}
		if o.IsGroup() {
			links, err := o.Links(ctx)
			if err != nil {
				errs = append(errs, err)
			}
			for i := range links {
				child, err := o.Lookup(ctx, links[i].Name)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				walk(child, path+"/"+links[i].Name)
			}
		}
		if !o.IsDataset() {
			return
		}
		d, err := o.Dataset(ctx, path)
		if err != nil {
			errs = append(errs, err)
			return
		}
		if err := d.Claim(); err != nil {
			errs = append(errs, err)
			return
		}
		n := min(d.Rows(), 64)
		if d.RowBytes() > 1<<16 {
			n = min(n, 1)
		}
		if d.RowBytes() <= 1<<20 {
			b := make([]byte, n*d.RowBytes())
			if err := d.ReadRows(ctx, 0, n, b); err != nil {
				errs = append(errs, err)
			} else if d.Type.scalarType().Class != Varying {
				rows[path] = digest(b)
			}
		}
		if t := d.Type; t.Class == Text || t.Class == Varying {
			if b, err := d.Bytes(ctx, 0, min(n, 4)); err != nil {
				errs = append(errs, err)
			} else {
				for _, x := range b {
					rows[path] += "," + string(x)
				}
			}
		}
	}
	root, err := f.Root(ctx)
	if err != nil {
		return rows, append(errs, err)
	}
	walk(root, "")
	return rows, errs
}

// checkHostile reads arbitrary bytes. It expects results or typed errors, and memory and time in
// proportion (h5.H3).
func checkHostile(t *testing.T, b []byte, lax bool) (map[string]string, []error) {
	t.Helper()
	before, began := hostile.Allocated(), cpuTime()
	cache := NewCache(8 << 20)
	f, err := openSuperblock(
		t.Context(),
		&File{
			r:     inMemory(b),
			name:  "x",
			size:  uint64(len(b)),
			cache: cache,
			id:    1,
			block: 4 << 10,
			lax:   lax,
		},
	)
	var rows map[string]string
	errs := []error{err}
	if err == nil {
		rows, errs = readAll(t.Context(), f)
	}
	for _, err := range errs {
		hostile.Typed(t, err)
		if err != nil && strings.Contains(err.Error(), "should have known") {
			t.Fatalf("a read past the end: %v", err)
		}
	}
	if used := hostile.Allocated() - before; used > 256<<20 {
		t.Fatalf("%d bytes allocated for a file of %d", used, len(b))
	}
	if d := cpuTime() - began; d > 60*time.Second {
		t.Fatal("it took", d)
	}
	return rows, errs
}

// FuzzFile reads arbitrary bytes as a file (h5.H2, h5.H3, h5.H4). Checksums are not compared, so
// that the fuzzer reaches the code behind them.
func FuzzFile(f *testing.F) {
	for _, b := range tiny(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, b, true) })
}

// FuzzFilters decodes arbitrary bytes as stored chunks.
func FuzzFilters(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 40, 0, 1, 2}, uint16(1), uint8(2))
	f.Add([]byte("\x78\x9c\x03\x00\x00\x00\x00\x01"), uint16(0x1234), uint8(0))
	f.Fuzz(func(t *testing.T, stored []byte, which uint16, mask uint8) {
		ids := [...]uint16{filterDeflate, filterShuffle, filterFletcher, filterLZF}
		var list []filter
		for k := range 4 {
			if n := which >> (4 * k) & 7; n < 4 {
				list = append(list, filter{id: ids[n], values: []uint32{uint32(n) + 2}})
			}
		}
		dst := make([]byte, 100)
		undoFilters(list, uint32(mask), stored, dst, &scratch{})
	})
}

// TestTruncated cuts a small file at every length. The result is an error or the original rows,
// never other rows (h5.H4).
func TestTruncated(t *testing.T) {
	for _, b := range tiny(t) {
		whole, errs := checkHostile(t, b, false)
		if len(errs) != 0 || len(whole) < 4 {
			t.Fatal(whole, errs)
		}
		for n := range b {
			rows, errs := checkHostile(t, b[:n:n], false)
			if len(errs) == 0 {
				t.Fatalf("cut at %d: no error", n)
			}
			for path, v := range rows {
				if whole[path] != v {
					t.Fatalf("cut at %d: other rows in %s", n, path)
				}
			}
		}
	}
}

// TestFlipped flips bytes of a file. The reader never panics or hangs. Bytes that a checksum covers
// give an error or the same rows.
func TestFlipped(t *testing.T) {
	step := 5 // the fuzzer covers the rest
	if testing.Short() {
		step = 31
	}
	for _, b := range tiny(t) {
		for i := 0; i < len(b); i += step {
			for _, v := range []byte{0, 255, b[i] + 1, b[i] - 1} {
				if v == b[i] {
					continue
				}
				c := append([]byte(nil), b...)
				c[i] = v
				checkHostile(t, c, i%2 == 0)
			}
		}
	}
}

// TestLies reads files with sizes of 2^60, cycles and unknown filters (h5.H2, h5.H3).
func TestLies(t *testing.T) {
	old := tiny(t)[0]
	patch := func(find, put []byte, nth int) []byte {
		c := append([]byte(nil), old...)
		at := 0
		for ; nth >= 0; nth-- {
			i := strings.Index(string(c[at:]), string(find))
			if i < 0 {
				t.Fatalf("no %x", find)
			}
			at += i + len(find)
		}
		copy(c[at-len(find):], put)
		return c
	}
	le := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	// The shape 10 × 4 of g/gz becomes 2^60 × 4. It must be rejected before memory is allocated.
	_, errs := checkHostile(
		t,
		patch(append(le(10), le(4)...), append(le(1<<60), le(4)...), 0),
		false,
	)
	if len(errs) == 0 || !errors.Is(errs[0], robocache.ErrMalformed) {
		t.Error(errs)
	}
	// The child of a group's B-tree node becomes the node itself.
	i := strings.Index(string(old), "TREE\x00\x00\x01\x00")
	c := append([]byte(nil), old...)
	copy(c[i+5:], []byte{1}) // one level higher
	copy(c[i+8+16+8:], le(uint64(i)))
	if _, errs = checkHostile(t, c, false); len(errs) == 0 ||
		!errors.Is(errs[0], robocache.ErrMalformed) {
		t.Error(errs)
	}
	// Deflate becomes blosc. The error must name it.
	c = patch(
		[]byte("\x01\x00\x08\x00\x01\x00\x01\x00deflate\x00"),
		[]byte("\x01\x7d\x08\x00\x01\x00\x01\x00blosc\x00\x00\x00"),
		0,
	)
	found := false
	_, errs = checkHostile(t, c, false)
	for _, err := range errs {
		found = found ||
			errors.Is(err, robocache.ErrUnsupported) &&
				strings.Contains(err.Error(), "blosc (filter 32001)")
	}
	if !found {
		t.Error(errs)
	}
}

// TestSoftCircle expects an error, not a hang, for soft links that lead to each other (h5.H5).
func TestSoftCircle(t *testing.T) {
	c := append([]byte(nil), tiny(t)[0]...)
	i := strings.Index(string(c), "/g/gz\x00")
	copy(c[i:], "soft\x00")
	f, err := Open(t.Context(), inMemory(c), "x", NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.Lookup(t.Context(), "g/soft"); !errors.Is(err, robocache.ErrMalformed) ||
		!strings.Contains(err.Error(), "circle") {
		t.Error(err)
	}
}
