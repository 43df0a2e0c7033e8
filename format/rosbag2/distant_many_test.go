package rosbag2

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/store"
)

type farStore struct {
	store.Store
	opens atomic.Int64
}
type farawayFile struct{ robocache.Ranged }

func (f farawayFile) Remote() bool { return true }
func (s *farStore) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	r, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".db3") {
		s.opens.Add(1)
	}
	return farawayFile{r}, nil
}

// TestDistantBagsStayOpen checks that many remote databases stay open, because cached blocks are
// not counted with their indexes.
func TestDistantBagsStayOpen(t *testing.T) {
	src := realdata.Path(t, "mcap_robot/recording_db3")
	dir := t.TempDir()
	const bags = 30
	list, _ := os.ReadDir(src)
	for i := range bags {
		d := filepath.Join(dir, fmt.Sprintf("bag%02d", i))
		_ = os.Mkdir(d, 0o755)
		for _, f := range list {
			b, err := os.ReadFile(filepath.Join(src, f.Name()))
			if err != nil {
				continue
			}
			_ = os.WriteFile(filepath.Join(d, f.Name()), b, 0o600)
		}
	}
	st, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &farStore{Store: st}
	d, err := OpenStore(t.Context(), s, "", robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, key := range []string{"joint_states.position", "imu.data.orientation"} {
		f := d.Info().Feature(key)
		s.opens.Store(0)
		for e := range d.Info().Episodes {
			if err := d.Gather(t.Context(), key, []robocache.Row{{Episode: e, Index: 3}},
				make([]byte, f.RowBytes())); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.opens.Load(); key != "joint_states.position" && n > 0 {
			t.Errorf("%d of %d files were opened again", n, bags)
		}
	}
}
