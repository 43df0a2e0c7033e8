package write

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// write.C5: a resumed run reuses a finished file only if it was made of the same parts and has its
// size.
func TestJournalHas(t *testing.T) {
	mem := storetest.NewMem("journal-has")
	defer mem.Drop()
	write := func(text string) {
		t.Helper()
		w, err := mem.Create(t.Context(), "a.mp4")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	write("images")
	j, err := openJournal(t.Context(), mem, "id", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.addFile(t.Context(), "a.mp4", "parts"); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(t.Context(), mem, "id", true); err != nil {
		t.Fatal(err)
	}
	if !j.hasFile(t.Context(), "a.mp4", "parts") {
		t.Error("its own file is not known")
	}
	if j.hasFile(t.Context(), "a.mp4", "other parts") || j.hasFile(t.Context(), "b.mp4", "parts") {
		t.Error("a file of other parts is taken over")
	}
	write("image")
	if j.hasFile(t.Context(), "a.mp4", "parts") {
		t.Error("a file of another size is taken over")
	}
}

// A malformed journal belongs to another run. openJournal returns none, because the caller would
// remove it.
func TestJournalMalformed(t *testing.T) {
	mem := storetest.NewMem("journal-malformed")
	defer mem.Drop()
	if err := store.Put(t.Context(), mem, journalName, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if j, err := openJournal(t.Context(), mem, "id", true); j != nil ||
		!errors.Is(err, robocache.ErrMalformed) {
		t.Error(j, err)
	}
}
