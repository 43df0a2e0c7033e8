package robomimic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

var variants = []string{
	"earliest_contiguous",
	"earliest_gzip",
	"earliest_gzip_shuffle",
	"earliest_lzf",
	"latest_contiguous",
	"latest_gzip_shuffle",
}

func open(t testing.TB, path string, opt robocache.OpenOptions) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func rowsOf(d robocache.Dataset, episode int) []robocache.Row {
	out := make([]robocache.Row, d.Len(episode))
	for i := range out {
		out[i] = robocache.Row{Episode: episode, Index: i}
	}
	return out
}

func hexSum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func oracle(t *testing.T, path string) map[string]struct {
	SHA string `json:"sha256"`
} {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Objects map[string]struct {
			SHA string `json:"sha256"`
		} `json:"objects"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o.Objects
}

// TestReal compares every stream of every variant with h5py (robomimic.M1, robomimic.M2,
// robomimic.M5), with a large and a small budget.
func TestReal(t *testing.T) {
	dir := realdata.Path(t, "robomimic_like")
	for _, v := range variants {
		for _, budget := range []int64{0, 1 << 20} {
			t.Run(fmt.Sprint(v, budget), func(t *testing.T) {
				want := oracle(t, filepath.Join(dir, "oracle", v+".json"))
				d := open(
					t,
					filepath.Join(dir, v+".hdf5"),
					robocache.OpenOptions{
						MemoryBudget: budget,
						Options:      map[string]string{"next_obs": "true"},
					},
				)
				info := d.Info()
				if info.Episodes != 3 || info.Frames != 90 || info.FPS.Float() != 5 ||
					len(info.Findings) != 0 ||
					info.Robot != "Unitree_G1_Inspire" {
					t.Errorf("%+v", info)
				}
				if len(info.Tasks) != 1 ||
					info.Tasks[0].Text != "Pick up the yellow bottle on the table." {
					t.Error(info.Tasks)
				}
				if s := info.Splits; len(s) != 2 || s["train"] != "0:1,2:3" || s["valid"] != "1:2" {
					t.Error(s)
				}
				paths := map[string]string{
					"action":                 "actions",
					"observation.state":      "obs/state",
					"observation.image":      "obs/image",
					"next.observation.state": "next_obs/state",
					"states":                 "states",
					"rewards":                "rewards",
					"dones":                  "dones",
				}
				if len(info.Features) != len(paths) {
					t.Errorf("%+v", info.Features)
				}
				for i := range info.Features {
					f := &info.Features[i]
					for e := range info.Episodes {
						rows := rowsOf(d, e)
						var got []byte
						if f.Kind == robocache.KindImage {
							refs := make([]robocache.FrameRef, len(rows))
							if err := d.Frames(t.Context(), f.Key, rows, refs); err != nil {
								t.Fatal(err)
							}
							for _, r := range refs {
								if r.Raw.Height != 72 || r.Raw.Width != 96 || r.Raw.Channels != 3 ||
									r.Raw.BGR {
									t.Fatalf("%+v", r.Raw)
								}
								got = append(got, r.Raw.Pix...)
							}
						} else {
							got = make([]byte, len(rows)*f.RowBytes())
							if err := d.Gather(t.Context(), f.Key, rows, got); err != nil {
								t.Fatal(err)
							}
						}
						if hexSum(got) !=
							want[fmt.Sprintf("data/demo_%d/%s", e, paths[f.Key])].SHA {
							t.Error(f.Key, e)
						}
					}
				}
				times, err := d.Times(t.Context(), 1, "action")
				if err != nil || len(times) != 30 || times[29] != 29*200_000_000 {
					t.Error(times, err)
				}
				if s := d.CacheStats(); s.Bytes > s.Budget {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestSplit checks that a mask opens only its demos (robomimic.M4). An unknown mask is an error
// that names it.
func TestSplit(t *testing.T) {
	path := realdata.Path(t, "robomimic_like/earliest_gzip.hdf5")
	d := open(t, path, robocache.OpenOptions{Options: map[string]string{"split": "train"}})
	if e, _ := d.Episode(t.Context(), 1); d.Info().Episodes != 2 || e.Index != 2 ||
		d.Info().Splits["train"] != "0:2" {
		t.Errorf("%+v %+v", e, d.Info())
	}
	_, err := Open(
		t.Context(),
		path,
		robocache.OpenOptions{Options: map[string]string{"split": "test"}},
	)
	if !errors.Is(err, robocache.ErrMisuse) || !strings.Contains(err.Error(), "train, valid") {
		t.Error(err)
	}
	if _, err = robocache.Open(t.Context(), path,
		robocache.OpenOptions{Options: map[string]string{"splits": "x"}}); !errors.Is(err,
		robocache.ErrMisuse) {
		t.Error(err)
	}
}

func TestDetect(t *testing.T) {
	for path, want := range map[string]bool{
		"robomimic_like/earliest_lzf.hdf5": true,
		"robomimic_like":                   true,
		"hdf5_features/latest.hdf5":        false,
		"aloha_like":                       false,
		"g1_v21":                           false,
	} {
		if ok, err := Detect(t.Context(), realdata.Path(t, path), robocache.OpenOptions{}); ok !=
			want || err != nil {
			t.Error(path, ok, err)
		}
	}
	d, err := robocache.Open(
		t.Context(),
		realdata.Path(t, "robomimic_like/latest_gzip_shuffle.hdf5"),
		robocache.OpenOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestLease checks that leased images equal those of Frames until done, in many goroutines, and
// that returned memory is reused.
func TestLease(t *testing.T) {
	d := open(
		t,
		realdata.Path(t, "robomimic_like/earliest_contiguous.hdf5"),
		robocache.OpenOptions{MemoryBudget: 1 << 20},
	)
	want := map[robocache.Row][]byte{}
	for e := range 3 {
		rows := rowsOf(d, e)
		refs := make([]robocache.FrameRef, len(rows))
		if err := d.Frames(t.Context(), "observation.image", rows, refs); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			want[r] = refs[i].Raw.Pix
		}
	}
	var g sync.WaitGroup
	for k := range 8 {
		g.Go(func() {
			for i := range 60 {
				e := (k + i) % 3
				rows := rowsOf(d, e)[i%20 : i%20+4]
				refs := make([]robocache.FrameRef, len(rows))
				done, err := d.LeaseFrames(t.Context(), "observation.image", rows, refs)
				if err != nil {
					t.Error(err)
					return
				}
				for j, r := range rows {
					if !bytes.Equal(refs[j].Raw.Pix, want[r]) {
						t.Error("other pixels", r)
					}
				}
				done()
			}
		})
	}
	g.Wait()
	if _, err := d.LeaseFrames(t.Context(), "observation.image", []robocache.Row{{Index: 99}},
		make([]robocache.FrameRef, 1)); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
}

// TestChannelOrder checks that the option sets the order of the channels, and that an unknown
// camera is Misuse (robomimic.M5).
func TestChannelOrder(t *testing.T) {
	path := filepath.Join(realdata.Path(t, "robomimic_like"), "latest_gzip_shuffle.hdf5")
	for order, bgr := range map[string]bool{
		"bgr":       true,
		"image=bgr": true,
		"rgb":       false,
		"":          false,
	} {
		d := open(
			t,
			path,
			robocache.OpenOptions{Options: map[string]string{"channel_order": order}},
		)
		refs := make([]robocache.FrameRef, 1)
		if err := d.Frames(t.Context(), "observation.image", []robocache.Row{{}}, refs); err !=
			nil || refs[0].Raw.BGR != bgr {
			t.Errorf("%q: %v %+v", order, err, refs[0].Raw)
		}
	}
	if _, err := Open(
		t.Context(),
		path,
		robocache.OpenOptions{Options: map[string]string{"channel_order": "wrist=bgr"}},
	); !errors.Is(
		err,
		robocache.ErrMisuse,
	) {
		t.Error(err)
	}
}

// TestOwnPixels checks that a change to the result of Frames does not change other results
// (h5set.S4).
func TestOwnPixels(t *testing.T) {
	for _, v := range variants {
		d := open(
			t,
			filepath.Join(realdata.Path(t, "robomimic_like"), v+".hdf5"),
			robocache.OpenOptions{},
		)
		refs := make([]robocache.FrameRef, 3)
		var sums [2]string
		for i := range sums {
			if err := d.Frames(t.Context(), "observation.image", rowsOf(d, 0)[:3], refs); err !=
				nil {
				t.Fatal(err)
			}
			for _, r := range refs {
				sums[i] += hexSum(r.Raw.Pix)
				clear(r.Raw.Pix)
			}
		}
		if sums[0] != sums[1] {
			t.Errorf("%s: the cache's pixels were changed", v)
		}
	}
}

// TestHeld checks rows that are kept with direct pointers because all of them fit. They equal the
// file in many goroutines, and are released when the budget is lowered (h5set.S2).
func TestHeld(t *testing.T) {
	for _, v := range variants {
		d := open(
			t,
			filepath.Join(realdata.Path(t, "robomimic_like"), v+".hdf5"),
			robocache.OpenOptions{},
		)
		f := d.Info().Feature("observation.state")
		read := func() string {
			var sum string
			for e := range d.Info().Episodes {
				b := make([]byte, d.Len(e)*f.RowBytes())
				if err := d.Gather(t.Context(), f.Key, rowsOf(d, e), b); err != nil {
					t.Error(err)
				}
				sum += hexSum(b)
			}
			return sum
		}
		want := read()
		loads := d.CacheStats().Loads
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					if read() != want {
						t.Error(v, "other rows")
					}
				}
			})
		}
		wg.Wait()
		if n := d.CacheStats().Loads; n != loads {
			t.Errorf("%s: %d loads of what is there", v, n-loads)
		}
		d.LimitMemory(1)
		if s := d.CacheStats(); read() != want || s.Bytes > s.Budget {
			t.Errorf("%s: %+v", v, s)
		}
	}
}
