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

// Bar is one bound on ours, as its text says it:
//
//	≤ 2.6 µs                             at most so much
//	≥ 97 % of copy                       at so much of the rate of a runner
//	≥ 2.5× torch above memcpy            so many times better than a runner; "above" names the cost that nothing can go below
//	≤ 1.1× row NAME                      at most so many times what ours takes in another row of the run
//	robocache-pool memory ≤ 1000 MB      of a runner of ours, in a metric: cpu, us (better when less), rate, randomness (when more) …
//	robocache cpu ≤ 1.15× decode-floor   at most so many times what a runner takes
//
// followed by ", cold" where buffers go round that the caches cannot hold.
type Bar struct {
	Text   string  `json:"text"`
	Ours   string  `json:"ours"`
	Metric string  `json:"metric"`
	Least  bool    `json:"at_least"` // ≥
	Value  float64 `json:"value"`    // of the unit; a share is 0.97
	Unit   string  `json:"unit"`     // times, share, µs, MB, or "": a number
	Than   string  `json:"than,omitempty"`
	Row    string  `json:"row,omitempty"`
	Floor  string  `json:"floor,omitempty"`
	Cold   bool    `json:"cold,omitempty"`
}

var barText = regexp.MustCompile(
	`^(?:(robocache\S*) )?(?:([a-z]+) )?([≥≤]) ([0-9.]+)(?: (µs|MB)| % of (\S.*?)|× row (\S.*?)|× (\S.*?))?(?: above (\S+))?(, cold)?$`,
)

// ParseBar reads a bar's text; metric is what a bar is in that names none.
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
	// Who names no metric says what ours takes at most, or how many times better it is.
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

// Bars reads the bars of a table in the program; a test reads every table.
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

// Check says how a bar came out.
type Check struct {
	Bar   Bar    `json:"bar"`
	Ours  Spread `json:"ours"`
	Than  Spread `json:"than,omitzero"`
	Other string `json:"other,omitempty"` // the runner, or the row, that Than is of
	// repeat by repeat, of runs that stood beside each other
	Ratio    Spread  `json:"ratio"`
	Judged   bool    `json:"judged"` // false: there is no figure, Note says why
	Pass     bool    `json:"pass"`
	Possible float64 `json:"possible,omitempty"` // what the floor leaves, in the bar's unit
	Note     string  `json:"note,omitempty"`
}

// MarshalJSON also writes the keys that robocache-bench ops has: the figure in the bar's unit, and
// the other's µs.
func (c Check) MarshalJSON() ([]byte, error) {
	type plain Check
	return json.Marshal(struct {
		plain
		Figure  Spread `json:"figure"`
		OtherUS Spread `json:"other_us,omitzero"`
	}{plain(c), c.Figure(), c.Than})
}

// Figure is what the bound is on.
func (c Check) Figure() Spread {
	if c.Bar.Than+c.Bar.Row != "" {
		return c.Ratio
	}
	return c.Ours
}

func (b Bar) within(v float64) bool { return v == b.Value || b.Least == (v > b.Value) }

// ratios are ours against the other: how many times better (≥), or how many times as much (≤).
func (b Bar) ratios(ours, than Spread) Spread {
	if better := b.Metric == "rate" || b.Metric == "randomness"; better == b.Least {
		return Ratios(ours, than)
	}
	return Ratios(than, ours)
}

// Check holds figures against the bar. of gives those of a runner, here or in another row, with its
// full name; and what is wrong with them, or why there are none.
func (b Bar) Check(of func(runner, row string) (name string, s Spread, why string)) Check {
	c := Check{Bar: b}
	if _, c.Ours, c.Note = of(b.Ours, ""); c.Note != "" {
		c.Judged = len(c.Ours.Raw) > 0 // and it is wrong
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
		c.Ratio, c.Possible = b.ratios(c.Ours, c.Than), 0
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
	c.Pass, note = c.Figure().Passes(b.within)
	if notes = append(notes, note); !c.Pass && c.Possible > 0 && !b.within(c.Possible) {
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

// Show gives a figure in the bar's unit.
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

// Missed names the bars that were measured and not met.
func Missed(name string, checks []Check) (out []string) {
	for _, c := range checks {
		if c.Judged && !c.Pass {
			out = append(out, name+": "+c.Bar.Text)
		}
	}
	return out
}

// Word is the verdict.
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
