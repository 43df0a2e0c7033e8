package lerobot

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/hostile"
)

// TestEpisodeTable checks the order of rows, files with different columns, the counted row numbers,
// and the file names of episodes.
func TestEpisodeTable(t *testing.T) {
	type own struct {
		synthEpisode
		Score float64  `parquet:"score,optional"`
		Marks []int32  `parquet:"marks,list"`
		Stats float64  `parquet:"stats/state/mean"`
		Raw   [16]byte `parquet:"raw,uuid"`
	}
	s := newSynth(2, 3, 1)
	dir := s.write(t)
	first := filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet")
	writeRows(
		t,
		first,
		[]own{
			{synthEpisode: s.episodes[2], Marks: []int32{1, 2}},
			{synthEpisode: s.episodes[0], Score: 0.5},
		},
		1,
	)
	writeRows(t, filepath.Join(filepath.Dir(first), "file-001.parquet"), s.episodes[1:2], 1)
	d, err := tryOpen(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	table, err := d.EpisodeTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, c := range table.Columns {
		got += fmt.Sprintln(c.Name, c.Type, c.Values)
	}
	want := `episode_index int64 [0,1,2]
tasks list<string> [["a"],["a"],["a"]]
length int64 [2,3,1]
data/chunk_index int64 [0,0,0]
data/file_index int64 [0,0,0]
dataset_from_index int64 [0,2,5]
dataset_to_index int64 [2,5,6]
score float64 [0.5,null,null]
marks list<int32> [[],null,[1, 2]]
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if s := fmt.Sprint(table.Data); s != "{[data/chunk-000/file-000.parquet] [0 0 0]}" {
		t.Error(s)
	}
	if c := codes(d); c != "unknown-key episodes-unsorted episodes-columns" &&
		c != "episodes-unsorted episodes-columns" {
		t.Errorf("findings %q: the column that is left out is said", c)
	}
	// The table was rewritten after Open, with more rows or in another order. This is an error, and
	// no rows of other episodes are returned.
	for _, rows := range [][]synthEpisode{s.episodes, s.episodes[:2]} {
		writeRows(t, first, rows, 1)
		_, err = d.EpisodeTable(context.Background())
		wantError(t, err, robocache.ErrMalformed, "open it again")
	}
}

// TestNegativeChunkWithoutFile checks that a chunk index below 0 in a table without file indices is
// no internal error.
func TestNegativeChunkWithoutFile(t *testing.T) {
	type row struct {
		Index  int64    `parquet:"episode_index"`
		Tasks  []string `parquet:"tasks,list"`
		Length int64    `parquet:"length"`
		Chunk  int64    `parquet:"chunk_index"`
		From   int64    `parquet:"dataset_from_index"`
		To     int64    `parquet:"dataset_to_index"`
	}
	s := newSynth(4, 5)
	dir := s.write(t)
	writeRows(t, filepath.Join(dir, "meta/episodes/chunk-000/file-000.parquet"), []row{
		{0, []string{"a"}, 4, -1, 0, 4}, {1, []string{"a"}, 5, 0, 4, 9},
	}, 10)
	d, err := tryOpen(t, dir)
	if hostile.Typed(t, err); err == nil {
		hostile.Typed(
			t,
			d.Gather(t.Context(), "observation.state", rowsOf(d, 0), make([]byte, 4*12)),
		)
	}
}
