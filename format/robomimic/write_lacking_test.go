package robomimic_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/robomimic"
)

const (
	cameraKey = "observation.image"
	poseKey   = "observation.pose"
)

// lackingFile writes a file with demo_3, demo_7, demo_8 and demo_20 of 5 rows. demo_3 lacks
// obs/image and demo_8 lacks obs/pose.
func lackingFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lacking.hdf5")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := h5.NewWriter(f)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(g *h5.GroupWriter, name string, dtype robocache.DType, shape []int64, size, fill int) {
		t.Helper()
		d, err := g.Dataset(name, h5.Spec{DType: dtype, Shape: shape})
		check(err)
		check(errors.Join(d.Write(slices.Repeat([]byte{byte(fill)}, size)), d.Close()))
	}
	data, err := w.Root().Group("data")
	check(err)
	for _, n := range []int{3, 7, 8, 20} {
		demo, err := data.Group(fmt.Sprintf("demo_%d", n))
		check(err)
		check(demo.Attribute("num_samples", 5))
		put(demo, "actions", robocache.Float32, []int64{5, 2}, 40, 0)
		obs, err := demo.Group("obs")
		check(err)
		if n != 3 {
			put(obs, "image", robocache.Uint8, []int64{5, 16, 16, 3}, 5*16*16*3, n)
		}
		if n != 8 {
			put(obs, "pose", robocache.Float32, []int64{5, 3}, 60, 0)
		}
		check(errors.Join(obs.Close(), demo.Close()))
	}
	check(errors.Join(data.Attribute("total", 20), data.Close(), w.Close()))
	return path
}

// wantLacking checks which streams an episode of the result has.
func wantLacking(t *testing.T, ds robocache.Dataset, episode int, image, pose bool) {
	t.Helper()
	if got := robocache.Lacks(ds, episode, cameraKey); got != image {
		t.Errorf("episode %d lacks the image: %v, want %v", episode, got, image)
	}
	if got := robocache.Lacks(ds, episode, poseKey); got != pose {
		t.Errorf("episode %d lacks the pose: %v, want %v", episode, got, pose)
	}
}

// TestEditLacking checks that an edit keeps episodes that lack a stream, and that they lack it in
// the result.
func TestEditLacking(t *testing.T) {
	from := lackingFile(t)
	for name, verb := range map[string]edit.Verb{
		"delete": {Verb: "delete", Choice: edit.Choice{Episodes: "7"}},
		"trim":   {Verb: "trim", From: "1r"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dry := range []bool{true, false} {
				dst := filepath.Join(t.TempDir(), "out.hdf5")
				r, err := edit.Run(
					t.Context(),
					&edit.Request{
						Sources: []string{from},
						DST:     dst,
						DryRun:  dry,
						Verbs:   []edit.Verb{verb},
					},
				)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(
					r.Findings,
					func(f robocache.Finding) bool { return f.Code == robocache.LackingStream },
				) {
					t.Errorf("dry run %v: no finding of the lacking stream: %v", dry, r.Findings)
				}
				if dry {
					continue
				}
				out := openSet(t, dst, robocache.OpenOptions{})
				last := out.Info().Episodes - 1
				wantLacking(t, out, 0, true, false)
				wantLacking(t, out, last-1, false, true)
				wantLacking(t, out, last, false, false)
				f := out.Info().Feature(cameraKey)
				got := pixels(t, out, f, rows(out, last))
				if want := slices.Repeat([]byte{20}, out.Len(last)*16*16*3); !slices.Equal(got,
					want) {
					t.Errorf("the images of the last episode differ")
				}
			}
		})
	}
}

// TestEditLackingRefused checks that an edit into a format whose episodes have the same streams is
// rejected before anything is written, and that the episodes of its hint can be deleted.
func TestEditLackingRefused(t *testing.T) {
	from := lackingFile(t)
	request := func(dst, episodes string, dry bool) *edit.Request {
		return &edit.Request{
			Sources: []string{from}, DST: dst, To: "zarr", DryRun: dry,
			Verbs: []edit.Verb{{Verb: "delete", Choice: edit.Choice{Episodes: episodes}}},
		}
	}
	for _, dry := range []bool{true, false} {
		dst := filepath.Join(t.TempDir(), "out")
		_, err := edit.Run(t.Context(), request(dst, "7", dry))
		var e *robocache.Error
		if !errors.As(err, &e) || e.Class != robocache.ErrMalformed ||
			e.Where["episode"] != int64(3) ||
			e.Where["stream"] != cameraKey ||
			!strings.Contains(e.Hint, "'robocache edit delete --episodes=3,7-8';") {
			t.Errorf("dry run %v: %v", dry, err)
		}
		if _, err := os.Stat(dst); !os.IsNotExist(err) {
			t.Errorf("dry run %v: something was written: %v", dry, err)
		}
	}
	if r, err := edit.Run(t.Context(),
		request(filepath.Join(t.TempDir(), "out"), "3,7-8", false)); err != nil || r.Episodes != 1 {
		t.Errorf("the edit of the hint: %v", err)
	}
}

// TestWriteLacking combines streams that episodes lack with each option of the writer.
func TestWriteLacking(t *testing.T) {
	src := openSet(t, lackingFile(t), robocache.OpenOptions{HZ: robocache.Rate{Num: 20, Den: 1}})
	dst, _ := write(t, src, "out.hdf5", robocache.WriteOptions{Options: map[string]string{
		"timestamps": "true", "next_obs": "true", "scale_actions": "true",
	}})
	out, err := robomimic.Open(
		t.Context(),
		dst,
		robocache.OpenOptions{Options: map[string]string{"next_obs": "true"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for e, lacks := range [][2]bool{{true, false}, {false, false}, {false, true}, {false, false}} {
		wantLacking(t, out, e, lacks[0], lacks[1])
		if got := robocache.Lacks(out, e, "next."+cameraKey); got != lacks[0] {
			t.Errorf("episode %d lacks the next image: %v", e, got)
		}
	}
}

// TestDropInvalidKeepsLacking checks a conversion that cuts episodes at rows without a value.
// Episodes that lack a stream must lack it in the result.
func TestDropInvalidKeepsLacking(t *testing.T) {
	src, err := robomimic.Open(t.Context(), lackingFile(t), robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst := filepath.Join(t.TempDir(), "out.hdf5")
	opt := convert.Options{DropInvalid: true}
	if _, err := convert.Write(t.Context(), src, "robomimic", dst, opt); err != nil {
		t.Fatal(err)
	}
	out, err := robomimic.Open(t.Context(), dst, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for e := range src.Info().Episodes {
		wantLacking(t, out, e, robocache.Lacks(src, e, cameraKey), robocache.Lacks(src, e, poseKey))
	}
}
