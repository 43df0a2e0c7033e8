package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// otherValues is the same robot on another day.
type otherValues struct{ *fake }

func (o otherValues) Gather(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) error {
	err := o.fake.Gather(ctx, key, rows, dst)
	if key == "action" {
		dst[0] ^= 1
	}
	return err
}

// TestStateOfOtherValues checks that a state of another dataset of equal lengths is rejected with
// the difference. A state without a hash of values is accepted.
func TestStateOfOtherValues(t *testing.T) {
	one, two := newFake(10, 7), otherValues{newFake(10, 7)}
	cfg := options.Config{
		Order:   options.Order{BatchSize: 4, Shuffle: Global},
		Windows: options.Windows{Keys: []string{"index"}},
	}
	a, again, b := mustLoader(t, one, cfg), mustLoader(t, newFake(10, 7), cfg),
		mustLoader(t, two, cfg)
	s := a.State()
	if s.Fingerprint.Stream != "action" || s.Fingerprint.Values == "" ||
		s.Fingerprint.Values != again.State().Fingerprint.Values {
		t.Fatalf("%+v", s.Fingerprint)
	}
	if err := again.Restore(s, false); err != nil {
		t.Error(err)
	}
	if err := b.Restore(s, false); !errors.Is(err, robocache.ErrMisuse) ||
		!strings.Contains(err.Error(), "the values of action differ") {
		t.Errorf("%v", err)
	}
	if err := b.Restore(s, true); err != nil {
		t.Error(err)
	}
	s.Fingerprint.Stream, s.Fingerprint.Values = "", ""
	if err := b.Restore(s, false); err != nil {
		t.Errorf("a state of an earlier version: %v", err)
	}
}

// TestRankOrder checks that RankOrder is what the ranks deliver. Together they deliver Order,
// without what drop_last omits and with wrapped samples.
func TestRankOrder(t *testing.T) {
	for _, shuffle := range []Shuffle{FileOrder, Global, Pool} {
		for _, world := range []int{1, 2, 3} {
			for _, how := range []options.Config{
				{},
				{Order: options.Order{Uneven: "short"}},
				{Order: options.Order{DropLast: true}},
			} {
				t.Run(fmt.Sprint(shuffle, world, how.Uneven, how.DropLast), func(t *testing.T) {
					var union []int64
					var all, dealt int64
					for rank := range world {
						cfg := how
						cfg.BatchSize, cfg.Keys, cfg.Shuffle, cfg.WorldSize, cfg.Rank, cfg.PoolShards = 4, []string{
							"index",
						}, shuffle, world, rank, 2
						l := mustLoader(t, newFake(10, 7, 12, 9, 11), cfg)
						all = l.Order(1).Len()
						if err := l.SetEpoch(1); err != nil {
							t.Fatal(err)
						}
						var given []int64
						for range l.Len() {
							b, err := l.Next(bg)
							if err != nil {
								t.Fatal(err)
							}
							given = append(given, column.AsSlice[int64](b.Tensor("index").Data)...)
							b.Release()
						}
						for other := range world {
							if _, err := l.RankOrder(1, other); err != nil {
								t.Fatal(err)
							}
						}
						own, err := l.RankOrder(1, rank)
						if err != nil || !slices.Equal(own, given) {
							t.Fatalf(
								"rank %d gives %v, RankOrder says %v, %v",
								rank,
								given,
								own,
								err,
							)
						}
						union, dealt = append(union, own...), dealt+int64(len(own))
						if _, err := l.RankOrder(1, world); !errors.Is(err, robocache.ErrMisuse) {
							t.Errorf("%v", err)
						}
					}
					slices.Sort(union)
					distinct := int64(len(slices.Compact(slices.Clone(union))))
					step := int64(4 * world)
					switch {
					case how.DropLast && (distinct != dealt || dealt != all/step*step),
						how.Uneven == "short" && (distinct != dealt || dealt != all):
						t.Errorf("%d samples, %d distinct, of %d", dealt, distinct, all)
					case !how.DropLast && distinct != all:
						t.Errorf("%d distinct of %d", distinct, all)
					}
				})
			}
		}
	}
}
