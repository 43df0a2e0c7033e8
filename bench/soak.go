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

// Soak is a long run of everything at once: pools, caches, http with faults, kills and resumes, on
// one set.
type Soak struct {
	URI      string // a local folder
	Dir      string // scratch; "" makes one and removes it
	Duration time.Duration
	Seed     uint64
	Self     []string // this robocache, for the processes that are killed; nil: none are
	Log      func(format string, a ...any)

	frame int64 // bytes of one, as RGB
	truth *truth
	res   SoakResult
}

// SoakResult is what a soak did and saw.
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

// soakTurn is one round's choice.
type soakTurn struct {
	Workload
	http bool
}

// turn chooses what a round does: seeded, so that a failing round can be done again by its number.
func (s *Soak) turn(n int, dir string) soakTurn {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	// A few of the largest batches (32 windows of two) with what stands beside them, and no more;
	// of a cache that does not hold the set a third of its planes.
	budget, small := max(192<<20, 64*s.frame*6), int64(4<<20)
	if s.truth != nil {
		small = min(max(int64(len(s.truth.seen[""]))*s.frame/6, small), 256<<20)
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
	case k == 1: // smaller than the set: it evicts all the time
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

// Run soaks until the time is over, or something is wrong: the result then says what.
func (s *Soak) Run(ctx context.Context) (_ SoakResult, err error) {
	dir, res := s.Dir, &s.res
	if dir == "" {
		if dir, err = os.MkdirTemp("", "robocache-soak-"); err != nil {
			return SoakResult{}, err
		}
		defer os.RemoveAll(dir)
	}
	if err := s.learn(ctx, dir); err != nil {
		return SoakResult{}, err
	}
	srv, err := loopback.Serve(
		s.URI,
		loopback.Options{
			Latency: time.Millisecond,
			Strike: func(n int64, w http.ResponseWriter, r *http.Request) bool {
				if n%97 == 0 {
					http.Error(w, "struck", http.StatusServiceUnavailable) // is tried again
				}
				return n%97 == 0
			},
		},
	)
	if err != nil {
		return SoakResult{}, err
	}
	defer srv.Close()

	var watch looks
	begin := time.Now()
	last := begin
	for round := 0; round == 0 || time.Since(begin) < s.Duration; round++ {
		t := s.turn(round, dir)
		if t.http {
			t.URI = srv.URL
		}
		rctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		err := s.round(rctx, t)
		if err == nil && s.Self != nil && round%8 == 5 {
			err = s.kill(rctx, t, dir, round)
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
		watch.sample(time.Since(begin))
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
		watch.trend(), srv.Requests()/97
	res.Failed = cmp.Or(res.Failed, res.Trend.grown())
	return *res, nil
}

// round opens the set, takes batches, stops at random places and goes on from the state with other
// threads, and closes everything.
func (s *Soak) round(ctx context.Context, t soakTurn) (err error) {
	rng := rand.New(rand.NewPCG(s.Seed+1, uint64(t.Seed)))
	ds, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer ds.Close()
	var state *loader.State
	for left := 24 + rng.IntN(24); left > 0; { // batches of the round
		stretch := min(left, 1+rng.IntN(16))
		if state != nil {
			t.Workers, t.Prefetch = 1+rng.IntN(4), 1+rng.IntN(4)
			s.res.Resumes++
		}
		if state, err = s.stretch(ctx, ds, state, stretch, t); err != nil {
			return err
		}
		left -= stretch
	}
	return nil
}

// stretch takes n batches from a state on.
func (s *Soak) stretch(
	ctx context.Context,
	ds robocache.Dataset,
	state *loader.State,
	n int,
	t soakTurn,
) (*loader.State, error) {
	ld, _, err := t.loader(ctx, ds)
	if err != nil {
		return nil, err
	}
	defer ld.Close()
	if state != nil {
		if err := ld.Restore(*state, false); err != nil {
			return nil, err
		}
	}
	src := &engineSource{ld: ld}
	if _, err := src.take(ctx, func(given *taken) (bool, error) {
		if given == nil {
			return false, nil
		}
		b := src.batch
		if err := s.checkBatch(ld, b, t); err != nil {
			return false, fmt.Errorf("epoch %d, position %d: %w", b.Epoch, b.Position, err)
		}
		s.res.Batches, s.res.Frames = s.res.Batches+1, s.res.Frames+int64(b.Rows)
		n--
		return n == 0, nil
	}); err != nil {
		return nil, err
	}
	st := ld.State()
	return &st, nil
}

// checkBatch compares the samples of a batch with the order, and its frames with the plain pass.
func (s *Soak) checkBatch(ld *loader.Loader, b *loader.Batch, t soakTurn) error {
	if t.World < 2 { // the positions of a rank do not follow each other
		order := ld.Order(b.Epoch)
		for i, got := range b.Indices {
			if want := order.At(b.Position + int64(i)); got != want {
				return fmt.Errorf("sample %d came, the order says %d", got, want)
			}
		}
	}
	_, err := s.truth.check(b, t.ImageSize)
	return err
}

// kill starts a process that works on the same set and cache, and kills itself in the middle of it,
// without a chance to tidy up.
func (s *Soak) kill(ctx context.Context, t soakTurn, dir string, round int) error {
	state := filepath.Join(dir, "state-"+strconv.Itoa(round))
	defer os.Remove(state)
	defer os.Remove(state + ".log")
	t.Resume = &Resume{Steps: 64, Kill: 3 + round%13, State: state, Log: state + ".log"}
	return t.finish(ctx, &runners.Tools{Self: s.Self})
}

// truth is what each frame of a set must be, as a hash: taken once from a plain pass in file order,
// some of whose frames were compared with a sequential decode by the ffmpeg program. From then on a
// frame must be those bits, whatever order, cache, pool, store and number of threads it comes
// through.
type truth struct {
	seed   maphash.Seed
	camera string
	// by the size of frames ("": as stored), by sample; of other sizes the first time counts, and
	// all that follow must agree; 0: not seen
	seen map[string][]uint64
}

// learn reads the set once. Without ffmpeg nothing is compared, and the pass itself is the truth.
func (s *Soak) learn(ctx context.Context, dir string) (err error) {
	w := Workload{
		URI:         s.URI,
		BatchSize:   32,
		Video:       "one",
		Shuffle:     "file",
		Workers:     1,
		CheckFrames: 256,
		FramesOut:   filepath.Join(dir, "frames"),
	}
	ds, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer ds.Close()
	cameras := w.cameras(ds.Info())
	if len(cameras) == 0 {
		return robocache.Unsupported(
			"soak",
			nil,
			"a set without video: there are no frames to check",
		)
	}
	ld, _, err := w.loader(ctx, ds)
	if err != nil {
		return err
	}
	defer ld.Close()
	s.truth = &truth{
		maphash.MakeSeed(),
		cameras[0],
		map[string][]uint64{"": make([]uint64, ld.Samples())},
	}
	src := &engineSource{ld: ld}
	if _, err := src.take(ctx, func(b *taken) (bool, error) {
		if b != nil {
			var err error
			if s.frame, err = s.truth.check(src.batch, ""); err != nil {
				return false, err
			}
		}
		return b == nil, nil
	}); err != nil {
		return err
	}
	if err := writeDelivered(ctx, src, nowhere, w, cameras); err != nil {
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
	if err := (&Runner{ref: ref, seconds: true}).checkFrames(ctx, images, &o); err != nil {
		return err
	}
	if s.res.Compared = int(o.FramesChecked); o.WrongFrames > 0 {
		return fmt.Errorf("%s is not what ffmpeg decodes", o.WrongWhere[0])
	}
	s.Log(
		"soak: %d frames are the truth, %d of them compared with ffmpeg",
		ld.Samples(),
		s.res.Compared,
	)
	return nil
}

// check compares the first frame of each sample of a batch with what was seen of it before, and
// gives its bytes.
func (t *truth) check(b *loader.Batch, size string) (int64, error) {
	p := b.Tensor(t.camera)
	each := len(p.Data) / b.Rows
	if t.seen[size] == nil {
		t.seen[size] = make([]uint64, len(t.seen[""]))
	}
	for i, n := range b.Indices {
		one := p.Data[i*each : (i+1)*each]
		if len(p.Shape) == 5 {
			one = one[:each/p.Shape[1]] // of a window, the anchor's
		}
		h, seen := maphash.Bytes(t.seed, one), &t.seen[size][n]
		if *seen == 0 {
			*seen = h
		}
		if h != *seen {
			return 0, fmt.Errorf("sample %d has other pixels than in the plain pass", n)
		}
	}
	return int64(each), nil
}

// look is what a process holds between two rounds, when everything is closed: after seconds, the
// RSS in MiB, open files and goroutines.
type look [4]float64

// looks are of a process whose work is closed between them: what it still holds must not grow.
type looks []look

// sample looks at this process. Goroutines that are on their way out get a moment.
func (t *looks) sample(at time.Duration) {
	base := math.Inf(1)
	for _, l := range *t {
		base = min(base, l[3])
	}
	for i := 0; i < 50 && float64(runtime.NumGoroutine()) > base; i++ {
		time.Sleep(2 * time.Millisecond)
	}
	debug.FreeOSMemory() // what the collector has not given back yet is no leak
	*t = append(
		*t,
		look{
			at.Seconds(),
			float64(statm(os.Getpid())) / (1 << 20),
			float64(openFiles()),
			float64(runtime.NumGoroutine()),
		},
	)
}

func openFiles() (n int) {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, e := range names {
		// Sockets of http connections that idle are the transport's, and bounded by it.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil &&
			!strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// Trend is how what a process holds went on, over the rounds after the first third, which warm it
// up: medians of the middle third and of the last.
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

func (t looks) trend() Trend {
	n := len(t)
	if n < 6 {
		return Trend{Looks: n}
	}
	median := func(part looks) (m look) {
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

// grown says what grew from one third to the next; "" where nothing did: medians, since a single
// high look at the end is no trend.
func (r Trend) grown() string {
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
