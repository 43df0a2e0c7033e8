package rosbag2

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// TestFaultAnywhere makes each operation of the store fail, and each read short. The result is
// right or a typed error, and never a shorter list.
func TestFaultAnywhere(t *testing.T) {
	dir := realdata.Path(t, "rosbag2/py/sqlite3/reindex_test_bags/multiple_files")
	m := storetest.NewMem("rosbag2-faults")
	defer m.Drop()
	names := []string{"multiple_files_0.db3", "multiple_files_1.db3"}
	meta := "rosbag2_bagfile_information:\n  version: 5\n  relative_file_paths: " +
		"[multiple_files_0.db3, multiple_files_1.db3]\n"
	put := func(name string, data []byte) {
		w, err := m.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	put(metadataName, []byte(meta))
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		put(n, b)
	}
	sum := func(s store.Store) (out string, err error) {
		recs, _, _, err := findRecordings(t.Context(), s)
		if err != nil {
			return "", err
		}
		h := sha256.New()
		for k := range recs {
			st, err := recs[k].openStorage(t.Context(), s, openOptions{})
			if err != nil {
				return "", err
			}
			defer st.Close()
			for topic, info := range st.Topics() {
				err := st.Messages(
					t.Context(),
					topic,
					0,
					int(info.Messages),
					func(i int, m *bag.Message) error {
						fmt.Fprintln(h, topic, i, m.Log, len(m.Data), m.Data)
						return nil
					},
				)
				if err != nil {
					return "", err
				}
			}
		}
		return fmt.Sprintf("%x", h.Sum(nil)), nil
	}
	want, err := sum(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range []storetest.Fault{
		storetest.FaultFail,
		storetest.FaultShort,
		storetest.FaultChanged,
	} {
		for n := int64(1); ; n++ {
			plan := &storetest.Plan{Nth: n, Fault: fault}
			got, err := sum(storetest.Faulty(m, plan))
			if !plan.Struck() {
				if err != nil || n < 8 {
					t.Errorf("%d operations, %v", n-1, err)
				}
				break
			}
			if err != nil {
				hostile.Typed(t, err)
			} else if got != want {
				t.Errorf("fault %d at operation %d: another answer, and no error", fault, n)
			}
		}
	}
	// Read the range of a topic separately.
	st, err := (&recording{name: names[0], files: names[:1]}).openStorage(
		t.Context(),
		m,
		openOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	seen := 0
	stop := &robocache.Error{Class: robocache.ErrMisuse, Msg: "enough"}
	err = st.Messages(t.Context(), 0, 5, 9, func(i int, _ *bag.Message) error {
		if i != 5+seen {
			t.Errorf("message %d", i)
		}
		if seen++; seen == 3 {
			return stop
		}
		return nil
	})
	if seen != 3 || err == nil {
		t.Errorf("%d messages, %v", seen, err)
	}
}
