package loader

import (
	"context"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/options"
)

// columns is a robot whose rows are in memory, like the decoded columns of a format, so that the
// benchmark measures the loader.
type columns struct {
	*robot
	data map[string][]byte // by key and episode
}

func newColumns(b *testing.B, seconds ...float64) *columns {
	c := &columns{newRobot(seconds...), map[string][]byte{}}
	for _, f := range c.info.Features {
		if f.Kind != robocache.KindNumeric || f.Ragged() {
			continue
		}
		for e := range c.eps {
			rows := make([]robocache.Row, len(c.times(e, f.Key)))
			for i := range rows {
				rows[i] = robocache.Row{Episode: e, Index: i}
			}
			d := make([]byte, len(rows)*f.RowBytes())
			if err := c.robot.Gather(bg, f.Key, rows, d); err != nil {
				b.Fatal(err)
			}
			c.data[f.Key+string(rune(e))] = d
		}
	}
	return c
}

func (c *columns) Times(_ context.Context, e int, key string) ([]int64, error) {
	return c.times(e, key), nil
}

func (c *columns) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	size := c.info.Feature(key).RowBytes()
	last, d := -1, []byte(nil)
	for i, r := range rows {
		if r.Episode != last {
			last, d = r.Episode, c.data[key+string(rune(r.Episode))]
		}
		copy(dst[i*size:(i+1)*size], d[r.Index*size:])
	}
	return nil
}

// Four streams to 50 Hz, windows of a second, batches of 64: the multi-rate workload without a file
// format under it.
func BenchmarkSeveralClocks(b *testing.B) {
	long := make([]float64, 64)
	for i := range long {
		long[i] = 30
	}
	ds := newColumns(b, long...)
	hz := robocache.Rate{Num: 50, Den: 1}
	second := make([]float64, 50)
	for i := range second {
		second[i] = float64(i-49) / 50
	}
	keys := []string{"joints", "imu", "pose", "exposure"}
	for _, c := range []struct {
		name string
		cfg  options.Config
	}{
		{
			"grid",
			options.Config{
				Windows: options.Windows{
					Hz: &hz,
					Deltas: deltas(
						"joints",
						second,
						"imu",
						second,
						"pose",
						second,
						"exposure",
						second,
					),
				},
			},
		},
		{
			"anchor",
			options.Config{
				Windows: options.Windows{
					Deltas: deltas(
						"joints",
						second,
						"imu",
						second,
						"pose",
						second,
						"exposure",
						second,
					),
				},
			},
		},
		{
			"spans",
			options.Config{
				Windows: options.Windows{
					Native: NativeWindows{
						{Key: "imu", Span: &[2]float64{-1, 0}},
						{Key: "joints", Span: &[2]float64{-1, 0}},
						{Key: "pose", Span: &[2]float64{-1, 0}},
					},
				},
			},
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.cfg.BatchSize, c.cfg.Shuffle, c.cfg.Keys, c.cfg.Threads = 64, Global, keys, 1
			l := mustLoader(b, ds, c.cfg)
			b.ReportAllocs()
			for b.Loop() {
				x, err := l.Next(bg)
				if err != nil {
					if x, err = l.Next(bg); err != nil {
						b.Fatal(err)
					}
				}
				x.Release()
			}
			b.ReportMetric(float64(b.N)*64/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
