package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Where is an expression over an episode: length < 30 or max(action[gripper]) > 1.2. A comparison with NaN is false.
//
//	expr   = and {"or" and}
//	and    = unary {"and" unary}
//	unary  = "not" unary | "(" expr ")" | sum compare sum
//	sum    = term {("+" | "-") term}
//	term   = factor {("*" | "/") factor}
//	factor = number | text | name | function "(" values ")" | "-" factor | "(" sum ")"
//	values = "abs" "(" values ")" | key ["[" channel "]"]
type Where struct {
	root node
	text string
}

type node struct {
	op    string // or and not < <= > >= = != + - * / number text name call
	parts []*node
	value float64
	text  string // of a text, a name, a key
	// Of a call: the function over the values of a column.
	channel string
	abs     bool
}

// functions are those of a column's values.
var functions = []string{"min", "max", "mean", "std", "first", "last", "count"}

// names are what an episode has beside columns.
var names = []string{"index", "length", "duration", "task", "source"}

// maxDepth bounds how deep an expression is nested.
const maxDepth = 100

type whereParser struct {
	text  string
	at    int
	depth int
}

// ParseWhere reads an expression.
func ParseWhere(text string) (_ *Where, err error) {
	defer guard.Into(&err)
	if len(text) > 1<<16 {
		return nil, misuse(nil, "where: an expression of more than 64 KiB", "")
	}
	p := &whereParser{text: text}
	root := p.expr()
	if p.space(); p.at < len(p.text) {
		p.fail("the end")
	}
	return &Where{root: *root, text: text}, nil
}

func (p *whereParser) fail(want string) {
	rest := p.text[p.at:]
	if len(rest) > 20 {
		rest = rest[:20] + "…"
	}
	if rest == "" {
		rest = "the end"
	}
	guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "where", Where: robocache.Where{"offset": p.at}, Want: want, Got: strings.ToValidUTF8(rest, "?"),
		Hint: "such as: length < 30 or max(action[gripper]) > 1.2; " + strings.Join(names, ", ") + "; " + strings.Join(functions, ", ") + " of a column, abs inside"})
}

func (p *whereParser) space() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t' || p.text[p.at] == '\n') {
		p.at++
	}
}

// take takes a sign or a word, where it stands next.
func (p *whereParser) take(words ...string) string {
	p.space()
	for _, w := range words {
		rest, ok := strings.CutPrefix(p.text[p.at:], w)
		if r, _ := utf8.DecodeRuneInString(rest); ok && (!letter(rune(w[0])) || !letter(r) || rest == "") {
			p.at += len(w)
			return w
		}
	}
	return ""
}

func letter(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// keyLetter is one of the name of a column, between the brackets of a function.
func keyLetter(r rune) bool { return letter(r) || r == '.' || r == '/' || r == '-' || r == ':' }

func (p *whereParser) nested() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail("an expression that is nested less deep")
	}
	return func() { p.depth-- }
}

func (p *whereParser) chain(part func() *node, ops ...string) *node {
	left := part()
	for {
		op := p.take(ops...)
		if op == "" {
			return left
		}
		left = &node{op: op, parts: []*node{left, part()}}
	}
}

func (p *whereParser) expr() *node {
	defer p.nested()()
	return p.chain(func() *node { return p.chain(p.unary, "and", "&&") }, "or", "||")
}

func (p *whereParser) unary() *node {
	if p.take("not") != "" {
		defer p.nested()()
		return &node{op: "not", parts: []*node{p.unary()}}
	}
	start := p.at
	if p.take("(") != "" { // of an expression, or of a sum
		var inner *node
		if err := guard.Try(func() {
			inner = p.expr()
			if p.take(")") == "" {
				p.fail(")")
			}
		}); err == nil && p.take("<", ">", "=", "!", "+", "-", "*", "/") == "" {
			return inner
		}
		p.at = start
	}
	left := p.sum()
	op := p.take("<=", ">=", "==", "!=", "<", ">", "=")
	if op == "" {
		p.fail("<, <=, >, >=, == or !=")
	}
	if op == "==" {
		op = "="
	}
	return &node{op: op, parts: []*node{left, p.sum()}}
}

func (p *whereParser) sum() *node {
	defer p.nested()()
	return p.chain(func() *node { return p.chain(p.factor, "*", "/") }, "+", "-")
}

func (p *whereParser) factor() *node {
	switch p.space(); {
	case p.take("(") != "":
		n := p.sum()
		if p.take(")") == "" {
			p.fail(")")
		}
		return n
	case p.at < len(p.text) && (p.text[p.at] == '\'' || p.text[p.at] == '"'):
		return &node{op: "text", text: p.quoted()}
	case p.take("-") != "":
		defer p.nested()()
		return &node{op: "-", parts: []*node{{op: "number"}, p.factor()}}
	}
	end := p.at
	for end < len(p.text) && (p.text[end] >= '0' && p.text[end] <= '9' || p.text[end] == '.' || end > p.at && strings.IndexByte("eE", p.text[end]) >= 0 ||
		end > p.at && strings.IndexByte("+-", p.text[end]) >= 0 && strings.IndexByte("eE", p.text[end-1]) >= 0) {
		end++
	}
	if end > p.at {
		v, err := strconv.ParseFloat(p.text[p.at:end], 64)
		if err != nil {
			p.fail("a number")
		}
		p.at = end
		return &node{op: "number", value: v}
	}
	word := p.word(letter)
	if p.take("(") == "" {
		if !slices.Contains(names, word) {
			p.at -= len(word)
			p.fail(strings.Join(names, ", ") + ", or a function of a column")
		}
		return &node{op: "name", text: word}
	}
	if !slices.Contains(functions, word) {
		p.at -= len(word) + 1
		p.fail("one of " + strings.Join(functions, ", "))
	}
	n := &node{op: "call", text: word}
	p.values(n)
	if p.take(")") == "" {
		p.fail(")")
	}
	return n
}

func (p *whereParser) quoted() string {
	quote := p.text[p.at]
	end := strings.IndexByte(p.text[p.at+1:], quote)
	if end < 0 {
		p.fail("a text that ends with " + string(quote))
	}
	text := p.text[p.at+1 : p.at+1+end]
	p.at += end + 2
	return text
}

func (p *whereParser) word(letter func(rune) bool) string {
	p.space()
	end := p.at
	for end < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[end:])
		if !letter(r) {
			break
		}
		end += n
	}
	if end == p.at {
		p.fail("a name, a number or a function")
	}
	w := p.text[p.at:end]
	p.at = end
	return w
}

// values reads the column of a call.
func (p *whereParser) values(n *node) {
	key := ""
	if p.space(); p.at < len(p.text) && (p.text[p.at] == '\'' || p.text[p.at] == '"') {
		key = p.quoted()
	} else {
		key = p.word(keyLetter)
	}
	if key == "abs" && p.take("(") != "" {
		defer p.nested()()
		n.abs = true
		p.values(n)
		if p.take(")") == "" {
			p.fail(")")
		}
		return
	}
	n.parts = []*node{{op: "key", text: key}}
	if p.take("[") != "" {
		end := strings.IndexByte(p.text[p.at:], ']')
		if end < 0 {
			p.fail("]")
		}
		n.channel = strings.Trim(strings.TrimSpace(p.text[p.at:p.at+end]), `'"`)
		p.at += end + 1
	}
}

// check refuses columns that the dataset does not have, and comparisons of texts with numbers.
func (w *Where) check(v *view) { w.root.check(v) }

func (n *node) check(v *view) {
	for _, p := range n.parts {
		if n.op != "call" {
			p.check(v)
		}
	}
	switch n.op {
	case "<", "<=", ">", ">=", "=", "!=", "+", "-", "*", "/":
		a, b := n.parts[0].isText(), n.parts[1].isText()
		if a != b || a && n.op != "=" && n.op != "!=" {
			guard.Fail(misuse(nil, "where: "+n.op+" between a text and a number, or of texts that is no == or !=", "task is a text, and has == and !=; source is the number of a source where several are merged"))
		}
	case "call":
		key := n.parts[0].text
		f := v.info.Feature(key)
		if f == nil || f.Kind != robocache.KindNumeric || f.Ragged() {
			guard.Fail(misuse(robocache.Where{"stream": key}, "where: no column of numbers of that name", robocache.Nearest(key, v.info.Keys())))
		}
		n.place(f)
	}
}

func (n *node) isText() bool { return n.op == "text" || n.op == "name" && n.text == "task" }

// place finds a channel by its name or number; -1 = all.
func (n *node) place(f *robocache.Feature) int {
	if n.channel == "" {
		return -1
	}
	list := channels(f)
	if i := slices.Index(list, n.channel); i >= 0 {
		return i
	}
	if i, err := strconv.Atoi(n.channel); err == nil && i >= 0 && i < f.Elements() {
		return i
	}
	guard.Fail(misuse(robocache.Where{"stream": f.Key}, fmt.Sprintf("where: no channel %q of %d", n.channel, f.Elements()), robocache.Nearest(n.channel, list)))
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
			for _, k := range slices.Sorted(mapKeys(v)) {
				walk(v[k])
			}
		}
	}
	if walk(tree); len(out) != f.Elements() {
		return nil
	}
	return out
}

func mapKeys(m map[string]any) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// episode is an episode that expressions are asked of; columns are read once.
type whereEpisode struct {
	ctx    context.Context
	v      *view
	e      int
	values map[string][]float64
}

// holds says whether the expression holds for an episode.
func (w *Where) holds(ctx context.Context, v *view, e int) bool {
	return w.root.holds(&whereEpisode{ctx, v, e, map[string][]float64{}})
}

func (n *node) holds(x *whereEpisode) bool {
	switch n.op {
	case "or", "||":
		return n.parts[0].holds(x) || n.parts[1].holds(x)
	case "and", "&&":
		return n.parts[0].holds(x) && n.parts[1].holds(x)
	case "not":
		return !n.parts[0].holds(x)
	}
	if n.parts[0].isText() {
		a, b := n.parts[0].texts(x), n.parts[1].texts(x)
		same := slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
		return same == (n.op == "=")
	}
	a, b := n.parts[0].number(x), n.parts[1].number(x)
	switch n.op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	case "=":
		return a == b
	}
	return a != b && !math.IsNaN(a) && !math.IsNaN(b)
}

func (n *node) texts(x *whereEpisode) []string {
	if n.op == "text" {
		return []string{n.text}
	}
	return guard.Must(x.v.Episode(x.ctx, x.e)).Tasks
}

func (n *node) number(x *whereEpisode) float64 {
	switch n.op {
	case "number":
		return n.value
	case "name":
		switch n.text {
		case "index":
			return float64(x.e)
		case "source":
			return float64(x.v.plan.Episodes[x.e].Source)
		case "length":
			return float64(x.v.Len(x.e))
		}
		times, err := x.v.Times(x.ctx, x.e, "")
		if errors.Is(err, robocache.ErrUnsupported) || len(times) == 0 {
			return math.NaN()
		}
		guard.Check(err)
		return float64(times[len(times)-1]-times[0]) / 1e9
	case "call":
		return n.call(x)
	}
	a, b := n.parts[0].number(x), n.parts[1].number(x)
	switch n.op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return float64(a * b)
	}
	return a / b
}

// call is a function of the values of a column, or of a channel of it.
func (n *node) call(x *whereEpisode) float64 {
	key := n.parts[0].text
	f := x.v.info.Feature(key)
	all, ok := x.values[key]
	if !ok {
		rows := robocache.RowsOf(x.e, 0, guard.Must(robocache.RowsIn(x.ctx, x.v, x.e, f)))
		raw := make([]byte, len(rows)*f.RowBytes())
		guard.Check(x.v.Gather(x.ctx, key, rows, raw))
		all = robocache.Float64s(nil, f.DType, raw)
		x.values[key] = all
	}
	width, place := f.Elements(), n.place(f)
	var sum, count, first, last float64
	first, last = math.NaN(), math.NaN()
	low, high := math.Inf(1), math.Inf(-1)
	var values []float64
	for i, v := range all {
		if place >= 0 && i%width != place {
			continue
		}
		if n.abs {
			v = math.Abs(v)
		}
		if count == 0 {
			first = v
		}
		if math.IsNaN(v) {
			low, high = v, v // and stays: NaN is no extreme, and hides none
		} else if !math.IsNaN(low) {
			low, high = min(low, v), max(high, v)
		}
		last, sum, count = v, sum+v, count+1
		values = append(values, v)
	}
	if n.text != "count" && count == 0 {
		return math.NaN()
	}
	switch n.text {
	case "min":
		return low
	case "max":
		return high
	case "first":
		return first
	case "last":
		return last
	case "count":
		if place < 0 {
			count /= float64(max(1, width))
		}
		return count // rows
	case "mean":
		return sum / count
	}
	mean, square := sum/count, 0.0
	for _, v := range values {
		square += float64((v - mean) * (v - mean))
	}
	return math.Sqrt(square / count)
}
