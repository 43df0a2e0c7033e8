package report

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Bar is one bound on a runner of RoboCache. Its text has one of these forms:
//
//	≤ 2.6 µs                             at most 2.6 µs
//	≥ 97 % of copy                       at least this share of the rate of a runner
//	≥ 2.5× torch above memcpy            at least 2.5 times faster than a runner; "above" names a
//	                                     cost that no runner can avoid
//	≤ 1.1× row NAME                      at most 1.1 times the time of another row of the run
//	robocache-pool memory ≤ 1000 MB      a runner of RoboCache and a metric: cpu and us (less is
//	                                     better), rate and randomness (more is better), …
//	robocache cpu ≤ 1.15× decode-floor   at most 1.15 times the figure of another runner
//
// The suffix ", cold" selects the figures of buffers that do not fit into the caches.
type Bar struct {
	Text   string  `json:"text"`
	Ours   string  `json:"ours"`
	Metric string  `json:"metric"`
	Least  bool    `json:"at_least"` // ≥
	Value  float64 `json:"value"`    // in Unit; 0.97 for 97 %
	Unit   string  `json:"unit"`     // times, share, µs, MB, or "" for a plain number
	Than   string  `json:"than,omitempty"`
	Row    string  `json:"row,omitempty"`
	Floor  string  `json:"floor,omitempty"`
	Cold   bool    `json:"cold,omitempty"`
}

var barText = regexp.MustCompile(
	`^(?:(robocache\S*) )?(?:([a-z]+) )?([≥≤]) ([0-9.]+)(?: (µs|MB)| % of (\S.*?)|× row (\S.*?)|× (\S.*?))?(?: above (\S+))?(, cold)?$`,
)

// ParseBar parses the text of a bar. metric is the metric of a bar that names none.
func ParseBar(text, metric string) (Bar, error) {
	m := barText.FindStringSubmatch(text)
	if m == nil {
		m = make([]string, 11)
	}
	v, err := strconv.ParseFloat(m[4], 64)
	b := Bar{
		Text:   text,
		Ours:   m[1],
		Metric: m[2],
		Least:  m[3] == "≥",
		Value:  v,
		Unit:   m[5],
		Than:   m[6] + m[8],
		Row:    m[7],
		Floor:  m[9],
		Cold:   m[10] != "",
	}
	// Without a metric, ≤ is for absolute figures and other rows, ≥ for comparisons with a runner.
	if err != nil || b.Metric == "" && b.Least == (b.Unit+b.Row != "" || b.Than == "") {
		return Bar{}, robocache.Misuse("bench", nil, "not a bar: %q", text).
			Expected(
				"≤ N µs, ≥ N % of RUNNER, ≥ N× RUNNER, ≤ N× row NAME, or RUNNER METRIC ≤ N",
				"",
			)
	}
	if b.Ours == "" {
		b.Ours = "robocache"
	}
	if b.Metric == "" {
		b.Metric = metric
	}
	switch {
	case m[6] != "":
		b.Unit, b.Value = "share", v/100
	case b.Than+b.Row != "":
		b.Unit = "times"
	}
	return b, nil
}

// Bars parses bars of the program's own tables. It panics on a syntax error; tests parse every
// table.
func Bars(metric string, texts ...string) (out []Bar) {
	for _, t := range texts {
		b, err := ParseBar(t, metric)
		if err != nil {
			panic(err)
		}
		out = append(out, b)
	}
	return out
}

// Check is the result of checking a bar.
type Check struct {
	Bar   Bar    `json:"bar"`
	Ours  Spread `json:"ours"`
	Than  Spread `json:"than,omitzero"`
	Other string `json:"other,omitempty"` // name of the runner or row that Than belongs to
	// for each repeat, from adjacent runs
	Ratio  Spread `json:"ratio"`
	Judged bool   `json:"judged"` // false: there is no figure, and Note explains why
	Pass   bool   `json:"pass"`
	// best value that the floor allows, in the unit of the bar
	Possible float64 `json:"possible,omitempty"`
	Note     string  `json:"note,omitempty"`
}

// MarshalJSON adds the keys of robocache-bench ops: the figure in the unit of the bar, and the
// other runner's µs.
func (c Check) MarshalJSON() ([]byte, error) {
	type plain Check
	return json.Marshal(struct {
		plain
		Figure  Spread `json:"figure"`
		OtherUS Spread `json:"other_us,omitzero"`
	}{plain(c), c.Figure(), c.Than})
}

// Figure returns the figure that the bar limits.
func (c Check) Figure() Spread {
	if c.Bar.Than+c.Bar.Row != "" {
		return c.Ratio
	}
	return c.Ours
}

// isWithin reports whether v satisfies the bar.
func (b Bar) isWithin(v float64) bool { return v == b.Value || b.Least == (v > b.Value) }

// repeatRatios returns, for each repeat, how many times better our figure is (≥), or how many times
// larger (≤).
func (b Bar) repeatRatios(ours, than Spread) Spread {
	if better := b.Metric == "rate" || b.Metric == "randomness"; better == b.Least {
		return Ratios(ours, than)
	}
	return Ratios(than, ours)
}

// Check checks the bar. of returns the full name and the figures of a runner, in this row or
// another one. why describes a problem with the figures, or why there are none.
func (b Bar) Check(of func(runner, row string) (name string, s Spread, why string)) Check {
	c := Check{Bar: b}
	if _, c.Ours, c.Note = of(b.Ours, ""); c.Note != "" {
		c.Judged = len(c.Ours.Raw) > 0 // the figures exist but are wrong
		return c
	}
	floor := Spread{}
	if b.Floor != "" {
		_, floor, _ = of(b.Floor, "")
		c.Possible = floor.Median
	}
	var notes []string
	if b.Than+b.Row != "" {
		than := b.Than
		if b.Row != "" {
			than = b.Ours
		}
		var why string
		if c.Other, c.Than, why = of(than, b.Row); len(c.Than.Raw) == 0 {
			c.Note = why
			return c
		}
		notes = append(notes, why)
		c.Ratio, c.Possible = b.repeatRatios(c.Ours, c.Than), 0
		if floor.Median > 0 && b.Unit == "times" {
			c.Possible = c.Than.Median / floor.Median
		}
		if len(c.Ratio.Raw) < min(len(c.Ours.Raw), len(c.Than.Raw)) {
			c.Note = "too short to be measured: a longer --seconds"
			return c
		}
	}
	if c.Judged = len(c.Figure().Raw) > 0; !c.Judged {
		c.Note = "no figure"
		return c
	}
	var note string
	c.Pass, note = c.Figure().Passes(b.isWithin)
	if notes = append(notes, note); !c.Pass && c.Possible > 0 && !b.isWithin(c.Possible) {
		notes = append(
			notes,
			fmt.Sprintf(
				"beyond the limit: %s leaves %s %s",
				b.Floor,
				map[bool]string{true: "at most", false: "at least"}[b.Least],
				b.Show(SpreadOf([]float64{c.Possible})),
			),
		)
	}
	c.Note = strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
	return c
}

// Show formats a figure in the unit of the bar.
func (b Bar) Show(s Spread) string {
	if len(s.Raw) == 0 {
		return "–"
	}
	if b.Unit == "share" {
		s.Min, s.Median, s.Max = 100*s.Min, 100*s.Median, 100*s.Max
	}
	return Short(
		s,
	) + map[string]string{"share": " %", "µs": " µs", "MB": " MB", "times": "×"}[b.Unit]
}

// Missed returns the bars that were measured and not met.
func Missed(name string, checks []Check) (out []string) {
	for _, c := range checks {
		if c.Judged && !c.Pass {
			out = append(out, name+": "+c.Bar.Text)
		}
	}
	return out
}

// Word returns the verdict as text.
func (c Check) Word() string {
	word := map[bool]string{true: "pass", false: "**fail**"}[c.Pass]
	if !c.Judged {
		word = "no figure"
	}
	if c.Note != "" {
		word += ": " + c.Note
	}
	return word
}
