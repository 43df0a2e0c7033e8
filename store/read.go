package store

import (
	"context"
	"strconv"

	"github.com/goatnote-inc/robocache"
)

// wholeReader is a store that reads a whole file with fewer requests than Open and ReadAt.
type wholeReader interface {
	readWholeFile(ctx context.Context, name string, limit int64) ([]byte, error)
}

// ReadFile reads a whole file of at most limit bytes. A larger file is a resource limit error,
// returned before anything is allocated. A limit of 0 or less allows only the empty file, so there
// is no "unlimited".
func ReadFile(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	return ReadFileIn(ctx, s, name, limit, func(n int64) []byte { return make([]byte, n) })
}

// ReadFileIn is ReadFile into memory that alloc returns. alloc is called only if the store knows
// the size before reading.
func ReadFileIn(
	ctx context.Context,
	s Store,
	name string,
	limit int64,
	alloc func(n int64) []byte,
) (data []byte, err error) {
	if r, ok := s.(wholeReader); ok {
		return r.readWholeFile(ctx, name, limit)
	}
	f, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Close may report a change that no read detected.
		if cerr := f.Close(); err == nil && cerr != nil {
			data, err = nil, cerr
		}
	}()
	size := f.Size()
	if size > limit || int64(int(size)) != size {
		return nil, tooLarge(s.URI(), name, size, limit)
	}
	data = alloc(size)
	if err := f.ReadAt(ctx, data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

func tooLarge(uri, name string, size, limit int64) *robocache.Error {
	return robocache.ResourceLimit("read", robocache.Where{
		"dataset": uri,
		"file":    quoteName(name),
	}, "").
		Expected(
			"at most "+strconv.FormatInt(limit, 10)+" bytes",
			strconv.FormatInt(size, 10)+" bytes or more",
		)
}
