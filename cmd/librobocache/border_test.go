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
	"github.com/goatnote-inc/robocache/loader"
)

type thing struct{ closed int }

func (t *thing) close() error { t.closed++; return nil }

// librobocache.C3: handles are not reused, and a handle of another kind is misuse.
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
		if _, err := lookupHandle[*mapHandle](n); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("handle %d: %v", n, err)
		}
	}
	if v, err := lookupHandle[*thing](h); err != nil || v == nil {
		t.Error(err)
	}
}

// librobocache.C1: each class has its name and the status that the CLI documents. The place and the
// hint are passed on.
func TestErrors(t *testing.T) {
	want := map[error]string{
		robocache.ErrNotFound:      "not_found 10",
		robocache.ErrMalformed:     "malformed 11",
		robocache.ErrUnsupported:   "unsupported 12",
		robocache.ErrResourceLimit: "resource_limit 13",
		robocache.ErrTemporary:     "temporary 75",
		robocache.ErrMisuse:        "misuse 2",
		stdcontext.Canceled:        "interrupted 130",
	}
	for class, told := range want {
		err := robocache.At(
			&robocache.Error{
				Class: class,
				Msg:   "x",
				Hint:  "do y",
				Where: robocache.Where{"row": 3, "odd": func() {}},
			},
			robocache.Where{"episode": 7},
		)
		f, status := describeError(fmt.Errorf("around: %w", err))
		if got := fmt.Sprint(f.Class, " ", status); got != told {
			t.Errorf("%v: %s, want %s", class, got, told)
		}
		if f.Hint != "do y" || f.Where["episode"] != 7 || f.Where["row"] != 3 ||
			!strings.Contains(f.Message, "around") {
			t.Errorf("%v: %+v", class, f)
		}
		if _, err := json.Marshal(f); err != nil {
			t.Error(err)
		}
	}
	// librobocache.C5
	f, status := describeError(catchPanics(func() error { panic("boom") }))
	if f.Class != "internal" || status != 70 || !strings.Contains(f.Message, "boom") ||
		!strings.Contains(f.Message, "border_test.go") || !strings.HasPrefix(f.Hint, "Report") {
		t.Errorf("%+v %d", f, status)
	}
}

// A request with unknown parts is rejected, not ignored.
func TestArguments(t *testing.T) {
	var a openArgs
	for _, bad := range []string{`{"url": "x"}`, `{`, `[]`, `{"memory_budget": "much"}`} {
		if err := decodeArguments([]byte(bad), &a); !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := decodeArguments([]byte(`{"uri": "x", "memory_budget": 5}`), &a); err != nil ||
		a.URI != "x" || a.MemoryBudget != 5 {
		t.Error(a, err)
	}
}

func TestNumbersInJSON(t *testing.T) {
	b, err := json.Marshal(
		castFloats[number]([]float64{1.5, math.NaN(), math.Inf(1), math.Inf(-1)}),
	)
	if err != nil || string(b) != "[1.5,null,1e999,-1e999]" {
		t.Fatalf("%s %v", b, err)
	}
}

// librobocache.C4: each tensor is released once, however its answer ends.
func TestGivingBack(t *testing.T) {
	freed := make([]int, 3)
	fill := func(a *answer) error {
		for i := range freed {
			a.appendTensor(
				loader.Tensor{DType: robocache.Uint8, Shape: []int{1}, Data: make([]byte, 1)},
				func() { freed[i]++ },
			)
		}
		return nil
	}
	v, err := buildAnswer(fill)
	if err != nil {
		t.Fatal(err)
	}
	if r := v.(revocable).value.(batchReply); r.Batch == 0 || len(r.Entries) != 3 ||
		fmt.Sprint(freed) != "[0 0 0]" {
		t.Fatal(r, freed)
	}
	v.(revocable).undo()
	if fmt.Sprint(freed) != "[1 1 1]" || len(leases.m) != 0 {
		t.Error(freed, leases.m)
	}
	if _, err := buildAnswer(
		func(a *answer) error { return errors.Join(fill(a), errLate) },
	); !errors.Is(err, errLate) ||
		fmt.Sprint(freed) != "[2 2 2]" {
		t.Error("an answer that failed:", err, freed)
	}
	if v, err := buildAnswer(
		func(*answer) error { return nil },
	); err != nil ||
		v.(batchReply).Batch != 0 {
		t.Error("a batch without tensors has nothing to give back", v, err)
	}
}

// The last user closes a dataset.
func TestSharedDataset(t *testing.T) {
	c := &closing{}
	h := handles.put(newShared(c, "", nil))
	s, err := acquireObject[*sharedDataset](h)
	if err != nil {
		t.Fatal(err)
	}
	if err := handles.remove(h).close(); err != nil || c.n != 0 {
		t.Fatal(err, c.n)
	}
	if _, err := acquireObject[*sharedDataset](h); !errors.Is(err, robocache.ErrMisuse) {
		t.Error(err)
	}
	if err := s.release(); err != nil || c.n != 1 {
		t.Fatal(err, c.n)
	}
	if s.acquire() {
		t.Error("a closed dataset was opened again")
	}
}

type closing struct {
	robocache.Dataset
	n int
}

func (c *closing) Close() error { c.n++; return nil }
