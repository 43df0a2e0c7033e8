package align

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// DefaultMode returns the mode of a stream for which none is chosen. It is sum if some of its
// channels are relative (Feature.RelativeChannels), or else the mode that the feature states
// (Feature.Interpolation), if its values allow that mode. Otherwise it is linear for floats;
// previous for integers, booleans, text, events and ragged numbers; and nearest for frames and
// point clouds.
func DefaultMode(f *robocache.Feature) Mode {
	if channels, _ := f.RelativeChannels(); len(channels) > 0 {
		return Sum
	}
	isFloats := f.Kind == robocache.KindNumeric && !f.Ragged() && f.DType.Float()
	if f.Interpolation != "" {
		m, err := kernel.ParseMode(f.Interpolation)
		if err == nil && (!m.Computes() || isFloats && (m != Slerp || hasRotations(f))) {
			return m
		}
	}
	switch {
	case isFloats:
		return Linear
	case f.Kind == robocache.KindNumeric,
		f.Kind == robocache.KindText,
		f.Kind == robocache.KindEvent:
		return Previous
	}
	return Nearest
}

// hasRotations reports whether slerp can rotate channels in a row of the feature.
func hasRotations(f *robocache.Feature) bool {
	if len(f.Rotations) > 0 {
		return robocache.CheckRotations(f.Rotations, f.Elements()) == nil
	}
	return f.Elements()%4 == 0
}

// Mode returns the mode of a stream: the named one, sum if relative channels are named, slerp if
// rotations are named, or else DefaultMode. chosen reports whether the configuration decided it. The
// default of a causal observation without a delay is previous, because its next sample has not
// arrived.
func (c *Config) Mode(f *robocache.Feature) (m Mode, chosen bool) {
	m, chosen = c.freeMode(f)
	if !chosen && m != Previous && c.IsCausal(f.Key) && c.Delay.For(f.Key) == 0 {
		return Previous, false
	}
	return m, chosen
}

// freeMode is Mode for streams that may look ahead.
func (c *Config) freeMode(f *robocache.Feature) (m Mode, chosen bool) {
	if m, ok := c.Modes[f.Key]; ok {
		return m, true
	}
	relative, stated := c.Relative[f.Key]
	if stated && !relative.None {
		return Sum, true
	}
	if c.Rotations[f.Key] != nil {
		return Slerp, true
	}
	if stated { // that no channel is relative, whatever the feature states
		absolute := *f
		absolute.Relative = []int{}
		return DefaultMode(&absolute), false
	}
	return DefaultMode(f), false
}

// Summed returns the channels of a stream that mode sum adds up. They are those that the
// configuration names, or else the relative ones of the feature, or else all except a gripper. Mode
// sum interpolates the other channels linearly.
func (c *Config) Summed(f *robocache.Feature) (channels []int, err error) {
	channels, _ = f.RelativeChannels()
	if relative, stated := c.Relative[f.Key]; stated || len(channels) == 0 {
		relative.None = false // a mode sum that was named needs channels
		if channels, err = relative.Of(f); err != nil {
			return nil, err
		}
	}
	return channels, f.CheckSummable(channels)
}

// Turned returns the rotations of a stream under slerp, in any form. They are those that the
// configuration names, or else those of the feature. It returns none if the configuration names
// quaternions (Quats), which replace the rotations of the feature.
func (c *Config) Turned(f *robocache.Feature) []robocache.Rotation {
	if r := c.Rotations[f.Key]; r != nil {
		return r
	}
	if c.Quats[f.Key] != nil || len(f.Rotations) == 0 {
		return nil
	}
	return f.Rotations
}

// Shift returns what is added to the timestamps of a stream: its offset minus its latency.
func (c *Config) Shift(key string) (int64, error) {
	offset, latency := int64(c.Offset[key]), int64(c.Latency[key].Fixed)
	for _, v := range []int64{offset, latency} {
		if v <= -maxTime/2 || v >= maxTime/2 {
			return 0, Options{
				Stream: key,
			}.streamError(
				robocache.ErrMisuse,
				nil,
				"offset or latency outside ±2^61 ns",
				"",
				strconv.FormatInt(v, 10),
			)
		}
	}
	return offset - latency, nil
}

// CheckShifts rejects offsets, latencies and drifts that are out of range.
func (c *Config) CheckShifts() (err error) {
	for _, k := range append(keysOf(c.Offset), keysOf(c.Latency)...) {
		if _, err := c.Shift(k); err != nil {
			return err
		}
	}
	for k, d := range c.Drift {
		if err := robocache.At(d.Check(), robocache.Where{"stream": k}); err != nil {
			return err
		}
	}
	return nil
}

// Timestamps returns the timestamps of a stream by its clock, corrected by its drift and checked.
// Offset and latency (Shift) are not applied.
func (c *Config) Timestamps(
	ctx context.Context,
	ds robocache.Dataset,
	ep int,
	key string,
) (_ []int64, err error) {
	name := key
	if name == "task" && ds.Info().Feature("task") == nil {
		name = ""
	}
	timestamps, err := TimestampsOf(ctx, ds, ep, name, c.Clock[key])
	if err != nil {
		return nil, err
	}
	if d := c.Drift[key]; !d.IsZero() {
		timestamps = slices.Clone(timestamps)
		// Check the timestamps before the correction, because differences beyond ±2^62 overflow.
		if err := CheckTimestamps(timestamps, key); err != nil {
			return nil, err
		}
		d.Correct(timestamps)
		if err := CheckTimestamps(timestamps, key); err != nil {
			return nil, robocache.Misuse("align", robocache.Where{
				"episode": ds.Info().EpisodeIndex(ep),
				"stream":  key,
			}, "drift: its moment at lies too far from the stream's timestamps").
				Expected("a moment on the stream's own clock", strconv.FormatInt(d.At, 10)+" ns").
				WithCause(err)
		}
	}
	return timestamps, CheckTimestamps(timestamps, key)
}

// TimestampsOf returns the timestamps of a stream by one of its clocks. key "" is the episode's own
// rows; clock "" is the first clock. The timestamps are those of Dataset.Times. Only times on a grid
// that a format stored as float32 seconds get their exact values (OnGrid, align.A13).
func TimestampsOf(
	ctx context.Context,
	ds robocache.Dataset,
	ep int,
	key, clock string,
) (_ []int64, err error) {
	if clock != "" {
		return timestampsBy(ctx, ds, ep, key, clock)
	}
	timestamps, err := ds.Times(ctx, ep, key)
	if err != nil {
		return nil, err
	}
	info := ds.Info()
	rate := info.FPS
	f := info.Feature(key)
	if info.Clock != "" || f != nil && f.Clock != "" {
		return timestamps, nil // recorded in nanoseconds
	}
	if f != nil && !f.FPS.Zero() {
		rate = f.FPS
	}
	return OnGrid(timestamps, rate), nil
}

func timestampsBy(
	ctx context.Context,
	ds robocache.Dataset,
	ep int,
	key, clock string,
) ([]int64, error) {
	o := Options{Stream: key}
	known := robocache.ClocksOf(ds, key)
	switch {
	case len(known) == 0:
		return nil, o.streamError(
			robocache.ErrUnsupported,
			nil,
			"this stream was timestamped by one clock",
			"no choice of clock",
			strconv.Quote(clock),
		)
	case !slices.Contains(known, clock):
		return nil, o.streamError(
			robocache.ErrMisuse,
			nil,
			"this stream has no such clock",
			strings.Join(known, ", "),
			strconv.Quote(clock),
		)
	}
	timestamps, err := ds.Capabilities().TimesBy(ctx, ep, key, clock)
	if err != nil {
		return nil, err
	}
	if err := CheckTimestamps(timestamps, key); err != nil {
		e := robocache.At(err, robocache.Where{"clock": clock}).(*robocache.Error)
		if e.Hint == "" && e.Msg == "timestamps must not decrease" {
			e.Hint = "the rows lie in the order of another of the stream's clocks: opened with " +
				robocache.Option("options", "clock", clock) + ", or with clock: " + clock +
				" of the stream in a mapping, they lie in this one's"
		}
		return nil, e
	}
	return timestamps, nil
}

// Bounds reports whether a stream bounds the extent of a timeline. In a dataset with one clock all
// streams do. In others, texts, events, latched streams and streams with one sample do not: their
// values hold on after the last timestamp.
func Bounds(f *robocache.Feature, timestamps []int64) bool {
	if f.Clock == "" {
		return true
	}
	if f.Latched {
		return false
	}
	return len(timestamps) != 1 && f.Kind != robocache.KindText && f.Kind != robocache.KindEvent
}

// Mask makes the rows of a plan zero and invalid that read a sample without a value (align.A14).
// valid[k] states whether sample base + k has a value.
func Mask(p *kernel.Plan, valid []uint8, base int) {
	for i, k := range p.Kind {
		l, r := int(p.Left[i])-base, int(p.Right[i])-base
		lost := false
		if s := p.Sums; s != nil {
			from, to := max(int(s.From[i])-base, 0), max(int(s.To[i])-base, 0)
			lost = slices.Contains(valid[from:to], 0)
		}
		switch k {
		case kernel.Zero: // reads no sample
			lost = false
		case kernel.Copy:
			lost = lost || valid[l] == 0
		case kernel.Blend:
			// The value is left + Weight · (right − left). A neighbor that does not enter may be lost.
			usesLeft, usesRight := p.Weight[i] != 1, p.Weight[i] != 0
			lost = lost || usesLeft && valid[l] == 0 || usesRight && valid[r] == 0
		case kernel.Window:
			lost = slices.Contains(valid[l:r], 0)
		}
		if lost {
			p.Kind[i], p.Valid[i] = kernel.Zero, 0
		}
	}
}

// maskPlan returns the plan of a stream, masked if some of its rows have no value.
func (a *aligner) maskPlan(s *source, p *kernel.Plan) (*kernel.Plan, error) {
	if !s.feature.Masked {
		return p, nil
	}
	lo, hi := sampleRange(p)
	const perSample, perRow = 16 + 1, 1 + 1 // Row and validity; Kind and Valid of the new plan
	if err := a.reserve(int64(hi-lo)*perSample + int64(p.Len())*perRow); err != nil {
		return nil, err
	}
	rows := make([]robocache.Row, hi-lo)
	for i := range rows {
		rows[i] = robocache.Row{Episode: a.ep, Index: lo + i}
	}
	valid, err := robocache.Validity(a.ctx, a.ds, &s.feature, rows)
	if err != nil {
		return nil, err
	}
	if valid == nil { // every sample has a value
		return p, nil
	}
	q := *p
	q.Kind, q.Valid = slices.Clone(p.Kind), slices.Clone(p.Valid)
	Mask(&q, valid, lo)
	if s.opt.Edge == EdgeError {
		if i := slices.Index(q.Valid, 0); i >= 0 {
			return nil, s.opt.streamError(
				robocache.ErrMalformed,
				robocache.Where{"index": i},
				"a row without a value is read",
				`a value, because edge is "error"`,
				"none",
			)
		}
	}
	return &q, nil
}
