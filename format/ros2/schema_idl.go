package ros2

import (
	"strconv"
	"strings"
	"text/scanner"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// idlPrimitives are the types of OMG IDL that rosidl writes, in the order of their words.
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

// parseIDL reads a ros2idl text: blocks "IDL: pkg/msg/Type", each a module with one structure and
// perhaps typedefs and constants.
func parseIDL(text string) map[string]*message {
	names, texts := blocks("", text, "IDL:")
	types := map[string]*message{}
	members := 0
	for k, t := range texts {
		p := &idlParser{types: types, typedefs: map[string]member{}, constants: map[string]int{}}
		p.read(t)
		if err := guard.Try(p.file); err != nil {
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

// idlParser reads one text.
type idlParser struct {
	lex       scanner.Scanner
	ahead     string // the token that was looked at and not taken
	looked    bool
	types     map[string]*message
	typedefs  map[string]member // by name, and by module-qualified name
	constants map[string]int
	modules   []string
	members   int
}

// read begins with a text. Its tokens are words (with their ::), numbers, strings, single signs;
// comments and lines of # are passed over.
func (p *idlParser) read(text string) {
	p.lex.Init(strings.NewReader(text))
	p.lex.Mode = scanner.ScanIdents | scanner.ScanStrings | scanner.ScanComments | scanner.SkipComments
	p.lex.IsIdentRune = func(c rune, _ int) bool {
		return c == '_' || c == ':' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' ||
			c >= 'A' && c <= 'Z'
	}
	p.lex.Error = func(*scanner.Scanner, string) {} // what is wrong is said of the token
}

// next takes a token; "" is the end of the text.
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

// accept takes a token where it is this one.
func (p *idlParser) accept(sign string) bool {
	if p.peek() != sign {
		return false
	}
	p.looked = false
	return true
}

func (p *idlParser) expect(sign string) {
	if t := p.next(); t != sign {
		p.bad(strconv.Quote(sign), t)
	}
}

func (p *idlParser) fail(err *robocache.Error) {
	err.Op = "schema"
	guard.Fail(err)
}

func (p *idlParser) bad(want, got string) {
	p.fail(robocache.Malformed("", nil, "").Expected(want, strconv.Quote(clip(got))))
}

func (p *idlParser) unread(what string) {
	p.fail(robocache.Unsupported("", nil, "%s is not read", what))
}

// file reads declarations to the end of the text.
func (p *idlParser) file() {
	for {
		switch t := p.next(); t {
		case "":
			if len(p.modules) > 0 {
				p.bad("}", "the end of the text")
			}
			return
		case ";":
		case "@":
			p.annotation()
		case "module":
			if len(p.modules) == 8 {
				p.bad("at most 8 modules inside each other", "more")
			}
			p.modules = append(p.modules, p.next())
			p.expect("{")
		case "}":
			if len(p.modules) == 0 {
				p.bad("a declaration", t)
			}
			p.modules = p.modules[:len(p.modules)-1]
		case "typedef":
			f := p.declarator(p.typ(p.next()))
			if len(p.typedefs) == 4096 {
				p.bad("at most 4096 typedefs", "more")
			}
			p.typedefs[f.name] = f
			p.expect(";")
		case "const":
			p.constant()
		case "struct":
			p.structure()
		default:
			p.fail(robocache.Unsupported("", nil, "IDL declaration %q is not read", clip(t)).
				WithHint("modules, structures, constants and typedefs are"))
		}
	}
}

// annotation passes "@name" and what stands in its parentheses.
func (p *idlParser) annotation() {
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
			p.bad(")", "the end of the text")
		}
	}
}

// constant reads "const type NAME = value;": whole numbers can be sizes.
func (p *idlParser) constant() {
	var tokens []string
	for t := p.next(); t != ";"; t = p.next() {
		if t == "" || len(tokens) > 64 {
			p.bad(";", t)
		}
		tokens = append(tokens, t)
	}
	if n := len(tokens); n >= 4 && tokens[n-2] == "=" {
		if v, err := strconv.ParseUint(tokens[n-1], 0, 31); err == nil {
			p.constants[tokens[n-3]] = int(v)
		}
	}
}

// number reads a size: a literal or a constant's name.
func (p *idlParser) number() int {
	t := p.next()
	if v, err := strconv.ParseUint(t, 0, 31); err == nil {
		return int(v)
	}
	v, ok := p.constants[lastWord(t)]
	if !ok || t == "" {
		p.bad("a size", t)
	}
	return v
}

// lastWord is a name without its modules.
func lastWord(t string) string { return t[strings.LastIndexByte(t, ':')+1:] }

// typ reads a type from its first token.
func (p *idlParser) typ(t string) member {
	f := member{array: single}
	switch t {
	case "sequence":
		p.expect("<")
		elem := p.next()
		if elem == "sequence" {
			p.unread("a sequence of sequences")
		}
		if f = p.typ(elem); f.array != single {
			p.unread("a sequence of arrays")
		}
		f.array = sequence
		if p.accept(",") { // a bound
			p.number()
		}
		p.expect(">")
		return f
	case "string", "wstring":
		f.base = isString
		if t == "wstring" {
			f.base = isWString
		}
		if p.accept("<") {
			p.number()
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
	if !typeName(f.ref) {
		p.bad("a type", t)
	}
	return f
}

// declarator reads a name, and the size of an array.
func (p *idlParser) declarator(f member) member {
	if f.name = p.next(); !typeName(f.name) {
		p.bad("a name", f.name)
	}
	if !p.accept("[") {
		return f
	}
	n := p.number()
	p.expect("]")
	if f.array != single || p.peek() == "[" {
		p.fail(
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

func (p *idlParser) structure() {
	name := p.next()
	full := strings.Join(append(p.modules[:len(p.modules):len(p.modules)], name), "/")
	m := &message{name: full, pkg: packageOf(full)}
	if len(p.modules) == 0 || !typeName(full) {
		p.bad("a structure inside the modules of its package", full)
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
			p.annotation()
		case "":
			p.bad("}", "the end of the text")
		default:
			p.fields(m, p.typ(t))
		}
	}
}

// fields reads the names that one type is given to.
func (p *idlParser) fields(m *message, f member) {
	for {
		g := p.declarator(f)
		if p.members++; p.members > maxMembers {
			p.bad("at most "+strconv.Itoa(maxMembers)+" members", "more")
		}
		if g.name != filler {
			m.members = append(m.members, g)
		}
		switch t := p.next(); t {
		case ";":
			return
		case ",":
		default:
			p.bad(";", t)
		}
	}
}
