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
	"slices"
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

// nowhere is a sink for what nobody counts.
type nowhere struct{}

func (nowhere) add([]int64, []int32) {}
func (nowhere) endEpoch()            {}
func (nowhere) window(bool)          {}

// LoadRun runs the workload through the Go loader in this process: the engine without Python. It says on marks when the window opens and closes; with a
// window of seconds a consumer of fixed step time comes after it, and frames to be checked, one thread, the loop without a loader.
func LoadRun(ctx context.Context, w Workload, marks io.Writer) (Outcome, error) {
	start := time.Now()
	ds, err := w.open(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer ds.Close()
	info := ds.Info()
	o := Outcome{OpenS: time.Since(start).Seconds(), FPS: info.FPS.Float(), Versions: map[string]string{"go": runtime.Version()}}
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
	cameras := w.cameras(info)
	o.LoadedEpisodes, o.Cameras = len(episodes), len(cameras)
	for _, f := range ld.Fields() {
		if len(cameras) > 0 && f.Key == cameras[0] {
			o.ImageShape = f.Shape[max(0, len(f.Shape)-3):]
		}
	}
	var t sink = nowhere{}
	if w.OrderOut != "" {
		f, err := os.Create(w.OrderOut)
		if err != nil {
			return o, robocache.At(err, robocache.Where{"file": w.OrderOut})
		}
		defer f.Close()
		orders := orderWriter{bufio.NewWriterSize(f, 1<<20)}
		defer orders.out.Flush()
		t = orders
	}
	src := &engineSource{ld: ld}
	if err := meet(ctx, w); err != nil {
		return o, err
	}

	began := time.Now()
	duration := time.Duration(w.Duration * float64(time.Second))
	opt := windowOptions{Warmup: w.Warmup, Duration: duration, Warm: w.Warm, Seconds: w.Seconds}
	if w.Duration == 0 {
		opt.Epochs = max(w.Epochs, 1)
	}
	var cpu float64
	opt.Open = func() {
		s := ld.Stats()
		o.StatsOpen = &s
		fmt.Fprintln(marks, lineOpen)
		cpu = selfCPU()
	}
	opt.Close = func() {
		o.CPUSeconds = selfCPU() - cpu
		fmt.Fprintln(marks, lineClose)
		s := ld.Stats()
		o.StatsClose = &s
	}
	win, err := measureWindow(ctx, wallClock{}, src, t, opt)
	if err != nil {
		return o, err
	}
	o.FirstBatchS, o.Seconds, o.WaitS, o.Samples, o.Epochs = win.First.Seconds(), win.Length.Seconds(), win.Wait.Seconds(), win.Samples, win.Epochs
	if w.Duration > 0 {
		o.OpenUnixNS, o.ArrivalsUS, o.ArrivalRows = win.OpenedAt.UnixNano(), win.Arrivals, win.Rows
		step := time.Duration(w.StepMS * float64(time.Millisecond))
		if step <= 0 {
			step = time.Duration(1.25 * float64(win.Length) / float64(len(win.Rows)))
		}
		wait, err := measureWait(ctx, wallClock{}, src, t, step, waitBatches(duration, len(win.Rows), step))
		if err != nil {
			return o, err
		}
		o.ConsumerStepS, o.WaitPct = step.Seconds(), &wait
	}
	if w.CheckFrames > 0 && w.FramesOut != "" && len(cameras) > 0 {
		if err := writeDelivered(ctx, src, t, w, cameras); err != nil {
			return o, err
		}
	}
	if w.Duration > 0 {
		if o.Headspace, err = headspace(ctx, src); err != nil {
			return o, err
		}
	}
	if err := ld.Close(); err != nil {
		return o, err
	}
	if w.Duration > 0 && w.Probes > 0 {
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
	var begin time.Time
	for {
		b, err := next(ctx, src, nowhere{})
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
func headspace(ctx context.Context, src *engineSource) (float64, error) {
	b, err := next(ctx, src, nowhere{})
	if err != nil {
		return 0, err
	}
	held := fixed{taken{slices.Clone(b.Samples), slices.Clone(b.Episodes), func() {}}}
	b.Release()
	win, err := measureWindow(ctx, wallClock{}, held, orderWriter{bufio.NewWriter(io.Discard)}, windowOptions{Duration: 50 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	return float64(win.Samples) / win.Length.Seconds(), nil
}

type fixed struct{ b taken }

func (f fixed) Next(context.Context) (taken, error) { return f.b, nil }

// deliveredAt is the line before a frame's bytes.
type deliveredAt struct {
	Key     string `json:"key"` // "": the only camera
	Episode int    `json:"episode"`
	Row     int    `json:"row"`
	Offset  int    `json:"offset"` // position in the window
	Shape   []int  `json:"shape"`
	DType   string `json:"dtype"`
}

// writeDelivered writes frames as they were delivered: a seeded choice of the batches that come next.
func writeDelivered(ctx context.Context, src *engineSource, t sink, w Workload, cameras []string) error {
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
			h := deliveredAt{Key: p.Key, Episode: rows[i].Episode, Row: rows[i].Index, Shape: p.Shape[1:], DType: p.DType.String()}
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
	return robocache.At(out.Flush(), robocache.Where{"file": w.FramesOut})
}
