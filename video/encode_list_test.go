package video

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
)

// TestListingTakesLong: a program that does not answer is a temporary error that names it. A
// canceled caller gets the error of its context.
func TestListingTakesLong(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ffmpeg")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer func(d time.Duration) { listingTime = d }(listingTime)
	listingTime = 50 * time.Millisecond
	if _, err := (EncodeConfig{
		Codec: AV1, Width: 64, Height: 64,
		Rate: robocache.Rate{Num: 30, Den: 1}, FFmpeg: program,
	}).findEncoder(t.Context()); !errors.Is(err, robocache.ErrTemporary) || errors.Is(err,
		context.DeadlineExceeded) {
		t.Error(err)
	}
	listingTime = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (EncodeConfig{
		Codec: AV1, Width: 64, Height: 64,
		Rate: robocache.Rate{Num: 30, Den: 1}, FFmpeg: program,
	}).findEncoder(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
