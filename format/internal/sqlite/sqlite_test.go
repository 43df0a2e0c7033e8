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

	"github.com/ncruces/go-sqlite3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

// script creates a database of difficult cases with Python's sqlite3 and prints its rows.
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

// rows returns the rows of a table in the form of the script. It reads each row a second time by
// its number.
func rows(tb testing.TB, d *DB) (out [][]any, err error) {
	tb.Helper()
	const columns = `SELECT id, topic_id, "a(b", f, data, late FROM t`
	dump := func(r *Row) []any {
		row := []any{
			r.ColumnInt64(0),
			r.ColumnInt64(1),
			r.ColumnText(2),
			r.ColumnFloat(3),
			fmt.Sprintf("%x", r.ColumnRawBlob(4)),
			nil,
		}
		if r.ColumnType(5) == sqlite3.INTEGER {
			row[5] = r.ColumnInt64(5)
		}
		return row
	}
	return out, d.Use(tb.Context(), func(c *Conn) error {
		if err := c.Query(
			columns,
			func(r *Row) error { out = append(out, dump(r)); return nil },
		); err != nil {
			return err
		}
		for k, row := range out {
			err := c.Query(columns+" WHERE rowid=?", func(r *Row) error {
				if fmt.Sprint(dump(r)) != fmt.Sprint(out[k]) {
					tb.Errorf("row %d differs when read by its number", k)
				}
				return nil
			}, row[0].(int64))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// TestEqualsSQLite covers every page size, values of every width, large values, deleted rows,
// columns that were added later, and a log without a checkpoint (sqlite.Q1, sqlite.Q4).
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
					t.Fatalf(
						"page size %d, %s, row %d:\n%.300s\n%.300s",
						size,
						mode,
						k,
						fmt.Sprint(got[k]),
						fmt.Sprint(w[k]),
					)
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

// abuse expects a result or a typed error for arbitrary bytes, with memory in proportion to the
// file (sqlite.Q2, sqlite.Q3).
func abuse(t *testing.T, file, wal []byte) {
	t.Helper()
	before := hostile.Allocated()
	d, err := Open(t.Context(), mem(file), wal)
	if err == nil {
		err = d.Use(t.Context(), func(c *Conn) error {
			columns, err := c.Columns("t")
			if err != nil || len(columns) == 0 {
				return err
			}
			n := 0
			return c.Query("SELECT * FROM t", func(r *Row) error {
				for k := range columns {
					r.ColumnRawBlob(k)
				}
				if n++; n > 1000 {
					return &robocache.Error{Class: robocache.ErrResourceLimit}
				}
				return nil
			})
		})
		err = errors.Join(err, d.Close())
	}
	hostile.Typed(t, err)
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

// TestDamaged cuts files at every page and sets every byte of the first pages to 0, 255 and ±1.
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

// A view would run code of the file, so a view with the name of a table is not read (sqlite.Q5).
func TestViewIsNoTable(t *testing.T) {
	py := filepath.Join(realdata.Root(t), ".venv", "bin", "python")
	if _, err := os.Stat(py); err != nil {
		t.Skip("no python in .venv")
	}
	path := filepath.Join(t.TempDir(), "a.db3")
	const endless = `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE u (id INTEGER PRIMARY KEY, a INTEGER, b AS (a + 1))")
db.execute("CREATE VIEW t AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id FROM c")
db.commit()
`
	if out, err := exec.Command(py, "-c", endless, path).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	d, err := open(t, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Use(t.Context(), func(c *Conn) error {
		for table, want := range map[string]string{"t": "[]", "u": "[id a]"} {
			if have, err := c.Columns(table); err != nil || fmt.Sprint(have) != want {
				t.Errorf("%s: %v, %v", table, have, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCutLog checks that a log that is shorter than its header is ignored, and the database is read
// without it. sqlite.Q4 covers logs that end later.
func TestCutLog(t *testing.T) {
	path, _ := made(t, 512, "plain")
	for _, n := range []int{1, 8, 24, 31} {
		d, err := open(t, path, make([]byte, n))
		if err != nil {
			t.Errorf("a log of %d bytes: %v", n, err)
			continue
		}
		if got, err := rows(t, d); err != nil || len(got) < 300 {
			t.Errorf("a log of %d bytes: %d rows, %v", n, len(got), err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
