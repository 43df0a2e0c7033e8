package store

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/goatnote-inc/robocache"
)

// WriteFile is Put into the store of a folder.
func WriteFile(ctx context.Context, folder, name string, b []byte) (err error) {
	s, err := OpenWritable(folder)
	if err != nil {
		return err
	}
	defer Close(s)
	return Put(ctx, s, name, b)
}

// Put writes a file so that it appears whole or not at all.
func Put(ctx context.Context, s Writable, name string, b []byte) error {
	return put(ctx, s.Create, name, b)
}

// PutNew is Put of a file that must not exist: of several writers of one name one wins, the others
// get ErrExists. ErrUnsupported where the store cannot promise that.
func PutNew(ctx context.Context, s Writable, name string, b []byte) error {
	return put(
		ctx,
		func(ctx context.Context, name string) (Writer, error) { return CreateNew(ctx, s, name) },
		name,
		b,
	)
}

func put(
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

// Probe shows that PutNew holds what it promises, by writing one name twice: some object stores
// ignore the condition and would let two writers win. ErrUnsupported where it does not hold. Who
// relies on PutNew calls it once, at the start.
func Probe(ctx context.Context, s Writable) (err error) {
	name := ".robocache-probe-" + rand.Text()
	if err := PutNew(ctx, s, name, []byte("1")); err != nil {
		return err
	}
	defer func() {
		if rerr := s.Remove(context.WithoutCancel(ctx), name); err == nil {
			err = rerr
		}
	}()
	again := PutNew(ctx, s, name, []byte("2"))
	if again == nil {
		return unsupported(
			"probe",
			s.URI(),
			"this store writes over a file that must not be written over (it ignores If-None-Match)",
			"use a store with conditional writes: AWS S3, MinIO, versitygw, Google Cloud Storage, a local folder",
		)
	}
	if !errors.Is(again, ErrExists) {
		return again
	}
	return nil
}
