package query_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// grammar has the productions of random expressions for randomTable. $x is a production.
var grammar = map[string][]string{
	"truth": {"$number < $number", "$number >= $number", "not $truth", "($truth or $truth)"},
	"number": {
		"0.5",
		"-1",
		"2",
		"max($signal)",
		"min($signal)",
		"mean($signal)",
		"first($signal)",
		"std($signal)",
		"last($signal)",
		"count($occur)",
		"length",
		"abs($number)",
		"$number * $number",
		"($number - $number)",
	},
	"signal": {
		"x",
		"z",
		"force",
		"contact",
		"norm(arm)",
		"diff($signal)",
		"abs($signal)",
		"speed($signal)",
		"$signal + $number",
		"($signal - $signal)",
		"-$signal",
		"$signal * $signal",
		"$signal / $number",
	},
	"cond": {
		"$signal > $number",
		"$signal <= $number",
		"$signal == $signal",
		"$signal != $number",
		"not $cond",
		"($cond and $cond)",
		"($cond or $truth)",
		"($cond for 0.3s)",
		"($cond while $cond)",
		"contact",
	},
	"events": {
		"rising($signal)",
		"falling($signal, $number)",
		"rising($cond)",
		"($events while $cond)",
		"($events or $events)",
		"($events and $cond)",
	},
	"occur": {"$cond", "$events", "($occur then $occur within 0.5s)", "($events then $events)"},
	"any":   {"$truth", "$cond", "$events", "$occur", "$cond while $truth"},
}

// expand returns a random text of a production.
func expand(rng *rand.Rand, production string, depth int) string {
	choices := grammar[production]
	n := len(choices)
	if depth > 4 { // the first ones end soon
		n = min(n, 3)
	}
	text := choices[rng.IntN(n)]
	for depth > 12 && strings.Contains(text, "$") {
		text = map[string]string{
			"truth": "length > 3", "number": "1", "signal": "x", "cond": "x > 0",
			"events": "rising(x)", "occur": "x > 0",
		}[production]
	}
	var out strings.Builder
	for i, part := range strings.Split(text, "$") {
		if i == 0 {
			out.WriteString(part)
			continue
		}
		end := strings.IndexFunc(part, func(r rune) bool { return r < 'a' || r > 'z' })
		if end < 0 {
			end = len(part)
		}
		out.WriteString(expand(rng, part[:end], depth+1) + part[end:])
	}
	return out.String()
}

// TestRandomExpressions is query.Q9 for random expressions, and query.Q1 for damaged ones.
func TestRandomExpressions(t *testing.T) {
	d := randomTable()
	path := filepath.Join(t.TempDir(), "x.index")
	if _, err := query.BuildIndex(
		t.Context(),
		path,
		d,
		query.IndexOptions{Budget: 1 << 30},
	); err != nil {
		t.Fatal(err)
	}
	index, err := query.OpenIndex(t.Context(), path, d)
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close()
	rng := rand.New(rand.NewPCG(7, 8))
	search := func(text string, opt query.Options) (string, error) {
		e, err := query.Parse(text)
		if err != nil {
			return "", err
		}
		b, err := e.Bind(t.Context(), d, opt)
		if err != nil {
			return "", err
		}
		ranges, err := b.Find(t.Context(), nil, 0)
		return fmt.Sprint(ranges), err
	}
	found, runs := 0, 400
	if testing.Short() {
		runs = 60
	}
	for range runs {
		text := expand(rng, "any", 0)
		if len(text) > 1000 {
			continue
		}
		want, err := search(text, query.Options{})
		if err != nil && !errors.Is(err, robocache.ErrMisuse) {
			t.Fatalf("%s: %v", text, err)
		}
		got, err2 := search(text, query.Options{Index: index, Threads: 1 + rng.IntN(3)})
		if got != want || (err == nil) != (err2 == nil) {
			t.Errorf("%s: other results with an index: %v, %v", text, err, err2)
		}
		if err == nil && want != "[]" {
			found++
		}
		damaged := []byte(text)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(damaged))
			damaged = slices.Replace(damaged, at, at+1, "()<>=,+-*/'x0.[] \xff"[rng.IntN(17)])
		}
		if _, err := search(string(damaged), query.Options{Index: index}); err != nil &&
			!errors.Is(err, robocache.ErrMisuse) {
			t.Errorf("%s: %v", damaged, err)
		}
	}
	if found < runs/5 {
		t.Errorf("only %d of %d expressions find something", found, runs)
	}
}
