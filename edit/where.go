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

// Where is an expression over an episode: length < 30 or max(action[gripper]) > 1.2. It has or,
// and, parentheses, comparisons of numbers and of texts, names, and functions of a column: KEY,
// KEY[channel], 'any key'['any channel'], or abs of one. A comparison with NaN is false.
type Where struct {
	holds func(x *whereEpisode) (bool, error)
	calls []*call
	text  string // as Go has it
}

// term is a part of an expression: one of the three.
type term struct {
	truth  func(x *whereEpisode) (bool, error)
	number func(x *whereEpisode) (float64, error)
	texts  func(x *whereEpisode) ([]string, error)
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
		"task": {texts: func(x *whereEpisode) ([]string, error) {
			episode, err := x.v.Episode(x.ctx, x.e)
			if err != nil {
				return nil, err
			}
			return episode.Tasks, nil
		}},
		"index": {
			number: func(x *whereEpisode) (float64, error) { return float64(x.v.info.EpisodeIndex(x.e)), nil },
		},
		"source": {
			number: func(x *whereEpisode) (float64, error) { return float64(x.v.plan.Episodes[x.e].Source), nil },
		},
		"length": {
			number: func(x *whereEpisode) (float64, error) { return float64(x.v.Len(x.e)), nil },
		},
		"duration": {number: func(x *whereEpisode) (float64, error) {
			times, err := x.v.Times(x.ctx, x.e, "")
			if errors.Is(err, robocache.ErrUnsupported) || len(times) == 0 {
				return math.NaN(), nil
			}
			if err != nil {
				return 0, err
			}
			return float64(times[len(times)-1]-times[0]) / 1e9, nil
		}},
	}
	compares = map[token.Token]func(a, b float64) bool{
		token.LSS: func(a, b float64) bool { return a < b },
		token.LEQ: func(a, b float64) bool { return a <= b },
		token.GTR: func(a, b float64) bool { return a > b },
		token.GEQ: func(a, b float64) bool { return a >= b },
		token.EQL: func(a, b float64) bool { return a == b },
		token.NEQ: func(a, b float64) bool { return a < b || a > b },
	}
	// unlikeGo is what an expression has otherwise: its words, and texts in either quotes.
	unlikeGo = regexp.MustCompile(`'([^']*)'|"([^"]*)"|\bor\b|\band\b|\s`)
)

const maxWhere = 4096

// ParseWhere reads an expression.
func ParseWhere(text string) (_ *Where, err error) {
	if len(text) > maxWhere {
		return nil, misuse(
			nil,
			fmt.Sprintf("where: an expression of more than %d bytes", maxWhere),
			"",
		)
	}
	w := &Where{text: unlikeGo.ReplaceAllStringFunc(text, func(s string) string {
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
		return nil, w.fail(err.Error())
	}
	termValue, err := w.term(tree)
	if err != nil {
		return nil, err
	}
	w.holds = termValue.truth
	if w.holds == nil {
		return nil, w.fail("no comparison in it")
	}
	return w, nil
}

func (w *Where) fail(msg string) error {
	return misuse(
		nil,
		"where: "+msg,
		"such as: length < 30 or max(action[gripper]) > 1.2; "+strings.Join(
			slices.Sorted(maps.Keys(names)),
			", ",
		)+"; "+strings.Join(
			functions,
			", ",
		)+" of a column, abs inside; texts, and keys of other letters, in quotes",
	)
}

// of is a part of the text; what stands in quotes, without them.
func (w *Where) of(part ast.Expr) string {
	text := w.text[part.Pos()-1 : part.End()-1]
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

// term makes of an expression what it does.
func (w *Where) term(part ast.Expr) (term, error) {
	switch part := part.(type) {
	case *ast.ParenExpr:
		return w.term(part.X)
	case *ast.BasicLit:
		if text := w.of(part); part.Kind == token.STRING {
			return term{
				texts: func(*whereEpisode) ([]string, error) { return []string{text}, nil },
			}, nil
		} else if v, err := strconv.ParseFloat(text, 64); err == nil {
			return term{number: func(*whereEpisode) (float64, error) { return v, nil }}, nil
		}
	case *ast.UnaryExpr:
		if of, err := w.term(part.X); err != nil {
			return term{}, err
		} else if part.Op == token.SUB && of.number != nil {
			return term{number: func(x *whereEpisode) (float64, error) {
				number, err := of.number(x)
				if err != nil {
					return 0, err
				}
				return -number, nil
			}}, nil
		}
	case *ast.Ident:
		if known, ok := names[part.Name]; ok {
			return known, nil
		}
	case *ast.CallExpr:
		if c := w.call(part); c != nil {
			return term{number: c.value}, nil
		}
	case *ast.BinaryExpr:
		a, err := w.term(part.X)
		if err != nil {
			return term{}, err
		}
		b, err := w.term(part.Y)
		if err != nil {
			return term{}, err
		}
		compare := compares[part.Op]
		switch {
		case part.Op == token.LOR && a.truth != nil && b.truth != nil:
			return term{truth: func(x *whereEpisode) (bool, error) {
				truth, err := a.truth(x)
				if err != nil {
					return false, err
				}
				holds := truth
				if !holds {
					truthValue, err := b.truth(x)
					if err != nil {
						return false, err
					}
					holds = truthValue
				}
				return holds, nil
			}}, nil
		case part.Op == token.LAND && a.truth != nil && b.truth != nil:
			return term{truth: func(x *whereEpisode) (bool, error) {
				truth, err := a.truth(x)
				if err != nil {
					return false, err
				}
				holds := truth
				if holds {
					truthValue, err := b.truth(x)
					if err != nil {
						return false, err
					}
					holds = truthValue
				}
				return holds, nil
			}}, nil
		case compare != nil && a.number != nil && b.number != nil:
			return term{truth: func(x *whereEpisode) (bool, error) {
				number, err := a.number(x)
				if err != nil {
					return false, err
				}
				numberValue, err := b.number(x)
				if err != nil {
					return false, err
				}
				return compare(number, numberValue), nil
			}}, nil
		case (part.Op == token.EQL || part.Op == token.NEQ) && a.texts != nil && b.texts != nil:
			return term{truth: func(x *whereEpisode) (bool, error) {
				left, err := a.texts(x)
				if err != nil {
					return false, err
				}
				right, err := b.texts(x)
				if err != nil {
					return false, err
				}
				common := slices.ContainsFunc(
					left,
					func(s string) bool { return slices.Contains(right, s) },
				)
				return common == (part.Op == token.EQL), nil
			}}, nil
		}
	}
	return term{}, w.fail(
		strconv.Quote(
			w.of(part),
		) + " is no comparison of numbers, none of two texts by == or !=, and nothing that is known of an episode",
	)
}

// call reads a function of a column; nil where it is none.
func (w *Where) call(part *ast.CallExpr) *call {
	c := &call{function: w.of(part.Fun)}
	if !slices.Contains(functions, c.function) || len(part.Args) != 1 {
		return nil
	}
	column := part.Args[0]
	if inner, ok := column.(*ast.CallExpr); ok && w.of(inner.Fun) == "abs" && len(inner.Args) == 1 {
		c.abs, column = true, inner.Args[0]
	}
	if of, ok := column.(*ast.IndexExpr); ok {
		c.channel, column = w.of(of.Index), of.X
	}
	c.key = w.of(column)
	w.calls = append(w.calls, c)
	return c
}

// check refuses columns that the dataset does not have.
func (w *Where) check(v *view) error {
	for _, c := range w.calls {
		f := v.info.Feature(c.key)
		if f == nil || f.Kind != robocache.KindNumeric || f.Ragged() {
			return misuse(
				robocache.Where{"stream": c.key},
				"where: no column of numbers of that name",
				robocache.Nearest(c.key, v.info.Keys()),
			)
		}
		if _, err := c.place(f); err != nil {
			return err
		}
	}
	return nil
}

// place finds a channel by its name or number; -1 = all.
func (c *call) place(f *robocache.Feature) (int, error) {
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

// value is that of the function, of the column or of a channel of it.
func (c *call) value(x *whereEpisode) (float64, error) {
	f := x.v.info.Feature(c.key)
	all, ok := x.values[c.key]
	if !ok {
		rowsIn, err := robocache.RowsIn(x.ctx, x.v, x.e, f)
		if err != nil {
			return 0, err
		}
		rows := robocache.RowsOf(x.e, 0, rowsIn)
		raw := make([]byte, len(rows)*f.RowBytes())
		if err := x.v.Gather(x.ctx, c.key, rows, raw); err != nil {
			return 0, err
		}
		all = robocache.Float64s(nil, f.DType, raw)
		x.values[c.key] = all
	}
	place, err := c.place(f)
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
			values, sum = append(values, v), sum+v
		}
	}
	n := float64(len(values))
	switch {
	case c.function == "count":
		return float64(len(all) / max(1, width)), nil // rows
	case n == 0:
		return math.NaN(), nil
	case c.function == "min": // NaN, where there is one
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
