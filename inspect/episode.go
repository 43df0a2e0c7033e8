package inspect

import (
	"context"
	"errors"
	"math"

	"github.com/goatnote-inc/robocache"
)

// EpisodeReport is the output of `robocache inspect --episode N`.
type EpisodeReport struct {
	robocache.Episode
	Origin  *robocache.Origin `json:"origin"` // recording from which the episode was made
	Streams []EpisodeStream   `json:"streams"`
}

// EpisodeStream is one stream of one episode, on its own clock.
type EpisodeStream struct {
	Key  string         `json:"key"`
	Kind robocache.Kind `json:"kind"`
	Rows int            `json:"rows"`
	// FirstNS is absent if the stream has no known timestamps or no rows.
	FirstNS *int64 `json:"first_ns,omitempty"`
	LastNS  *int64 `json:"last_ns,omitempty"`
	// RateHz is (rows − 1) ÷ (last − first). Like jitter and gap it is absent if no time passes.
	RateHz   float64  `json:"rate_hz,omitempty"`
	JitterMS *float64 `json:"jitter_ms,omitempty"` // standard deviation of the steps
	MaxGapMS *float64 `json:"max_gap_ms,omitempty"`
	Gaps     int      `json:"gaps"` // number of steps longer than 1.5 × the mean step
	Repeated int      `json:"repeated"`
	Problem  string   `json:"problem,omitempty"`
}

// Episode returns the report of one episode.
func Episode(ctx context.Context, ds robocache.Dataset, episode int) (*EpisodeReport, error) {
	ep, err := ds.Episode(ctx, episode)
	if err != nil {
		return nil, err
	}
	origin, err := robocache.OriginOf(ctx, ds, episode)
	if err != nil {
		return nil, err
	}
	r := &EpisodeReport{Episode: ep, Origin: origin}
	features := ds.Info().Features
	for i := range features {
		f := &features[i]
		if f.Default {
			continue
		}
		s := EpisodeStream{Key: f.Key, Kind: f.Kind}
		times, err := ds.Times(ctx, episode, f.Key)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, robocache.ErrInternal) {
			return nil, err
		}
		if err != nil {
			s.Problem = err.Error()
			s.Rows, err = robocache.RowsIn(ctx, ds, episode, f)
			if errors.Is(err, robocache.ErrInternal) {
				return nil, err
			}
			if err != nil {
				s.Rows = 0
			}
		} else {
			s.setTimes(times)
		}
		r.Streams = append(r.Streams, s)
	}
	return r, nil
}

func (s *EpisodeStream) setTimes(times []int64) {
	s.Rows = len(times)
	if len(times) == 0 {
		return
	}
	first, last := times[0], times[len(times)-1]
	s.FirstNS, s.LastNS = &first, &last
	if len(times) < 2 || last == first {
		return
	}
	mean := float64(last-first) / float64(len(times)-1)
	s.RateHz = 1e9 / mean
	var sum, gap float64
	for i := 1; i < len(times); i++ {
		d := times[i] - times[i-1]
		sum += (float64(d) - mean) * (float64(d) - mean)
		gap = math.Max(gap, float64(d)/1e6)
		if d == 0 {
			s.Repeated++
		}
		if float64(d) > 1.5*mean {
			s.Gaps++
		}
	}
	jitter := math.Sqrt(sum/float64(len(times)-1)) / 1e6
	s.JitterMS, s.MaxGapMS = &jitter, &gap
}
