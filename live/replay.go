package live

import (
	"bytes"
	"cmp"
	"context"
	"math/bits"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/video"
)

// ReplayConfig configures Replay.
type ReplayConfig struct {
	Episodes []int // episode indices; nil: all
	MaxTicks int64 // 0: no limit
	// ArrivalDelay is how long after its timestamp a sample arrives, if the recording has no arrival
	// times.
	ArrivalDelay align.PerKey[align.Nanos]
}

// ReplayResult is the comparison of live observations with those of a Loader.
type ReplayResult struct {
	Ticks          int64 `json:"ticks"`
	DifferentTicks int64 `json:"different_ticks"`
	// DifferentBits and the numbers of values are those of Replay; Verify does not know them.
	DifferentBits int64            `json:"different_bits"`
	DifferentKeys map[string]int64 `json:"different_keys,omitempty"` // ticks with a difference
	Masked        int64            `json:"masked"`                   // values that are padding
	Values        int64            `json:"values"`                   // values of all keys and steps
	FirstTick     int64            `json:"first_different_tick_ns,omitempty"`
}

// Replay pushes the samples of a recording in the order of their arrival and compares the
// observation of each tick with the sample of a Loader, bit by bit.
func Replay(
	ctx context.Context, ds robocache.Dataset, c *contract.Contract, cfg ReplayConfig,
) (*ReplayResult, error) {
	if problems := c.Check(ds); len(problems) > 0 {
		return nil, robocache.Misuse("live", problems[0].Where,
			"the recording does not fit the contract: %s", problems[0].Message)
	}
	l, err := Open(ctx, c, Config{})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	training := c.Options
	training.Episodes, training.Split = cfg.Episodes, robocache.SplitAll
	if cfg.Episodes != nil {
		training.Split = ""
	}
	a := *training.Align
	a.ArrivalDelay = cfg.ArrivalDelay
	training.Align = &a
	items, err := loader.NewMap(ctx, ds, training)
	if err != nil {
		return nil, err
	}
	defer items.Close()
	r := &replay{ctx: ctx, ds: ds, live: l, items: items, cfg: &cfg}
	return &r.result, r.run()
}

// replay is one run of Replay.
type replay struct {
	ctx    context.Context
	ds     robocache.Dataset
	live   *Live
	items  *loader.Map
	cfg    *ReplayConfig
	events []event
	result ReplayResult
	seen   *Observation // of the last tick; its memory is used again
	videos *videoReader
}

// event is one sample of a recording.
type event struct {
	arrival, stamp int64
	stream         *streamBuffer
	row            robocache.Row
}

// run replays the selected episodes one after the other.
func (r *replay) run() error {
	r.result.DifferentKeys = map[string]int64{}
	r.videos = newVideoReader(r.ctx, r.ds)
	defer r.videos.pool.Close()
	defer func() {
		if r.seen != nil {
			r.seen.Release()
		}
	}()
	episode, next := -1, 0
	for i := range r.items.Len() {
		if r.cfg.MaxTicks > 0 && r.result.Ticks >= r.cfg.MaxTicks {
			break
		}
		rows, err := r.items.Rows([]int64{i})
		if err != nil {
			return err
		}
		times, err := r.items.Times(r.ctx, []int64{i})
		if err != nil {
			return err
		}
		if rows[0].Episode != episode {
			episode, next = rows[0].Episode, 0
			if err := r.live.Reset(); err != nil {
				return err
			}
			if err := r.listEvents(episode); err != nil {
				return err
			}
		}
		for ; next < len(r.events) && r.events[next].arrival <= times[0]; next++ {
			if err := r.pushEvent(&r.events[next]); err != nil {
				return err
			}
		}
		if err := r.compareTick(i, times[0]); err != nil {
			return robocache.At(err, robocache.Where{
				"episode": r.ds.Info().EpisodeIndex(episode), "tick": times[0],
			})
		}
	}
	return nil
}

// listEvents lists the samples of an episode in the order of their arrival, and sets its task.
func (r *replay) listEvents(episode int) error {
	r.events = r.events[:0]
	a := r.live.Contract.Options.Align
	for _, s := range r.live.streams {
		if s.Key == "task" {
			texts, err := r.ds.Text(r.ctx, "task", []robocache.Row{{Episode: episode}})
			if err != nil {
				return err
			}
			r.live.SetTask(texts[0])
			continue
		}
		stamps, err := align.TimestampsOf(r.ctx, r.ds, episode, s.Key, "")
		if err != nil {
			return err
		}
		arrivals, shift := stamps, int64(r.cfg.ArrivalDelay.For(s.Key))
		if align.HasArrivalTimes(r.ds, s.Key) {
			arrivals, err = align.ArrivalTimes(r.ctx, r.ds, episode, s.Key, "")
			if err != nil {
				return err
			}
		} else {
			shift += int64(a.Offset[s.Key])
		}
		for k, stamp := range stamps {
			r.events = append(r.events, event{
				arrivals[k] + shift, stamp, s, robocache.Row{Episode: episode, Index: k},
			})
		}
	}
	slices.SortStableFunc(
		r.events,
		func(x, y event) int { return cmp.Compare(x.arrival, y.arrival) },
	)
	return nil
}

// pushEvent pushes one sample of the recording.
func (r *replay) pushEvent(e *event) error {
	s := e.stream
	rows := []robocache.Row{e.row}
	x := Sample{Stamp: e.stamp, Arrival: e.arrival}
	var err error
	switch {
	case r.lacksValue(s, rows):
		x.IsMissing = true
	case s.Kind == robocache.KindText || s.Kind == robocache.KindEvent:
		var texts []string
		if texts, err = r.ds.Text(r.ctx, s.Key, rows); err == nil {
			x.Text = texts[0]
		}
	case s.Kind == robocache.KindImage || s.Kind == robocache.KindVideo:
		refs := make([]robocache.FrameRef, 1)
		if err = r.ds.Frames(r.ctx, s.Key, rows, refs); err != nil {
			break
		}
		if x.Still = &refs[0]; refs[0].Path != "" {
			return r.videos.decode(&refs[0], func(f video.Frame) error {
				planar, ok := f.(video.PlanarFrame)
				if !ok {
					return robocache.Unsupported("live", nil, "frames without planes")
				}
				x.Frame = planar
				return r.live.Push(s.Key, &x)
			})
		}
	case s.Ragged():
		x.Data, _, err = robocache.GatherRagged(r.ctx, r.ds, s.Key, rows)
	default:
		x.Data = make([]byte, s.RowBytes())
		err = r.ds.Gather(r.ctx, s.Key, rows, x.Data)
	}
	if err != nil {
		return robocache.At(err, robocache.Where{"stream": s.Key})
	}
	return r.live.Push(s.Key, &x)
}

// lacksValue reports whether a row of a stream other than a camera holds no value.
func (r *replay) lacksValue(s *streamBuffer, rows []robocache.Row) bool {
	if s.Kind == robocache.KindImage || s.Kind == robocache.KindVideo {
		return false // its reference says so
	}
	valid, err := robocache.Validity(r.ctx, r.ds, &s.Feature, rows)
	return err == nil && valid != nil && valid[0] == 0
}

// compareTick compares the observation of a tick with a sample of the loader.
func (r *replay) compareTick(sample, tick int64) (err error) {
	seen, err := r.live.Observe(r.ctx, tick, 0, r.seen)
	if err != nil {
		return err
	}
	r.seen = seen
	want, err := r.items.Items(r.ctx, []int64{sample})
	if err != nil {
		return err
	}
	defer want.Release()
	r.result.Ticks++
	if different := r.seen.Differences(want); different != nil {
		if r.result.DifferentTicks == 0 {
			r.result.FirstTick = tick
		}
		r.result.DifferentTicks++
		for key, n := range different {
			r.result.DifferentBits += n
			r.result.DifferentKeys[key]++
		}
	}
	for i, f := range r.seen.Fields {
		if t, _ := r.seen.Entry(i); f.Mask {
			r.result.Values += int64(len(t.Data))
			r.result.Masked += int64(bytes.Count(t.Data, []byte{1}))
		}
	}
	return nil
}

// Differences returns the number of different bits of each key of a Loader's batch of one sample. It
// returns nil if all are equal. A text that differs counts as one bit.
func (o *Observation) Differences(want *loader.Batch) map[string]int64 {
	var found map[string]int64
	note := func(key string, n int64) {
		if n == 0 {
			return
		}
		if found == nil {
			found = map[string]int64{}
		}
		found[key] = n
	}
	for _, t := range want.Tensors {
		var data []byte
		if have := o.Tensor(t.Key); have != nil {
			data = have.Data
		}
		note(t.Key, differentBits(data, t.Data))
	}
	for _, t := range want.Texts {
		if !slices.Equal(o.Text(t.Key), t.Values) {
			note(t.Key, 1)
		}
	}
	return found
}

// differentBits counts the bits that differ. Bytes that only one side has count as different.
func differentBits(a, b []byte) (n int64) {
	if bytes.Equal(a, b) {
		return 0
	}
	for i := range min(len(a), len(b)) {
		n += int64(bits.OnesCount8(a[i] ^ b[i]))
	}
	return n + 8*int64(max(len(a), len(b))-min(len(a), len(b)))
}

// videoReader decodes frames of the video files of a dataset.
type videoReader struct {
	ctx  context.Context
	lib  *video.Library
	pool *video.Pool
}

func newVideoReader(ctx context.Context, ds robocache.Dataset) *videoReader {
	return &videoReader{ctx, video.LibraryOf(ds), video.NewPool(256 << 20)}
}

// decode calls fn with the frame of a reference, which is valid during the call.
func (v *videoReader) decode(ref *robocache.FrameRef, fn func(f video.Frame) error) error {
	return video.EachFrame(v.ctx, v.lib, []robocache.FrameRef{*ref}, video.Each{Pool: v.pool},
		func(_ []int, f video.Frame) error { return fn(f) })
}
