package lerobot

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// writeFiles writes a synth dataset with several data files. files holds, for each file, the
// episodes of its rows.
func (s *synth) writeFiles(t *testing.T, files ...[]int64) string {
	t.Helper()
	dir := s.write(t)
	for i, episodes := range files {
		var rows []dataRow
		for _, r := range s.rows {
			if slices.Contains(episodes, r.Ep) {
				rows = append(rows, r)
			}
		}
		name := []string{"file-000.parquet", "file-001.parquet", "file-002.parquet"}[i]
		writeRows(t, filepath.Join(dir, "data/chunk-000", name), rows, s.perGroup)
	}
	return dir
}

// wantRows checks the lengths of all episodes, their rows, and the codes of the findings.
func wantRows(t *testing.T, d *Dataset, lengths []int, wantCodes string) {
	t.Helper()
	var frames int64
	for e, n := range lengths {
		frames += int64(n)
		if d.Len(e) != n {
			t.Errorf("episode %d has %d rows, want %d", e, d.Len(e), n)
			continue
		}
		wantStates(t, d, e)
		if times, err := d.Times(t.Context(), e, ""); err != nil || len(times) != n {
			t.Error(len(times), err)
		}
	}
	if d.Info().Episodes != len(lengths) || d.Info().Frames != frames {
		t.Errorf("%d episodes, %d frames", d.Info().Episodes, d.Info().Frames)
	}
	if got := codes(d); got != wantCodes {
		t.Errorf("findings %q, want %q", got, wantCodes)
	}
}

// TestWrongLengths checks that the rows of the data determine the lengths, not the table.
func TestWrongLengths(t *testing.T) {
	for name, c := range map[string]struct {
		lengths []int64
		total   string
		codes   string
	}{
		"short":    {[]int64{5, 5, 4}, `"total_frames": 15,`, "episode-length"},
		"zero":     {[]int64{5, 0, 5}, `"total_frames": 15,`, "episode-length"},
		"swap":     {[]int64{4, 6, 5}, `"total_frames": 15,`, "episode-length episode-length"},
		"no total": {[]int64{4, 6, 5}, "", "episode-length episode-length"},
		"long":     {[]int64{5, 5, 9}, `"total_frames": 15,`, "episode-length"},
		"negative": {[]int64{5, -5, 5}, `"total_frames": 15,`, "episode-length"},
		"all":      {[]int64{0, 0, 0}, "", "episode-length episode-length episode-length"},
		"huge":     {[]int64{5, 1 << 40, 5}, `"total_frames": 15,`, "episode-length"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, group := range []int{1 << 20, 5, 4} {
				s := newSynth(5, 5, 5)
				s.info, s.perGroup = c.total, group
				at := int64(0)
				for i := range s.episodes {
					s.episodes[i].Length, s.episodes[i].From = c.lengths[i], at
					at += c.lengths[i]
					s.episodes[i].To = at
				}
				dir := s.write(t)
				wantRows(t, mustOpen(t, dir), []int{5, 5, 5}, c.codes)
				d, err := OpenStore(t.Context(), noList{openStore(t, dir)}, robocache.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				wantRows(t, d, []int{5, 5, 5}, c.codes)
			}
		})
	}
}

// unlisted is the expected result for stale pointers in a store that cannot list. The zero value
// means that all rows are read.
type unlisted struct {
	readable int // number of readable episodes at the beginning
	class    error
	words    string // message of the other episodes
	codes    string
}

// TestStalePointers checks that rows are found by episode_index if data/file_index is wrong.
func TestStalePointers(t *testing.T) {
	stale := func(n int) string {
		return strings.TrimSpace(strings.Repeat("stale-pointer ", n))
	}
	for name, c := range map[string]struct {
		files    []int64
		stale    int
		unlisted unlisted
	}{
		"before": {[]int64{0, 0, 0, 1}, 1, unlisted{}},
		"beyond": {
			[]int64{0, 0, 2, 2},
			2,
			unlisted{2, robocache.ErrNotFound, "data/chunk-000/file-002.parquet", ""},
		},
		"first": {
			[]int64{0, 0, 0, 0},
			2,
			unlisted{
				2,
				robocache.ErrMalformed,
				"expected 5 rows, as the episodes table states, found 0",
				"rows-missing rows-missing",
			},
		},
		"none": {
			[]int64{7, 7, 7, 7},
			4,
			unlisted{0, robocache.ErrNotFound, "data/chunk-000/file-007.parquet", ""},
		},
		"swapped": {[]int64{1, 1, 0, 0}, 4, unlisted{}},
		"minus":   {[]int64{0, 0, -1, 1}, 1, unlisted{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSynth(5, 5, 5, 5)
			for i := range s.episodes {
				s.episodes[i].DataFile = c.files[i]
			}
			dir := s.writeFiles(t, []int64{0, 1}, []int64{2, 3})
			wantRows(t, mustOpen(t, dir), []int{5, 5, 5, 5}, stale(c.stale))
			d, err := OpenStore(t.Context(), noList{openStore(t, dir)}, robocache.OpenOptions{})
			if c.unlisted.class == nil {
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				wantRows(t, d, []int{5, 5, 5, 5}, stale(c.stale))
				return
			}
			// The second file is unknown, so its episodes are errors. The others are read.
			if c.unlisted.readable == 0 {
				wantError(t, err, c.unlisted.class, c.unlisted.words)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			for e := range 4 {
				if e < c.unlisted.readable {
					wantStates(t, d, e)
					continue
				}
				err := d.Gather(
					t.Context(),
					"observation.state",
					rowsOf(d, e)[:1],
					make([]byte, 12),
				)
				wantError(t, err, c.unlisted.class, c.unlisted.words)
			}
			if got := codes(d); got != c.unlisted.codes {
				t.Errorf("findings %q, want %q", got, c.unlisted.codes)
			}
		})
	}
}

// TestTableFaults checks that a wrong value of the table is a finding, also if the length and the
// file in use are those of the data.
func TestTableFaults(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(e *synthEpisode)
		codes string
		words string
	}{
		"file": {
			func(e *synthEpisode) { e.DataFile = -1 },
			"table-value",
			"data/file_index -1",
		},
		"chunk": {
			func(e *synthEpisode) { e.DataChunk = -3 },
			"table-value",
			"data/chunk_index is -3",
		},
		"to": {
			func(e *synthEpisode) { e.To = 1 << 52 },
			"table-value",
			"dataset_to_index 4503599627370496",
		},
		"to short": {
			func(e *synthEpisode) { e.To-- },
			"table-value",
			"length is 4, dataset_from_index is 3 and dataset_to_index 6",
		},
		"length": {func(e *synthEpisode) { e.Length = -4 }, "episode-length", "length is -4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSynth(3, 4, 5)
			c.alter(&s.episodes[1])
			dir := s.write(t)
			d := mustOpen(t, dir)
			wantRows(t, d, []int{3, 4, 5}, c.codes)
			found := pick(diagnose(t, dir, robocache.DiagnoseOptions{}), c.codes)
			if found == nil || found.Where["episode"] != int64(1) ||
				!strings.Contains(found.Message, c.words) ||
				!strings.Contains(found.Hint, "--fix") {
				t.Errorf("%+v", found)
			}
		})
	}
}

// TestLostRows checks that lost rows are an error of their episode only.
func TestLostRows(t *testing.T) {
	for _, group := range []int{1 << 20, 4} {
		s := newSynth(5, 6, 5)
		s.info, s.perGroup = `"total_frames": 16,`, group
		s.rows = slices.Delete(s.rows, 9, 11) // the last two of episode 1
		d := mustOpen(t, s.write(t))
		wantStates(t, d, 0)
		wantStates(t, d, 2)
		err := d.Gather(t.Context(), "observation.state", rowsOf(d, 1)[:1], make([]byte, 12))
		wantError(
			t,
			err,
			robocache.ErrMalformed,
			"6 rows",
			"found 4",
			"episode 1",
			"file-000.parquet",
		)
		if codes(d) != "rows-missing" || !d.Info().Findings[0].Lost {
			t.Error(codes(d), d.Info().Findings)
		}
	}
}

// TestRowsOfOneFile shortens the file of one v2.1 episode to one row. The error names that file
// only.
func TestRowsOfOneFile(t *testing.T) {
	dir := copySet(t, "g1_v21")
	whole := mustOpen(t, dir)
	f, err := whole.tables.footer(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		State  []float32 `parquet:"observation.state,list"`
		Action []float32 `parquet:"action,list"`
		Time   float32   `parquet:"timestamp"`
		Frame  int64     `parquet:"frame_index"`
		Ep     int64     `parquet:"episode_index"`
		Index  int64     `parquet:"index"`
		Task   int64     `parquet:"task_index"`
	}
	name := f.name
	writeRows(
		t,
		filepath.Join(dir, name),
		[]row{{State: make([]float32, 26), Action: make([]float32, 26)}},
		10,
	)
	found := diagnose(t, dir, robocache.DiagnoseOptions{})
	lost := pick(found, "rows-missing")
	if lost == nil || lost.Where["file"] != name || lost.Where["episode"] != int64(0) {
		t.Error(lost)
	}
	for _, f := range found {
		if f.Where["file"] != name {
			t.Errorf("%s %s: %s", f.Code, f.Where, f.Message)
		}
	}
}

// TestIndexTwice opens a table in which an episode_index occurs twice.
func TestIndexTwice(t *testing.T) {
	twice := func() *synth {
		s := newSynth(3, 4, 5)
		s.episodes[2].Index, s.episodes[2].DataFile = 0, 1
		return s
	}
	write := func(t *testing.T, s *synth) string {
		rows := slices.Clone(s.rows)
		s.rows = rows[:7]
		dir := s.write(t)
		for i := range rows[7:] {
			rows[7+i].Ep = 0
		}
		writeRows(t, filepath.Join(dir, "data/chunk-000/file-001.parquet"), rows[7:], 100)
		return dir
	}
	dir := write(t, twice())
	_, err := tryOpen(t, dir)
	wantError(t, err, robocache.ErrMisuse, "episode_index 0 occurs twice", "robocache doctor --fix")
	d, err := Open(t.Context(), dir, robocache.OpenOptions{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if codes(d) != "episode-twice" {
		t.Error(codes(d))
	}
	for e, n := range []int{3, 4, 5} {
		if d.Len(e) != n || d.episodes.indexAt(e) != int64(e) {
			t.Errorf("episode %d: index %d, %d rows", e, d.episodes.indexAt(e), d.Len(e))
		}
		if got := states(t, d, e); got[0] != float32(e) {
			t.Errorf("episode %d has rows of %v", e, got[0])
		}
	}
	// A row that repeats another is left out.
	s := newSynth(3, 4)
	s.episodes = append(s.episodes, s.episodes[1])
	d, err = Open(t.Context(), s.write(t), robocache.OpenOptions{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	wantRows(t, d, []int{3, 4}, "episode-twice")
	if ep, err := d.Episode(t.Context(), 1); err != nil || len(ep.Tasks) != 1 {
		t.Error(ep, err)
	}
}

// TestNoEpisodesYet opens a dataset that was created but never recorded.
func TestNoEpisodesYet(t *testing.T) {
	dir := t.TempDir()
	s := newSynth()
	s.info = `"total_episodes": 0, "total_frames": 0,`
	s.features = `"cam": {"dtype": "video", "shape": [48, 64, 3], "names": ["height", "width", "channels"]},`
	writeText(t, filepath.Join(dir, infoPath), s.infoJSON())
	d := mustOpen(t, dir)
	wantRows(t, d, nil, "")
	for _, key := range []string{"cam", "observation.state", "task_index"} {
		if d.Info().Feature(key) == nil {
			t.Errorf("no feature %s", key)
		}
	}
	if d.Info().Feature("cam").Kind != robocache.KindVideo {
		t.Error(d.Info().Feature("cam"))
	}
	for _, f := range diagnose(t, dir, robocache.DiagnoseOptions{}) {
		if f.Severity != robocache.SeverityInfo {
			t.Errorf("%s %s: %s", f.Code, f.Where, f.Message)
		}
	}
	if _, err := d.EpisodeTable(t.Context()); err != nil {
		t.Error(err)
	}
}
