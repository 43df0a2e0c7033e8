package mcap_test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/mcap"
	"github.com/goatnote-inc/robocache/video"
)

// TestVideoBusy reads videos, columns and timestamps of one dataset from many goroutines with the
// smallest budget; some of them cancel. Each result is right or a typed error. Close during reads
// causes errors, no wrong images, and leaves no goroutine.
func TestVideoBusy(t *testing.T) {
	path, want := filmed(t, x264, x265)
	before := runtime.NumGoroutine()
	ds, err := mcap.Open(
		context.Background(),
		path,
		robocache.OpenOptions{MemoryBudget: 1, Options: map[string]string{"scan": "sample"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var closed sync.WaitGroup
	closing := make(chan struct{})
	for g := range 8 {
		closed.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			pool := video.NewPool(8 << 20)
			defer pool.Close()
			for n := 0; ; n++ {
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(4) == 0 {
					time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
				}
				name := []string{"h264", "h265"}[r.IntN(2)]
				err := busy(
					ctx,
					ds,
					pool,
					[]string{"cam.", "image."}[r.IntN(2)]+name,
					want[name],
					r,
				)
				over := ctx.Err() != nil
				cancel()
				select {
				case <-closing:
					if err != nil || n > 1000 {
						return // Close causes errors, and earlier readers may continue
					}
				default:
				}
				if err != nil && !(over && errors.Is(err, context.Canceled)) {
					t.Error(name, err)
					return
				}
			}
		})
	}
	time.Sleep(400 * time.Millisecond)
	close(closing)
	if err := ds.Close(); err != nil {
		t.Error(err)
	}
	closed.Wait()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// busy reads and compares some images of a camera, and joints.
func busy(
	ctx context.Context,
	ds *mcap.Dataset,
	pool *video.Pool,
	key string,
	sums []string,
	r *rand.Rand,
) error {
	rows := []robocache.Row{{Index: r.IntN(48)}, {Index: r.IntN(48)}}
	joint := make([]byte, 32)
	if err := ds.Gather(ctx, "joints.position", rows, joint); err != nil {
		return err
	}
	if got := joint[16:18]; rows[1].Index == 0 && (got[0] != 0 || got[1] != 0) {
		return errors.New("joints of another row")
	}
	refs := make([]robocache.FrameRef, 2)
	if err := ds.Frames(ctx, key, rows, refs); err != nil {
		return err
	}
	f, err := ds.Video().Acquire(ctx, refs[0].Path)
	if err != nil {
		return err
	}
	defer f.Release()
	spec := video.Spec{Pixel: video.YUVPlanes}
	return pool.Decode(
		ctx,
		f,
		nil,
		video.Plan(f.Index, []int{refs[0].Ordinal, refs[1].Ordinal}),
		func(k int, pic video.Frame) error {
			n, err := pic.Bytes(&spec)
			if err != nil {
				return err
			}
			b := make([]byte, n)
			if err := pic.Convert(&spec, b); err != nil {
				return err
			}
			if h := md5.Sum(b); hex.EncodeToString(h[:]) != sums[k] {
				return errors.New("another image")
			}
			return nil
		},
	)
}
