package mcap

import (
	"context"
	"errors"
	"hash/crc32"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/format/mcap/internal/container"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// seen is a message as a pass delivered it.
type seen struct {
	i   int
	log int64
	sum uint32
}

func see(i int, m *bag.Message) seen { return seen{i, m.Log, crc32.ChecksumIEEE(m.Data)} }

// overlapping writes a recording with the topic "/late" in chunks that overlap in time, and another
// topic whose chunks do not.
func overlapping(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "overlap.mcap")
	var list []msg
	for k := range 400 {
		at := epoch + int64(k)*1000
		list = append(
			list,
			msg{
				"/even",
				"std_msgs/msg/String",
				at,
				ros2.EncodeString(nil, "even, and long enough that a chunk holds few of them"),
			},
		)
		late := at
		if k%2 == 0 {
			late -= 50_000
		}
		list = append(
			list,
			msg{"/late", "std_msgs/msg/String", late, ros2.EncodeString(nil, "late")},
		)
	}
	record(t, path, list)
	return path
}

// TestPasses checks that Scan and Walk deliver the same messages as Messages, and that Walk
// delivers each topic in order. It covers overlapping chunks and all budgets.
func TestPasses(t *testing.T) {
	ctx := context.Background()
	for _, path := range []string{
		filepath.Join(realdata.Path(t, "mcap_robot"), "recording_zstd.mcap"),
		overlapping(t),
	} {
		for _, budget := range []int64{1, 0} { // nothing is cached, everything is cached
			s := openFile(t, path, StorageOptions{Chunks: container.NewChunks(budget)})
			var all []int
			want := map[int][]seen{}
			for k := range s.Topics() {
				all = append(all, k)
				ix, err := s.Index(ctx, k)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Messages(ctx, k, 0, len(ix.Log), func(i int, m *bag.Message) error {
					want[k] = append(want[k], see(i, m))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			walked := map[int][]seen{}
			failed, err := s.Walk(ctx, all, func(k, i int, m *bag.Message) error {
				// no lock is needed, because fn is called sequentially
				walked[k] = append(walked[k], see(i, m))
				return nil
			})
			if err != nil || len(failed) > 0 {
				t.Fatal(err, failed)
			}
			for _, k := range all {
				if len(walked[k]) != len(want[k]) {
					t.Fatalf(
						"%s, topic %d: %d messages, %d walked",
						path,
						k,
						len(want[k]),
						len(walked[k]),
					)
				}
				for i, w := range want[k] {
					if walked[k][i] != w {
						t.Fatalf(
							"%s, topic %d, message %d: %+v, walked %+v",
							path,
							k,
							i,
							w,
							walked[k][i],
						)
					}
				}
			}
		}
	}
}

// TestWalkFails checks that an error of one topic ends only that topic.
func TestWalkFails(t *testing.T) {
	s := openFile(t, overlapping(t), StorageOptions{})
	stop := errors.New("enough")
	if err := s.loadPositions(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(s.topics[0].Chunk) || slices.IsSorted(s.topics[1].Chunk) {
		t.Fatal("the recording is not one of a topic in step and one that overlaps")
	}
	n := [2]int{}
	failed, err := s.Walk(context.Background(), []int{0, 1}, func(k, i int, _ *bag.Message) error {
		if n[k]++; k == 0 && i == 7 {
			return stop
		}
		return nil
	})
	if err != nil || !errors.Is(failed[0], stop) || failed[1] != nil || n != [2]int{8, 400} {
		t.Fatal(err, failed, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Walk(
		ctx,
		[]int{0, 1},
		func(int, int, *bag.Message) error { return nil },
	); err == nil {
		t.Fatal("a context that ended was not seen")
	}
}
