package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/tests/servers"
	"github.com/goatnote-inc/robocache/synth"
)

// ranges records the byte ranges that were requested, by file.
type ranges struct {
	mu sync.Mutex
	of map[string][][2]int64
}

// note records a request.
func (r *ranges) note(_ int64, q *http.Request) string {
	var from, to int64
	if n, _ := fmt.Sscanf(q.Header.Get("Range"), "bytes=%d-%d", &from, &to); n == 2 &&
		q.Method == http.MethodGet {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.of[q.URL.Path] = append(r.of[q.URL.Path], [2]int64{from, to + 1})
	}
	return ""
}

// union returns the ranges merged and sorted, without overlaps.
func union(in [][2]int64) (out [][2]int64) {
	slices.SortFunc(in, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, x := range in {
		if n := len(out); n > 0 && x[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], x[1])
			continue
		}
		out = append(out, x)
	}
	return out
}

func size(in [][2]int64) (n int64) {
	for _, x := range in {
		n += x[1] - x[0]
	}
	return n
}

// video returns the requested bytes of videos: with repeats as a count, and without repeats as
// ranges.
func (r *ranges) video() (asked int64, once [][2]int64) {
	for name, x := range r.of {
		if strings.HasSuffix(name, ".mp4") {
			asked += size(x)
			// there is only one file, so offsets are unique
			once = append(once, union(slices.Clone(x))...)
		}
	}
	return asked, once
}

// Two nodes read one bucket. Together they deliver the epoch, and no sample twice. With a pool
// whose shards divide evenly, each byte of a video goes to one node, except for some at the end of
// the epoch. With a global shuffle, it goes to both nodes.
func TestObjectStoreTwoNodes(t *testing.T) {
	decoders(t)
	dir, endpoint := servers.S3(t)
	if err := os.Mkdir(filepath.Join(dir, "lab"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := synth.Write(t.Context(), filepath.Join(dir, "lab", "set"),
		synth.Options{
			Format: "lerobot", Episodes: 64, Seconds: 2, Width: 160, Height: 120,
			Cameras: 1, Seed: 1, Spread: 0.5,
		}); err != nil {
		t.Skip("no set with video: ", err)
	}
	const batch, world = 16, 2
	for name, c := range map[string]struct {
		loader.Order
		least, most float64 // share of the video that both nodes request
	}{
		"global": {loader.Order{Shuffle: loader.Global}, 0.9, 1},
		// 8 shards, 4 per rank
		"pool": {
			loader.Order{Shuffle: loader.Pool, PoolOrder: loader.PoolOrder{PoolEpisodes: 16}},
			0,
			0.05,
		},
		// one shard belongs to both ranks
		"pool of 7": {
			loader.Order{
				Shuffle:   loader.Pool,
				PoolOrder: loader.PoolOrder{PoolEpisodes: 14, PoolShards: 7},
			},
			0.05,
			0.3,
		},
	} {
		var of [world]*ranges
		var bytes [world]int64
		times, total := map[int64]int{}, int64(0)
		for rank := range world {
			of[rank] = &ranges{of: map[string][][2]int64{}}
			p := servers.NewProxy(t, endpoint)
			p.Strike = of[rank].note
			ds, err := robocache.Open(
				t.Context(),
				"s3://lab/set?region=us-east-1&endpoint="+p.URL,
				robocache.OpenOptions{},
			)
			if err != nil {
				t.Fatal(err)
			}
			c.BatchSize, c.WorldSize, c.Rank, c.Uneven, c.Seed = batch, world, rank, loader.Short, 3
			l, err := loader.New(
				t.Context(),
				ds,
				loader.Config{
					Order:   c.Order,
					Windows: loader.Windows{Keys: []string{"observation.images.cam_0"}},
					Runtime: loader.Runtime{Threads: 2},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			for {
				b, err := l.Next(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range b.Indices {
					times[i]++
				}
				b.Release()
			}
			total = l.Samples()
			l.Close()
			ds.Close()
			bytes[rank] = p.Bytes.Load()
		}
		for i := range total {
			if times[i] != 1 {
				t.Errorf("%s: sample %d came %d times", name, i, times[i])
			}
		}
		asked0, once0 := of[0].video()
		asked1, once1 := of[1].video()
		both := union(append(slices.Clone(once0), once1...))
		shared := float64(size(once0)+size(once1)-size(both)) / float64(size(both))
		if shared < c.least || shared > c.most || size(both) == 0 {
			t.Errorf("%s: %.3f of the video went to both", name, shared)
		}
		t.Logf(
			"%s: %d samples; video %d bytes; asked for by rank 0 %d, by rank 1 %d (without "+
				"repeats %d and %d): %.0f %% by both; all bytes %d and %d",
			name,
			total,
			size(both),
			asked0,
			asked1,
			size(once0),
			size(once1),
			100*shared,
			bytes[0],
			bytes[1],
		)
	}
}
