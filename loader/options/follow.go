package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/loader/internal/arrivals"
	"github.com/goatnote-inc/robocache/query"
)

// FollowAt selects the moments at which new episodes enter.
type FollowAt string

const (
	FollowEpoch FollowAt = "epoch" // at the start of epochs; default
	FollowStep  FollowAt = "step"  // after a number of steps, which make up an epoch
)

// AgeUnit is the unit in which Follow.Recency counts the age of an episode.
type AgeUnit = arrivals.Unit

// Follow states how new episodes of a growing dataset enter, and which episodes an epoch has. The
// JSON is an object, or true for the defaults.
type Follow struct {
	// At selects the moments at which new episodes enter.
	At FollowAt `json:"at,omitempty"`
	// Every is the number of epochs, or of steps, between two such moments. The default is one
	// epoch. Steps have no default.
	Every int `json:"every,omitempty"`
	// Recency is the age at which the weight of an episode is half. 0: all weights are equal.
	Recency float64 `json:"recency,omitempty"`
	// RecencyUnit is the unit of Recency.
	RecencyUnit AgeUnit `json:"recency_unit,omitempty"`
	// Where is an expression of package query. Episodes for which it is false at their arrival are
	// left out.
	Where string `json:"where,omitempty"`
	// Version names the policy version of an episode: the first number of this stream, or a note of
	// its recording.
	Version string `json:"version,omitempty"`
	// VersionLag leaves out episodes whose version is more than this before the newest one.
	VersionLag *float64 `json:"version_lag,omitempty"`
	// Capacity is the maximum number of episodes, the newest ones. 0: no limit.
	Capacity int `json:"capacity,omitempty"`
	// Log is the file of the log of arrivals. The default is beside the dataset.
	Log string `json:"log,omitempty"`
	// Run names the run of training. Ranks need a common name. "" makes a new one.
	Run string `json:"run,omitempty"`
	// Timeout is the time in seconds for which a rank waits for rank 0. The default is 300.
	Timeout float64 `json:"timeout_s,omitempty"`
}

// UnmarshalJSON reads an object, or true for the defaults.
func (f *Follow) UnmarshalJSON(b []byte) error {
	if string(b) == "true" {
		*f = Follow{}
		return nil
	}
	type plain Follow
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return jsonmeta.OptionError("loader", "follow", b, d.Decode((*plain)(f)))
}

// Terms returns the parts of the rule whose results the log records.
func (f *Follow) Terms() arrivals.Terms {
	return arrivals.Terms{Where: f.Where, Policy: f.Version}
}

// Rule returns the rule that selects the episodes of an epoch.
func (f *Follow) Rule() *arrivals.Rule {
	return &arrivals.Rule{
		HalfLife: f.Recency,
		Unit:     f.RecencyUnit,
		Capacity: f.Capacity,
		Lag:      f.VersionLag,
	}
}

// checkFollow rejects a rule that is invalid, and options that contradict a growing dataset. It sets
// defaults.
func (c *Config) checkFollow(batches bool) error {
	f := c.Follow
	if f == nil {
		if c.RefreshStats {
			return Misuse("refresh", "a loader that follows a dataset, which "+
				robocache.Option("follow", true)+" makes", "true")
		}
		return nil
	}
	if !batches {
		return robocache.Unsupported("map", nil, "follow: a map has a fixed number of samples").
			WithHint("Loader has follow")
	}
	own := *f
	f = &own
	c.Follow = f
	inside := func(name string) string { return "follow." + name }
	if err := checkChoice(inside("at"), &f.At, FollowEpoch, FollowStep); err != nil {
		return err
	}
	if err := checkChoice(inside("recency_unit"), &f.RecencyUnit,
		arrivals.Episodes, arrivals.Seconds, arrivals.Versions); err != nil {
		return err
	}
	if f.At == FollowEpoch {
		setDefault(&f.Every, 1)
	}
	setDefault(&f.Timeout, 300)
	atLeastZero := func(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }
	switch {
	case f.Every < 1 || f.Every > 1<<30:
		return Misuse(inside("every"), "a number of steps or epochs, 1 to 2^30",
			fmt.Sprint(f.Every))
	case !atLeastZero(f.Recency):
		return Misuse(inside("recency"), "a half-life, 0 or more", fmt.Sprint(f.Recency))
	case f.Capacity < 0:
		return Misuse(inside("capacity"), "a number of episodes, 0 or more",
			fmt.Sprint(f.Capacity))
	case f.VersionLag != nil && !atLeastZero(*f.VersionLag):
		return Misuse(inside("version_lag"), "0 or more", fmt.Sprint(*f.VersionLag))
	case !(f.Timeout > 0) || f.Timeout > 1e9:
		return Misuse(inside("timeout_s"), "seconds above 0", fmt.Sprint(f.Timeout))
	case (f.VersionLag != nil || f.RecencyUnit == arrivals.Versions) && f.Version == "":
		return Misuse(inside("version"), "the stream with the policy version, for version_lag and "+
			"for recency in versions", "none")
	case c.WorldSize > 1 && f.Run == "":
		return Misuse(inside("run"), "a name that all ranks have in common", "none")
	}
	if f.Where != "" {
		if _, err := query.Parse(f.Where); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		option string
		isSet  bool
	}{
		{"episodes", c.Episodes != nil},
		{"episode_weights", c.EpisodeWeights != nil},
		{"segments", c.Segments != nil},
		{"epoch_size", c.EpochSize != 0},
		{"split", c.Split != "" && c.Split != robocache.SplitAll},
	} {
		if x.isSet {
			return robocache.Misuse("loader", robocache.Where{"option": x.option},
				"%s chooses from a fixed set of episodes, and %s follows a growing one",
				robocache.Option(x.option), robocache.Option("follow", true)).
				WithHint("Leave one of them out. The rule of follow has where and capacity.")
		}
	}
	if c.RefreshStats && c.Raw {
		return robocache.Unsupported("loader", robocache.Where{"raw": true},
			"%s with batches that a device completes", robocache.Option("refresh", true))
	}
	return nil
}
