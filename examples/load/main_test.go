package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/synth"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "set")
	// PNG needs no encoder.
	opt := synth.Options{Episodes: 2, Seconds: 1, Cameras: 1, Width: 64, Height: 64, Codec: "png"}
	if _, err := synth.Write(context.Background(), path, opt); err != nil {
		t.Fatal(err)
	}
	if err := readEpoch(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	err := readEpoch(context.Background(), path+"-absent")
	if !errors.Is(err, robocache.ErrNotFound) {
		t.Fatalf("a missing dataset: %v", err)
	}
}
