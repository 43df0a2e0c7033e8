package query

import "slices"

// Expr is a parsed expression. It is immutable and safe for concurrent use.
type Expr struct {
	text string
	root *syntax
}

// String returns the text of the expression.
func (e *Expr) String() string { return e.text }

// syntax is a node of the syntax tree. Its name is an operator, a function, or one of the constants
// below.
type syntax struct {
	name string
	args []*syntax
	token
}

const (
	numberSyntax = "number"
	textSyntax   = "text"
	columnSyntax = "column" // token.text is the name; an argument is the channel
	heldSyntax   = "for"    // token.value is the duration in seconds
	thenSyntax   = "then"   // token.value is the limit in seconds; negative: none
	whileSyntax  = "while"
	negateSyntax = "negate"
	callPrefix   = "call " // before the name of a function
)

// comparisonSymbols lists the operators that compare.
var comparisonSymbols = []string{"<", "<=", ">", ">=", "==", "!="}

// Parse parses an expression. docs/find.md describes the language.
//
// The grammar, from the weakest operator to the strongest:
//
//	expression = and {"or" and}
//	and        = sequence {"and" sequence}
//	sequence   = held {"while" held | "then" held ["within" DURATION]}
//	held       = not {"for" DURATION}
//	not        = {"not"} comparison
//	comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
//	sum        = product {("+" | "-") product}
//	product    = factor {("*" | "/") factor}
//	factor     = {"-"} (NUMBER | "(" expression ")" | FUNCTION "(" expression {","} ")" | column)
//	column     = (NAME | TEXT) ["[" (NAME | NUMBER | TEXT) "]"]
func Parse(text string) (*Expr, error) {
	tokens, err := splitTokens(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	root, err := p.parseOr()
	if err != nil {
		return nil, err
	}
	if t := p.next(); t.kind != endToken {
		return nil, syntaxError(t.at, "unexpected %q after the expression", t.text)
	}
	return &Expr{text: text, root: root}, nil
}

// parser is a recursive-descent parser.
type parser struct {
	tokens []token
	depth  int
}

// next returns the next token without consuming it.
func (p *parser) next() token { return p.tokens[0] }

// accept consumes the next token if it is one of the words or symbols.
func (p *parser) accept(texts ...string) (token, bool) {
	t := p.tokens[0]
	isOperator := t.kind == wordToken || t.kind == symbolToken
	if !isOperator || !slices.Contains(texts, t.text) {
		return t, false
	}
	p.tokens = p.tokens[1:]
	return t, true
}

// expect consumes a symbol or returns an error.
func (p *parser) expect(symbol, where string) error {
	if t, ok := p.accept(symbol); !ok {
		return syntaxError(t.at, "expected %s %s, found %q", symbol, where, t.text)
	}
	return nil
}

// parseChain parses operands that are joined by one of the operators, from left to right. names
// maps operators to names of nodes.
func (p *parser) parseChain(
	operand func() (*syntax, error), names map[string]string,
) (*syntax, error) {
	left, err := operand()
	for err == nil {
		t := p.next()
		name := names[t.text]
		if name == "" {
			return left, nil
		}
		if _, ok := p.accept(t.text); !ok { // in quotes
			return left, nil
		}
		var right *syntax
		if right, err = operand(); err == nil {
			left = &syntax{name, []*syntax{left, right}, t}
		}
	}
	return nil, err
}

func (p *parser) parseOr() (*syntax, error) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxDepth {
		return nil, syntaxError(p.next().at, "nested deeper than %d", maxDepth)
	}
	return p.parseChain(p.parseAnd, map[string]string{"or": "or", "||": "or"})
}

func (p *parser) parseAnd() (*syntax, error) {
	return p.parseChain(p.parseSequence, map[string]string{"and": "and", "&&": "and"})
}

// parsePrefix parses an operand after any number of prefix operators.
func (p *parser) parsePrefix(
	symbol, name string, operand func() (*syntax, error),
) (*syntax, error) {
	var prefixes []token
	for {
		t, ok := p.accept(symbol)
		if !ok {
			break
		}
		if prefixes = append(prefixes, t); len(prefixes) > maxDepth {
			return nil, syntaxError(t.at, "nested deeper than %d", maxDepth)
		}
	}
	out, err := operand()
	for _, t := range slices.Backward(prefixes) {
		out = &syntax{name, []*syntax{out}, t}
	}
	return out, err
}

func (p *parser) parseSequence() (*syntax, error) {
	left, err := p.parseHeld()
	for err == nil {
		t, ok := p.accept(whileSyntax, thenSyntax)
		if !ok {
			return left, nil
		}
		var right *syntax
		if right, err = p.parseHeld(); err != nil {
			break
		}
		left = &syntax{t.text, []*syntax{left, right}, t}
		left.value = -1
		if _, ok := p.accept("within"); ok && t.text == thenSyntax {
			left.value, err = p.duration("within")
		}
	}
	return nil, err
}

func (p *parser) parseHeld() (*syntax, error) {
	left, err := p.parsePrefix("not", "not", p.parseComparison)
	for err == nil {
		t, ok := p.accept(heldSyntax)
		if !ok {
			return left, nil
		}
		left = &syntax{heldSyntax, []*syntax{left}, t}
		left.value, err = p.duration(heldSyntax)
	}
	return nil, err
}

// duration consumes a duration and returns its seconds.
func (p *parser) duration(after string) (float64, error) {
	t := p.next()
	if t.kind != durationToken {
		return 0, syntaxError(t.at, "expected a duration such as 0.5s after %s, found %q", after,
			t.text)
	}
	p.tokens = p.tokens[1:]
	return t.value, nil
}

func (p *parser) parseComparison() (*syntax, error) {
	left, err := p.parseSum()
	if err != nil {
		return nil, err
	}
	t, ok := p.accept(comparisonSymbols...)
	if !ok {
		return left, nil
	}
	right, err := p.parseSum()
	return &syntax{t.text, []*syntax{left, right}, t}, err
}

func (p *parser) parseSum() (*syntax, error) {
	return p.parseChain(p.parseProduct, map[string]string{"+": "+", "-": "-"})
}

func (p *parser) parseProduct() (*syntax, error) {
	return p.parseChain(p.parseFactor, map[string]string{"*": "*", "/": "/"})
}

func (p *parser) parseFactor() (*syntax, error) {
	return p.parsePrefix("-", negateSyntax, p.parsePrimary)
}

func (p *parser) parsePrimary() (*syntax, error) {
	t := p.next()
	if _, ok := p.accept("("); ok {
		inner, err := p.parseOr()
		if err == nil {
			err = p.expect(")", "to close the parenthesis")
		}
		return inner, err
	}
	switch t.kind {
	case numberToken:
		p.tokens = p.tokens[1:]
		return &syntax{numberSyntax, nil, t}, nil
	case nameToken, textToken:
		p.tokens = p.tokens[1:]
		if _, ok := p.accept("("); ok && t.kind == nameToken {
			return p.parseCall(t)
		}
		return p.parseColumn(t)
	}
	return nil, syntaxError(t.at, "expected a number, a name or a parenthesis, found %q", t.text)
}

// parseCall parses the arguments of a function, after its opening parenthesis.
func (p *parser) parseCall(name token) (*syntax, error) {
	call := &syntax{callPrefix + name.text, nil, name}
	for {
		arg, err := p.parseOr()
		if err != nil {
			return nil, err
		}
		call.args = append(call.args, arg)
		if _, ok := p.accept(","); !ok {
			return call, p.expect(")", "after the arguments of "+name.text)
		}
	}
}

// parseColumn parses the channel that may follow the name of a column.
func (p *parser) parseColumn(name token) (*syntax, error) {
	column := &syntax{columnSyntax, nil, name}
	if _, ok := p.accept("["); !ok {
		return column, nil
	}
	t := p.next()
	if t.kind != nameToken && t.kind != numberToken && t.kind != textToken {
		return nil, syntaxError(t.at, "expected the name or number of a channel, found %q", t.text)
	}
	p.tokens = p.tokens[1:]
	column.args = []*syntax{{textSyntax, nil, t}}
	return column, p.expect("]", "after the channel")
}
