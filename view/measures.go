package view

import (
	"context"
	"math"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/inspect"
)

// restSpeed is the speed below which a channel is at rest, as a fraction of its range per second.
const restSpeed = 0.02

// movement describes how the robot moves in each episode, computed from joint positions.
type movement struct {
	job
	key        string
	jerk, idle []float64 // per episode; NaN if unknown
}

// serveMeasures answers columns over the episodes. With run=1 it also starts their computation.
// Jerk is the root mean square of the third derivative, with channels scaled by their range in the
// dataset. Idle is the fraction of rows at which every channel is at rest.
func (s *Server) serveMeasures(q *request) error {
	m := &q.base.movement
	if q.URL.Query().Get("run") == "1" {
		s.runInBackground(q.base.measureMovement)
	}
	var out struct {
		jobStatus
		Key    string `json:"key"`
		Points int    `json:"points"`
	}
	var jerk, idle []float64
	out.jobStatus = m.progress(func() { out.Key, jerk, idle = m.key, m.jerk, m.idle })
	if err := m.internalError(); err != nil {
		return err
	}
	out.Points = len(jerk)
	return q.writeBinary(&out, jerk, idle)
}

// positionStream returns the stream that most likely holds the joint positions.
func (x *viewedSet) positionStream() *robocache.Feature {
	for _, suffix := range []string{
		"observation.state",
		"position",
		"qpos",
		"state",
		"action",
		"",
	} {
		for i := range x.info.Features {
			f := &x.info.Features[i]
			mayMove := !f.Default && !f.Latched && inspect.Curves(f) && f.DType.Float()
			if mayMove && strings.HasSuffix(f.Key, suffix) {
				return f
			}
		}
	}
	return nil
}

// measureMovement reads the positions of all episodes.
func (x *viewedSet) measureMovement(ctx context.Context) error {
	m := &x.movement
	m.runOnce(func(progress func(done, total int64)) (func(), error) {
		f := x.positionStream()
		if f == nil {
			return nil, robocache.Unsupported(
				"view",
				nil,
				"the dataset has no stream of numbers that move",
			)
		}
		n := x.info.Episodes
		span, err := x.channelRanges(ctx, f)
		if err != nil {
			return nil, err
		}
		jerk, idle := make([]float64, n), make([]float64, n)
		for e := range n {
			jerk[e], idle[e] = math.NaN(), math.NaN()
			oneJerk, oneIdle, err := episodeMovement(ctx, x.ds, f, e, span)
			if robocache.IsFatal(err) {
				return nil, err
			}
			if err == nil {
				jerk[e], idle[e] = oneJerk, oneIdle
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			progress(int64(e+1), int64(n))
		}
		return func() { m.key, m.jerk, m.idle = f.Key, jerk, idle }, nil
	})
	return m.internalError()
}

// widenRanges includes the finite values of an episode in the ranges of the channels.
func (x *viewedSet) widenRanges(
	ctx context.Context,
	f *robocache.Feature,
	e int,
	low, high []float64,
) error {
	n, err := robocache.RowsIn(ctx, x.ds, e, f)
	if err != nil {
		return err
	}
	return inspect.EachRow(ctx, x.ds, f, e, 0, n, func(_ int, values []float64) {
		for c, v := range values {
			if v-v == 0 { // not NaN or infinite
				low[c] = min(low[c], v)
				high[c] = max(high[c], v)
			}
		}
	})
}

// channelRanges returns the range of each channel in the dataset. Episodes that cannot be read are
// skipped: the doctor reports them.
func (x *viewedSet) channelRanges(ctx context.Context, f *robocache.Feature) ([]float64, error) {
	low, high := make([]float64, f.Elements()), make([]float64, f.Elements())
	for c := range low {
		low[c] = math.Inf(1)
		high[c] = math.Inf(-1)
	}
	for e := range x.info.Episodes {
		if err := x.widenRanges(ctx, f, e, low, high); robocache.IsFatal(err) {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for c := range high {
		high[c] -= low[c]
	}
	return high, nil
}

// episodeMovement computes the jerk and the idle fraction of an episode.
func episodeMovement(
	ctx context.Context,
	ds robocache.Dataset,
	f *robocache.Feature,
	e int,
	span []float64,
) (jerk, idle float64, err error) {
	l, err := inspect.TimelineOf(ctx, ds, e, f)
	if err != nil {
		return jerk, idle, err
	}
	if l.Rows < 4 || l.Times[l.Rows-1] <= l.Times[0] {
		return math.NaN(), math.NaN(), nil
	}
	dt := float64(l.Times[l.Rows-1]-l.Times[0]) / 1e9 / float64(l.Rows-1)
	before := make([][4]float64, len(span)) // last four values of each channel, newest first
	squares, terms, rests := 0.0, 0, 0
	if err := inspect.EachRow(ctx, ds, f, e, 0, l.Rows, func(row int, values []float64) {
		rest := true
		for c, v := range values {
			if span[c] > 0 {
				b := &before[c]
				*b = [4]float64{v / span[c], b[0], b[1], b[2]}
				rest = rest && math.Abs(b[0]-b[1]) < restSpeed*dt
				if j := (b[0] - 3*b[1] + 3*b[2] - b[3]) / (dt * dt * dt); row >= 3 && j-j == 0 {
					squares += j * j
					terms++
				}
			}
		}
		if rest && row > 0 {
			rests++
		}
	}); err != nil {
		return jerk, idle, err
	}
	return math.Sqrt(squares / float64(terms)), float64(rests) / float64(l.Rows-1), nil
}
