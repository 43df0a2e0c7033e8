package lerobot

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// broken is a store whose mp4 files return an error once it is armed.
type broken struct {
	store.Store
	armed *atomic.Pointer[robocache.Error]
}

func (s broken) Open(ctx context.Context, name string) (robocache.Ranged, error) {
	f, err := s.Store.Open(ctx, name)
	if err == nil && strings.HasSuffix(name, ".mp4") {
		return brokenFile{f, s.armed}, nil
	}
	return f, err
}

type brokenFile struct {
	robocache.Ranged
	armed *atomic.Pointer[robocache.Error]
}

func (f brokenFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := f.armed.Load(); err != nil {
		return err
	}
	return f.Ranged.ReadAt(ctx, p, off)
}

// TestDoctorKeepsInternalErrors checks that an internal error or a lack of memory during decoding
// ends the diagnosis. It must not become the finding "undecodable", because --drop-bad would then
// delete the episode.
func TestDoctorKeepsInternalErrors(t *testing.T) {
	for _, planted := range []*robocache.Error{
		{Class: robocache.ErrInternal, Op: "test", Msg: "planted"},
		{Class: robocache.ErrResourceLimit, Op: "test", Msg: "planted", Err: syscall.ENOMEM},
	} {
		t.Run(planted.Class.Error(), func(t *testing.T) { diagnoseBroken(t, planted) })
	}
}

func diagnoseBroken(t *testing.T, planted *robocache.Error) {
	t.Helper()
	armed := &atomic.Pointer[robocache.Error]{}
	dir := realData(t, "g1_h264_v30")
	d, err := OpenStore(t.Context(), broken{openStore(t, dir), armed}, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true}); errors.Is(err,
		robocache.ErrUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	armed.Store(planted)
	found, err := d.Diagnose(t.Context(), robocache.DiagnoseOptions{Decode: true})
	if !errors.Is(err, planted.Class) || !strings.Contains(err.Error(), "planted") {
		t.Errorf("got %v and %d findings, want %v", err, len(found), planted)
	}
}
