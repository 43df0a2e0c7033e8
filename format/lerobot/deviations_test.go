package lerobot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/goatnote-inc/robocache"
)

// TestInfoDeviations checks which deviations of info.json are accepted (lerobot.L6).
func TestInfoDeviations(t *testing.T) {
	for _, c := range []struct {
		name  string
		alter func(*synth)
		class error // nil if Open succeeds
		words string
		codes string
	}{
		{"v3.1", func(s *synth) { s.version = "v3.1" }, nil, "", ""},
		{"v1.6", func(s *synth) { s.version = "v1.6" }, robocache.ErrUnsupported, "v1.6", ""},
		{"v2.2", func(s *synth) { s.version = "v2.2" }, robocache.ErrUnsupported, "v2.2", ""},
		{"v4.0", func(s *synth) { s.version = "v4.0" }, robocache.ErrUnsupported, "v4.0", ""},
		{
			"no version",
			func(s *synth) { s.version = "" },
			robocache.ErrMalformed,
			"/codebase_version",
			"",
		},
		{
			"lance",
			func(s *synth) { s.info = `"storage_format": "lance",` },
			robocache.ErrUnsupported,
			"lance",
			"",
		},
		{"fps 0", func(s *synth) { s.fps = "0" }, robocache.ErrMalformed, "/fps", ""},
		{"fps -1", func(s *synth) { s.fps = "-1" }, robocache.ErrMalformed, "/fps", ""},
		{"fps null", func(s *synth) { s.fps = "null" }, robocache.ErrMalformed, "/fps", ""},
		{"fps text", func(s *synth) { s.fps = `"10"` }, nil, "", "fps-type"},
		{"fps 29.97", func(s *synth) { s.fps = "29.97" }, nil, "", ""},
		{"unknown key", func(s *synth) { s.info = `"color": 3,` }, nil, "", "unknown-key"},
		{"totals", func(s *synth) {
			s.info = `"total_episodes": 9, "total_frames": 9, "total_tasks": 9, "splits": {"train": "0:100"},`
		}, nil, "", "total-differs total-differs total-differs split-differs"},
		{
			"key twice",
			func(s *synth) { s.info = `"fps": 10,` },
			robocache.ErrMalformed,
			"twice",
			"",
		},
		{
			"no column",
			func(s *synth) { s.features = `"ghost": {"dtype": "float32", "shape": [2]},` },
			nil,
			"",
			"feature-dropped",
		},
		{
			"no video",
			func(s *synth) { s.features = `"ghost": {"dtype": "video", "shape": [2, 2, 3]},` },
			nil,
			"",
			"feature-dropped",
		},
		{
			"unknown type",
			func(s *synth) { s.features = `"ghost": {"dtype": "complex64", "shape": [2]},` },
			nil,
			"",
			"feature-dropped",
		},
		{
			"shape 0",
			func(s *synth) { s.features = `"ghost": {"dtype": "float32", "shape": [0]},` },
			robocache.ErrMalformed,
			"/features/ghost/shape",
			"",
		},
		{
			"shape 2^60",
			func(s *synth) {
				s.features = `"ghost": {"dtype": "float32", "shape": [1152921504606846976]},`
			},
			robocache.ErrMalformed,
			"/features/ghost/shape",
			"",
		},
		{"features twice", func(s *synth) {
			s.features = `"g": {"dtype": "float32", "shape": [1]}, "g": {"dtype": "float32", "shape": [1]},`
		}, robocache.ErrMalformed, "twice", ""},
		{
			"deep",
			func(s *synth) {
				s.info = `"x": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + ","
			},
			robocache.ErrMalformed,
			"nested",
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSynth(3, 4)
			c.alter(s)
			d, err := tryOpen(t, s.write(t))
			if c.class != nil {
				wantError(t, err, c.class, infoPath, c.words)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := codes(d); got != c.codes {
				t.Errorf("findings %q, want %q", got, c.codes)
			}
			wantStates(t, d, 1)
		})
	}
}

// TestDroppedFeatureIsMalformed checks the class of the error about a requested feature that is
// left out.
func TestDroppedFeatureIsMalformed(t *testing.T) {
	for _, feature := range []string{
		`"ghost": {"dtype": "float32", "shape": [2]},`,
		`"ghost": {"dtype": "video", "shape": [2, 2, 3]},`,
		`"ghost": {"dtype": "complex64", "shape": [2]},`,
	} {
		s := newSynth(3, 4)
		s.features = feature
		d, err := tryOpen(t, s.write(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Info().Withheld("ghost"); !errors.Is(err, robocache.ErrMalformed) {
			t.Errorf("%s %v, want malformed", feature, err)
		}
	}
}

// TestTemplates checks that templates are treated as untrusted input.
func TestTemplates(t *testing.T) {
	for _, bad := range []string{
		"../data/file-{file_index:03d}.parquet",
		"/etc/passwd",
		"a/../../b",
		"data/{__class__}",
		"data/{file_index",
		"data/{file_index:>99999999d}",
		"data/{file_index!r}",
		"data\\x",
		"a\x00b",
		strings.Repeat("x", 5000),
	} {
		if err := checkTemplate(bad); err == nil {
			t.Errorf("%.40q was accepted", bad)
		}
	}
	for tmpl, want := range map[string]string{
		dataV2:                       "data/chunk-002/episode_002345.parquet",
		"x/{{{episode_index}}}":      "x/{2345}",
		"{file_index:d}-{video_key}": "7-k.x",
		"{chunk_index:05d}":          "00002",
	} {
		got, err := expandTemplate(tmpl, place{episode: 2345, chunk: 2, file: 7, key: "k.x"})
		if err != nil || got != want {
			t.Errorf("%s: %q %v", tmpl, got, err)
		}
	}
	s := newSynth(3)
	dir := s.write(t)
	edit(
		t,
		filepath.Join(dir, infoPath),
		"data/chunk-{chunk_index:03d}",
		"../data/chunk-{chunk_index:03d}",
	)
	_, err := tryOpen(t, dir)
	wantError(t, err, robocache.ErrMalformed, "/data_path", "below")
}

// TestGR00T checks a v2.0 dataset of a simulator with several faults.
func TestGR00T(t *testing.T) {
	d := openReal(t, "gr00t_picknplace_v20")
	info := d.Info()
	if info.Feature("observation.images.egoview") != nil ||
		info.Feature("observation.images.ego_view") == nil {
		t.Error("the phantom camera is there, or the real one is not")
	}
	// modality.json does not list the camera, so a Loader continues with a warning.
	if i := slices.IndexFunc(
		info.Findings,
		func(f robocache.Finding) bool { return f.NotDelivered == "observation.images.egoview" },
	); i < 0 ||
		info.Findings[i].Severity != robocache.SeverityWarning {
		t.Errorf("the phantom camera: %+v", info.Findings)
	}
	if f := info.Feature("observation.state"); f.DType != robocache.Float64 || f.Shape[0] != 44 {
		t.Errorf("%+v", f)
	}
	if f := info.Feature("frame_index"); f == nil || !f.Default {
		t.Errorf("frame_index: %+v", f)
	}
	b := gather(
		t,
		d,
		"frame_index",
		[]robocache.Row{{Episode: 2, Index: 5}, {Episode: 0, Index: 0}},
	)
	if b[0] != 5 || b[8] != 0 {
		t.Error("frame_index is not counted", b)
	}
	arm := info.Group("state", "right_arm")
	coarse := info.Group("annotation", "human.coarse_action")
	if arm == nil || arm.Key != "observation.state" || arm.Start != 22 || arm.End != 29 ||
		info.Group("video", "ego_view").Key != "observation.images.ego_view" ||
		coarse.Key != "annotation.human.action.task_description" {
		t.Errorf("%+v", info.Groups)
	}
	times, err := d.Times(context.Background(), 0, "observation.state")
	if err != nil || len(times) != 416 || times[0] != 49999952 {
		t.Error(times[:3], err)
	}
	texts, err := d.Text(context.Background(), "task", []robocache.Row{{Episode: 1, Index: 3}})
	if err != nil ||
		texts[0] != "pick the sweet potato from the counter and place it in the plate" {
		t.Error(texts, err)
	}
	ep, err := d.Episode(context.Background(), 2)
	if err != nil || len(ep.Tasks) != 2 || ep.Length != 470 {
		t.Error(ep, err)
	}
	if info.FPS != (robocache.Rate{Num: 20, Den: 1}) {
		t.Error(info.FPS)
	}
}

// TestLayouts checks that files at other paths than the template names are found, with a finding.
func TestLayouts(t *testing.T) {
	move := func(t *testing.T, dir, from, to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(t *testing.T, dir string, wantCodes string) {
		t.Helper()
		d := mustOpen(t, dir)
		if got := codes(d); got != wantCodes {
			t.Errorf("findings %q, want %q", got, wantCodes)
		}
		e := d.Info().Episodes - 1
		gather(t, d, "observation.state", rowsOf(d, e))
		for _, f := range d.Info().Features {
			if f.Kind == robocache.KindVideo {
				out := make([]robocache.FrameRef, d.Len(e))
				if err := d.Frames(context.Background(), f.Key, rowsOf(d, e), out); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Run("v2.1 template with chunk_index", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		edit(t, filepath.Join(dir, infoPath), "{episode_chunk:03d}", "{chunk_index:03d}")
		check(t, dir, "")
	})
	t.Run("data/train", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		move(t, dir, "data/chunk-000", "data/train/chunk-000")
		check(t, dir, "path-template")
	})
	t.Run("video for videos", func(t *testing.T) {
		dir := copySet(t, "g1_h264_v30")
		move(t, dir, "videos", "video")
		check(t, dir, "path-template path-template")
	})
	t.Run("in the tree", func(t *testing.T) {
		dir := copySet(t, "g1_h264_v30")
		move(t, dir, "videos", "footage/of/it")
		check(t, dir, "path-template path-template")
	})
	t.Run("hand-made episodes file", func(t *testing.T) {
		dir := newSynth(3, 4).write(t)
		move(t, dir, "meta/episodes/chunk-000/file-000.parquet", "meta/episodes/episodes.parquet")
		check(t, dir, "")
	})
	t.Run("no template at all", func(t *testing.T) {
		dir := copySet(t, "g1_h264_v30")
		edit(t, filepath.Join(dir, infoPath), `"data_path"`, `"other"`)
		check(t, dir, "unknown-key")
	})
}

// TestBroken checks that errors name the broken file, and that the other files can be read.
func TestBroken(t *testing.T) {
	ctx := context.Background()
	t.Run("zero-byte meta", func(t *testing.T) {
		for _, name := range []string{infoPath, tasksJSONL, episodesJSONL} {
			dir := copySet(t, "g1_v21")
			writeText(t, filepath.Join(dir, name), "")
			d, err := tryOpen(t, dir)
			if name == infoPath {
				wantError(t, err, robocache.ErrMalformed, name)
			} else if err != nil {
				wantError(t, err, robocache.ErrMalformed, name)
			} else if codes(d) == "" {
				t.Errorf("empty %s went unnoticed", name)
			}
		}
		dir := newSynth(3).write(t)
		writeText(t, filepath.Join(dir, tasksParquet), "")
		_, err := tryOpen(t, dir)
		wantError(t, err, robocache.ErrMalformed, tasksParquet)
	})
	t.Run("LFS pointers", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		writeText(t, filepath.Join(dir, "data/chunk-000/episode_000001.parquet"), lfsText)
		writeText(
			t,
			filepath.Join(dir, "videos/chunk-000/observation.images.cam_high/episode_000002.mp4"),
			lfsText,
		)
		d := mustOpen(t, dir)
		err := d.Gather(ctx, "action", rowsOf(d, 1)[:1], make([]byte, 104))
		wantError(t, err, robocache.ErrMalformed, "LFS", "episode 1", "episode_000001.parquet")
		err = d.Frames(
			ctx,
			"observation.images.cam_high",
			rowsOf(d, 2)[:1],
			make([]robocache.FrameRef, 1),
		)
		wantError(t, err, robocache.ErrMalformed, "LFS", "episode 2", "episode_000002.mp4")
		gather(t, d, "action", rowsOf(d, 0, 2, 3))
	})
	t.Run("missing files", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		os.Remove(filepath.Join(dir, "data/chunk-000/episode_000003.parquet"))
		os.Remove(
			filepath.Join(dir, "videos/chunk-000/observation.images.cam_high/episode_000001.mp4"),
		)
		d := mustOpen(t, dir)
		wantError(
			t,
			d.Gather(ctx, "action", rowsOf(d, 3)[:1], make([]byte, 104)),
			robocache.ErrNotFound,
			"episode 3",
			"episode_000003.parquet",
		)
		wantError(
			t,
			d.Frames(
				ctx,
				"observation.images.cam_high",
				rowsOf(d, 1)[:1],
				make([]robocache.FrameRef, 1),
			),
			robocache.ErrNotFound,
			"episode 1",
			"episode_000001.mp4",
		)
		gather(t, d, "action", rowsOf(d, 1))
	})
	t.Run("cut parquet", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		p := filepath.Join(dir, "data/chunk-000/episode_000000.parquet")
		b, _ := os.ReadFile(p)
		os.WriteFile(p, b[:len(b)/2], 0o644)
		_, err := tryOpen(t, dir)
		if err == nil {
			d := mustOpen(t, dir)
			err = d.Gather(ctx, "action", rowsOf(d, 0)[:1], make([]byte, 104))
			gather(t, d, "action", rowsOf(d, 1))
		}
		wantError(t, err, robocache.ErrMalformed, "no footer", "episode_000000.parquet")
	})
	t.Run("FIFO", func(t *testing.T) {
		dir := copySet(t, "g1_v21")
		p := filepath.Join(dir, "data/chunk-000/episode_000002.parquet")
		os.Remove(p)
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		d := mustOpen(t, dir)
		wantError(
			t,
			d.Gather(ctx, "action", rowsOf(d, 2)[:1], make([]byte, 104)),
			robocache.ErrMalformed,
			"episode_000002.parquet",
		)
	})
}

// TestRows checks that rows in another order than in the metadata are located or rejected
// (lerobot.L4).
func TestRows(t *testing.T) {
	ctx := context.Background()
	state := func(d *Dataset, e int) error {
		return d.Gather(ctx, "observation.state", rowsOf(d, e), make([]byte, d.Len(e)*12))
	}
	for _, group := range []int{1 << 20, 4} {
		t.Run("episodes swapped", func(t *testing.T) {
			s := newSynth(3, 4, 5)
			rows := append(append([]dataRow(nil), s.rows[7:]...), s.rows[:7]...)
			s.rows, s.perGroup = rows, group
			d := mustOpen(t, s.write(t))
			for _, e := range []int{2, 0, 1} {
				wantStates(t, d, e)
			}
			if !strings.Contains(codes(d), "rows-moved") {
				t.Error("no finding", codes(d))
			}
			times, err := d.Times(ctx, 2, "")
			if err != nil || len(times) != 5 {
				t.Error(times, err)
			}
		})
		t.Run("orphan rows", func(t *testing.T) {
			s := newSynth(3, 4, 5)
			s.perGroup = group
			// the rows of episode 1 remain in the file
			s.episodes = []synthEpisode{s.episodes[0], s.episodes[2]}
			s.episodes[1].Index = 2
			d := mustOpen(t, s.write(t))
			if got := states(t, d, 1); got[0] != 2 || got[13] != 4 {
				t.Error(got)
			}
			ep, err := d.Episode(ctx, 1)
			if err != nil || ep.Index != 2 {
				t.Error(ep, err)
			}
		})
		t.Run("leading orphan rows", func(t *testing.T) {
			s := newSynth(3, 4, 5)
			s.perGroup = group
			s.episodes = s.episodes[1:]
			d := mustOpen(t, s.write(t))
			if got := states(t, d, 0); got[0] != 1 || got[10] != 3 {
				t.Error(got)
			}
		})
		t.Run("rows shuffled", func(t *testing.T) {
			s := newSynth(3, 4)
			s.perGroup = group
			s.rows[4], s.rows[5] = s.rows[5], s.rows[4]
			d := mustOpen(t, s.write(t))
			wantError(
				t,
				state(d, 1),
				robocache.ErrMalformed,
				"row_group",
				"index",
				"episode 1",
				"not in order",
			)
		})
		t.Run("too few rows", func(t *testing.T) {
			s := newSynth(3, 4)
			s.perGroup = group
			s.rows = s.rows[:6]
			d := mustOpen(t, s.write(t))
			wantError(t, state(d, 1), robocache.ErrMalformed, "4 rows", "found 3", "episode 1")
		})
		t.Run("interleaved", func(t *testing.T) {
			s := newSynth(3, 4)
			s.perGroup = group
			s.rows[1], s.rows[4] = s.rows[4], s.rows[1]
			d := mustOpen(t, s.write(t))
			wantError(t, state(d, 0), robocache.ErrMalformed, "runs")
		})
	}
	t.Run("table unsorted", func(t *testing.T) {
		s := newSynth(3, 4, 5)
		s.episodes[0], s.episodes[2] = s.episodes[2], s.episodes[0]
		s.episodes[0].Tasks = []string{"last"}
		d := mustOpen(t, s.write(t))
		for e := range 3 {
			wantStates(t, d, e)
		}
		if ep, err := d.Episode(ctx, 2); err != nil || ep.Length != 5 || ep.Tasks[0] != "last" {
			t.Error(ep, err)
		}
		if codes(d) != "episodes-unsorted" {
			t.Error(codes(d))
		}
	})
	t.Run("index not from 0", func(t *testing.T) {
		s := newSynth(3, 4)
		for i := range s.rows {
			s.rows[i].Index += 1000
		}
		for i := range s.episodes {
			s.episodes[i].From += 1000
			s.episodes[i].To += 1000
		}
		d := mustOpen(t, s.write(t))
		wantStates(t, d, 1)
	})
	t.Run("index counts nothing", func(t *testing.T) {
		s := newSynth(3, 4)
		for i := range s.rows {
			s.rows[i].Index = 0
		}
		d := mustOpen(t, s.write(t))
		wantStates(t, d, 1)
		if codes(d) != "index-order" {
			t.Error(codes(d))
		}
	})
	t.Run("episode twice", func(t *testing.T) {
		s := newSynth(3, 4)
		s.episodes[1].Index = 0
		_, err := tryOpen(t, s.write(t))
		wantError(t, err, robocache.ErrMisuse, "twice", "robocache doctor --fix")
	})
	t.Run("length contradicts", func(t *testing.T) {
		s := newSynth(3, 4)
		s.episodes[1].Length = 5
		d := mustOpen(t, s.write(t))
		wantStates(t, d, 1)
		if d.Len(1) != 4 || codes(d) != "episode-length" {
			t.Error(d.Len(1), codes(d))
		}
	})
}

// TestTasks checks that tasks are found by task_index in any order of the table.
func TestTasks(t *testing.T) {
	ctx := context.Background()
	text := func(d *Dataset, e int) (string, error) {
		s, err := d.Text(ctx, "task", []robocache.Row{{Episode: e}})
		if err != nil {
			return "", err
		}
		return s[0], nil
	}
	s := newSynth(3, 4)
	s.tasks = []taskRow{{1, "b"}, {0, "a"}}
	d := mustOpen(t, s.write(t))
	if got, err := text(d, 1); got != "b" || codes(d) != "tasks-unsorted" {
		t.Error(got, err, codes(d))
	}
	s.rows[3].Task = 7
	d = mustOpen(t, s.write(t))
	_, err := text(d, 1)
	wantError(t, err, robocache.ErrMalformed, "task_index", "found 7", "episode 1")

	dir := newSynth(3, 4).write(t)
	type oldTask struct {
		Index int64  `parquet:"task_index"`
		Task  string `parquet:"__index_level_0__"`
	}
	writeRows(
		t,
		filepath.Join(dir, tasksParquet),
		[]oldTask{{0, "a"}, {1, "old"}},
		10,
		parquet.KeyValueMetadata("pandas", `{"index_columns": ["__index_level_0__"]}`),
	)
	d = mustOpen(t, dir)
	if got, err := text(d, 1); got != "old" || codes(d) != "" {
		t.Error(got, err, codes(d))
	}
	os.Remove(filepath.Join(dir, tasksParquet))
	d = mustOpen(t, dir)
	if codes(d) != "missing-file" {
		t.Error(codes(d))
	}
	wantStates(t, d, 1)
}
