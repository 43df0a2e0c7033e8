package clouds_test

import (
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/clouds"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// FuzzScans reads arbitrary bytes as scans, arrays and timestamps, under any name. The result is
// clouds or a typed error, no panic, and memory in proportion (clouds.P5).
func FuzzScans(f *testing.F) {
	f.Add("0000000001.bin", scan([4]float32{1, 2, 3, 4}), []byte("2011-09-26 13:02:25.951199337\n"))
	f.Add("000001.bin", scan([4]float32{1, 2, 3, 4})[:15], []byte("0.1\n0.2\n"))
	f.Add("n015-2018__LIDAR_TOP__1532402927647951.pcd.bin", make([]byte, 40), []byte(""))
	f.Add("a_9.npy", npy("<f4", "False", "(2, 3)", make([]byte, 24)), []byte("1e9\n"))
	f.Add("a_9.npy", npy(">f8", "True", "(1, 5)", make([]byte, 40)), []byte("NaN"))
	f.Add("a_9.npy", npy("<f2", "False", "(1099511627776, 3)", nil), []byte("-1\n-1\n"))
	f.Fuzz(func(t *testing.T, name string, b, timestamps []byte) {
		if _, err := store.CleanName("scans/" + name); err != nil ||
			strings.Contains(name, ".txt") {
			return
		}
		before := hostile.Allocated()
		m := storetest.NewMem("fuzzclouds")
		defer m.Drop()
		m.Put("scans/"+name, b)
		m.Put("scans/times.txt", timestamps)
		for _, format := range []string{"kitti", "nuscenes", "clouds"} {
			d, err := clouds.OpenStore(
				t.Context(),
				m,
				format,
				robocache.OpenOptions{MemoryBudget: 1 << 20},
			)
			hostile.Typed(t, err)
			if err != nil {
				continue
			}
			_, err = d.Times(t.Context(), 0, "")
			hostile.Typed(t, err)
			data, counts, err := d.GatherRagged(t.Context(), points, []robocache.Row{{}})
			hostile.Typed(t, err)
			if f := d.Info().Features[0]; err == nil &&
				len(data) != counts[0]*f.Elements()*f.DType.Size() {
				t.Errorf("%d bytes for %d points", len(data), counts[0])
			}
			_, err = d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
			hostile.Typed(t, err)
		}
		if got := hostile.Allocated() - before; got > uint64(16<<20+200*(len(b)+len(timestamps))) {
			t.Errorf("%d bytes were allocated for %d", got, len(b)+len(timestamps))
		}
	})
}
