package mcap

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
)

// TestDamageKeepsRows checks that the rows of a stream keep their numbers if a chunk is damaged,
// for any order of reads.
func TestDamageKeepsRows(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "a.mcap")
	record(t, path, made())
	s := openFile(t, path, StorageOptions{})
	k := s.file.Chunks[len(s.file.Chunks)/2]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[k.Offset+k.Length-20] ^= 0x55
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	const key = "zero.force"
	last := func(ds *Dataset, n int) float64 {
		t.Helper()
		dst := make([]byte, 24)
		if err := ds.Gather(ctx, key, []robocache.Row{{Index: n - 1}}, dst); err != nil &&
			!errors.Is(err, robocache.ErrMalformed) {
			t.Error(err)
		} else if err != nil {
			return -1 // a damaged part is in the same block
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(dst))
	}
	for _, ignore := range []string{"false", "true"} {
		ds, err := Open(
			ctx,
			path,
			robocache.OpenOptions{Options: map[string]string{"ignore_index": ignore}},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer ds.Close()
		times, err := ds.Times(ctx, 0, key)
		if err != nil {
			t.Fatal(err)
		}
		value := last(ds, len(times))
		sent, err := ds.TimesBy(ctx, 0, key, bag.Publish)
		if ignore == "false" && (len(times) != 60 || !errors.Is(err, robocache.ErrMalformed)) {
			t.Errorf(
				"%d rows; of messages that are lost the timestamps are not known: %d, %v",
				len(times),
				len(sent),
				err,
			)
		}
		if ignore == "true" &&
			(len(times) >= 60 || len(sent) != len(times) || err != nil || value != 59) {
			t.Errorf(
				"without the index: %d rows, %d timestamps, the last is %v: %v",
				len(times),
				len(sent),
				value,
				err,
			)
		}
		again, err := ds.Times(ctx, 0, key)
		if err != nil || len(again) != len(times) || last(ds, len(again)) != value {
			t.Errorf(
				"ignore_index=%s: %d rows, before it were %d: %v",
				ignore,
				len(again),
				len(times),
				err,
			)
		}
	}
}
