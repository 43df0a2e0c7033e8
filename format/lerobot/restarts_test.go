package lerobot

import (
	"fmt"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// restartFrames makes frame_index restart at 0 in the middle of some episodes of six rows.
func (s *synth) restartFrames(episodes ...int64) {
	for i := range s.rows {
		for _, e := range episodes {
			if s.rows[i].Ep == e {
				s.rows[i].Frame %= 3
			}
		}
	}
}

// wantOpened checks the lengths of a dataset, that repair changes no episode, and that doctor
// reports frame_index.
func wantOpened(t *testing.T, dir string, lengths ...int) {
	t.Helper()
	for _, isRepair := range []bool{false, true} {
		d, err := Open(t.Context(), dir, robocache.OpenOptions{Repair: isRepair})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		if d.Info().Episodes != len(lengths) {
			t.Fatalf("%d episodes, want %d", d.Info().Episodes, len(lengths))
		}
		for e, n := range lengths {
			if d.Len(e) != n {
				t.Errorf("episode %d has %d rows, want %d", e, d.Len(e), n)
			}
			wantStates(t, d, e)
		}
		found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if f := pick(found, "frame-index"); f == nil || f.Severity != robocache.SeverityError {
			t.Errorf("%+v in %v", f, found)
		}
		if f := pick(found, "episode-twice"); f != nil {
			t.Errorf("%+v", f)
		}
	}
}

// TestFrameIndexRestarts checks that rows stay one episode if only frame_index restarts at 0, and
// the table lists them as one episode or their timestamps continue.
func TestFrameIndexRestarts(t *testing.T) {
	for _, group := range []int{1 << 20, 6, 4} {
		for name, damaged := range map[string][]int64{"all": {0, 1, 2}, "first": {0}, "last": {2}} {
			t.Run(fmt.Sprint(name, group), func(t *testing.T) {
				s := newSynth(6, 6, 6)
				s.perGroup = group
				s.restartFrames(damaged...)
				wantOpened(t, s.write(t), 6, 6, 6)
				// The table has wrong lengths, so the timestamps decide.
				s.episodes[1].Length, s.episodes[1].To = 5, 11
				wantOpened(t, s.write(t), 6, 6, 6)
				// No timestamp continues, but the table lists these rows as one episode.
				s = newSynth(6, 6, 6)
				s.perGroup = group
				s.restartFrames(damaged...)
				for i := range s.rows {
					s.rows[i].Time = float32(s.rows[i].Frame) / 10
				}
				wantOpened(t, s.write(t), 6, 6, 6)
			})
		}
	}
	t.Run("beside a repeated index", func(t *testing.T) {
		s := newSynth(6, 6, 6)
		s.restartFrames(0)
		s.setIndexes(0, 1, 1)
		dir := s.write(t)
		_, err := tryOpen(t, dir)
		wantError(t, err, robocache.ErrMisuse, "episode_index 1 occurs twice")
		d, err := Open(t.Context(), dir, robocache.OpenOptions{Repair: true})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if d.Info().Episodes != 3 {
			t.Fatal(d.Info().Episodes)
		}
		for e := range 3 {
			wantStates(t, d, e)
		}
	})
	t.Run("gap", func(t *testing.T) {
		s := newSynth(6, 6)
		s.restartFrames(0)
		for i := range s.rows {
			if s.rows[i].Index%6 >= 3 {
				s.rows[i].Time += 2
			}
		}
		s.episodes[1].Length, s.episodes[1].To = 5, 11
		wantOpened(t, s.write(t), 6, 6)
	})
}
