package align

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// CausalityReport states which samples the rows of an alignment use, and whether a robot has them
// at the tick.
type CausalityReport struct {
	HZ            robocache.Rate      `json:"hz,omitzero"` // absent: the ticks are rows
	Episodes      int                 `json:"num_episodes"`
	TotalEpisodes int                 `json:"total_episodes"` // of which Episodes were read
	TimeBudget    float64             `json:"time_budget_s"`  // 0: no limit
	Streams       []StreamCausality   `json:"streams"`
	Findings      []robocache.Finding `json:"findings"`
}

// StreamCausality is the part of a CausalityReport about one stream. Shares are of its ticks. Times
// are in seconds.
type StreamCausality struct {
	Key    string `json:"key"`
	Source string `json:"source,omitempty"` // name in a mixture
	Mode   string `json:"mode"`             // "rows": the stream's rows are the ticks
	// the stream is a label (action, reward, Config.Targets) and may look ahead
	Label bool  `json:"label"`
	Ticks int64 `json:"ticks"`
	// share of rows that use a sample with a timestamp after the tick
	FutureShare float64 `json:"future_share"`
	// how far after the tick that timestamp is, in those rows
	MedianLookAhead float64 `json:"look_ahead_median_s"`
	MaxLookAhead    float64 `json:"look_ahead_max_s"`
	// share of rows that use a sample which arrived after the tick
	NotArrivedShare float64 `json:"not_arrived_share"`
	MaskedShare     float64 `json:"masked_share"`
	Delay           float64 `json:"delay_s"` // Config.Delay
	// smallest delay with which both neighbors had arrived at 99.9 % of the ticks, rounded up to
	// three digits; it suffices wherever between two samples a timeline begins
	NeededDelay float64 `json:"needed_delay_s"`
	// Arrivals is "recorded", or "assumed" if samples count as arrived at their timestamps.
	Arrivals string `json:"arrivals"`
	// Option latency draws ages. The report uses the arrivals instead.
	LatencyDrawn bool `json:"latency_drawn,omitempty"`
}

// ReportOptions are the choices of Config.ReportCausality.
type ReportOptions struct {
	Episodes []int // positions; nil: all
	// Budget is the time after which no further episode is read; 0: no limit.
	Budget time.Duration
	// Ticks returns the times of the training samples of an episode if the Config has no rate; nil:
	// the times of its rows.
	Ticks func(ctx context.Context, episode int) ([]int64, error)
	// NewestRows returns for each tick the time of the newest row in a stream's window, and the time
	// by which the samples that this row uses must have arrived; nil: both are the tick.
	NewestRows func(key string, ticks []int64) (targets, nows []int64)
	Progress   func(done, total int64)
}

// DefaultReportBudget is the time budget of a report if the user states none.
const DefaultReportBudget = 30 * time.Second

// neededShare is the share of ticks at which both neighbors have arrived under the needed delay.
const neededShare = 0.999

// ReportCausality reports which samples the rows of an alignment use: those of the plans of Episode.
// An episode that cannot be aligned is a finding.
func (c *Config) ReportCausality(
	ctx context.Context, ds robocache.Dataset, opt ReportOptions,
) (*CausalityReport, error) {
	info, begin := ds.Info(), time.Now()
	r := &causalityReporter{cfg: *c, ds: ds, opt: opt, tallies: map[string]*streamTally{}}
	r.cfg.Latency = maps.Clone(c.Latency)
	for k, latency := range c.Latency {
		if !latency.Draw.IsZero() {
			r.cfg.Latency[k] = Latency{}
		}
	}
	checked := *c
	if c.HZ.Zero() {
		checked.Times = []int64{} // the ticks of each episode follow; validateNames wants a timeline
	}
	if err := checked.validateNames(info); err != nil {
		return nil, err
	}
	episodes := opt.Episodes
	for e := range info.Episodes {
		if opt.Episodes == nil {
			episodes = append(episodes, e)
		}
	}
	out := &CausalityReport{
		HZ: c.HZ, TotalEpisodes: len(episodes), TimeBudget: opt.Budget.Seconds(),
		Streams: []StreamCausality{}, Findings: []robocache.Finding{},
	}
	for _, e := range episodes {
		if out.Episodes > 0 && opt.Budget > 0 && time.Since(begin) > opt.Budget {
			break
		}
		err := r.addEpisode(ctx, e)
		switch {
		case robocache.Bad(err):
			out.Findings = append(out.Findings, robocache.Finding{
				Severity: robocache.SeverityError, Code: "episode-not-aligned",
				Where: robocache.Where{"episode": info.EpisodeIndex(e)}, Message: err.Error(),
			})
		case err != nil:
			return nil, robocache.At(err, robocache.Where{"episode": info.EpisodeIndex(e)})
		}
		out.Episodes++
		if opt.Progress != nil {
			opt.Progress(int64(out.Episodes), int64(len(episodes)))
		}
	}
	var ahead []string
	for _, key := range r.keys {
		s := r.tallies[key].summarize()
		s.LatencyDrawn = !c.Latency[key].Draw.IsZero()
		out.Streams = append(out.Streams, s)
		if s.FutureShare > 0 && !s.Label {
			ahead = append(ahead, key)
		}
		if f := s.delayFinding(c.IsCausal(key) && r.tallies[key].mode.Computes()); f != nil {
			out.Findings = append(out.Findings, *f)
		}
	}
	if len(ahead) > 0 {
		f, err := c.LookAhead(ctx, ds, ahead)
		if err != nil {
			return nil, err
		}
		if f != nil {
			out.Findings = append(out.Findings, *f)
		}
	}
	observed := *c
	observed.Causal = true
	if f := observed.ArrivalNote(ds, r.keys); f != nil {
		out.Findings = append(out.Findings, *f)
	}
	return out, nil
}

// ArrivalNote returns the finding arrival-times of a causal alignment: which observations have
// recorded arrival times, and which are assumed to arrive with their timestamps. keys selects
// streams; nil: all. It returns nil without causal.
func (c *Config) ArrivalNote(ds robocache.Dataset, keys []string) *robocache.Finding {
	recorded, assumed := 0, []string{}
	for _, f := range ds.Info().Features {
		switch {
		case f.Default || !c.IsCausal(f.Key) || keys != nil && !slices.Contains(keys, f.Key):
		case HasArrivalTimes(ds, f.Key):
			recorded++
		default:
			assumed = append(assumed, f.Key)
		}
	}
	if recorded+len(assumed) == 0 {
		return nil
	}
	note := &robocache.Finding{
		Severity: robocache.SeverityInfo, Code: "arrival-times",
		Message: fmt.Sprintf("observations with recorded arrival times: %d", recorded),
	}
	if len(assumed) > 0 {
		note.Message += "; samples of " + strings.Join(assumed, ", ") +
			" are assumed to arrive with their timestamps"
		note.Hint = "Pass " + robocache.Option("align", map[string]any{
			"causal": true, "arrival_delay": map[string]any{assumed[0]: "30ms"},
		}) + " if a policy gets them later."
	}
	return note
}

// causalityReporter counts the rows of episodes for ReportCausality.
type causalityReporter struct {
	cfg     Config
	ds      robocache.Dataset
	opt     ReportOptions
	keys    []string // of tallies, in order
	tallies map[string]*streamTally
}

// addEpisode counts the rows of an episode.
func (r *causalityReporter) addEpisode(ctx context.Context, episode int) (err error) {
	if r.ds.Len(episode) == 0 {
		return nil
	}
	a := newAligner(ctx, r.ds, episode, r.cfg)
	if r.cfg.HZ.Zero() && r.opt.Ticks != nil {
		a.cfg.Times, err = r.opt.Ticks(ctx, episode)
	} else if r.cfg.HZ.Zero() {
		a.cfg.Times, err = r.cfg.Timestamps(ctx, r.ds, episode, "")
	}
	if err != nil {
		return err
	}
	ticks, err := a.prepareStreams()
	if err != nil {
		return err
	}
	if len(ticks) == 0 {
		return robocache.Malformed("align", nil, "the streams share no span of time").
			WithHint("Name the streams with %s.", robocache.Option("keys"))
	}
	for i := range a.streams {
		s := &a.streams[i]
		k := s.feature.Key
		if r.ds.Info().Feature(k) == nil {
			continue // the task
		}
		if err := robocache.At(r.addStream(a, s, ticks), robocache.Where{"stream": k}); err != nil {
			return err
		}
	}
	return nil
}

// addStream counts the rows of a stream in the episode of a.
func (r *causalityReporter) addStream(a *aligner, s *source, ticks []int64) error {
	k, stamps := s.feature.Key, a.clocks[s.clock]
	arrived, isRecorded, err := a.arrivalIndex(s)
	if err != nil {
		return err
	}
	// Rows that are the ticks themselves are copied, whatever the mode.
	mode := s.opt.Mode.String()
	if r.cfg.HZ.Zero() && !s.opt.IsCausal && slices.Equal(stamps, ticks) {
		s.opt.Mode, mode = Previous, "rows"
	}
	targets, nows := ticks, ticks
	if r.opt.NewestRows != nil {
		targets, nows = r.opt.NewestRows(k, ticks)
	}
	p, err := a.newPlan(s, targets, nows)
	if err != nil {
		return err
	}
	t := r.tallies[k]
	if t == nil {
		t = &streamTally{StreamCausality: StreamCausality{
			Key: k, Mode: mode, Arrivals: "assumed", Delay: seconds(s.opt.Delay),
			Label: isLabel(k) || slices.Contains(r.cfg.Targets, k),
		}, mode: s.opt.Mode, aheads: durationCounts{}, ages: durationCounts{}}
		if isRecorded {
			t.Arrivals = "recorded"
		}
		r.tallies[k], r.keys = t, append(r.keys, k)
	}
	arrivals, shift := NewArrivals(a.clocks[arrived]), r.cfg.arrivalShift(k, isRecorded)
	t.addRows(p, ticks, stamps, arrivals, shift)
	t.addAges(ticks, stamps, arrivals, shift, !r.cfg.HZ.Zero())
	return nil
}

// streamTally counts the rows of one stream.
type streamTally struct {
	StreamCausality
	mode                       Mode
	future, notArrived, masked int64
	maxAhead                   int64
	aheads                     durationCounts
	ages                       durationCounts // age of the newest arrived sample
}

// addRows counts the rows of a plan, and those that use samples from after their tick. A sample can
// be used at its arrival plus shift.
func (t *streamTally) addRows(
	p *kernel.Plan, ticks, stamps []int64, arrivals Arrivals, shift int64,
) {
	for i, tick := range ticks {
		t.Ticks++
		t.masked += int64(1 - p.Valid[i])
		if from, to := usedSamples(p, i); to > from {
			if ahead := stamps[to-1] - tick; ahead > 0 {
				t.future++
				t.maxAhead = max(t.maxAhead, ahead)
				t.aheads.add(ahead)
			}
			latest := slices.Max(arrivals[from:to])
			if p.Kind[i] == kernel.Blend { // late samples between the neighbors are not used
				latest = max(arrivals[from], arrivals[to-1])
			}
			if latest+shift > tick {
				t.notArrived++
			}
		}
	}
}

// addAges counts the age of the newest usable sample at each tick, while the stream lasts. A
// timeline could as well begin between two of its ticks. Its ticks count the largest age until the
// next tick.
func (t *streamTally) addAges(
	ticks, stamps []int64, arrivals Arrivals, shift int64, isTimeline bool,
) {
	n := len(stamps)
	if n == 0 {
		return
	}
	end := slices.Max(arrivals[:n]) + shift
	usable := arrivals.sortedPart(n) // when a sample or a later one arrived
	for i, tick := range ticks {
		k := arrivals.newest(n, tick-shift) // sample k-1 is the newest
		if k == 0 || tick > end {
			continue
		}
		age := tick - stamps[k-1]
		if isTimeline && i+1 < len(ticks) {
			next := min(ticks[i+1], end)
			for ; k < n && usable[k]+shift <= next; k++ { // it is oldest when sample k becomes usable
				age = max(age, usable[k]+shift-stamps[k-1])
			}
			age = max(age, next-stamps[k-1])
		}
		t.ages.add(max(age, 0))
	}
}

// usedSamples returns the range from the first to behind the last sample that a row uses.
func usedSamples(p *kernel.Plan, row int) (from, to int) {
	if s := p.Sums; s != nil && s.To[row] > s.From[row] {
		return int(s.From[row]), int(s.To[row])
	}
	from, to = int(p.Left[row]), int(p.Right[row])
	switch p.Kind[row] {
	case kernel.Zero:
		return 0, 0
	case kernel.Copy:
		return from, from + 1
	case kernel.Blend:
		return from, to + 1
	}
	return from, to
}

// summarize returns the shares and times of the counted rows.
func (t *streamTally) summarize() StreamCausality {
	s, ticks := t.StreamCausality, float64(max(t.Ticks, 1))
	s.FutureShare, s.NotArrivedShare = float64(t.future)/ticks, float64(t.notArrived)/ticks
	s.MaskedShare = float64(t.masked) / ticks
	s.MedianLookAhead = min(seconds(t.aheads.quantile(0.5)), seconds(t.maxAhead))
	s.MaxLookAhead, s.NeededDelay = seconds(t.maxAhead), seconds(t.ages.quantile(neededShare))
	return s
}

// delayFinding returns a finding if a causal stream is masked because its delay is too short.
func (s *StreamCausality) delayFinding(interpolates bool) *robocache.Finding {
	if !interpolates || s.NeededDelay <= s.Delay || s.MaskedShare <= 1-neededShare {
		return nil
	}
	return &robocache.Finding{
		Severity: robocache.SeverityInfo, Code: "delay-too-short",
		Where: robocache.Where{"stream": s.Key},
		Message: fmt.Sprintf("%.1f %% of the rows are masked: with a delay of %g s both neighbors "+
			"have not always arrived", 100*s.MaskedShare, s.Delay),
		Hint: "Pass " + robocache.Option("align", map[string]any{
			"causal": true, "modes": map[string]any{s.Key: s.Mode},
			"delay": map[string]any{s.Key: s.NeededDelay},
		}),
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// durationCounts counts durations in ns, rounded up to three digits.
type durationCounts map[int64]int64

func (c durationCounts) add(ns int64) {
	unit := int64(1)
	for ns > 999*unit {
		unit *= 10
	}
	c[(ns+unit-1)/unit*unit]++
}

// quantile returns the smallest counted duration that at least a share of the durations do not
// exceed. It returns 0 if there are none.
func (c durationCounts) quantile(share float64) int64 {
	var total, below int64
	for _, n := range c {
		total += n
	}
	for _, ns := range slices.Sorted(maps.Keys(c)) {
		if below += c[ns]; float64(below) >= share*float64(total) {
			return ns
		}
	}
	return 0
}
