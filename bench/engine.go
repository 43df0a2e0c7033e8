package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// engineSource adapts a loader to batchSource.
type engineSource struct {
	loader *loader.Loader
	// restart at each epoch, so that no epoch begins before the previous one has ended
	restartEpochs bool
	batch         *loader.Batch // the last batch
	rows          []robocache.Row
	episodes      []int32
}

func (s *engineSource) Next(ctx context.Context) (t deliveredBatch, err error) {
	if s.batch, err = s.loader.Next(ctx); err != nil {
		if s.restartEpochs && err == io.EOF {
			if failed := s.loader.Restore(s.loader.Standing(), true); failed != nil {
				return t, failed
			}
		}
		return t, err
	}
	if s.rows, err = s.loader.Rows(s.batch.Indices); err != nil {
		s.batch.Release()
		return t, err
	}
	s.episodes = s.episodes[:0]
	for _, r := range s.rows {
		s.episodes = append(s.episodes, int32(r.Episode))
	}
	return deliveredBatch{s.batch.Indices, s.episodes, s.batch.Release}, nil
}

// takeUncounted takes batches without recording them, until done returns true.
func (s *engineSource) takeUncounted(
	ctx context.Context,
	done func(b *deliveredBatch) (bool, error),
) (time.Duration, error) {
	return (&consumer{s, discardOrder, 1}).consumeUntil(ctx, 0, done)
}

// discardOrder is an orderSink that ignores its input.
func discardOrder(int64, []int64, []int32) {}

// newLoader returns a loader for an open set.
func (w *Workload) newLoader(
	ctx context.Context,
	ds robocache.Dataset,
) (*loader.Loader, loader.Config, error) {
	cfg, err := w.loaderConfig(ds.Info())
	if err != nil {
		return nil, loader.Config{}, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	return ld, cfg, err
}

// LoadRun runs the workload with the Go loader in this process, without Python. It writes a line to
// marks when the window opens and when it closes. After a window with a duration, it measures a
// consumer with a fixed step time, saves frames for checking, and measures a single thread.
func LoadRun(ctx context.Context, w Workload, marks io.Writer) (o Outcome, err error) {
	start := time.Now()
	ds, err := w.openDataset(ctx)
	if err != nil {
		return o, err
	}
	defer ds.Close()
	o.OpenS, start = time.Since(start).Seconds(), time.Now()
	ld, cfg, err := w.newLoader(ctx, ds)
	if err != nil {
		return o, err
	}
	defer ld.Close()
	info := ds.Info()
	cameras := w.selectedCameras(info)
	o.IndexBuildS, o.FPS, o.Versions = time.Since(start).
		Seconds(),
		info.FPS.Float(), map[string]string{
			"go": runtime.Version(),
		}
	episodes, err := w.episodePositions(info)
	if err != nil {
		return o, err
	}
	o.LoadedEpisodes, o.Cameras = len(episodes), len(cameras)
	for _, f := range ld.Fields() {
		if len(cameras) > 0 && f.Key == cameras[0] {
			o.ImageShape = f.Shape[max(0, len(f.Shape)-3):]
		}
	}
	src := &engineSource{loader: ld, restartEpochs: w.Duration == 0}
	m := &consumer{source: src, sink: discardOrder}
	if w.OrderOut != "" {
		f, err := os.Create(w.OrderOut)
		if err != nil {
			return o, err
		}
		defer f.Close()
		orders := bufio.NewWriterSize(f, 1<<20)
		defer orders.Flush()
		m.sink = orderWriter(orders)
	}
	if err := meetRanks(ctx, &w); err != nil {
		return o, err
	}

	began := time.Now()
	if err := m.measureWindow(ctx, &w, &o, func(open bool) {
		st := ld.Stats()
		if o.CPUSeconds = selfCPU() - o.CPUSeconds; open {
			o.StatsOpen = &st
			fmt.Fprintln(marks, lineOpen)
			return
		}
		o.StatsClose = &st
		fmt.Fprintln(marks, lineClose)
	}); err != nil {
		return o, err
	}
	if w.Duration > 0 {
		step := time.Duration(w.StepMS * float64(time.Millisecond))
		if step <= 0 {
			step = time.Duration(1.25e9 * o.Seconds / float64(len(o.ArrivalRows)))
		}
		wait, err := m.measureWait(
			ctx,
			step,
			waitBatchCount(time.Duration(w.Duration*1e9), len(o.ArrivalRows), step),
		)
		if err != nil {
			return o, err
		}
		o.ConsumerStepS, o.WaitPct = step.Seconds(), &wait
	}
	if w.CheckFrames > 0 && w.FramesOut != "" && len(cameras) > 0 {
		if err := writeDelivered(ctx, src, m.sink, w, cameras); err != nil {
			return o, err
		}
	}
	if err := ld.Close(); err != nil {
		return o, err
	}
	if w.Duration > 0 && w.Probes > 0 {
		v, err := singleThreadRate(ctx, ds, cfg, w.Probes)
		if err != nil {
			return o, err
		}
		o.SingleProc = &v
	}
	o.TotalTimeS = time.Since(began).Seconds()
	return o, nil
}

// singleThreadRate returns the samples per second of one thread in the same order. The first batch
// is not counted, because it includes the time to open files.
func singleThreadRate(
	ctx context.Context,
	ds robocache.Dataset,
	cfg loader.Config,
	probes int,
) (float64, error) {
	cfg.Threads, cfg.Prefetch, cfg.Cache = 1, 1, ""
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return 0, err
	}
	defer ld.Close()
	n := 0
	var begin time.Time
	if _, err := (&engineSource{loader: ld}).takeUncounted(
		ctx,
		func(b *deliveredBatch) (bool, error) {
			switch {
			case b == nil:
				return false, nil
			case begin.IsZero():
				begin = time.Now()
				return false, nil
			}
			n += len(b.Samples)
			return n >= probes || time.Since(begin) > 30*time.Second, nil
		},
	); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}

// frameHeader is the JSON line before the bytes of a saved frame.
type frameHeader struct {
	Key     string `json:"key"` // empty if there is only one camera
	Episode int    `json:"episode"`
	Row     int    `json:"row"`
	Offset  int    `json:"offset"` // position in the window
	Shape   []int  `json:"shape"`
	DType   string `json:"dtype"`
}

// writeDelivered saves delivered frames. It chooses them at random, with a seed, from the next
// batches.
func writeDelivered(
	ctx context.Context,
	src *engineSource,
	t orderSink,
	w Workload,
	cameras []string,
) (err error) {
	defer robocache.Locate(&err, robocache.Where{"file": w.FramesOut})
	f, err := os.Create(w.FramesOut)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	rng := rand.New(rand.NewPCG(uint64(w.Seed), 1))
	left := w.CheckFrames
	if _, err := (&consumer{src, t, 1}).consumeUntil(
		ctx,
		0,
		func(taken *deliveredBatch) (bool, error) {
			if taken == nil {
				return false, nil
			}
			for _, i := range rng.Perm(len(taken.Samples))[:min(len(taken.Samples), 4, left)] {
				p := src.batch.Tensor(cameras[rng.IntN(len(cameras))])
				each := len(p.Data) / src.batch.Rows
				h := frameHeader{
					Key:     p.Key,
					Episode: src.rows[i].Episode,
					Row:     src.rows[i].Index,
					Shape:   p.Shape[1:],
					DType:   p.DType.String(),
				}
				data := p.Data[i*each : (i+1)*each]
				if len(h.Shape) == 4 {
					h.Offset = rng.IntN(h.Shape[0])
					one := each / h.Shape[0]
					h.Shape, data = h.Shape[1:], data[h.Offset*one:(h.Offset+1)*one]
				}
				encoded, err := json.Marshal(h)
				if err != nil {
					return false, err
				}
				out.Write(append(encoded, '\n'))
				out.Write(data)
				left--
			}
			return left <= 0, nil
		},
	); err != nil {
		return err
	}
	return out.Flush()
}
