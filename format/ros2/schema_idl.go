package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// idlPrimitives are the types of OMG IDL that rosidl writes, in the order of their words.
var idlPrimitives = map[string]robocache.DType{
	"boolean": robocache.Bool, "octet": robocache.Uint8, "char": robocache.Uint8,
	"int8": robocache.Int8, "uint8": robocache.Uint8, "int16": robocache.Int16, "uint16": robocache.Uint16,
	"int32": robocache.Int32, "uint32": robocache.Uint32, "int64": robocache.Int64, "uint64": robocache.Uint64,
	"short": robocache.Int16, "unsigned short": robocache.Uint16, "long": robocache.Int32, "unsigned long": robocache.Uint32,
	"long long": robocache.Int64, "unsigned long long": robocache.Uint64, "float": robocache.Float32, "double": robocache.Float64,
}

// parseIDL reads a ros2idl text: blocks "IDL: pkg/msg/Type", each a module with one structure and perhaps typedefs and constants.
func parseIDL(text string) (map[string]*message, error) {
	names, texts, err := blocks("", text, "IDL:")
	if err != nil {
		return nil, err
	}
	types := map[string]*message{}
	members := 0
	for k, t := range texts {
		p := &idlParser{lex: lexer{text: t}, types: types, typedefs: map[string]member{}, constants: map[string]int{}}
		if err := p.file(); err != nil {
			return nil, robocache.At(err, robocache.Where{"type": names[k], "line": 1 + strings.Count(t[:p.lex.at], "\n")})
		}
		if members += p.members; members > maxMembers {
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "schema", Msg: "more than " + strconv.Itoa(maxMembers) + " members"}
		}
	}
	return types, nil
}

// lexer cuts IDL into tokens: words (with their ::), numbers, strings, single signs.
type lexer struct {
	text string
	at   int
}

func (l *lexer) next() string {
	for l.at < len(l.text) {
		switch rest := l.text[l.at:]; {
		case strings.HasPrefix(rest, "//"), rest[0] == '#':
			_, l.at = lineAt(l.text, l.at)
		case strings.HasPrefix(rest, "/*"):
			if k := strings.Index(rest, "*/"); k >= 0 {
				l.at += k + 2
			} else {
				l.at = len(l.text)
			}
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			l.at++
		default:
			return l.token()
		}
	}
	return ""
}

func wordByte(b byte) bool {
	return b == '_' || b == ':' || b == '.' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

func (l *lexer) token() string {
	start := l.at
	if c := l.text[l.at]; c == '"' || c == '\'' {
		for l.at++; l.at < len(l.text) && l.text[l.at] != c; l.at++ {
			if l.text[l.at] == '\\' {
				l.at++
			}
		}
		l.at = min(l.at+1, len(l.text))
		return l.text[start:l.at]
	}
	for l.at < len(l.text) && wordByte(l.text[l.at]) {
		l.at++
	}
	if l.at == start {
		l.at++
	}
	return l.text[start:l.at]
}

type idlParser struct {
	lex       lexer
	types     map[string]*message
	typedefs  map[string]member // by name, and by module-qualified name
	constants map[string]int
	modules   []string
	members   int
}

func (p *idlParser) bad(want, got string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "schema", Want: want, Got: strconv.Quote(clip(got))}
}

func (p *idlParser) expect(sign string) error {
	if t := p.lex.next(); t != sign {
		return p.bad(strconv.Quote(sign), t)
	}
	return nil
}

// file reads declarations to the end of the text.
func (p *idlParser) file() error {
	for {
		t := p.lex.next()
		switch t {
		case "":
			if len(p.modules) > 0 {
				return p.bad("}", "the end of the text")
			}
			return nil
		case ";":
		case "@":
			if err := p.annotation(); err != nil {
				return err
			}
		case "module":
			if len(p.modules) == 8 {
				return p.bad("at most 8 modules inside each other", "more")
			}
			p.modules = append(p.modules, p.lex.next())
			if err := p.expect("{"); err != nil {
				return err
			}
		case "}":
			if len(p.modules) == 0 {
				return p.bad("a declaration", t)
			}
			p.modules = p.modules[:len(p.modules)-1]
		case "typedef":
			if err := p.typedef(); err != nil {
				return err
			}
		case "const":
			if err := p.constant(); err != nil {
				return err
			}
		case "struct":
			if err := p.structure(); err != nil {
				return err
			}
		default:
			return &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "IDL declaration " + strconv.Quote(clip(t)) + " is not read", Hint: "modules, structures, constants and typedefs are"}
		}
	}
}

// annotation passes "@name" and what stands in its parentheses.
func (p *idlParser) annotation() error {
	p.lex.next()
	at := p.lex.at
	if p.lex.next() != "(" {
		p.lex.at = at
		return nil
	}
	for depth := 1; depth > 0; {
		switch p.lex.next() {
		case "(":
			depth++
		case ")":
			depth--
		case "":
			return p.bad(")", "the end of the text")
		}
	}
	return nil
}

// constant reads "const type NAME = value;": whole numbers can be sizes.
func (p *idlParser) constant() error {
	var tokens []string
	for {
		t := p.lex.next()
		if t == ";" {
			break
		}
		if t == "" || len(tokens) > 64 {
			return p.bad(";", t)
		}
		tokens = append(tokens, t)
	}
	if n := len(tokens); n >= 4 && tokens[n-2] == "=" {
		if v, err := strconv.ParseUint(tokens[n-1], 0, 31); err == nil {
			p.constants[tokens[n-3]] = int(v)
		}
	}
	return nil
}

// number reads a size: a literal or a constant's name.
func (p *idlParser) number() (int, error) {
	t := p.lex.next()
	if v, err := strconv.ParseUint(t, 0, 31); err == nil {
		return int(v), nil
	}
	if v, ok := p.constants[t[strings.LastIndexByte(t, ':')+1:]]; ok && t != "" {
		return v, nil
	}
	return 0, p.bad("a size", t)
}

// typ reads a type from its first token.
func (p *idlParser) typ(t string) (member, error) {
	f := member{array: single}
	switch {
	case t == "sequence":
		if err := p.expect("<"); err != nil {
			return f, err
		}
		elem := p.lex.next()
		if elem == "sequence" {
			return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "a sequence of sequences is not read"}
		}
		in, err := p.typ(elem)
		if err != nil {
			return f, err
		}
		if in.array != single {
			return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "a sequence of arrays is not read"}
		}
		in.array = sequence
		return in, p.bound(true)
	case t == "string" || t == "wstring":
		f.base = isString
		if t == "wstring" {
			f.base = isWString
		}
		at := p.lex.at
		if p.lex.next() != "<" {
			p.lex.at = at
			return f, nil
		}
		if _, err := p.number(); err != nil {
			return f, err
		}
		return f, p.expect(">")
	}
	words := t
	for words == "unsigned" || words == "long" || words == "unsigned long" {
		at := p.lex.at
		next := words + " " + p.lex.next()
		if _, ok := idlPrimitives[next]; !ok {
			p.lex.at = at
			break
		}
		words = next
	}
	if d, ok := idlPrimitives[words]; ok {
		f.dtype = d
		return f, nil
	}
	last := t[strings.LastIndexByte(t, ':')+1:]
	if d, ok := p.typedefs[last]; ok {
		return d, nil
	}
	name := strings.ReplaceAll(strings.TrimPrefix(t, "::"), "::", "/")
	if !typeName(name) {
		return f, p.bad("a type", t)
	}
	f.base, f.ref = isMessage, name
	return f, nil
}

// bound reads ", n>" or ">".
func (p *idlParser) bound(comma bool) error {
	switch t := p.lex.next(); {
	case t == ">":
		return nil
	case t == "," && comma:
		if _, err := p.number(); err != nil {
			return err
		}
		return p.expect(">")
	default:
		return p.bad(">", t)
	}
}

// declarator reads a name, and the size of an array.
func (p *idlParser) declarator(f member) (member, error) {
	id, rest := identifier(p.lex.next())
	if id == "" || rest != "" {
		return f, p.bad("a name", id+rest)
	}
	f.name = id
	at := p.lex.at
	if p.lex.next() != "[" {
		p.lex.at = at
		return f, nil
	}
	n, err := p.number()
	if err != nil {
		return f, err
	}
	if f.array != single {
		return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "an array of arrays is not read", Where: robocache.Where{"field": f.name}}
	}
	f.array = n
	if err := p.expect("]"); err != nil {
		return f, err
	}
	at = p.lex.at
	if p.lex.next() == "[" {
		return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "an array of arrays is not read", Where: robocache.Where{"field": f.name}}
	}
	p.lex.at = at
	return f, nil
}

func (p *idlParser) typedef() error {
	f, err := p.typ(p.lex.next())
	if err != nil {
		return err
	}
	if f, err = p.declarator(f); err != nil {
		return err
	}
	if len(p.typedefs) == 4096 {
		return p.bad("at most 4096 typedefs", "more")
	}
	p.typedefs[f.name] = f
	return p.expect(";")
}

func (p *idlParser) structure() error {
	name := p.lex.next()
	full := strings.Join(append(p.modules[:len(p.modules):len(p.modules)], name), "/")
	m := &message{name: full, pkg: packageOf(full)}
	if len(p.modules) == 0 || !typeName(full) {
		return p.bad("a structure inside the modules of its package", full)
	}
	if err := p.expect("{"); err != nil {
		return err
	}
	for {
		t := p.lex.next()
		switch t {
		case "}":
			if _, twice := p.types[shortKey(full)]; !twice {
				p.types[shortKey(full)] = m
			}
			return nil
		case "@":
			if err := p.annotation(); err != nil {
				return err
			}
			continue
		case "":
			return p.bad("}", "the end of the text")
		}
		f, err := p.typ(t)
		if err != nil {
			return err
		}
		for {
			g, err := p.declarator(f)
			if err != nil {
				return err
			}
			if p.members++; p.members > maxMembers {
				return p.bad("at most "+strconv.Itoa(maxMembers)+" members", "more")
			}
			if g.name != filler {
				m.members = append(m.members, g)
			}
			t := p.lex.next()
			if t == ";" {
				break
			}
			if t != "," {
				return p.bad(";", t)
			}
		}
	}
}
