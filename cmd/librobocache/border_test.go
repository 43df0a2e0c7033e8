//go:build cgo

package main

import (
	stdcontext "context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
)

type thing struct{ closed int }

func (t *thing) close() error { t.closed++; return nil }

// C3: numbers are not used again, and a handle of another kind is misuse.
func TestHandles(t *testing.T) {
	var tab table[object]
	a := tab.put(&thing{})
	tab.remove(a)
	if b := tab.put(&thing{}); b == a {
		t.Fatal("a number was used twice")
	}
	if tab.remove(a) != nil {
		t.Fatal("a removed thing is still there")
	}
	h := handles.put(&thing{})
	defer handles.remove(h)
	for _, n := range []int64{h, 0, -1, 1 << 60} {
		if _, err := lookup[*mapped](n, "test"); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("handle %d: %v", n, err)
		}
	}
	if v, err := lookup[*thing](h, "test"); err != nil || v == nil {
		t.Error(err)
	}
}

// C1: each class has its name and the status that the CLI documents; place and hint cross.
func TestErrors(t *testing.T) {
	want := map[error]string{robocache.ErrNotFound: "not_found 10", robocache.ErrMalformed: "malformed 11", robocache.ErrUnsupported: "unsupported 12",
		robocache.ErrResourceLimit: "resource_limit 13", robocache.ErrTemporary: "temporary 75", robocache.ErrMisuse: "misuse 2", stdcontext.Canceled: "interrupted 130"}
	for class, told := range want {
		err := robocache.At(&robocache.Error{Class: class, Msg: "x", Hint: "do y", Where: robocache.Where{"row": 3, "odd": func() {}}}, robocache.Where{"episode": 7})
		f, status := describe(fmt.Errorf("around: %w", err))
		if got := fmt.Sprint(f.Class, " ", status); got != told {
			t.Errorf("%v: %s, want %s", class, got, told)
		}
		if f.Hint != "do y" || f.Where["episode"] != 7 || f.Where["row"] != 3 || !strings.Contains(f.Message, "around") {
			t.Errorf("%v: %+v", class, f)
		}
		if _, err := json.Marshal(f); err != nil {
			t.Error(err)
		}
	}
	// C5
	f, status := describe(panicked("boom"))
	if f.Class != "internal" || status != 1 || !strings.Contains(f.Message, "boom") || f.Where["stack"] == "" {
		t.Errorf("%+v %d", f, status)
	}
}

// A wish that is not understood is refused, not ignored.
func TestArguments(t *testing.T) {
	var a openArgs
	for _, bad := range []string{`{"url": "x"}`, `{`, `[]`, `{"memory_budget": "much"}`} {
		if err := decodeArguments([]byte(bad), &a); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := decodeArguments([]byte(`{"uri": "x", "memory_budget": 5}`), &a); err != nil || a.URI != "x" || a.MemoryBudget != 5 {
		t.Error(a, err)
	}
}

func TestNumbersInJSON(t *testing.T) {
	b, err := json.Marshal(numbers([]float64{1.5, math.NaN(), math.Inf(1), math.Inf(-1)}))
	if err != nil || string(b) != "[1.5,null,1e999,-1e999]" {
		t.Fatalf("%s %v", b, err)
	}
}

// C4: each tensor is given back once, and the last one ends the batch.
func TestGivingBack(t *testing.T) {
	freed := make([]int, 3)
	a := &answer{}
	for i := range freed {
		a.free = append(a.free, func() { freed[i]++ })
	}
	r := a.result()
	h := r.value.(batchReply).Batch
	b, err := lookup[*batch](h, "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 1, -1, 3, 0} { // one twice, two that are none: the last one still is to come
		if b.giveBack(i) {
			t.Error("not the last one")
		}
	}
	r.undo() // closes what is left
	if fmt.Sprint(freed) != "[1 1 1]" {
		t.Error(freed)
	}
	if _, err := lookup[*batch](h, "test"); err == nil {
		t.Error("the handle is still there")
	}
	if (&answer{}).result().value.(batchReply).Batch != 0 {
		t.Error("a batch without tensors has nothing to give back")
	}
}

// A dataset closes with its last user.
func TestSharedDataset(t *testing.T) {
	c := &closing{}
	d := &dataset{shared: (&shared{Dataset: c}).retain()}
	s, err := d.hold("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.close(), d.close()); err != nil || c.n != 0 {
		t.Fatal(err, c.n)
	}
	if _, err := d.hold("test"); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := s.release(); err != nil || c.n != 1 {
		t.Fatal(err, c.n)
	}
}

type closing struct {
	robocache.Dataset
	n int
}

func (c *closing) Close() error { c.n++; return nil }
