package edit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Where is an expression over an episode: length < 30 or max(action[gripper]) > 1.2. A comparison with NaN is false. It has or, and, not, comparisons, + - * /
// and parentheses, in the order of Python; numbers, texts, names; and functions of a column: KEY, 'KEY', KEY[channel], or abs of one.
type Where struct {
	holds func(x *whereEpisode) bool
	calls []*call
}

// term is a part of an expression: one of the three.
type term struct {
	truth  func(x *whereEpisode) bool
	number func(x *whereEpisode) float64
	texts  func(x *whereEpisode) []string
}

// call is a function of the values of a column.
type call struct {
	function, key, channel string
	abs                    bool
}

// whereEpisode is an episode that an expression is asked of; columns are read once.
type whereEpisode struct {
	ctx    context.Context
	v      *view
	e      int
	values map[string][]float64
}

var (
	// functions are those of a column's values.
	functions = []string{"min", "max", "mean", "std", "first", "last", "count"}
	// names are what an episode has beside columns.
	names = map[string]term{
		"task":   {texts: func(x *whereEpisode) []string { return guard.Must(x.v.Episode(x.ctx, x.e)).Tasks }},
		"index":  {number: func(x *whereEpisode) float64 { return float64(x.e) }},
		"source": {number: func(x *whereEpisode) float64 { return float64(x.v.plan.Episodes[x.e].Source) }},
		"length": {number: func(x *whereEpisode) float64 { return float64(x.v.Len(x.e)) }},
		"duration": {number: func(x *whereEpisode) float64 {
			times, err := x.v.Times(x.ctx, x.e, "")
			if errors.Is(err, robocache.ErrUnsupported) || len(times) == 0 {
				return math.NaN()
			}
			guard.Check(err)
			return float64(times[len(times)-1]-times[0]) / 1e9
		}},
	}
	// binds says how tightly an operator does; those of numbers, from 4 on, have what they do beside.
	binds    = map[string]int{"or": 1, "||": 1, "and": 2, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "=": 3, "==": 3, "!=": 3, "+": 4, "-": 4, "*": 5, "/": 5}
	compares = map[string]func(a, b float64) bool{
		"<": func(a, b float64) bool { return a < b }, "<=": func(a, b float64) bool { return a <= b }, ">": func(a, b float64) bool { return a > b }, ">=": func(a, b float64) bool { return a >= b },
		"=": func(a, b float64) bool { return a == b }, "==": func(a, b float64) bool { return a == b }, "!=": func(a, b float64) bool { return a < b || a > b },
	}
	reckons = map[string]func(a, b float64) float64{
		"+": func(a, b float64) float64 { return a + b }, "-": func(a, b float64) float64 { return a - b }, "*": func(a, b float64) float64 { return float64(a * b) }, "/": func(a, b float64) float64 { return a / b },
	}
	whereToken  = regexp.MustCompile(`^\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|'([^']*)'|"([^"]*)"|([\pL_][\pL\pN_]*)|(<=|>=|==|!=|&&|\|\||[-+*/<>=()]))`)
	whereColumn = regexp.MustCompile(`^\s*\(((?:\s*abs\s*\()*)\s*(?:'([^']*)'|"([^"]*)"|([\pL\pN_./:-]+))\s*(?:\[([^\]]*)\])?\s*\)`)
)

const maxWhere = 4096

type whereParser struct {
	Where
	text, rest  string
	token, word string // the token that stands next: its text, and what it is of: number, text, name; an operator, or the end, has none
}

// ParseWhere reads an expression.
func ParseWhere(text string) (_ *Where, err error) {
	defer guard.Into(&err)
	if len(text) > maxWhere {
		return nil, misuse(nil, fmt.Sprintf("where: an expression of more than %d bytes", maxWhere), "")
	}
	p := &whereParser{text: text, rest: text}
	p.next()
	root := p.expr(1)
	if p.token != "" || p.word != "" || root.truth == nil {
		p.fail("<, <=, >, >=, == or !=")
	}
	p.holds = root.truth
	return &p.Where, nil
}

func (p *whereParser) fail(want string) {
	at := len(p.text) - len(p.rest) - len(p.token)
	guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "where", Where: robocache.Where{"offset": max(0, at)}, Want: want, Got: cmp.Or(strings.ToValidUTF8(p.token, "?"), "the end"),
		Hint: "such as: length < 30 or max(action[gripper]) > 1.2; " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + "; " + strings.Join(functions, ", ") + " of a column, abs inside"})
}

// next goes to the next token.
func (p *whereParser) next() {
	m := whereToken.FindStringSubmatchIndex(p.rest)
	if m == nil {
		p.token, p.word = strings.TrimSpace(p.rest), ""
		if p.rest = ""; p.token != "" {
			p.fail("an expression")
		}
		return
	}
	rest := p.rest
	for i, what := range []string{"number", "text", "text", "name", ""} {
		if from, to := m[2*i+2], m[2*i+3]; from >= 0 {
			p.token, p.word = rest[from:to], what
		}
	}
	p.rest = rest[m[1]:]
}

// expr reads operators that bind at least so tightly, and what they are of.
func (p *whereParser) expr(least int) term {
	left := p.prefix()
	for {
		op := p.token
		if p.word == "name" && op != "and" && op != "or" || p.word == "number" || p.word == "text" || binds[op] < least {
			return left
		}
		p.next()
		right := p.expr(binds[op] + 1)
		a, b := left, right
		switch tight := binds[op]; {
		case tight == 1 && a.truth != nil && b.truth != nil:
			left = term{truth: func(x *whereEpisode) bool { return a.truth(x) || b.truth(x) }}
		case tight == 2 && a.truth != nil && b.truth != nil:
			left = term{truth: func(x *whereEpisode) bool { return a.truth(x) && b.truth(x) }}
		case tight == 3 && a.number != nil && b.number != nil:
			left = term{truth: func(x *whereEpisode) bool { return compares[op](a.number(x), b.number(x)) }}
		case (op == "=" || op == "==" || op == "!=") && a.texts != nil && b.texts != nil:
			left = term{truth: func(x *whereEpisode) bool {
				return slices.ContainsFunc(a.texts(x), func(s string) bool { return slices.Contains(b.texts(x), s) }) == (op != "!=")
			}}
		case tight > 3 && a.number != nil && b.number != nil:
			left = term{number: func(x *whereEpisode) float64 { return reckons[op](a.number(x), b.number(x)) }}
		default:
			guard.Fail(misuse(nil, "where: "+op+" between a text and a number, of texts that is no == or !=, or of what is no comparison", "task is a text, and has == and !=; source is the number of a source where several are merged"))
		}
	}
}

func (p *whereParser) prefix() (out term) {
	token, word := p.token, p.word
	known, named := names[token]
	switch {
	case word == "number":
		v, err := strconv.ParseFloat(token, 64)
		if err != nil {
			p.fail("a number")
		}
		out.number = func(*whereEpisode) float64 { return v }
	case word == "text":
		out.texts = func(*whereEpisode) []string { return []string{token} }
	case word == "name" && named:
		out = known
	case word == "name" && slices.Contains(functions, token):
		m := whereColumn.FindStringSubmatch(p.rest)
		if m == nil {
			p.fail("a function of a column")
		}
		c := &call{function: token, abs: m[1] != "", key: m[2] + m[3] + m[4], channel: strings.Trim(strings.TrimSpace(m[5]), `'"`)}
		p.calls, p.rest = append(p.calls, c), p.rest[len(m[0]):]
		for range strings.Count(m[1], "(") {
			if p.next(); p.token != ")" {
				p.fail(")")
			}
		}
		out.number = c.value
	case word == "name" && token == "not":
		p.next()
		if inner := p.expr(3); inner.truth != nil {
			return term{truth: func(x *whereEpisode) bool { return !inner.truth(x) }}
		}
		p.fail("a comparison")
	case word == "" && token == "-":
		p.next()
		if inner := p.prefix(); inner.number != nil {
			return term{number: func(x *whereEpisode) float64 { return -inner.number(x) }}
		}
		p.fail("a number")
	case word == "" && token == "(":
		p.next()
		if out = p.expr(1); p.token != ")" {
			p.fail(")")
		}
	default:
		p.fail("a number, a text, a name, or a function of a column")
	}
	p.next()
	return out
}

// check refuses columns that the dataset does not have.
func (w *Where) check(v *view) {
	for _, c := range w.calls {
		f := v.info.Feature(c.key)
		if f == nil || f.Kind != robocache.KindNumeric || f.Ragged() {
			guard.Fail(misuse(robocache.Where{"stream": c.key}, "where: no column of numbers of that name", robocache.Nearest(c.key, v.info.Keys())))
		}
		c.place(f)
	}
}

// place finds a channel by its name or number; -1 = all.
func (c *call) place(f *robocache.Feature) int {
	if c.channel == "" {
		return -1
	}
	list := channels(f)
	if i := slices.Index(list, c.channel); i >= 0 {
		return i
	}
	if i, err := strconv.Atoi(c.channel); err == nil && i >= 0 && i < f.Elements() {
		return i
	}
	guard.Fail(misuse(robocache.Where{"stream": f.Key}, fmt.Sprintf("where: no channel %q of %d", c.channel, f.Elements()), robocache.Nearest(c.channel, list)))
	return -1
}

// channels are the names of a feature's channels; nil where it has none, or not one each.
func channels(f *robocache.Feature) (out []string) {
	var tree any
	if len(f.Names) == 0 || json.Unmarshal(f.Names, &tree) != nil {
		return nil
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any: // {"motors": ["a", "b"]}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(v[k])
			}
		}
	}
	if walk(tree); len(out) != f.Elements() {
		return nil
	}
	return out
}

// value is that of the function, of the column or of a channel of it.
func (c *call) value(x *whereEpisode) float64 {
	f := x.v.info.Feature(c.key)
	all, ok := x.values[c.key]
	if !ok {
		rows := robocache.RowsOf(x.e, 0, guard.Must(robocache.RowsIn(x.ctx, x.v, x.e, f)))
		raw := make([]byte, len(rows)*f.RowBytes())
		guard.Check(x.v.Gather(x.ctx, c.key, rows, raw))
		all = robocache.Float64s(nil, f.DType, raw)
		x.values[c.key] = all
	}
	width, place := f.Elements(), c.place(f)
	var values []float64
	sum := 0.0
	for i, v := range all {
		if place < 0 || i%width == place {
			if c.abs {
				v = math.Abs(v)
			}
			values, sum = append(values, v), sum+v
		}
	}
	n := float64(len(values))
	switch {
	case c.function == "count":
		return float64(len(all) / max(1, width)) // rows
	case n == 0:
		return math.NaN()
	case c.function == "min": // NaN, where there is one
		return slices.Min(values)
	case c.function == "max":
		return slices.Max(values)
	case c.function == "first":
		return values[0]
	case c.function == "last":
		return values[len(values)-1]
	case c.function == "mean":
		return sum / n
	}
	square := 0.0
	for _, v := range values {
		square += float64((v - sum/n) * (v - sum/n))
	}
	return math.Sqrt(square / n)
}
