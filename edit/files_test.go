package edit_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/synth"
)

// Recordings that an edit does not change are copied byte for byte. Other recordings are written.
func TestFilesCopied(t *testing.T) {
	mcap := filepath.Join(t.TempDir(), "bags")
	for i, seed := range []uint64{3, 4, 5} {
		one := made(
			t,
			"mcap",
			synth.Options{Episodes: 1, Seconds: 1, Cameras: 1, Codec: "jpeg", Seed: seed},
			nil,
		)
		b, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(mcap, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mcap, string(rune('a'+i))+".mcap"), b, 0o666); err !=
			nil {
			t.Fatal(err)
		}
	}
	aloha := filepath.Join(t.TempDir(), "aloha")
	if err := os.MkdirAll(aloha, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"episode_0.hdf5", "episode_1.hdf5", "README.md"} {
		b, err := os.ReadFile(filepath.Join(data(t, "aloha_like"), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(aloha, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, format, gone string
	}{{mcap, "mcap", "b.mcap"}, {aloha, "aloha", "episode_1.hdf5"}} {
		want := tree(t, c.from)
		delete(want, c.gone)
		dst, r := run(t, c.from, edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "1"}})
		if got := tree(t, dst); !maps.Equal(got, want) || r.Format != c.format {
			t.Errorf("%s: %v, want %v; %+v", c.format, got, want, r)
		}
		ds := open(t, dst)
		if ds.Info().Episodes != len(want)-map[bool]int{true: 1}[c.format == "aloha"] {
			t.Errorf("%s: %d episodes", c.format, ds.Info().Episodes)
		}
		// The file belongs to no recording, so an edit in place keeps it.
		notes := filepath.Join(c.from, "notes", "calibration.yaml")
		err := errors.Join(os.Mkdir(filepath.Dir(notes), 0o777),
			os.WriteFile(notes, []byte("a: 1\n"), 0o666))
		if err != nil {
			t.Fatal(err)
		}
		old, want := tree(t, c.from), tree(t, c.from)
		delete(want, c.gone)
		_, err = inPlace(t, c.from,
			edit.Verb{Verb: "delete", Choice: edit.Choice{Episodes: "1"}})
		if err != nil || !maps.Equal(tree(t, c.from), want) {
			t.Errorf("%s in place: %v", c.format, err)
		}
		if err := edit.Undo(c.from); err != nil || !maps.Equal(tree(t, c.from), old) {
			t.Errorf("%s: %v", c.format, err)
		}
	}
	if _, r := run(t, mcap, edit.Verb{Verb: "trim", From: "2r"}); r.Format != "mcap" ||
		r.Frames == 0 {
		t.Errorf("%+v", r)
	}
}
