package store

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/goatnote-inc/robocache"
)

// WriteFile opens the store of a folder and calls Put.
func WriteFile(ctx context.Context, folder, name string, b []byte) (err error) {
	s, err := OpenWritable(folder)
	if err != nil {
		return err
	}
	defer Close(s)
	return Put(ctx, s, name, b)
}

// Put writes a file. It appears complete or not at all.
func Put(ctx context.Context, s Writable, name string, b []byte) error {
	return putWith(ctx, s.Create, name, b)
}

// PutNew is Put for a file that must not exist. If several writers use one name, one succeeds, and
// the others return ErrExists. If the store cannot guarantee this, the error is ErrUnsupported.
func PutNew(ctx context.Context, s Writable, name string, b []byte) error {
	return putWith(
		ctx,
		func(ctx context.Context, name string) (Writer, error) { return CreateNew(ctx, s, name) },
		name,
		b,
	)
}

// putWith writes b to a file that create begins.
func putWith(
	ctx context.Context,
	create func(context.Context, string) (Writer, error),
	name string,
	b []byte,
) (err error) {
	defer robocache.LocateIn(&err, "file", name)
	w, err := create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return err
	}
	return robocache.At(w.Commit(), robocache.Where{"file": name})
}

// Probe tests whether PutNew keeps its guarantee by writing one name twice. Some object stores
// ignore the condition and would let two writers succeed; then the error is ErrUnsupported. Callers
// that rely on PutNew call Probe once at the start.
func Probe(ctx context.Context, s Writable) (err error) {
	name := ".robocache-probe-" + rand.Text()
	if err := PutNew(ctx, s, name, []byte("1")); err != nil {
		return err
	}
	defer func() {
		rerr := s.Remove(context.WithoutCancel(ctx), name)
		if err == nil {
			err = rerr
		}
	}()
	again := PutNew(ctx, s, name, []byte("2"))
	if again == nil {
		return unsupportedError(
			"probe",
			s.URI(),
			"this store writes over a file that must not be written over (it ignores "+
				"If-None-Match)",
			"use a store with conditional writes: AWS S3, MinIO, versitygw, Google Cloud "+
				"Storage, a local folder",
		)
	}
	if !errors.Is(again, ErrExists) {
		return again
	}
	return nil
}
