package lerobot

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// broken is a store whose mp4 files fail with an internal error once it is armed.
type broken struct {
	store.Store
	isArmed *atomic.Bool
}

func (s broken) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	f, err := s.Store.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, ".mp4") {
		return brokenFile{f, s.isArmed}, nil
	}
	return f, err
}

type brokenFile struct {
	robocache.Ranged
	isArmed *atomic.Bool
}

func (f brokenFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.isArmed.Load() {
		return &robocache.Error{Class: robocache.ErrInternal, Op: "test", Msg: "planted"}
	}
	return f.Ranged.ReadAt(ctx, p, off)
}

// TestDoctorKeepsInternalErrors checks that an internal error that is met while frames are decoded
// ends the doctor's work. It is no finding "undecodable", which --drop-bad would act on.
func TestDoctorKeepsInternalErrors(t *testing.T) {
	armed := &atomic.Bool{}
	dir := realData(t, "g1_h264_v30")
	d, err := OpenStore(t.Context(), broken{openStore(t, dir), armed}, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true}); errors.Is(err, robocache.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	if !errors.Is(err, robocache.ErrInternal) || !strings.Contains(err.Error(), "planted") {
		t.Errorf("got %v and %d findings, want the internal error", err, len(found))
	}
}
