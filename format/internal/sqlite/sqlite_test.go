package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/hostile"
	"github.com/goatnote-inc/robocache/internal/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// script makes a database of hard cases by Python's sqlite3, and prints its rows.
const script = `
import json, os, random, sqlite3, sys
path, size, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(7)
db = sqlite3.connect(path)
db.execute(f"PRAGMA page_size={size}")
if mode == "wal":
    db.execute("PRAGMA journal_mode=WAL"); db.execute("PRAGMA wal_autocheckpoint=20")
db.execute('CREATE TABLE "t" (id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, "a(b" TEXT DEFAULT \'x,)\', f REAL, data BLOB NOT NULL, CHECK (id > -9))')
db.execute("CREATE INDEX i ON t (topic_id ASC)")
rows = []
for k in range(400):
    n = rng.choice([0, 1, 20, size - 40, size, 3 * size + 5, 70000 if k % 40 == 0 else 3])
    rows.append((k * 3 + 1, rng.choice([0, 1, -1, 127, 128, 40000, -9000000, 2**31, 2**40, -2**47, 2**62]), rng.choice(["", "é", "text" * 50]), rng.choice([0.5, 2.0, -1e300]), rng.randbytes(n)))
db.executemany("INSERT INTO t VALUES (?,?,?,?,?)", rows)
db.commit()
db.execute("DELETE FROM t WHERE id % 5 = 0"); db.commit()
db.execute("ALTER TABLE t ADD COLUMN late INTEGER"); db.commit()
db.execute("INSERT INTO t VALUES (5000, 1, 'end', 1.0, x'00', 9)"); db.commit()
print(json.dumps([[r[0], r[1], r[2], r[3], r[4].hex(), r[5]] for r in db.execute("SELECT * FROM t ORDER BY id")]))
sys.stdout.flush()
if mode == "wal":
    os._exit(0)   # as a killed recorder leaves it
db.close()
`

func made(tb testing.TB, size int, mode string) (path string, want []byte) {
	tb.Helper()
	py := filepath.Join(realdata.Root(tb), ".venv", "bin", "python")
	if _, err := os.Stat(py); err != nil {
		tb.Skip("no python in .venv")
	}
	path = filepath.Join(tb.TempDir(), "a.db3")
	out, err := exec.Command(py, "-c", script, path, fmt.Sprint(size), mode).Output()
	if err != nil {
		tb.Fatal(err)
	}
	return path, bytes.TrimSpace(out)
}

func open(tb testing.TB, path string, wal []byte) (*DB, error) {
	tb.Helper()
	s, err := store.Open(filepath.Dir(path))
	if err != nil {
		tb.Fatal(err)
	}
	f, err := s.Open(tb.Context(), filepath.Base(path))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return Open(tb.Context(), f, wal)
}

// rows dumps a table as the script does; places are read again through a Reader.
func rows(tb testing.TB, d *DB) ([][]any, error) {
	tb.Helper()
	t := d.Table("t")
	if t == nil {
		return nil, nil
	}
	var out [][]any
	var places []Place
	dump := func(r *Row) ([]any, error) {
		var row []any
		for k, name := range []string{"id", "topic_id", "a(b", "f", "data", "late"} {
			col := t.Column(name)
			switch k {
			case 2:
				s, err := r.Text(tb.Context(), col)
				if err != nil {
					return nil, err
				}
				row = append(row, s)
			case 3:
				v, _ := r.Float(col)
				row = append(row, v)
			case 4:
				b, err := r.Bytes(tb.Context(), col)
				if err != nil {
					return nil, err
				}
				row = append(row, fmt.Sprintf("%x", b))
			default:
				if v, ok := r.Int(col); ok {
					row = append(row, v)
				} else {
					row = append(row, nil)
				}
			}
		}
		return row, nil
	}
	err := d.Scan(tb.Context(), t, func(r *Row) error {
		row, err := dump(r)
		out = append(out, row)
		places = append(places, r.Place)
		return err
	})
	if err != nil {
		return out, err
	}
	rd := d.Reader(t)
	for k, p := range places {
		r, err := rd.Row(tb.Context(), p)
		if err != nil {
			return out, err
		}
		again, err := dump(r)
		if err != nil {
			return out, err
		}
		if fmt.Sprint(again) != fmt.Sprint(out[k]) {
			tb.Errorf("row %d differs when read by its place", k)
		}
	}
	return out, nil
}

// Q1, Q4: every page size, values of every width, large ones, deleted rows, columns added later; a log that was not checkpointed.
func TestEqualsSQLite(t *testing.T) {
	for _, size := range []int{512, 1024, 4096, 65536} {
		for _, mode := range []string{"plain", "wal"} {
			path, want := made(t, size, mode)
			wal, _ := os.ReadFile(path + "-wal")
			if mode == "wal" && len(wal) == 0 {
				t.Fatal("no log was left")
			}
			d, err := open(t, path, wal)
			if err != nil {
				t.Fatal(err)
			}
			if mode == "wal" && d.LogPages() == 0 {
				t.Error("nothing was taken from the log")
			}
			got, err := rows(t, d)
			if err != nil {
				t.Fatal(err)
			}
			var w [][]any
			dec := json.NewDecoder(bytes.NewReader(want))
			dec.UseNumber()
			if err := dec.Decode(&w); err != nil {
				t.Fatal(err)
			}
			if len(got) != len(w) || len(w) < 300 {
				t.Fatalf("%d rows, not %d", len(got), len(w))
			}
			for k := range w {
				f, _ := w[k][3].(json.Number).Float64()
				w[k][3] = f
				if fmt.Sprint(got[k]) != fmt.Sprint(w[k]) {
					t.Fatalf("page size %d, %s, row %d:\n%.300s\n%.300s", size, mode, k, fmt.Sprint(got[k]), fmt.Sprint(w[k]))
				}
			}
		}
	}
}

type mem []byte

func (m mem) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > int64(len(m)) {
		return &robocache.Error{Class: robocache.ErrMalformed, Msg: "outside"}
	}
	copy(p, m[off:])
	return nil
}

func (m mem) Size() int64     { return int64(len(m)) }
func (m mem) Version() string { return "1" }
func (m mem) Close() error    { return nil }

// Q2, Q3: whatever the bytes, a result or a typed error, in memory that the file's size bounds.
func abuse(t *testing.T, file, wal []byte) {
	t.Helper()
	before := hostile.Allocated()
	d, err := Open(t.Context(), mem(file), wal)
	if err == nil {
		for _, table := range d.tables {
			n := 0
			err = errors.Join(err, d.Scan(t.Context(), table, func(r *Row) error {
				for k := range table.Columns {
					if _, err := r.Bytes(t.Context(), k); err != nil {
						return err
					}
				}
				if n++; n > 1000 {
					return &robocache.Error{Class: robocache.ErrResourceLimit}
				}
				return nil
			}))
		}
	}
	var e *robocache.Error
	if err != nil && !errors.As(err, &e) {
		t.Errorf("untyped: %v", err)
	}
	if got := hostile.Allocated() - before; got > uint64(16<<20+2000*(len(file)+len(wal))) {
		t.Errorf("%d bytes were allocated for %d", got, len(file)+len(wal))
	}
}

func FuzzDB(f *testing.F) {
	for _, mode := range []string{"plain", "wal"} {
		path, _ := made(f, 512, mode)
		file, _ := os.ReadFile(path)
		wal, _ := os.ReadFile(path + "-wal")
		f.Add(file[:min(len(file), 16<<10)], wal[:min(len(wal), 16<<10)])
	}
	f.Fuzz(abuse)
}

// Truncation at every page, and every byte of the first pages to 0, 255 and ±1.
func TestDamaged(t *testing.T) {
	path, _ := made(t, 512, "plain")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(file); n += 512 {
		abuse(t, file[:n], nil)
	}
	for k := range 2048 {
		for _, v := range []byte{0, 255, file[k] + 1, file[k] - 1} {
			bad := bytes.Clone(file[:32<<10])
			bad[k] = v
			abuse(t, bad, nil)
		}
	}
}
