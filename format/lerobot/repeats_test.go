package lerobot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// setIndexes sets the episode_index of each run of rows that newSynth made.
func (s *synth) setIndexes(indexes ...int64) {
	for i := range s.rows {
		s.rows[i].Ep = indexes[s.rows[i].Ep]
	}
}

// wantRepair checks that a dataset is rejected, and that repair makes an episode of each run of
// rows. owners holds the run of each position, as newSynth made it, and indexes the episode_index.
func wantRepair(t *testing.T, dir, words string, owners []int, indexes []int64) *Dataset {
	t.Helper()
	_, err := tryOpen(t, dir)
	wantError(t, err, robocache.ErrMisuse, words, "robocache doctor --fix")
	d, err := Open(t.Context(), dir, robocache.OpenOptions{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if d.Info().Episodes != len(owners) {
		t.Fatalf("%d episodes, want %d", d.Info().Episodes, len(owners))
	}
	var rows int64
	for pos, owner := range owners {
		if got := d.Info().EpisodeIndex(pos); got != indexes[pos] {
			t.Errorf("position %d has index %d, want %d", pos, got, indexes[pos])
		}
		got := states(t, d, pos)
		for k := range d.Len(pos) {
			if got[3*k] != float32(owner) || got[3*k+1] != float32(k) {
				t.Fatalf("position %d row %d is row %v of run %v", pos, k, got[3*k+1], got[3*k])
			}
		}
		if times, err := d.Times(t.Context(), pos, ""); err != nil || len(times) != d.Len(pos) {
			t.Error(len(times), err)
		}
		rows += int64(d.Len(pos))
	}
	if d.Info().Frames != rows {
		t.Errorf("%d frames, the episodes have %d", d.Info().Frames, rows)
	}
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	twice := pick(found, "episode-twice")
	if twice == nil || twice.Severity != robocache.SeverityError || twice.Count < 1 {
		t.Errorf("%+v in %v", twice, found)
	}
	for _, f := range found {
		switch f.Code {
		case "rows-missing", "orphan-rows", "unreadable-file", "frame-index":
			t.Errorf("%s %v: %s", f.Code, f.Where, f.Message)
		}
	}
	return d
}

// TestIndexTwiceInData checks data files in which an episode_index occurs twice.
func TestIndexTwiceInData(t *testing.T) {
	for name, c := range map[string]struct {
		indexes []int64 // episode_index of each run of rows
		table   []int64 // episode_index of each row of the table
		words   string
		owners  []int
		want    []int64
	}{
		"adjacent": {
			[]int64{0, 1, 1},
			[]int64{0, 1, 2},
			"episode_index 1 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"apart": {
			[]int64{0, 1, 0},
			[]int64{0, 1, 2},
			"episode_index 0 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"adjacent, table": {
			[]int64{0, 1, 1},
			[]int64{0, 1, 1},
			"episode_index 1 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"apart, table": {
			[]int64{0, 1, 0},
			[]int64{0, 1, 0},
			"episode_index 0 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"table only": {
			[]int64{0, 1, 2},
			[]int64{0, 1, 1},
			"episode_index 1 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"adjacent, unlisted": {
			[]int64{0, 1, 1},
			[]int64{0, 1},
			"episode_index 1 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"apart, unlisted": {
			[]int64{0, 1, 0},
			[]int64{0, 1},
			"episode_index 0 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"between, unlisted": {
			[]int64{0, 0, 1},
			[]int64{0, -1, 1},
			"episode_index 0 occurs twice",
			[]int{0, 2, 1},
			[]int64{0, 1, 2},
		},
		"holes": {
			[]int64{3, 7, 3},
			[]int64{3, 7},
			"episode_index 3 occurs twice",
			[]int{0, 1, 2},
			[]int64{3, 7, 8},
		},
		"three times": {
			[]int64{0, 0, 0},
			[]int64{0},
			"episode_index 0 occurs twice",
			[]int{0, 1, 2},
			[]int64{0, 1, 2},
		},
		"two pairs": {
			[]int64{0, 1, 0, 1},
			[]int64{0, 1, 0, 1},
			"occurs twice",
			[]int{0, 1, 2, 3},
			[]int64{0, 1, 2, 3},
		},
		"two pairs, listed": {
			[]int64{0, 1, 0, 1},
			[]int64{0, 1, 2, 3},
			"occurs twice",
			[]int{0, 1, 2, 3},
			[]int64{0, 1, 2, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, group := range []int{1 << 20, 5, 4} {
				s := newSynth([]int{5, 5, 5, 5}[:len(c.indexes)]...)
				s.perGroup = group
				s.setIndexes(c.indexes...)
				episodes := s.episodes
				s.episodes = nil
				for i, id := range c.table {
					if id >= 0 {
						episodes[i].Index = id
						s.episodes = append(s.episodes, episodes[i])
					}
				}
				wantRepair(t, s.write(t), c.words, c.owners, c.want)
			}
		})
	}
	t.Run("other lengths", func(t *testing.T) {
		s := newSynth(5, 6, 7)
		s.setIndexes(0, 1, 1)
		wantRepair(t, s.write(t), "episode_index 1 occurs twice", []int{0, 1, 2}, []int64{0, 1, 2})
		// The table has an episode whose place holds rows of another index.
		s.episodes = s.episodes[:2]
		s.episodes[1].Length, s.episodes[1].To = 12, 17
		for _, group := range []int{1 << 20, 18} {
			s.perGroup = group
			wantRepair(
				t,
				s.write(t),
				"episode_index 1 occurs twice",
				[]int{0, 1, 2},
				[]int64{0, 1, 2},
			)
		}
	})
	t.Run("two files", func(t *testing.T) {
		s := newSynth(5, 5, 5)
		s.episodes[2].DataFile = 1
		rows := s.rows
		s.rows = rows[:10]
		dir := s.write(t)
		for i := range rows[10:] {
			rows[10+i].Ep = 1
		}
		writeRows(t, filepath.Join(dir, "data/chunk-000/file-001.parquet"), rows[10:], 100)
		wantRepair(t, dir, "data/chunk-000/file-001.parquet", []int{0, 1, 2}, []int64{0, 1, 2})
	})
}

// TestUnevenIndex checks that rows without a second first frame do not become a second episode.
func TestUnevenIndex(t *testing.T) {
	s := newSynth(5, 5)
	for i := range s.rows {
		s.rows[i].Frame = 0
	}
	d := mustOpen(t, s.write(t))
	if d.Len(0) != 5 || d.Len(1) != 5 {
		t.Error(d.Len(0), d.Len(1))
	}
	// An episode whose rows are not consecutive.
	s = newSynth(6, 5)
	s.rows = append(append(append([]dataRow(nil), s.rows[:3]...), s.rows[6:]...), s.rows[3:6]...)
	d = mustOpen(t, s.write(t))
	err := d.Gather(t.Context(), "observation.state", rowsOf(d, 0)[:1], make([]byte, 12))
	wantError(t, err, robocache.ErrMalformed, "in one run")
}

// TestIndexTwiceOfRemoteSet checks a dataset with more files than Open reads over a network. The
// rows of an index that occurs twice in a file are errors, and the others are read. Open for repair
// finds the repeated index.
func TestIndexTwiceOfRemoteSet(t *testing.T) {
	for _, perGroup := range []int{1 << 20, 5, 4} {
		dir := writePairs(t, perGroup)
		s := newSynth(slices.Repeat([]int{5}, 36)...)
		rows := s.rows[20:30] // episodes 4 and 5
		for i := range rows {
			rows[i].Ep = 4
		}
		writeRows(t, filepath.Join(dir, "data/chunk-000/file-002.parquet"), rows, perGroup)
		for _, e := range []int{4, 5} {
			d, _ := openRemote(t, dir, 0)
			wantStates(t, d, 3)
			wantStates(t, d, 6)
			err := d.Gather(t.Context(), "observation.state", rowsOf(d, e)[:1], make([]byte, 12))
			wantError(
				t,
				err,
				robocache.ErrMisuse,
				"episode_index 4 occurs twice",
				"robocache doctor --fix",
			)
		}
		owners := make([]int, 36)
		indexes := make([]int64, 36)
		for e := range owners {
			owners[e], indexes[e] = e, int64(e)
		}
		wantRepair(t, dir, "episode_index 4 occurs twice", owners, indexes)
	}
}

// TestIndexTwiceByTime checks a data file without frame_index: timestamps determine where an
// episode begins.
func TestIndexTwiceByTime(t *testing.T) {
	type timedRow struct {
		State []float32 `parquet:"observation.state,list"`
		Time  float32   `parquet:"timestamp"`
		Ep    int64     `parquet:"episode_index"`
		Index int64     `parquet:"index"`
		Task  int64     `parquet:"task_index"`
	}
	s := newSynth(5, 5, 5)
	s.setIndexes(0, 1, 1)
	dir := s.write(t)
	var rows []timedRow
	for _, r := range s.rows {
		rows = append(rows, timedRow{r.State, r.Time, r.Ep, r.Index, r.Task})
	}
	writeRows(t, filepath.Join(dir, "data/chunk-000/file-000.parquet"), rows, 100)
	wantRepair(t, dir, "episode_index 1 occurs twice", []int{0, 1, 2}, []int64{0, 1, 2})
}

// TestMissingFilesAreNoRepeat checks a v2 dataset of which only a part was downloaded: missing
// files have no episode_index.
func TestMissingFilesAreNoRepeat(t *testing.T) {
	dir := copySet(t, "g1_v21")
	files, err := filepath.Glob(filepath.Join(dir, "data/chunk-000/*.parquet"))
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range []string{files[0], files[2], files[3]} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	d := mustOpen(t, dir)
	if err := d.Gather(t.Context(), "observation.state", rowsOf(d, 1)[:1],
		make([]byte, d.About.Feature("observation.state").RowBytes())); err != nil {
		t.Error(err)
	}
}
