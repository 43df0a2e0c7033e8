package inspect

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/video"
)

// Decoding reports the cost of decoding single frames in random order.
type Decoding struct {
	Cores   int            `json:"cores"` // number of cores used by the CPU decoders
	Streams []StreamCost   `json:"streams"`
	Trial   *EncodingTrial `json:"trial,omitempty"`
}

// StreamCost is the cost for one camera.
type StreamCost struct {
	Key string `json:"key"`
	// Decoded and Bytes are exact for the frames that were considered.
	Decoded float64    `json:"decoded_frames_per_sample"`
	Bytes   float64    `json:"bytes_per_frame"`
	CPU     *DecodeRun `json:"cpu,omitempty"`
	GPU     *DecodeRun `json:"gpu,omitempty"`
	NoGPU   string     `json:"gpu_reason,omitempty"` // why it was not measured
	Problem string     `json:"problem,omitempty"`
}

// DecodeRun is one measurement. Frames are read, decoded, and converted to RGB on the host.
type DecodeRun struct {
	Device  string  `json:"device,omitempty"`
	Samples int64   `json:"samples"`
	Rate    float64 `json:"samples_per_s"`  // all cores or engines together
	CPU     float64 `json:"cpu_s_per_1000"` // of the whole process
}

// EncodingTrial reports the effect of another encoding, tried on the first frames of an episode.
type EncodingTrial struct {
	Codec   string        `json:"codec"`
	GOP     int           `json:"gop"`
	Episode int64         `json:"episode"`
	Frames  int           `json:"frames"`
	Command string        `json:"command"` // command that encodes the whole dataset
	Streams []StreamTrial `json:"streams,omitempty"`
	Problem string        `json:"problem,omitempty"` // why nothing was encoded
}

// StreamTrial is the result for one camera.
type StreamTrial struct {
	StreamCost
	SizeRatio float64 `json:"size_ratio"` // its bytes divided by the original bytes of these frames
	PSNR      float64 `json:"psnr_mean_db,omitempty"`
	LeastPSNR float64 `json:"psnr_min_db,omitempty"`
}

const (
	opDecoding   = "measure decoding"
	costEpisodes = 32   // maximum number of episodes to choose frames from
	costRows     = 4096 // maximum number of rows per episode
)

// MeasureDecoding decodes frames of each camera for a duration of span, on all cores and, if there
// is one, on the first GPU. If span is 0, only the exact costs are computed. The frames are chosen
// from the first upTo rows of one episode. If episode is negative, they are chosen from up to
// costEpisodes episodes. The choice is the same each time.
func MeasureDecoding(
	ctx context.Context,
	ds robocache.Dataset,
	episode, upTo int,
	span time.Duration,
) (_ *Decoding, err error) {
	if !slices.ContainsFunc(
		ds.Info().Features,
		func(f robocache.Feature) bool { return f.Kind == robocache.KindVideo },
	) ||
		video.LibraryOf(ds) == nil {
		return nil, robocache.Unsupported(
			opDecoding,
			robocache.Where{"dataset": robocache.Redact(ds.Info().URI)},
			"the dataset has no video",
		).WithHint("still images are decoded one by one: 'robocache-bench load' measures them")
	}
	if _, err := video.ActiveBackend(); err != nil {
		return nil, err
	}
	m := &decodeMeter{
		ctx:    ctx,
		ds:     ds,
		span:   span,
		upTo:   upTo,
		random: rand.New(rand.NewPCG(0, 0)),
		pool:   video.NewPool(0),
	}
	defer m.pool.Close()
	m.episodes = m.random.Perm(ds.Info().Episodes)
	m.episodes = m.episodes[:min(len(m.episodes), costEpisodes)]
	if episode >= 0 {
		m.episodes = []int{episode}
	}
	d := &Decoding{Cores: runtime.GOMAXPROCS(0)}
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if f.Kind != robocache.KindVideo {
			continue
		}
		s := StreamCost{Key: f.Key}
		{
			err := m.measureStream(f, &s)
			if robocache.IsFatal(err) {
				return nil, err
			}
			if err != nil {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				s.Problem = err.Error()
			}
		}
		d.Streams = append(d.Streams, s)
	}
	return d, nil
}

// decodeMeter measures one camera after the other.
type decodeMeter struct {
	ctx      context.Context
	ds       robocache.Dataset
	episodes []int
	upTo     int
	span     time.Duration
	random   *rand.Rand
	pool     *video.Pool
}

func (m *decodeMeter) measureStream(f *robocache.Feature, s *StreamCost) error {
	lib := video.LibraryOf(m.ds)
	var refs []robocache.FrameRef
	for _, e := range m.episodes {
		n, err := robocache.RowsIn(m.ctx, m.ds, e, f)
		if err != nil {
			return err
		}
		from := m.random.IntN(max(1, n-costRows))
		if m.upTo > 0 {
			from, n = 0, min(n, m.upTo)
		}
		n = min(n-from, costRows)
		of := make([]robocache.FrameRef, n)
		if err := m.ds.Frames(m.ctx, f.Key, robocache.RowsOf(e, from, n), of); err != nil {
			return err
		}
		for i := range of {
			if of[i].Missing || of[i].Path == "" {
				continue
			}
			file, err := lib.Acquire(m.ctx, of[i].Path)
			if err != nil {
				return err
			}
			for _, g := range video.Plan(file.Index, []int{of[i].Ordinal}) {
				s.Decoded += float64(g.Cost())
				s.Bytes += float64(file.Index.Sample(file.Index.DecodeIndex(of[i].Ordinal)).Size)
			}
			file.Release()
			refs = append(refs, of[i])
		}
	}
	if len(refs) == 0 {
		return robocache.NotFound(
			opDecoding,
			robocache.Where{"stream": f.Key},
			"the examined episodes have no frame of it",
		)
	}
	s.Decoded /= float64(len(refs))
	s.Bytes /= float64(len(refs))
	if m.span == 0 {
		return nil
	}
	m.random.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	spec := &video.Spec{}
	if f.Depth != nil {
		spec = &video.Spec{Pixel: video.DepthM, Depth: f.Depth}
	}
	var err error
	if s.CPU, err = m.measureRate(lib, refs, spec, runtime.GOMAXPROCS(0), m.pool.Decode); err !=
		nil {
		return err
	}
	device, err := video.OpenDevice(0)
	if err != nil {
		s.NoGPU = err.Error()
		return nil
	}
	split := video.NewSplit(m.pool, device, 0, true)
	defer split.Close()
	if s.GPU, err = m.measureRate(
		lib,
		refs,
		spec,
		split.Slots(),
		func(
			ctx context.Context,
			f *video.File,
			b *video.Fetched,
			groups []video.Group,
			deliver func(int, video.Frame) error,
		) error {
			return split.Decode(ctx, f, b, groups, func() func() { return func() {} }, deliver)
		},
	); err != nil {
		return err
	}
	stats := split.Stats()
	if len(stats.OnCPU) > 0 {
		s.GPU, s.NoGPU = nil, stats.OnCPU[0].Reason
	} else {
		s.GPU.Device = stats.Device
	}
	return nil
}

// decodeFunc decodes groups of frames of a file and calls deliver for each frame.
type decodeFunc = func(
	ctx context.Context,
	f *video.File,
	b *video.Fetched,
	groups []video.Group,
	deliver func(int, video.Frame) error,
) error

// measureRate decodes frames with several workers until the time is over. Some frames are decoded
// first without counting, so that decoders and indexes exist.
func (m *decodeMeter) measureRate(
	lib *video.Library,
	refs []robocache.FrameRef,
	spec *video.Spec,
	workers int,
	decode decodeFunc,
) (*DecodeRun, error) {
	frames := func(most int64, span time.Duration) (n int64, err error) {
		var next atomic.Int64
		began := time.Now()
		g, ctx := errgroup.WithContext(m.ctx)
		for range workers {
			g.Go(func() (err error) {
				defer crash.Recover(opDecoding, &err)
				var buf []byte
				for i := next.Add(1) - 1; i < most &&
					time.Since(began) < span; i = next.Add(1) - 1 {
					ref := &refs[i%int64(len(refs))]
					file, err := lib.Acquire(ctx, ref.Path)
					if err != nil {
						return err
					}
					err = decode(
						ctx,
						file,
						nil,
						video.Plan(file.Index, []int{ref.Ordinal}),
						func(_ int, pic video.Frame) (err error) {
							buf, err = video.ConvertTo(buf, pic, spec)
							return err
						},
					)
					file.Release()
					if err := robocache.At(err,
						robocache.Where{"file": ref.Path, "frame": ref.Ordinal}); err != nil {
						return err
					}
					atomic.AddInt64(&n, 1)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return n, err
		}
		return n, nil
	}
	if _, err := frames(int64(4*workers), time.Minute); err != nil {
		return nil, err
	}
	before, err := cpuSeconds()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	n, err := frames(math.MaxInt64, m.span)
	if err != nil {
		return nil, err
	}
	after, err := cpuSeconds()
	if err != nil {
		return nil, err
	}
	return &DecodeRun{
		Samples: n,
		Rate:    float64(n) / time.Since(began).Seconds(),
		CPU:     1000 * (after - before) / float64(max(n, 1)),
	}, nil
}

// cpuSeconds returns the CPU time of the process.
func cpuSeconds() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), nil
}
