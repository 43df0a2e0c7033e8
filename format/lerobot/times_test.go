package lerobot

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// TestTimes checks that timestamps that cannot be a clock are errors that name the stream and the
// row.
func TestTimes(t *testing.T) {
	ctx := context.Background()
	s := newSynth(3, 4)
	s.rows[5].Time = float32(math.NaN())
	d := mustOpen(t, s.write(t))
	_, err := d.Times(ctx, 1, "observation.state")
	wantError(
		t,
		err,
		robocache.ErrMalformed,
		"stream observation.state",
		"index 2",
		"episode 1",
		"NaN",
	)
	if _, err := d.Times(ctx, 0, ""); err != nil {
		t.Error(err)
	}
	s.rows[5].Time = 0.05
	d = mustOpen(t, s.write(t))
	_, err = d.Times(ctx, 1, "")
	wantError(t, err, robocache.ErrMalformed, "stream timestamp", "index 2")
	s.rows[5].Time = 1e30
	d = mustOpen(t, s.write(t))
	_, err = d.Times(ctx, 1, "")
	wantError(t, err, robocache.ErrMalformed, "index 2")
}

// lerobot.L8: a timestamp that is row/fps rounded to float32 is returned as row/fps, and any other
// as stored.
func TestTimesOnGrid(t *testing.T) {
	for _, fps := range []string{"30", "29.97", "10", "333"} {
		s := newSynth(1000)
		s.fps = fps
		rate, err := robocache.RateOf(fps)
		if err != nil {
			t.Fatal(err)
		}
		for k := range s.rows {
			s.rows[k].Time = float32(float64(k) / rate.Float())
		}
		off := math.Nextafter32(s.rows[700].Time, 1e9)
		s.rows[700].Time = off
		times, err := mustOpen(t, s.write(t)).Times(t.Context(), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		moved := 0
		for k, got := range times {
			want := rate.Nanos(int64(k))
			if k == 700 {
				want = int64(math.RoundToEven(float64(off) * 1e9))
			}
			if got != want {
				t.Fatalf("fps %s row %d: %d, want %d", fps, k, got, want)
			}
			if int64(math.RoundToEven(float64(s.rows[k].Time)*1e9)) != got {
				moved++
			}
		}
		if moved < 100 {
			t.Errorf(
				"fps %s: float32 changed %d timestamps only: the test proves nothing",
				fps,
				moved,
			)
		}
	}
}

// TestEpisodeColumnsOfTwoTypes checks that a column may be an integer in one episodes file and a
// float in another.
func TestEpisodeColumnsOfTwoTypes(t *testing.T) {
	type floats struct {
		Index     int64    `parquet:"episode_index"`
		Tasks     []string `parquet:"tasks,list"`
		Length    float64  `parquet:"length"`
		DataChunk int32    `parquet:"data/chunk_index"`
		DataFile  float32  `parquet:"data/file_index"`
		From      float64  `parquet:"dataset_from_index"`
		To        int64    `parquet:"dataset_to_index"`
	}
	for first := range 2 {
		s := newSynth(3, 4)
		dir := s.write(t)
		e := s.episodes[1-first]
		writeRows(
			t,
			filepath.Join(dir, fmt.Sprintf("meta/episodes/chunk-000/file-00%d.parquet", first)),
			s.episodes[first:first+1],
			10,
		)
		writeRows(
			t,
			filepath.Join(dir, fmt.Sprintf("meta/episodes/chunk-000/file-00%d.parquet", 1-first)),
			[]floats{
				{
					Index:  e.Index,
					Tasks:  e.Tasks,
					Length: float64(e.Length),
					From:   float64(e.From),
					To:     e.To,
				},
			},
			10,
		)
		d := mustOpen(t, dir)
		if d.Len(0) != 3 || d.Len(1) != 4 {
			t.Fatal(d.Len(0), d.Len(1))
		}
		wantStates(t, d, 0)
		wantStates(t, d, 1)
	}
}
