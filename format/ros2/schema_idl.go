package ros2

import (
	"strconv"
	"strings"
	"text/scanner"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// idlPrimitives holds the types of OMG IDL that rosidl writes.
var idlPrimitives = map[string]robocache.DType{
	"boolean":            robocache.Bool,
	"octet":              robocache.Uint8,
	"char":               robocache.Uint8,
	"int8":               robocache.Int8,
	"uint8":              robocache.Uint8,
	"int16":              robocache.Int16,
	"uint16":             robocache.Uint16,
	"int32":              robocache.Int32,
	"uint32":             robocache.Uint32,
	"int64":              robocache.Int64,
	"uint64":             robocache.Uint64,
	"short":              robocache.Int16,
	"unsigned short":     robocache.Uint16,
	"long":               robocache.Int32,
	"unsigned long":      robocache.Uint32,
	"long long":          robocache.Int64,
	"unsigned long long": robocache.Uint64,
	"float":              robocache.Float32,
	"double":             robocache.Float64,
}

// parseIDL parses a ros2idl text. It consists of blocks "IDL: pkg/msg/Type", each a module with one
// structure and possibly typedefs and constants.
func parseIDL(text string) map[string]*message {
	names, texts := splitBlocks("", text, "IDL:")
	types := map[string]*message{}
	members := 0
	for k, t := range texts {
		p := &idlParser{types: types, typedefs: map[string]member{}, constants: map[string]int{}}
		p.startText(t)
		if err := guard.Try(p.parseFile); err != nil {
			guard.Fail(
				robocache.At(err, robocache.Where{"type": names[k], "line": p.lex.Pos().Line}),
			)
		}
		if members += p.members; members > maxMembers {
			guard.Fail(tooManyMembers())
		}
	}
	return types
}

// idlParser parses one text.
type idlParser struct {
	lex       scanner.Scanner
	ahead     string // the token that peek returned and next has not consumed
	looked    bool
	types     map[string]*message
	typedefs  map[string]member // by name and by module-qualified name
	constants map[string]int
	modules   []string
	members   int
}

// startText begins with a text. Tokens are words (with their ::), numbers, strings and single
// characters. Comments and lines that begin with # are skipped.
func (p *idlParser) startText(text string) {
	p.lex.Init(strings.NewReader(text))
	p.lex.Mode = scanner.ScanIdents | scanner.ScanStrings |
		scanner.ScanComments | scanner.SkipComments
	p.lex.IsIdentRune = func(c rune, _ int) bool {
		return c == '_' || c == ':' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' ||
			c >= 'A' && c <= 'Z'
	}
	p.lex.Error = func(*scanner.Scanner, string) {} // errors are reported for the token
}

// next consumes a token. It returns "" at the end of the text.
func (p *idlParser) next() string {
	t := p.peek()
	p.looked = false
	return t
}

func (p *idlParser) peek() string {
	if p.looked {
		return p.ahead
	}
	p.looked = true
	for p.ahead = ""; p.lex.Scan() != scanner.EOF; {
		if p.ahead = p.lex.TokenText(); p.ahead != "#" {
			break
		}
		for c := p.lex.Peek(); c != '\n' && c != scanner.EOF; c = p.lex.Peek() {
			p.lex.Next()
		}
		p.ahead = ""
	}
	return p.ahead
}

// accept consumes the next token if it equals sign.
func (p *idlParser) accept(sign string) bool {
	if p.peek() != sign {
		return false
	}
	p.looked = false
	return true
}

func (p *idlParser) expect(sign string) {
	if t := p.next(); t != sign {
		p.raiseUnexpected(strconv.Quote(sign), t)
	}
}

func (p *idlParser) raiseError(err *robocache.Error) {
	err.Op = "schema"
	guard.Fail(err)
}

func (p *idlParser) raiseUnexpected(want, got string) {
	p.raiseError(robocache.Malformed("", nil, "").Expected(want, strconv.Quote(clipText(got))))
}

func (p *idlParser) raiseUnsupported(what string) {
	p.raiseError(robocache.Unsupported("", nil, "%s is not read", what))
}

// parseFile parses declarations up to the end of the text.
func (p *idlParser) parseFile() {
	for {
		switch t := p.next(); t {
		case "":
			if len(p.modules) > 0 {
				p.raiseUnexpected("}", "the end of the text")
			}
			return
		case ";":
		case "@":
			p.skipAnnotation()
		case "module":
			if len(p.modules) == 8 {
				p.raiseUnexpected("at most 8 modules inside each other", "more")
			}
			p.modules = append(p.modules, p.next())
			p.expect("{")
		case "}":
			if len(p.modules) == 0 {
				p.raiseUnexpected("a declaration", t)
			}
			p.modules = p.modules[:len(p.modules)-1]
		case "typedef":
			f := p.parseDeclarator(p.parseType(p.next()))
			if len(p.typedefs) == 4096 {
				p.raiseUnexpected("at most 4096 typedefs", "more")
			}
			p.typedefs[f.name] = f
			p.expect(";")
		case "const":
			p.parseConstant()
		case "struct":
			p.parseStruct()
		default:
			p.raiseError(
				robocache.Unsupported("", nil, "IDL declaration %q is not read", clipText(t)).
					WithHint("modules, structures, constants and typedefs are"),
			)
		}
	}
}

// skipAnnotation skips "@name" and its parentheses.
func (p *idlParser) skipAnnotation() {
	p.next()
	if !p.accept("(") {
		return
	}
	for depth := 1; depth > 0; {
		switch p.next() {
		case "(":
			depth++
		case ")":
			depth--
		case "":
			p.raiseUnexpected(")", "the end of the text")
		}
	}
}

// parseConstant parses "const type NAME = value;". Whole numbers can be used as sizes.
func (p *idlParser) parseConstant() {
	var tokens []string
	for t := p.next(); t != ";"; t = p.next() {
		if t == "" || len(tokens) > 64 {
			p.raiseUnexpected(";", t)
		}
		tokens = append(tokens, t)
	}
	if n := len(tokens); n >= 4 && tokens[n-2] == "=" {
		if v, err := strconv.ParseUint(tokens[n-1], 0, 31); err == nil {
			p.constants[tokens[n-3]] = int(v)
		}
	}
}

// parseSize parses a size: a literal or the name of a constant.
func (p *idlParser) parseSize() int {
	t := p.next()
	if v, err := strconv.ParseUint(t, 0, 31); err == nil {
		return int(v)
	}
	v, ok := p.constants[lastWord(t)]
	if !ok || t == "" {
		p.raiseUnexpected("a size", t)
	}
	return v
}

// lastWord returns a name without its modules.
func lastWord(t string) string { return t[strings.LastIndexByte(t, ':')+1:] }

// parseType parses a type that begins with token t.
func (p *idlParser) parseType(t string) member {
	f := member{array: single}
	switch t {
	case "sequence":
		p.expect("<")
		elem := p.next()
		if elem == "sequence" {
			p.raiseUnsupported("a sequence of sequences")
		}
		if f = p.parseType(elem); f.array != single {
			p.raiseUnsupported("a sequence of arrays")
		}
		f.array = sequence
		if p.accept(",") { // an upper bound
			p.parseSize()
		}
		p.expect(">")
		return f
	case "string", "wstring":
		f.base = isString
		if t == "wstring" {
			f.base = isWString
		}
		if p.accept("<") {
			p.parseSize()
			p.expect(">")
		}
		return f
	}
	words := t
	for words == "unsigned" || words == "long" || words == "unsigned long" {
		next := words + " " + p.peek()
		if _, ok := idlPrimitives[next]; !ok {
			break
		}
		words = next
		p.next()
	}
	if d, ok := idlPrimitives[words]; ok {
		f.dtype = d
		return f
	}
	if d, ok := p.typedefs[lastWord(t)]; ok {
		return d
	}
	f.base, f.ref = isMessage, strings.ReplaceAll(strings.TrimPrefix(t, "::"), "::", "/")
	if !isTypeName(f.ref) {
		p.raiseUnexpected("a type", t)
	}
	return f
}

// parseDeclarator parses a name and an optional array size.
func (p *idlParser) parseDeclarator(f member) member {
	if f.name = p.next(); !isTypeName(f.name) {
		p.raiseUnexpected("a name", f.name)
	}
	if !p.accept("[") {
		return f
	}
	n := p.parseSize()
	p.expect("]")
	if f.array != single || p.peek() == "[" {
		p.raiseError(
			robocache.Unsupported(
				"",
				robocache.Where{"field": f.name},
				"an array of arrays is not read",
			),
		)
	}
	f.array = n
	return f
}

func (p *idlParser) parseStruct() {
	name := p.next()
	full := strings.Join(append(p.modules[:len(p.modules):len(p.modules)], name), "/")
	m := &message{name: full, pkg: packageOf(full)}
	if len(p.modules) == 0 || !isTypeName(full) {
		p.raiseUnexpected("a structure inside the modules of its package", full)
	}
	p.expect("{")
	for {
		switch t := p.next(); t {
		case "}":
			if _, twice := p.types[shortKey(full)]; !twice {
				p.types[shortKey(full)] = m
			}
			return
		case "@":
			p.skipAnnotation()
		case "":
			p.raiseUnexpected("}", "the end of the text")
		default:
			p.parseFields(m, p.parseType(t))
		}
	}
}

// parseFields parses the names that are declared with one type.
func (p *idlParser) parseFields(m *message, f member) {
	for {
		g := p.parseDeclarator(f)
		if p.members++; p.members > maxMembers {
			p.raiseUnexpected("at most "+strconv.Itoa(maxMembers)+" members", "more")
		}
		if g.name != filler {
			m.members = append(m.members, g)
		}
		switch t := p.next(); t {
		case ";":
			return
		case ",":
		default:
			p.raiseUnexpected(";", t)
		}
	}
}
