package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/bench/report"
	"github.com/goatnote-inc/robocache/bench/runners"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/store/loopback"
)

// Soak is a long run of everything at once: pools, caches, http with faults, kills and resumes, on one set.
type Soak struct {
	URI      string // a local folder
	Dir      string // scratch; "" makes one and removes it
	Duration time.Duration
	Seed     uint64
	Self     string // this robocache, for the processes that are killed; "": none are
	Log      func(format string, a ...any)
	Progress time.Duration // between lines of the log

	frame   int64 // bytes of one, as RGB
	samples int64
}

// budget holds a few of the largest batches (32 windows of two) with what stands beside them, and no more.
func (s *Soak) budget() int64 { return max(192<<20, 64*s.frame*6) }

// small is a budget of a cache that does not hold the set: a third of its planes.
func (s *Soak) small() int64 { return min(max(s.samples*s.frame/6, 4<<20), 256<<20) }

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

func (r SoakResult) String() string {
	t := r.Trend
	return fmt.Sprintf("%.0f s, %d rounds: %d batches, %d images checked, %d resumes, %d processes killed, %d http faults\n", r.Seconds, r.Rounds, r.Batches, r.Frames, r.Resumes, r.Kills, r.HTTPFaults) +
		fmt.Sprintf("between rounds, middle third and last: RSS %.0f and %.0f MiB (%+.2f MiB a minute), files %d and %d, goroutines %d and %d", t.RSSStartMiB, t.RSSEndMiB, t.RSSSlopeMiBPerMin, t.FilesStart, t.FilesEnd, t.GoroutinesStart, t.GoroutinesEnd)
}

// MarshalJSON writes the earlier names of keys too.
func (r SoakResult) MarshalJSON() ([]byte, error) {
	type plain SoakResult
	return json.Marshal(struct {
		plain
		Frames   int64 `json:"pictures_checked"`
		Compared int   `json:"pictures_compared_with_ffmpeg"`
	}{plain(r), r.Frames, r.Compared})
}

// soakTurn is one round's choice.
type soakTurn struct {
	work  Workload
	http  bool
	kind  string // what decides the pixels beside the sample; "" = as stored
	world int
}

// turn chooses what a round does: seeded, so that a failing round can be done again by its number.
func (s *Soak) turn(n int, dir string) soakTurn {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	t := soakTurn{work: Workload{URI: s.URI, BatchSize: []int{1, 7, 16, 32}[rng.IntN(4)], Workers: 1 + rng.IntN(4), Video: "one", Seed: n, Prefetch: 1 + rng.IntN(4), MemoryBudget: fmt.Sprint(s.budget())}}
	w := &t.work
	w.Shuffle = []string{"global", "pool", "pool", "file"}[rng.IntN(4)]
	if w.Shuffle == "pool" && rng.IntN(2) == 0 {
		w.PoolEpisodes = 1 + rng.IntN(4)
	}
	t.http = rng.IntN(3) == 0
	switch rng.IntN(4) {
	case 0:
		w.Cache, w.CacheBudget = "ram", fmt.Sprint(min(s.small(), s.budget()/4))
	case 1: // smaller than the set: it evicts all the time
		w.Cache, w.CacheBudget = filepath.Join(dir, "cache-yuv"), fmt.Sprint(s.small())
		w.CacheFormat = "yuv"
	case 2:
		if t.http {
			w.Cache, w.CacheBudget, w.CacheFormat = filepath.Join(dir, "cache-encoded"), "8MiB", "encoded"
		}
	}
	switch rng.IntN(5) {
	case 0:
		w.Window = 2
	case 1:
		w.ImageSize, t.kind = "96x96", "96x96"
		if w.Cache != "" && w.Cache != "ram" && w.CacheFormat == "yuv" && rng.IntN(2) == 0 {
			w.Cache, w.CacheFormat = filepath.Join(dir, "cache-rgb"), "rgb"
		}
	}
	t.world = 1
	if rng.IntN(4) == 0 {
		t.world = 2
		w.World, w.Rank = 2, rng.IntN(2)
	}
	return t
}

func (t soakTurn) String() string {
	w := t.work
	return fmt.Sprintf("shuffle %s, cache %q %s, http %v, window %d, size %q, batch %d, %d threads, prefetch %d, rank %d of %d, seed %d", w.Shuffle, filepath.Base(w.Cache), w.CacheFormat, t.http, w.Window, w.ImageSize, w.BatchSize, w.Workers, w.Prefetch, w.Rank, t.world, w.Seed)
}

// Run soaks until the time is over, or something is wrong: the result then says what.
func (s *Soak) Run(ctx context.Context) (res SoakResult, err error) {
	defer guard.Into(&err)
	dir := s.Dir
	if dir == "" {
		dir = guard.Must(os.MkdirTemp("", "robocache-soak-"))
		defer os.RemoveAll(dir)
	}
	ds := guard.Must(robocache.Open(ctx, s.URI, robocache.OpenOptions{}))
	tr, err := makeTruth(ctx, ds, s.URI, Workload{BatchSize: 32, Video: "one"})
	guard.Check(errors.Join(err, ds.Close()))
	camera := (&Workload{Video: "one"}).cameras(ds.Info())[0]
	f := ds.Info().Feature(camera)
	s.frame, s.samples, res.Compared = 3*int64(f.Width)*int64(f.Height), int64(len(tr.natural)), tr.compared
	s.Log("soak: %d frames are the truth, %d of them compared with ffmpeg", len(tr.natural), tr.compared)
	srv := guard.Must(loopback.Serve(s.URI, loopback.Options{Latency: time.Millisecond, Strike: func(n int64, w http.ResponseWriter, r *http.Request) bool {
		if n%97 == 0 {
			http.Error(w, "struck", http.StatusServiceUnavailable) // is tried again
		}
		return n%97 == 0
	}}))
	defer srv.Close()

	var watch looks
	begin := time.Now()
	last := begin
	for round := 0; round == 0 || time.Since(begin) < s.Duration; round++ {
		t := s.turn(round, dir)
		if t.http {
			t.work.URI = srv.URL
		}
		rctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		err := s.round(rctx, t, tr, camera, &res)
		if err == nil && s.Self != "" && round%8 == 5 {
			err = s.kill(rctx, t, dir, round)
			res.Kills++
		}
		cancel()
		guard.Check(ctx.Err())
		if err != nil {
			res.Failed = fmt.Sprintf("round %d (%s): %v", round, t, err)
			break
		}
		res.Rounds++
		watch.sample(time.Since(begin))
		if time.Since(last) >= s.Progress {
			last = time.Now()
			s.Log("soak: %4.0f s, %d rounds, %d frames, %d resumes, %d kills; %s", time.Since(begin).Seconds(), res.Rounds, res.Frames, res.Resumes, res.Kills, watch.now())
		}
	}
	res.Seconds, res.Trend, res.HTTPFaults = time.Since(begin).Seconds(), watch.trend(), srv.Requests()/97
	res.Failed = cmp.Or(res.Failed, res.Trend.grown())
	return res, nil
}

// round opens the set, takes batches, stops at random places and goes on from the state with other threads, and closes everything.
func (s *Soak) round(ctx context.Context, t soakTurn, tr *truth, camera string, res *SoakResult) (err error) {
	defer guard.Into(&err)
	rng := rand.New(rand.NewPCG(s.Seed+1, uint64(t.work.Seed)))
	ds := guard.Must(t.work.open(ctx))
	defer ds.Close()
	var state *loader.State
	for left := 24 + rng.IntN(24); left > 0; { // batches of the round
		stretch := min(left, 1+rng.IntN(16))
		if state != nil {
			t.work.Workers, t.work.Prefetch = 1+rng.IntN(4), 1+rng.IntN(4)
			res.Resumes++
		}
		state = s.stretch(ctx, ds, state, stretch, t, tr, camera, res)
		left -= stretch
	}
	return nil
}

// stretch takes n batches from a state on.
func (s *Soak) stretch(ctx context.Context, ds robocache.Dataset, state *loader.State, n int, t soakTurn, tr *truth, camera string, res *SoakResult) *loader.State {
	ld, _ := t.work.loader(ctx, ds)
	defer ld.Close()
	if state != nil {
		guard.Check(ld.Restore(*state, false))
	}
	src := &engineSource{ld: ld}
	guard.Must(src.take(ctx, func(given *taken) bool {
		if given == nil {
			return false
		}
		b := src.batch
		if err := guard.Try(func() {
			if t.world == 1 { // a rank's positions are the order's affair; alone they follow each other
				order := ld.Order(b.Epoch)
				for i, got := range b.Indices {
					if want := order.At(b.Position + int64(i)); got != want {
						guard.Fail(fmt.Errorf("sample %d came, the order says %d", got, want))
					}
				}
			}
			tr.check(b, camera, t.kind)
		}); err != nil {
			guard.Fail(fmt.Errorf("epoch %d, position %d: %w", b.Epoch, b.Position, err))
		}
		res.Batches, res.Frames = res.Batches+1, res.Frames+int64(b.Rows)
		n--
		return n == 0
	}))
	st := ld.State()
	return &st
}

// kill starts a process that works on the same set and cache, and kills itself in the middle of it, without a chance to tidy up.
func (s *Soak) kill(ctx context.Context, t soakTurn, dir string, round int) error {
	state := filepath.Join(dir, "state-"+strconv.Itoa(round))
	defer os.Remove(state)
	defer os.Remove(state + ".log")
	t.work.Resume = &Resume{Steps: 64, Kill: 3 + round%13, State: state, Log: state + ".log"}
	return t.work.finish(ctx, (&runners.Tools{Self: s.Self}).Own("resume"), nil)
}

// truth is what each frame of a set must be, as a hash: taken once from a plain pass in file order, each frame of which was
// compared with a sequential decode by the ffmpeg program. From then on a frame must be those bits, whatever order, cache,
// pool, store and number of threads it comes through.
type truth struct {
	seed     maphash.Seed
	natural  []uint64            // by sample, at the stored size
	other    map[string][]uint64 // by kind of pixels: the first time counts, and all that follow must agree; 0: not seen
	compared int                 // frames compared with ffmpeg
}

// makeTruth reads the set once. Without ffmpeg nothing is compared, and the pass itself is the truth.
func makeTruth(ctx context.Context, ds robocache.Dataset, root string, w Workload) (t *truth, err error) {
	defer guard.Into(&err)
	cameras := w.cameras(ds.Info())
	if len(cameras) == 0 {
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "bench soak", Msg: "a set without video: there are no frames to check"}
	}
	w.Shuffle, w.Workers = "file", 1
	ld, _ := w.loader(ctx, ds)
	defer ld.Close()
	t = &truth{seed: maphash.MakeSeed(), natural: make([]uint64, ld.Samples()), other: map[string][]uint64{}}
	_, noFFmpeg := exec.LookPath("ffmpeg")
	var video *fileFrames
	defer func() { video.close() }()
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		guard.Check(err)
		rows := guard.Must(ld.Rows(b.Indices))
		refs := make([]robocache.FrameRef, len(rows))
		guard.Check(ds.Frames(ctx, cameras[0], rows, refs))
		p := b.Tensor(cameras[0])
		each := len(p.Data) / b.Rows
		for i, s := range b.Indices {
			got, ref := p.Data[i*each:(i+1)*each], refs[i]
			t.natural[s] = maphash.Bytes(t.seed, got)
			if noFFmpeg != nil || ref.Path == "" || root == "" || p.Shape[1] != 3 {
				continue
			}
			if video == nil || video.name != ref.Path || video.next > ref.Ordinal {
				video.close()
				video = openFrames(ctx, filepath.Join(root, ref.Path), ref.Path, [2]int{p.Shape[3], p.Shape[2]}, false)
			}
			if most, _ := distance(got, guard.Must(video.at(ref.Ordinal))); most > pixelTolerance {
				guard.Fail(fmt.Errorf("%s frame %d is not what ffmpeg decodes (episode %d, row %d)", ref.Path, ref.Ordinal, rows[i].Episode, rows[i].Index))
			}
			t.compared++
		}
		b.Release()
	}
}

// check compares the first frame of each sample of a batch; kind names what decides the pixels beside the sample.
func (t *truth) check(b *loader.Batch, camera, kind string) {
	p := b.Tensor(camera)
	each := len(p.Data) / b.Rows
	want := t.natural
	if kind != "" {
		if t.other[kind] == nil {
			t.other[kind] = make([]uint64, len(t.natural))
		}
		want = t.other[kind]
	}
	for i, s := range b.Indices {
		one := p.Data[i*each : (i+1)*each]
		if len(p.Shape) == 5 {
			one = one[:each/p.Shape[1]] // of a window, the anchor's
		}
		h := maphash.Bytes(t.seed, one)
		if want[s] == 0 && kind != "" {
			want[s] = h
		}
		if h != want[s] {
			guard.Fail(fmt.Errorf("sample %d has other pixels than in the plain pass", s))
		}
	}
}

// look is what a process holds between two rounds, when everything is closed.
type look struct {
	at         float64 // s
	rss        float64 // MiB
	heap       float64 // MiB, of it what the Go runtime holds
	fds        int
	goroutines int
}

// looks are of a process whose work is closed between them: what it still holds must not grow.
type looks []look

// sample looks at this process. Goroutines that are on their way out get a moment.
func (t *looks) sample(at time.Duration) {
	base := 1 << 30
	for _, l := range *t {
		base = min(base, l.goroutines)
	}
	for i := 0; i < 50 && runtime.NumGoroutine() > base; i++ {
		time.Sleep(2 * time.Millisecond)
	}
	debug.FreeOSMemory() // what the collector has not given back yet is no leak
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*t = append(*t, look{at.Seconds(), float64(statm(os.Getpid())) / (1 << 20), float64(m.Sys-m.HeapReleased) / (1 << 20), openFiles(), runtime.NumGoroutine()})
}

func openFiles() (n int) {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, e := range names {
		// Sockets of http connections that idle are the transport's, and bounded by it.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func (t looks) now() string {
	l := t[len(t)-1]
	return fmt.Sprintf("RSS %.0f MiB (Go %.0f), %d files, %d goroutines", l.rss, l.heap, l.fds, l.goroutines)
}

// Trend is how what a process holds went on, over the rounds after the first third, which warm it up.
type Trend struct {
	Looks             int     `json:"looks"`
	RSSStartMiB       float64 `json:"rss_start_mib"` // median of the middle third
	RSSEndMiB         float64 `json:"rss_end_mib"`   // median of the last third
	RSSSlopeMiBPerMin float64 `json:"rss_slope_mib_per_min"`
	FilesStart        int     `json:"files_start"`
	FilesEnd          int     `json:"files_end"`
	GoroutinesStart   int     `json:"goroutines_start"`
	GoroutinesEnd     int     `json:"goroutines_end"`
}

func (t looks) trend() Trend {
	n := len(t)
	if n < 6 {
		return Trend{Looks: n}
	}
	median := func(part looks, of func(look) float64) float64 {
		var s report.Spread
		for _, l := range part {
			s.Add(of(l))
		}
		return s.Median
	}
	rss := func(l look) float64 { return l.rss }
	files := func(l look) float64 { return float64(l.fds) }
	goroutines := func(l look) float64 { return float64(l.goroutines) }
	a, b := t[n/3:2*n/3], t[2*n/3:]
	return Trend{n, median(a, rss), median(b, rss), 60 * t[n/3:].slope(), int(median(a, files)), int(median(b, files)), int(median(a, goroutines)), int(median(b, goroutines))}
}

// slope is the least-squares line's, MiB a second.
func (t looks) slope() float64 {
	var mx, my, sxy, sxx float64
	for _, l := range t {
		mx, my = mx+l.at/float64(len(t)), my+l.rss/float64(len(t))
	}
	for _, l := range t {
		sxy, sxx = sxy+(l.at-mx)*(l.rss-my), sxx+(l.at-mx)*(l.at-mx)
	}
	return sxy / max(sxx, 1e-12)
}

// grown says what grew; "" where nothing did. Both the slope and the step between the thirds must show it: a single high look
// at the end is no trend.
func (r Trend) grown() string {
	switch {
	case r.Looks < 6:
		return fmt.Sprintf("only %d rounds: too few to see a trend", r.Looks)
	case r.RSSEndMiB-r.RSSStartMiB > 12+0.05*r.RSSStartMiB && r.RSSSlopeMiBPerMin > 0:
		return fmt.Sprintf("memory grows: %.0f MiB, then %.0f MiB between rounds (%.2f MiB a minute)", r.RSSStartMiB, r.RSSEndMiB, r.RSSSlopeMiBPerMin)
	case r.FilesEnd > r.FilesStart+1:
		return fmt.Sprintf("open files grow: %d, then %d between rounds", r.FilesStart, r.FilesEnd)
	case r.GoroutinesEnd > r.GoroutinesStart+2:
		return fmt.Sprintf("goroutines grow: %d, then %d between rounds", r.GoroutinesStart, r.GoroutinesEnd)
	}
	return ""
}
