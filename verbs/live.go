package verbs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader/contract"
)

// LiveRequest holds the options of WatchLive.
type LiveRequest struct {
	// Contract describes the observations: a file, or its JSON.
	Contract string `json:"contract"`
	// Source is the URI of the transport, such as foxglove://robot:8765.
	Source string `json:"source"`
	// HZ is the rate of the ticks; empty: the rate in the contract.
	HZ string `json:"hz"`
	// Seconds is the time after which WatchLive ends; 0: it runs until ctx is canceled.
	Seconds float64 `json:"seconds"`
	// Record is a file to which samples and ticks are recorded.
	Record string `json:"record"`
}

// LiveSecond reports the observations of one second.
type LiveSecond struct {
	Time    float64      `json:"time_s"` // since the start
	Ticks   int64        `json:"ticks"`
	Failed  int64        `json:"failed"` // ticks without an observation
	Streams []LiveStream `json:"streams"`
	// Error is the error of the last tick that failed, or else the newest error of the source.
	Error string `json:"error,omitempty"`
}

// LiveStream reports one stream during a second.
type LiveStream struct {
	Key      string   `json:"key"`
	Received int64    `json:"received"`
	Rejected int64    `json:"rejected"`
	Late     int64    `json:"late"`
	Dropped  int64    `json:"dropped"`
	Masked   int64    `json:"masked"` // ticks with a masked value
	Age      *float64 `json:"age_s"`  // newest sample's, at the last tick; nil: no sample has arrived
}

// WatchLive observes a running robot and calls report once a second.
func WatchLive(
	ctx context.Context, r *LiveRequest, report func(*LiveSecond) error,
) (err error) {
	c, err := loadContract(r.Contract)
	if err != nil {
		return err
	}
	rate, err := ParseRate("hz", r.HZ)
	if err != nil {
		return err
	}
	if rate.Zero() {
		rate = c.Options.Align.HZ
	}
	if r.Source == "" || r.Seconds < 0 {
		return misuse("live: expected %s, and %s of 0 or more",
			optionName("source"), optionName("seconds"))
	}
	l, err := live.Open(ctx, c, live.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if r.Record != "" {
		if err := l.Record(r.Record); err != nil {
			return err
		}
	}
	if r.Seconds > 0 {
		limited, cancel := context.WithTimeoutCause(
			ctx, time.Duration(r.Seconds*1e9), errTimeIsOver)
		defer cancel()
		ctx = limited
	}
	if err := l.Run(ctx, r.Source); err != nil {
		return err
	}
	w := liveWatch{live: l, before: l.Stats(), start: time.Now()}
	defer w.releaseLast()
	ticks, seconds := time.NewTicker(time.Duration(rate.Nanos(1))), time.NewTicker(time.Second)
	defer ticks.Stop()
	defer seconds.Stop()
	for {
		select {
		case <-ticks.C:
			w.countTick(ctx)
		case <-seconds.C:
			if err := report(w.endSecond()); err != nil {
				return err
			}
		case <-ctx.Done():
			if context.Cause(ctx) == errTimeIsOver {
				return nil
			}
			return ctx.Err()
		}
	}
}

// errTimeIsOver is the cause of the end after LiveRequest.Seconds.
var errTimeIsOver = errors.New("the time is over")

// liveWatch counts the observations of a second.
type liveWatch struct {
	live   *live.Live
	start  time.Time
	seen   *live.Observation // the last one; its memory is used again
	before map[string]live.StreamStats
	second LiveSecond
	masked map[string]int64
}

// countTick counts one tick.
func (w *liveWatch) countTick(ctx context.Context) {
	seen, err := w.live.Observe(ctx, live.Now, 0, w.seen)
	w.second.Ticks++
	if err != nil {
		w.second.Failed++
		w.second.Error = err.Error()
		return
	}
	w.seen = seen
	if w.masked == nil {
		w.masked = map[string]int64{}
	}
	for i := range seen.Fields {
		if f := &seen.Fields[i]; f.Mask && bytes.IndexByte(seen.Tensor(f.Key).Data, 1) >= 0 {
			w.masked[strings.TrimSuffix(f.Key, "_is_pad")]++
		}
	}
}

// endSecond returns the report of the second that ends now, and begins the next one.
func (w *liveWatch) endSecond() *LiveSecond {
	s := w.second
	s.Time = time.Since(w.start).Seconds()
	s.Streams = []LiveStream{}
	if err := w.live.Err(); err != nil && s.Error == "" {
		s.Error = err.Error()
	}
	counts := w.live.Stats()
	for i, key := range w.live.Keys() {
		if key == "task" {
			continue
		}
		now, before := counts[key], w.before[key]
		row := LiveStream{
			Key: key, Received: now.Received - before.Received,
			Rejected: now.Rejected - before.Rejected, Late: now.Late - before.Late,
			Dropped: now.Dropped - before.Dropped, Masked: w.masked[key],
		}
		if w.seen != nil && w.seen.Ages[i] >= 0 {
			age := float64(w.seen.Ages[i]) / 1e9
			row.Age = &age
		}
		s.Streams = append(s.Streams, row)
	}
	w.before, w.second = counts, LiveSecond{}
	clear(w.masked)
	return &s
}

func (w *liveWatch) releaseLast() {
	if w.seen != nil {
		w.seen.Release()
	}
}

// loadContract reads a contract: a file, or its JSON.
func loadContract(text string) (*contract.Contract, error) {
	switch {
	case text == "":
		return nil, misuse("live: expected %s", optionName("contract"))
	case strings.HasPrefix(text, "{"):
		return contract.Parse([]byte(text))
	}
	return contract.Load(text)
}

// LiveCheckRequest holds the options of CheckLive.
type LiveCheckRequest struct {
	// URI is the recording.
	URI string `json:"-" arg:"RECORDING"`
	Opening
	// Contract describes the observations: a file, or its JSON.
	Contract string `json:"contract"`
}

// openRecording reads the contract and opens the recording. The caller must close the recording.
func (r *LiveCheckRequest) openRecording(
	ctx context.Context,
) (c *contract.Contract, ds robocache.Dataset, err error) {
	if c, err = loadContract(r.Contract); err == nil {
		ds, err = r.Opening.Open(ctx, r.URI, "")
	}
	return c, ds, err
}

// ContractCheck lists what prevents a recording from giving the observations of a contract.
type ContractCheck struct {
	URI      string              `json:"uri"`
	Findings []robocache.Finding `json:"findings"`
}

// HasFindings reports whether the recording does not fit.
func (c *ContractCheck) HasFindings() bool { return AnyWrong(c.Findings) }

// CheckLive checks whether a recording can give the observations of a contract.
func CheckLive(ctx context.Context, r *LiveCheckRequest, _ Observer) (*ContractCheck, error) {
	c, ds, err := r.openRecording(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	return &ContractCheck{ds.Info().URI, append([]robocache.Finding{}, c.Check(ds)...)}, nil
}

// LiveReplayRequest holds the options of ReplayLive.
type LiveReplayRequest struct {
	LiveCheckRequest
	// Episodes lists the indices of the episodes to replay, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	// MaxTicks is the number of ticks to compare; 0: all.
	MaxTicks int `json:"max_ticks"`
}

// ReplayLive compares the live observations of a recording with the samples of a Loader.
func ReplayLive(
	ctx context.Context, r *LiveReplayRequest, _ Observer,
) (*live.ReplayResult, error) {
	c, ds, err := r.openRecording(ctx)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	cfg := live.ReplayConfig{MaxTicks: int64(r.MaxTicks)}
	positions, err := ds.Info().ParseEpisodes(r.Episodes)
	if err != nil {
		return nil, err
	}
	for _, p := range positions {
		cfg.Episodes = append(cfg.Episodes, int(ds.Info().EpisodeIndex(p)))
	}
	return live.Replay(ctx, ds, c, cfg)
}

// LiveVerifyRequest holds the options of VerifyLive.
type LiveVerifyRequest struct {
	// Path is a file that WatchLive or a policy recorded.
	Path string `json:"-" arg:"PATH"`
}

// VerifyLive replays a recording of observations, and compares them.
func VerifyLive(
	ctx context.Context, r *LiveVerifyRequest, _ Observer,
) (*live.ReplayResult, error) {
	return live.Verify(ctx, r.Path)
}
