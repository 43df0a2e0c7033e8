package store

import (
	"os"
	"testing"
)

func TestFirst(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/a", []byte("hello"), 0o644)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadFile(t.Context(), s, "a", 10)
	if err != nil || string(b) != "hello" {
		t.Fatal(b, err)
	}
	w, _ := s.(Writable).Create(t.Context(), "x/y/z")
	w.Write([]byte("zz"))
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	l, err := s.List(t.Context(), "")
	t.Log(l, err)
	m := NewMem("n")
	m.Put("q/a", []byte("x"))
	s, err = Open("mem://n/q")
	l, err = s.List(t.Context(), "")
	t.Log(l, err)
	_, err = Open("/nope\nx")
	t.Log(err)
}
