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

// engineSource is a loader as the window sees it.
type engineSource struct {
	ld       *loader.Loader
	episodes []int32
	keep     *loader.Batch // set: the last batch is not released, but stands here
	keeping  bool
}

func (s *engineSource) Next(ctx context.Context) (taken, error) {
	b, err := s.ld.Next(ctx)
	if err != nil {
		return taken{}, err
	}
	rows, err := s.ld.Rows(b.Indices)
	if err != nil {
		b.Release()
		return taken{}, err
	}
	s.episodes = s.episodes[:0]
	for _, r := range rows {
		s.episodes = append(s.episodes, int32(r.Episode))
	}
	if s.keeping {
		s.keep = b
		return taken{b.Indices, s.episodes, func() {}}, nil
	}
	return taken{b.Indices, s.episodes, b.Release}, nil
}

// The lines that a runner writes when its window opens and closes: the harness counts what it sees from outside between them.
const (
	markOpen  = "#open"
	markClose = "#measured"
)

// loadWindow is LoadRun with a window of seconds, and what comes after it: a consumer of fixed step time, frames to be
// checked, one thread, the loop without a loader.
func loadWindow(ctx context.Context, w Workload, marks io.Writer) (Outcome, error) {
	start := time.Now()
	ds, err := w.open(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer ds.Close()
	info := ds.Info()
	o := Outcome{OpenS: time.Since(start).Seconds(), FPS: info.FPS.Float()}
	o.Versions = map[string]string{"go": runtime.Version()}
	begin := time.Now()
	cfg, err := w.config(info)
	if err != nil {
		return o, err
	}
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return o, err
	}
	defer ld.Close()
	o.IndexBuildS = time.Since(begin).Seconds()

	episodes, err := w.episodes(info)
	if err != nil {
		return o, err
	}
	lengths := make([]int, len(episodes))
	for i, e := range episodes {
		lengths[i] = ds.Len(e)
	}
	o.LoadedEpisodes = len(episodes)
	cameras := w.cameras(info)
	o.Cameras = len(cameras)
	for _, f := range ld.Fields() {
		if len(cameras) > 0 && f.Key == cameras[0] {
			o.ImageShape = f.Shape[max(0, len(f.Shape)-3):]
		}
	}
	var orders io.Writer
	if w.OrderOut != "" {
		f, err := os.Create(w.OrderOut)
		if err != nil {
			return o, robocache.At(err, robocache.Where{"file": w.OrderOut})
		}
		defer f.Close()
		orders = f
	}
	t := newTally(ld.Samples(), info.Episodes, w.BatchSize, orders)
	src := &engineSource{ld: ld}
	if err := meet(ctx, w); err != nil {
		return o, err
	}

	began := time.Now()
	device := selfIO("read_bytes")
	var cpu float64
	var rchar int64
	win, err := measureWindow(ctx, wallClock{}, src, t, windowOptions{Warmup: w.Warmup, Duration: time.Duration(w.Duration * float64(time.Second)),
		Open: func() {
			s := ld.Stats()
			o.StatsOpen = &s
			fmt.Fprintln(marks, markOpen)
			rchar, cpu = selfIO("rchar"), selfCPU()
		},
		Close: func() {
			o.CPUSeconds, o.BytesRead = selfCPU()-cpu, selfIO("rchar")-rchar
			fmt.Fprintln(marks, markClose)
			s := ld.Stats()
			o.StatsClose = &s
		}})
	if err != nil {
		return o, err
	}
	o.DeviceReadBytes = selfIO("read_bytes") - device
	o.FirstBatchS, o.Seconds, o.WaitS, o.Samples = win.First.Seconds(), win.Length.Seconds(), win.Wait.Seconds(), win.Samples
	o.OpenUnixNS, o.ArrivalsUS, o.ArrivalRows = win.OpenedAt.UnixNano(), win.Arrivals, win.Rows
	o.Decoded, o.Delivered = o.StatsClose.FramesDecoded-o.StatsOpen.FramesDecoded, o.StatsClose.Frames-o.StatsOpen.Frames
	o.OrderSHA256, o.OrderSamples = t.sum(), t.orderSamples
	if t.full > 0 {
		o.DistinctFrac = t.distinct / float64(t.full)
	}
	if t.pairs > 0 {
		o.NeighbourShare = float64(t.same) / float64(t.pairs)
	}
	o.IdealFrac = IdealDistinct(lengths, w.BatchSize)

	step := time.Duration(w.StepMS * float64(time.Millisecond))
	if step <= 0 {
		step = time.Duration(1.25 * float64(win.Length) / float64(len(win.Rows)))
	}
	wait, err := measureWait(ctx, wallClock{}, src, t, step, waitBatches(time.Duration(w.Duration*float64(time.Second)), len(win.Rows), step))
	if err != nil {
		return o, err
	}
	o.ConsumerStepS, o.WaitPct = step.Seconds(), &wait
	if w.CheckFrames > 0 && w.FramesOut != "" && len(cameras) > 0 {
		if err := handOver(ctx, src, t, w, cameras); err != nil {
			return o, err
		}
	}
	if err := t.flush(); err != nil {
		return o, robocache.At(err, robocache.Where{"file": w.OrderOut})
	}
	if o.EpochsFinished = t.finished; t.finished > 0 {
		o.CoverageMin, o.CoverageMax = t.low, t.high
		o.SamplesLost, o.SamplesDoubled = t.missing, t.extra
	}
	if o.Headspace, err = headspace(ctx, src, w, info.Episodes); err != nil {
		return o, err
	}
	if err := ld.Close(); err != nil {
		return o, err
	}
	if w.Probes > 0 {
		v, err := oneThread(ctx, ds, cfg, w.Probes)
		if err != nil {
			return o, err
		}
		o.SingleProc = &v
	}
	o.TotalTimeS = time.Since(began).Seconds()
	return o, nil
}

// oneThread gives samples per second of one thread in the same order, after its first batch, which pays for opening.
func oneThread(ctx context.Context, ds robocache.Dataset, cfg loader.Config, probes int) (float64, error) {
	cfg.Threads, cfg.Prefetch, cfg.Cache = 1, 1, ""
	ld, err := loader.New(ctx, ds, cfg)
	if err != nil {
		return 0, err
	}
	defer ld.Close()
	src, n := &engineSource{ld: ld}, 0
	t := newTally(ld.Samples(), ds.Info().Episodes, cfg.BatchSize, nil)
	var begin time.Time
	for {
		b, err := next(ctx, src, t)
		if err != nil {
			return 0, err
		}
		n += len(b.Samples)
		b.Release()
		if begin.IsZero() {
			begin, n = time.Now(), 0
			continue
		}
		if n >= probes || time.Since(begin) > 30*time.Second {
			return float64(n) / time.Since(begin).Seconds(), nil
		}
	}
}

// headspace is the rate of the window's own loop when the batch is there already: what the loop itself takes.
func headspace(ctx context.Context, src *engineSource, w Workload, episodes int) (float64, error) {
	t := newTally(src.ld.Samples(), episodes, w.BatchSize, nil)
	b, err := next(ctx, src, t)
	if err != nil {
		return 0, err
	}
	held := fixed{taken{append([]int64(nil), b.Samples...), append([]int32(nil), b.Episodes...), func() {}}}
	b.Release()
	win, err := measureWindow(ctx, wallClock{}, held, t, windowOptions{Duration: 50 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	return float64(win.Samples) / win.Length.Seconds(), nil
}

type fixed struct{ b taken }

func (f fixed) Next(context.Context) (taken, error) { return f.b, nil }

// handedOver is the line before a frame's bytes.
type handedOver struct {
	Key     string `json:"key"`
	Episode int    `json:"episode"`
	Row     int    `json:"row"`
	Offset  int    `json:"offset"` // place in the window
	Shape   []int  `json:"shape"`
	DType   string `json:"dtype"`
}

// handOver writes frames as they were delivered: a seeded choice of the batches that come next.
func handOver(ctx context.Context, src *engineSource, t *tally, w Workload, cameras []string) error {
	f, err := os.Create(w.FramesOut)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": w.FramesOut})
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	rng := rand.New(rand.NewPCG(uint64(w.Seed), 1))
	src.keeping = true
	defer func() { src.keeping = false }()
	for left := w.CheckFrames; left > 0; {
		taken, err := next(ctx, src, t)
		if err != nil {
			return err
		}
		t.add(taken.Samples, taken.Episodes)
		b := src.keep
		rows, err := src.ld.Rows(b.Indices)
		if err != nil {
			return err
		}
		for _, i := range rng.Perm(b.Rows)[:min(b.Rows, 4, left)] {
			p := b.Tensor(cameras[rng.IntN(len(cameras))])
			each := len(p.Data) / b.Rows
			h := handedOver{Key: p.Key, Episode: rows[i].Episode, Row: rows[i].Index, Shape: p.Shape[1:], DType: p.DType.String()}
			data := p.Data[i*each : (i+1)*each]
			if len(h.Shape) == 4 {
				h.Offset = rng.IntN(h.Shape[0])
				one := each / h.Shape[0]
				h.Shape, data = h.Shape[1:], data[h.Offset*one:(h.Offset+1)*one]
			}
			line, err := json.Marshal(h)
			if err != nil {
				return err
			}
			out.Write(append(line, '\n'))
			out.Write(data)
			left--
		}
		b.Release()
	}
	if err := out.Flush(); err != nil {
		return robocache.At(err, robocache.Where{"file": w.FramesOut})
	}
	return nil
}
