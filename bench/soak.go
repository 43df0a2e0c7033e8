package bench

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Soak describes a long run that combines all features on one set: pools, caches, http with faults,
// kills and resumes.
type Soak struct {
	URI      string // a local folder
	Dir      string // scratch folder; if empty, a temporary one is used
	Duration time.Duration
	Seed     uint64
	// command of this program, for the processes that are killed; nil disables kills
	Self []string
	Log  func(format string, a ...any)

	frameBytes int64 // bytes of one RGB frame
	truth      *pixelTruth
	result     SoakResult
}

// SoakResult holds what a soak run did and observed.
type SoakResult struct {
	Seconds    float64 `json:"seconds"`
	Rounds     int     `json:"rounds"`
	Batches    int64   `json:"batches"`
	Frames     int64   `json:"frames_checked"`
	Compared   int     `json:"frames_compared_with_ffmpeg"`
	Resumes    int     `json:"resumes"`
	Kills      int     `json:"processes_killed"`
	HTTPFaults int64   `json:"http_faults"`
	Trend      Trend   `json:"trend"`
	Failed     string  `json:"failed,omitempty"`
}

// soakTurn holds the random choices of one round.
type soakTurn struct {
	Workload
	http bool
}

// chooseTurn makes the choices of round n. They depend only on the seed and n, so that a failing
// round can be repeated.
func (s *Soak) chooseTurn(n int, dir string) soakTurn {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	// The memory budget holds a few of the largest batches (32 windows of two frames) and the
	// buffers around them. The budget of a cache that is too small holds a third of the planes of
	// the set.
	budget, small := max(192<<20, 64*s.frameBytes*6), int64(4<<20)
	if s.truth != nil {
		small = min(max(int64(len(s.truth.hashes[""]))*s.frameBytes/6, small), 256<<20)
	}
	t := soakTurn{Workload: Workload{
		URI:          s.URI,
		BatchSize:    []int{1, 7, 16, 32}[rng.IntN(4)],
		Workers:      1 + rng.IntN(4),
		Video:        "one",
		Seed:         n,
		Prefetch:     1 + rng.IntN(4),
		MemoryBudget: fmt.Sprint(budget),
		Shuffle:      []string{"global", "pool", "pool", "file"}[rng.IntN(4)],
	}, http: rng.IntN(3) == 0}
	if t.Shuffle == "pool" {
		t.PoolEpisodes = rng.IntN(5)
	}
	if rng.IntN(4) == 0 {
		t.World, t.Rank = 2, rng.IntN(2)
	}
	switch rng.IntN(5) {
	case 0:
		t.Window = 2
	case 1:
		t.ImageSize = "96x96"
	}
	cached := func(format, budget string) {
		t.Cache, t.CacheFormat, t.CacheBudget = filepath.Join(dir, "cache-"+format), format, budget
	}
	switch k := rng.IntN(5); {
	case k == 0:
		t.Cache, t.CacheBudget = "ram", fmt.Sprint(min(small, budget/4))
	case k == 1: // smaller than the set, so it evicts all the time
		cached("yuv", fmt.Sprint(small))
	case k == 2 && t.ImageSize != "":
		cached("rgb", fmt.Sprint(small))
	case k == 3 && t.http:
		cached("encoded", "8MiB")
	}
	return t
}

func (t soakTurn) String() string {
	return fmt.Sprintf(
		"shuffle %s, cache %q %s, http %v, window %d, size %q, batch %d, %d threads, prefetch "+
			"%d, rank %d of %d, seed %d",
		t.Shuffle,
		filepath.Base(t.Cache),
		t.CacheFormat,
		t.http,
		t.Window,
		t.ImageSize,
		t.BatchSize,
		t.Workers,
		t.Prefetch,
		t.Rank,
		max(t.World, 1),
		t.Seed,
	)
}

// Run repeats rounds until the duration is over or a check fails. The result describes a failed
// check.
func (s *Soak) Run(ctx context.Context) (_ SoakResult, err error) {
	dir, res := s.Dir, &s.result
	if dir == "" {
		if dir, err = os.MkdirTemp("", "robocache-soak-"); err != nil {
			return SoakResult{}, err
		}
		defer os.RemoveAll(dir)
	}
	if err := s.learnTruth(ctx, dir); err != nil {
		return SoakResult{}, err
	}
	srv, err := loopback.Serve(
		s.URI,
		loopback.Options{
			Latency: time.Millisecond,
			Strike: func(n int64, w http.ResponseWriter, r *http.Request) bool {
				if n%97 == 0 {
					http.Error(w, "struck", http.StatusServiceUnavailable) // the client retries
				}
				return n%97 == 0
			},
		},
	)
	if err != nil {
		return SoakResult{}, err
	}
	defer srv.Close()

	var watch resourceLooks
	begin := time.Now()
	last := begin
	for round := 0; round == 0 || time.Since(begin) < s.Duration; round++ {
		t := s.chooseTurn(round, dir)
		if t.http {
			t.URI = srv.URL
		}
		rctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		err := s.runRound(rctx, t)
		if err == nil && s.Self != nil && round%8 == 5 {
			err = s.killWorker(rctx, t, dir, round)
			res.Kills++
		}
		cancel()
		if err := ctx.Err(); err != nil {
			return SoakResult{}, err
		}
		if err != nil {
			res.Failed = fmt.Sprintf("round %d (%s): %v", round, t, err)
			break
		}
		res.Rounds++
		watch.recordLook(time.Since(begin))
		if time.Since(last) >= time.Minute {
			last = time.Now()
			s.Log(
				"soak: %+v; seconds, MiB, files and goroutines now %.0f",
				*res,
				watch[len(watch)-1],
			)
		}
	}
	res.Seconds, res.Trend, res.HTTPFaults = time.Since(begin).
		Seconds(),
		watch.computeTrend(), srv.Requests()/97
	res.Failed = cmp.Or(res.Failed, res.Trend.growthText())
	return *res, nil
}

// runRound opens the set, takes batches, stops at random positions, resumes from the saved state
// with other threads, and closes everything.
func (s *Soak) runRound(ctx context.Context, t soakTurn) (err error) {
	rng := rand.New(rand.NewPCG(s.Seed+1, uint64(t.Seed)))
	ds, err := t.openDataset(ctx)
	if err != nil {
		return err
	}
	defer ds.Close()
	var state *loader.State
	for left := 24 + rng.IntN(24); left > 0; { // batches left in the round
		stretch := min(left, 1+rng.IntN(16))
		if state != nil {
			t.Workers, t.Prefetch = 1+rng.IntN(4), 1+rng.IntN(4)
			s.result.Resumes++
		}
		if state, err = s.runStretch(ctx, ds, state, stretch, t); err != nil {
			return err
		}
		left -= stretch
	}
	return nil
}

// runStretch takes n batches, starting from a state.
func (s *Soak) runStretch(
	ctx context.Context,
	ds robocache.Dataset,
	state *loader.State,
	n int,
	t soakTurn,
) (*loader.State, error) {
	ld, _, err := t.newLoader(ctx, ds)
	if err != nil {
		return nil, err
	}
	defer ld.Close()
	if state != nil {
		if err := ld.Restore(*state, false); err != nil {
			return nil, err
		}
	}
	src := &engineSource{loader: ld}
	if _, err := src.takeUncounted(ctx, func(given *deliveredBatch) (bool, error) {
		if given == nil {
			return false, nil
		}
		b := src.batch
		if err := s.checkBatch(ld, b, t); err != nil {
			return false, fmt.Errorf("epoch %d, position %d: %w", b.Epoch, b.Position, err)
		}
		s.result.Batches, s.result.Frames = s.result.Batches+1, s.result.Frames+int64(b.Rows)
		n--
		return n == 0, nil
	}); err != nil {
		return nil, err
	}
	st := ld.State()
	return &st, nil
}

// checkBatch compares the samples of a batch with the order, and its frames with the reference
// pass.
func (s *Soak) checkBatch(ld *loader.Loader, b *loader.Batch, t soakTurn) error {
	if t.World < 2 { // the positions of a rank are not consecutive
		order := ld.Order(b.Epoch)
		for i, got := range b.Indices {
			if want := order.At(b.Position + int64(i)); got != want {
				return fmt.Errorf("sample %d came, the order says %d", got, want)
			}
		}
	}
	_, err := s.truth.compareFrames(b, t.ImageSize)
	return err
}

// killWorker starts a process that reads the same set and cache. The process kills itself in the
// middle of its work, without cleanup.
func (s *Soak) killWorker(ctx context.Context, t soakTurn, dir string, round int) error {
	state := filepath.Join(dir, "state-"+strconv.Itoa(round))
	defer os.Remove(state)
	defer os.Remove(state + ".log")
	t.Resume = &Resume{Steps: 64, Kill: 3 + round%13, State: state, Log: state + ".log"}
	return t.runResumeProcess(ctx, &runners.Tools{Self: s.Self})
}

// pixelTruth holds a hash of each frame of a set. One reference pass in file order computes the
// hashes, and a sample of its frames is compared with a sequential ffmpeg decode. Later frames must
// have the same bits, for any order, cache, pool, store and number of threads.
type pixelTruth struct {
	seed   maphash.Seed
	camera string
	// By frame size ("" is the stored size) and sample. For other sizes, the first delivery defines
	// the hash, and later ones must agree. 0 means not delivered yet.
	hashes map[string][]uint64
}

// learnTruth reads the set once. Without ffmpeg, the pass itself defines the truth.
func (s *Soak) learnTruth(ctx context.Context, dir string) (err error) {
	w := Workload{
		URI:         s.URI,
		BatchSize:   32,
		Video:       "one",
		Shuffle:     "file",
		Workers:     1,
		CheckFrames: 256,
		FramesOut:   filepath.Join(dir, "frames"),
	}
	ds, err := w.openDataset(ctx)
	if err != nil {
		return err
	}
	defer ds.Close()
	cameras := w.selectedCameras(ds.Info())
	if len(cameras) == 0 {
		return robocache.Unsupported(
			"soak",
			nil,
			"a set without video: there are no frames to check",
		)
	}
	ld, _, err := w.newLoader(ctx, ds)
	if err != nil {
		return err
	}
	defer ld.Close()
	s.truth = &pixelTruth{
		maphash.MakeSeed(),
		cameras[0],
		map[string][]uint64{"": make([]uint64, ld.Samples())},
	}
	src := &engineSource{loader: ld}
	if _, err := src.takeUncounted(ctx, func(b *deliveredBatch) (bool, error) {
		if b != nil {
			var err error
			if s.frameBytes, err = s.truth.compareFrames(src.batch, ""); err != nil {
				return false, err
			}
		}
		return b == nil, nil
	}); err != nil {
		return err
	}
	if err := writeDelivered(ctx, src, discardOrder, w, cameras); err != nil {
		return err
	}
	defer os.Remove(w.FramesOut)
	var o Outcome
	images, err := readDelivered(w.FramesOut)
	if err != nil {
		return err
	}
	ref, err := newReference(ds, s.URI, &w)
	if err != nil {
		return err
	}
	if err := (&Runner{reference: ref, isTimedWindow: true}).checkFrames(ctx, images, &o); err !=
		nil {
		return err
	}
	if s.result.Compared = int(o.FramesChecked); o.WrongFrames > 0 {
		return fmt.Errorf("%s is not what ffmpeg decodes", o.WrongWhere[0])
	}
	s.Log(
		"soak: %d frames are the truth, %d of them compared with ffmpeg",
		ld.Samples(),
		s.result.Compared,
	)
	return nil
}

// compareFrames compares the first frame of each sample of a batch with its hash. It returns the
// bytes of the frames of one sample.
func (t *pixelTruth) compareFrames(b *loader.Batch, size string) (int64, error) {
	p := b.Tensor(t.camera)
	each := len(p.Data) / b.Rows
	if t.hashes[size] == nil {
		t.hashes[size] = make([]uint64, len(t.hashes[""]))
	}
	for i, n := range b.Indices {
		one := p.Data[i*each : (i+1)*each]
		if len(p.Shape) == 5 {
			one = one[:each/p.Shape[1]] // the first frame of a window is that of the anchor
		}
		h, seen := maphash.Bytes(t.seed, one), &t.hashes[size][n]
		if *seen == 0 {
			*seen = h
		}
		if h != *seen {
			return 0, fmt.Errorf("sample %d has other pixels than in the plain pass", n)
		}
	}
	return int64(each), nil
}

// resourceLook holds the resources of the process between two rounds, when everything is closed:
// elapsed seconds, RSS in MiB, open files, goroutines.
type resourceLook [4]float64

// resourceLooks are taken between rounds, when everything is closed. The resources must not grow.
type resourceLooks []resourceLook

// recordLook records the resources of this process. It first waits briefly for ending goroutines.
func (t *resourceLooks) recordLook(at time.Duration) {
	base := math.Inf(1)
	for _, l := range *t {
		base = min(base, l[3])
	}
	for i := 0; i < 50 && float64(runtime.NumGoroutine()) > base; i++ {
		time.Sleep(2 * time.Millisecond)
	}
	debug.FreeOSMemory() // memory that the collector has not returned yet is not a leak
	*t = append(
		*t,
		resourceLook{
			at.Seconds(),
			float64(residentBytes(os.Getpid())) / (1 << 20),
			float64(openFiles()),
			float64(runtime.NumGoroutine()),
		},
	)
}

// openFiles returns the number of open files of this process, without sockets.
func openFiles() (n int) {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, e := range names {
		// Idle http connections belong to the transport, which limits their number.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil &&
			!strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Trend compares the resources of the middle third of the rounds with those of the last third, as
// medians. The first third is warm-up.
type Trend struct {
	Looks             int     `json:"looks"`
	RSSStartMiB       float64 `json:"rss_start_mib"`
	RSSEndMiB         float64 `json:"rss_end_mib"`
	RSSSlopeMiBPerMin float64 `json:"rss_slope_mib_per_min"`
	FilesStart        float64 `json:"files_start"`
	FilesEnd          float64 `json:"files_end"`
	GoroutinesStart   float64 `json:"goroutines_start"`
	GoroutinesEnd     float64 `json:"goroutines_end"`
}

// computeTrend returns the trend of the looks.
func (t resourceLooks) computeTrend() Trend {
	n := len(t)
	if n < 6 {
		return Trend{Looks: n}
	}
	median := func(part resourceLooks) (m resourceLook) {
		for k := range m {
			var s report.Spread
			for _, l := range part {
				s.Add(l[k])
			}
			m[k] = s.Median
		}
		return m
	}
	a, b := median(t[n/3:2*n/3]), median(t[2*n/3:])
	return Trend{n, a[1], b[1], 60 * (b[1] - a[1]) / max(b[0]-a[0], 1e-12), a[2], b[2], a[3], b[3]}
}

// growthText describes which resource grew from the middle third to the last. It returns "" if none
// did. It compares medians, because a single high value at the end is not a trend.
func (r Trend) growthText() string {
	if r.Looks < 6 {
		return fmt.Sprintf("only %d rounds: too few to see a trend", r.Looks)
	}
	for _, g := range []struct {
		what           string
		from, to, more float64
	}{
		{"memory grows (MiB)", r.RSSStartMiB, r.RSSEndMiB, 12 + 0.05*r.RSSStartMiB},
		{"open files grow", r.FilesStart, r.FilesEnd, 1},
		{"goroutines grow", r.GoroutinesStart, r.GoroutinesEnd, 2},
	} {
		if g.to > g.from+g.more {
			return fmt.Sprintf("%s: %.0f, then %.0f between rounds", g.what, g.from, g.to)
		}
	}
	return ""
}
