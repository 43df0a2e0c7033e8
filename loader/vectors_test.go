package loader

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
)

// TestVectorsHoldTheRowsOfWindows compares a vector without arithmetic with the window of its stream,
// in batches that several workers fill.
func TestVectorsHoldTheRowsOfWindows(t *testing.T) {
	const text = `{
		"keys": ["observation.state"], "batch_size": 4, "threads": 4, "shuffle": "global",
		"delta_indices": {"observation.state": [-1, 0, 2]},
		"vectors": {"v": {
			"parts": [{"key": "observation.state", "columns": [2, 0]}],
			"rows": [-1, 0, 2], "length": 4, "width": 3, "mask": "m"
		}}
	}`
	cfg, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(cfg.Vectors)
	if err != nil {
		t.Fatal(err)
	}
	var parsed Vectors
	if err := json.Unmarshal(
		again,
		&parsed,
	); err != nil || len(parsed) != 1 ||
		parsed[0].Mask != "m" {
		t.Fatalf("%s: got %+v, %v, want the vector again", again, parsed, err)
	}
	l, err := New(context.Background(), newFake(5, 7, 6), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for {
		b, err := l.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		window := column.Floats32(b.Tensor("observation.state").Data)
		vectors := column.Floats32(b.Tensor("v").Data)
		pads := [2][]byte{b.Tensor("observation.state_is_pad").Data, b.Tensor("v_is_pad").Data}
		mask := b.Tensor("m").Data
		for i := range b.Indices {
			for step := range 4 {
				want, pad := [3]float32{}, byte(1)
				if step < 3 {
					row := window[(i*3+step)*3:]
					want, pad = [3]float32{row[2], row[0]}, pads[0][i*3+step]
				}
				at := (i*4 + step) * 3
				isReal := [3]byte{}
				if step < 3 {
					isReal = [3]byte{1, 1, 0}
				}
				if got := [3]float32(vectors[at:]); got != want || pads[1][i*4+step] != pad ||
					[3]byte(mask[at:]) != isReal {
					t.Fatalf("sample %d, step %d: got %v, want %v", b.Indices[i], step, got, want)
				}
			}
		}
		b.Release()
	}
}

func TestBadVectorsAreRejected(t *testing.T) {
	for _, text := range []string{
		`{"vectors": {"v": {"parts": []}}}`,
		`{"vectors": {"v": {"parts": [{"key": "observation.state", "colums": [0]}]}}}`,
		`{"vectors": {"v": {"parts": [{"key": "nothing"}]}}}`,
		`{"vectors": {"v": {"parts": [{"key": "observation.state"}], "mask": "v"}}}`,
		`{"vectors": {"v": {"parts": [{"key": "observation.state", "reference_row": 9999999}]}}}`,
	} {
		cfg, err := ParseConfig([]byte(text))
		if err == nil {
			_, err = New(context.Background(), newFake(5), cfg)
		}
		if !errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: got %v, want misuse", text, err)
		}
	}
}
