package verbs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/mapping"
)

// CausalityRequest holds the options of Causality.
type CausalityRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// HZ is the rate of the timeline; empty: the ticks are the dataset's rows.
	HZ string `json:"hz"`
	// Align is the alignment: "causal", a file, or the JSON itself.
	Align string `json:"align"`
	// Keys lists the streams to examine; nil: all.
	Keys []string `json:"keys"`
	// Episodes lists the indices of the episodes to read, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	// TimeBudget is the time after which no further episode is read, such as 30s (the default); 0:
	// no limit.
	TimeBudget string `json:"time_budget"`
}

// Causality is the result of ReportCausality.
type Causality struct {
	URI string `json:"uri"`
	*align.CausalityReport
}

// HasFindings reports whether episodes could not be aligned. Observations from the future are
// findings of severity info.
func (c *Causality) HasFindings() bool { return AnyWrong(c.Findings) }

// ReportCausality reports which samples an alignment uses that a robot does not have at the tick.
func ReportCausality(ctx context.Context, r *CausalityRequest, o Observer) (*Causality, error) {
	open, err := r.Options()
	if err != nil {
		return nil, err
	}
	var cfg align.Config
	if r.Align != "" {
		if cfg, err = ParseAlignment(r.Align); err != nil {
			return nil, err
		}
	}
	rate, err := ParseRate("hz", r.HZ)
	switch {
	case err != nil:
		return nil, err
	case !rate.Zero() && !cfg.HZ.Zero() && rate != cfg.HZ:
		return nil, misuse("%s is %s, and hz of %s is %s: give one",
			optionName("hz"), rate, optionName("align"), cfg.HZ)
	case !rate.Zero():
		cfg.HZ = rate
	}
	if r.Keys != nil {
		cfg.Keys = r.Keys
	}
	opt := align.ReportOptions{Budget: align.DefaultReportBudget, Progress: o.countIn("episodes")}
	if r.TimeBudget != "" {
		if opt.Budget, err = parseBudget(r.TimeBudget); err != nil {
			return nil, err
		}
	}
	ds, err := mapping.Open(ctx, r.URI, open)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	if err := robocache.CheckGrid(ctx, ds, cfg.HZ); err != nil {
		return nil, err
	}
	if opt.Episodes, err = ds.Info().ParseEpisodes(r.Episodes); err != nil {
		return nil, err
	}
	report, err := cfg.ReportCausality(ctx, ds, opt)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": ds.Info().URI})
	}
	return &Causality{ds.Info().URI, report}, nil
}

// parseBudget reads a time budget: seconds, or text with a unit.
func parseBudget(text string) (time.Duration, error) {
	token := []byte(text)
	if !json.Valid(token) {
		token, _ = json.Marshal(text)
	}
	ns, err := robocache.ParseDuration(token)
	if err != nil || ns < 0 {
		return 0, robocache.Misuse("", nil, "%s", optionName("time_budget")).
			Expected(`0 or more seconds, or text with a unit such as "30s"`, text)
	}
	return time.Duration(ns), nil
}
