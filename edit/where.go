package edit

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Where is an expression about an episode, such as length < 30 or max(action[gripper]) > 1.2. It
// supports or, and, parentheses, comparisons of numbers and of texts, the names in episodeTerms,
// and functions of a column. A column is KEY, KEY[channel], 'any key'['any channel'], or abs of one
// of these. A comparison with NaN is false.
type Where struct {
	predicate func(x *whereEpisode) (bool, error)
	calls     []*columnCall
	text      string // in Go syntax
}

// term is a compiled part of an expression. Exactly one field is set.
type term struct {
	truth  func(x *whereEpisode) (bool, error)
	number func(x *whereEpisode) (float64, error)
	texts  func(x *whereEpisode) ([]string, error)
}

// columnCall is a function of the values of a column.
type columnCall struct {
	function, key, channel string
	abs                    bool
}

// whereEpisode is an episode for which an expression is evaluated. It caches the columns that were
// read.
type whereEpisode struct {
	ctx      context.Context
	dataset  *planDataset
	position int
	values   map[string][]float64
}

var (
	// columnFunctions lists the functions of a column's values.
	columnFunctions = []string{"min", "max", "mean", "std", "first", "last", "count"}
	// episodeTerms are the names for values of an episode that are not columns.
	episodeTerms = map[string]term{
		"task": {texts: func(x *whereEpisode) ([]string, error) {
			episode, err := x.dataset.Episode(x.ctx, x.position)
			if err != nil {
				return nil, err
			}
			return episode.Tasks, nil
		}},
		"index": {
			number: func(x *whereEpisode) (float64, error) {
				return float64(x.dataset.info.EpisodeIndex(x.position)), nil
			},
		},
		"source": {
			number: func(x *whereEpisode) (float64, error) {
				return float64(x.dataset.plan.Episodes[x.position].Source), nil
			},
		},
		"length": {
			number: func(x *whereEpisode) (float64, error) {
				return float64(x.dataset.Len(x.position)), nil
			},
		},
		"duration": {number: func(x *whereEpisode) (float64, error) {
			times, err := x.dataset.Times(x.ctx, x.position, "")
			if errors.Is(err, robocache.ErrUnsupported) || len(times) == 0 {
				return math.NaN(), nil
			}
			if err != nil {
				return 0, err
			}
			return float64(times[len(times)-1]-times[0]) / 1e9, nil
		}},
	}
	comparisons = map[token.Token]func(a, b float64) bool{
		token.LSS: func(a, b float64) bool { return a < b },
		token.LEQ: func(a, b float64) bool { return a <= b },
		token.GTR: func(a, b float64) bool { return a > b },
		token.GEQ: func(a, b float64) bool { return a >= b },
		token.EQL: func(a, b float64) bool { return a == b },
		token.NEQ: func(a, b float64) bool { return a < b || a > b },
	}
	// nonGoSyntax matches what differs from Go: the words or and and, and texts in either kind of
	// quotes.
	nonGoSyntax = regexp.MustCompile(`'([^']*)'|"([^"]*)"|\bor\b|\band\b|\s`)
)

const maxWhereBytes = 4096

// ParseWhere parses an expression.
func ParseWhere(text string) (_ *Where, err error) {
	if len(text) > maxWhereBytes {
		return nil, misuse(
			nil,
			fmt.Sprintf("where: an expression of more than %d bytes", maxWhereBytes),
			"",
		)
	}
	w := &Where{text: nonGoSyntax.ReplaceAllStringFunc(text, func(s string) string {
		switch s[0] {
		case '\'', '"':
			return strconv.Quote(s[1 : len(s)-1])
		case 'o':
			return "||"
		case 'a':
			return "&&"
		}
		return " "
	})}
	tree, err := parser.ParseExpr(w.text)
	if err != nil {
		return nil, w.parseError(err.Error())
	}
	compiled, err := w.compileTerm(tree)
	if err != nil {
		return nil, err
	}
	w.predicate = compiled.truth
	if w.predicate == nil {
		return nil, w.parseError("no comparison in it")
	}
	return w, nil
}

func (w *Where) parseError(msg string) error {
	return misuse(nil, "where: "+msg, "such as: length < 30 or max(action[gripper]) > 1.2; "+
		strings.Join(slices.Sorted(maps.Keys(episodeTerms)), ", ")+"; "+
		strings.Join(columnFunctions, ", ")+
		" of a column, abs inside; texts, and keys of other letters, in quotes")
}

// sourceText returns the text of a part of the expression, without quotes.
func (w *Where) sourceText(part ast.Expr) string {
	text := w.text[part.Pos()-1 : part.End()-1]
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

// compileTerm compiles a part of the expression.
func (w *Where) compileTerm(part ast.Expr) (out term, err error) {
	switch part := part.(type) {
	case *ast.ParenExpr:
		return w.compileTerm(part.X)
	case *ast.BasicLit:
		out = w.literalTerm(part)
	case *ast.UnaryExpr:
		operand, err := w.compileTerm(part.X)
		if err != nil {
			return term{}, err
		}
		if part.Op == token.SUB && operand.number != nil {
			out.number = negatedNumber(operand.number)
		}
	case *ast.Ident:
		out = episodeTerms[part.Name]
	case *ast.CallExpr:
		if c := w.parseCall(part); c != nil {
			out.number = c.evaluate
		}
	case *ast.BinaryExpr:
		left, err := w.compileTerm(part.X)
		if err != nil {
			return term{}, err
		}
		right, err := w.compileTerm(part.Y)
		if err != nil {
			return term{}, err
		}
		out.truth = combinedTruth(part.Op, left, right)
	}
	if out.number != nil || out.texts != nil || out.truth != nil {
		return out, nil
	}
	return term{}, w.parseError(
		strconv.Quote(
			w.sourceText(part),
		) + " is no comparison of numbers, none of two texts by == or !=, and nothing that is " +
			"known of an episode",
	)
}

// literalTerm returns the term of a text or a number.
func (w *Where) literalTerm(part *ast.BasicLit) term {
	text := w.sourceText(part)
	if part.Kind == token.STRING {
		return term{texts: func(*whereEpisode) ([]string, error) { return []string{text}, nil }}
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return term{}
	}
	return term{number: func(*whereEpisode) (float64, error) { return number, nil }}
}

// negatedNumber returns -number.
func negatedNumber(
	number func(*whereEpisode) (float64, error),
) func(*whereEpisode) (float64, error) {
	return func(x *whereEpisode) (float64, error) {
		value, err := number(x)
		if err != nil {
			return 0, err
		}
		return -value, nil
	}
}

// combinedTruth returns whether two terms fulfil an operator, or nil if it does not apply to them.
func combinedTruth(op token.Token, left, right term) func(*whereEpisode) (bool, error) {
	truths := left.truth != nil && right.truth != nil
	numbers := left.number != nil && right.number != nil
	texts := left.texts != nil && right.texts != nil
	compare := comparisons[op]
	switch {
	case truths && (op == token.LOR || op == token.LAND):
		return func(x *whereEpisode) (bool, error) {
			first, err := left.truth(x)
			if err != nil {
				return false, err
			}
			isDecided := first == (op == token.LOR)
			if isDecided {
				return first, nil
			}
			return right.truth(x)
		}
	case numbers && compare != nil:
		return func(x *whereEpisode) (bool, error) {
			a, err := left.number(x)
			if err != nil {
				return false, err
			}
			b, err := right.number(x)
			if err != nil {
				return false, err
			}
			return compare(a, b), nil
		}
	case texts && (op == token.EQL || op == token.NEQ):
		return func(x *whereEpisode) (bool, error) {
			a, err := left.texts(x)
			if err != nil {
				return false, err
			}
			b, err := right.texts(x)
			if err != nil {
				return false, err
			}
			isCommon := slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
			return isCommon == (op == token.EQL), nil
		}
	}
	return nil
}

// parseCall parses a function of a column. It returns nil if part is no such function.
func (w *Where) parseCall(part *ast.CallExpr) *columnCall {
	c := &columnCall{function: w.sourceText(part.Fun)}
	if !slices.Contains(columnFunctions, c.function) || len(part.Args) != 1 {
		return nil
	}
	column := part.Args[0]
	inner, isCall := column.(*ast.CallExpr)
	if isCall && len(inner.Args) == 1 && w.sourceText(inner.Fun) == "abs" {
		c.abs = true
		column = inner.Args[0]
	}
	if of, ok := column.(*ast.IndexExpr); ok {
		c.channel = w.sourceText(of.Index)
		column = of.X
	}
	c.key = w.sourceText(column)
	w.calls = append(w.calls, c)
	return c
}

// checkColumns returns an error if a column does not exist in the dataset.
func (w *Where) checkColumns(v *planDataset) error {
	for _, c := range w.calls {
		f := v.info.Feature(c.key)
		if f == nil || f.Kind != robocache.KindNumeric || f.Ragged() {
			return misuse(
				robocache.Where{"stream": c.key},
				"where: no column of numbers of that name",
				robocache.Nearest(c.key, v.info.Keys()),
			)
		}
		if _, err := c.channelIndex(f); err != nil {
			return err
		}
	}
	return nil
}

// channelIndex returns the index of the channel, given by name or number; -1 means all channels.
func (c *columnCall) channelIndex(f *robocache.Feature) (int, error) {
	if c.channel == "" {
		return -1, nil
	}
	list := f.ChannelNames()
	if i := slices.Index(list, c.channel); i >= 0 {
		return i, nil
	}
	if i, err := strconv.Atoi(c.channel); err == nil && i >= 0 && i < f.Elements() {
		return i, nil
	}
	return 0, misuse(
		robocache.Where{"stream": f.Key},
		fmt.Sprintf("where: no channel %q of %d", c.channel, f.Elements()),
		robocache.Nearest(c.channel, list),
	)
}

// evaluate returns the value of the function for an episode.
func (c *columnCall) evaluate(x *whereEpisode) (float64, error) {
	f := x.dataset.info.Feature(c.key)
	all, ok := x.values[c.key]
	if !ok {
		rowsIn, err := robocache.RowsIn(x.ctx, x.dataset, x.position, f)
		if err != nil {
			return 0, err
		}
		rows := robocache.RowsOf(x.position, 0, rowsIn)
		raw := make([]byte, len(rows)*f.RowBytes())
		if err := x.dataset.Gather(x.ctx, c.key, rows, raw); err != nil {
			return 0, err
		}
		all = robocache.Float64s(nil, f.DType, raw)
		x.values[c.key] = all
	}
	place, err := c.channelIndex(f)
	if err != nil {
		return 0, err
	}
	width := f.Elements()
	var values []float64
	sum := 0.0
	for i, v := range all {
		if place < 0 || i%width == place {
			if c.abs {
				v = math.Abs(v)
			}
			values = append(values, v)
			sum += v
		}
	}
	n := float64(len(values))
	switch {
	case c.function == "count":
		return float64(len(all) / max(1, width)), nil // number of rows
	case n == 0:
		return math.NaN(), nil
	case c.function == "min": // NaN if any value is NaN
		return slices.Min(values), nil
	case c.function == "max":
		return slices.Max(values), nil
	case c.function == "first":
		return values[0], nil
	case c.function == "last":
		return values[len(values)-1], nil
	case c.function == "mean":
		return sum / n, nil
	}
	square := 0.0
	for _, v := range values {
		square += float64((v - sum/n) * (v - sum/n))
	}
	return math.Sqrt(square / n), nil
}
