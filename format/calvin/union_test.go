package calvin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// wantReadable reads a stream of an episode, and checks that it can be read or that the episode
// lacks it.
func wantReadable(t *testing.T, ds robocache.Dataset, key string, episode int, lacking bool) {
	t.Helper()
	f := ds.Info().Feature(key)
	if f == nil {
		t.Errorf("no stream %s", key)
		return
	}
	rows := []robocache.Row{{Episode: episode, Index: 1}}
	var err error
	if f.Kind == robocache.KindImage {
		err = ds.Frames(t.Context(), key, rows, make([]robocache.FrameRef, 1))
	} else {
		err = ds.Gather(t.Context(), key, rows, make([]byte, f.RowBytes()))
	}
	if lacking != robocache.Lacks(ds, episode, key) || lacking != (err != nil) {
		t.Errorf(
			"%s of episode %d: lacks %v: %v",
			key,
			episode,
			robocache.Lacks(ds, episode, key),
			err,
		)
	}
	if err != nil && !errors.Is(err, robocache.ErrMalformed) {
		t.Error(err)
	}
}

// TestUnion checks that the streams are those of all episodes in their most common form, for any
// position of the unusual episode.
func TestUnion(t *testing.T) {
	for odd := range 3 {
		for name, c := range map[string]struct{ change, key string }{
			"lacks": {`z.pop("rgb_gripper"); z.pop("scene_obs")`, "observation.rgb_gripper"},
			"shape": {
				`z["rgb_gripper"] = np.zeros((5, 4, 3), np.uint8)`,
				"observation.rgb_gripper",
			},
			"size": {
				`z["rgb_gripper"] = np.zeros((5, 5, 3), np.uint8)`,
				"observation.rgb_gripper",
			},
			"type": {
				`z["robot_obs"] = z["robot_obs"].view(np.int64)`,
				"observation.robot_obs",
			},
			"late":     {`if n % 3 == 0: z.pop("rgb_gripper")`, "observation.rgb_gripper"},
			"no frame": {`if n % 3 == 0: z = None`, "observation.rgb_gripper"},
			"no number": {
				`z["rgb_gripper"] = np.array([{"a": 1}], dtype=object)`,
				"observation.rgb_gripper",
			},
		} {
			t.Run(fmt.Sprint(name, " in ", odd), func(t *testing.T) {
				dir := made(t, fmt.Sprintf(`
for n in range(9):
    frame(n, 7, rgb_gripper=np.full((4, 5, 3), n, np.uint8))
    path = f"{D}/training/episode_{n:07d}.npz"
    z = dict(np.load(path))
    if n // 3 == %d:
        %s
        os.remove(path)
        if z: np.savez(path, **z)
ids((0, 2), (3, 5), (6, 8))
lang([(0, 1), (3, 4), (6, 7)], ["a", "b", "c"], ["a", "b", "c"])
`, odd, c.change))
				s, err := loopback.Serve(dir, loopback.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for _, uri := range []string{dir, s.URL} {
					for _, language := range []string{"text", "episodes"} {
						d := open(
							t,
							uri,
							robocache.OpenOptions{Options: map[string]string{"language": language}},
						)
						checkUnion(t, d, odd, name, c.key)
					}
				}
			})
		}
	}
}

func checkUnion(t *testing.T, d *Dataset, odd int, name, key string) {
	t.Helper()
	lacking := 0
	for _, f := range d.About.Findings {
		if f.Code != robocache.LackingStream {
			t.Errorf("%+v", f)
		} else if lacking++; f.Where["episode"] != odd {
			t.Errorf("%+v", f)
		}
	}
	want := map[string]int{"lacks": 2}[name]
	if lacking != want {
		t.Errorf("%d findings, want %d: %v", lacking, want, d.About.Findings)
	}
	usual := d.About.Feature(key)
	if usual == nil {
		t.Fatalf("no stream %s", key)
	}
	if usual.DType != map[string]robocache.DType{"type": robocache.Float64}[name] &&
		usual.Height != 4 {
		t.Errorf("%+v", usual)
	}
	for e := range 3 {
		lacks := e == odd && name == "lacks"
		wantReadable(t, d, "action", e, false)
		wantReadable(t, d, "observation.rgb_static", e, false)
		wantReadable(t, d, "observation.scene_obs", e, lacks)
		if e != odd || lacks {
			wantReadable(t, d, key, e, lacks)
		}
	}
}

// TestPadLacking reads an episode without a camera with missing="pad".
func TestPadLacking(t *testing.T) {
	d := open(t, made(t, `
for n in range(4):
    frame(n, 7, **({"rgb_gripper": np.full((4, 5, 3), n, np.uint8)} if n > 1 else {}))
ids((0, 1), (2, 3))
`), robocache.OpenOptions{})
	p := robocache.PadLacking(d)
	rows := []robocache.Row{{Episode: 0}, {Episode: 1}}
	refs, valid := make([]robocache.FrameRef, 2), make([]uint8, 2)
	if err := p.Frames(t.Context(), "observation.rgb_gripper", rows, refs); err != nil {
		t.Fatal(err)
	}
	if err := robocache.Valid(t.Context(), p, "observation.rgb_gripper", rows, valid); err != nil {
		t.Fatal(err)
	}
	if !refs[0].Missing || refs[1].Raw == nil || refs[1].Raw.Pix[0] != 2 || valid[0] != 0 ||
		valid[1] != 1 {
		t.Errorf("%+v %v", refs, valid)
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	if err != nil || len(found) != 1 || found[0].Code != robocache.LackingStream ||
		found[0].Severity != robocache.SeverityError {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestManyRemoteRuns checks the union over more remote runs than those whose headers are all read.
func TestManyRemoteRuns(t *testing.T) {
	dir := made(t, `
for n in range(20): frame(n, 7, rgb_gripper=np.zeros((5, 4, 3) if n == 0 else (4, 5, 3), np.uint8), **({"extra": np.zeros(3)} if n == 7 else {}))
ids(*((n, n) for n in range(20)))
`)
	s, err := loopback.Serve(dir, loopback.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := open(t, s.URL, robocache.OpenOptions{})
	if f := d.About.Feature("observation.rgb_gripper"); f == nil || f.Height != 4 {
		t.Errorf("%+v", f)
	}
	if robocache.Lacks(d, 7, "observation.extra") || !robocache.Lacks(d, 8, "observation.extra") {
		t.Error("observation.extra is in episode 7 alone")
	}
}
