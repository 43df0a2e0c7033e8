package write

import (
	"errors"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// C5: a resumed run takes a finished file over only where it was made of the same parts and has its
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
	if err := j.add(t.Context(), "a.mp4", "parts"); err != nil {
		t.Fatal(err)
	}
	if j, err = openJournal(t.Context(), mem, "id", true); err != nil {
		t.Fatal(err)
	}
	if !j.has(t.Context(), "a.mp4", "parts") {
		t.Error("its own file is not known")
	}
	if j.has(t.Context(), "a.mp4", "other parts") || j.has(t.Context(), "b.mp4", "parts") {
		t.Error("a file of other parts is taken over")
	}
	write("image")
	if j.has(t.Context(), "a.mp4", "parts") {
		t.Error("a file of another size is taken over")
	}
}

// A journal that cannot be read is not this run's: none is given, which would have it removed.
func TestJournalMalformed(t *testing.T) {
	mem := storetest.NewMem("journal-malformed")
	defer mem.Drop()
	if err := store.Put(t.Context(), mem, journalName, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if j, err := openJournal(
		t.Context(),
		mem,
		"id",
		true,
	); j != nil ||
		!errors.Is(err, robocache.ErrMalformed) {
		t.Error(j, err)
	}
}
