package ros2

import (
	"strconv"
	"strings"
	"text/scanner"

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
		p := &idlParser{types: types, typedefs: map[string]member{}, constants: map[string]int{}}
		p.read(t)
		if err := p.file(); err != nil {
			return nil, robocache.At(err, robocache.Where{"type": names[k], "line": p.lex.Pos().Line})
		}
		if members += p.members; members > maxMembers {
			return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "schema", Msg: "more than " + strconv.Itoa(maxMembers) + " members"}
		}
	}
	return types, nil
}

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

// read begins with a text. Its tokens are words (with their ::), numbers, strings, single signs; comments and lines of # are passed over.
func (p *idlParser) read(text string) {
	p.lex.Init(strings.NewReader(text))
	p.lex.Mode = scanner.ScanIdents | scanner.ScanStrings | scanner.ScanComments | scanner.SkipComments
	p.lex.IsIdentRune = func(c rune, _ int) bool {
		return c == '_' || c == ':' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
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

func (p *idlParser) expect(sign string) error {
	if t := p.next(); t != sign {
		return p.bad(strconv.Quote(sign), t)
	}
	return nil
}

func (p *idlParser) bad(want, got string) error {
	return &robocache.Error{Class: robocache.ErrMalformed, Op: "schema", Want: want, Got: strconv.Quote(clip(got))}
}

// file reads declarations to the end of the text.
func (p *idlParser) file() error {
	for {
		t := p.next()
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
			p.modules = append(p.modules, p.next())
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
	p.next()
	if !p.accept("(") {
		return nil
	}
	for depth := 1; depth > 0; {
		switch p.next() {
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
		t := p.next()
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
	t := p.next()
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
		elem := p.next()
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
		if p.accept(",") { // a bound
			if _, err := p.number(); err != nil {
				return in, err
			}
		}
		return in, p.expect(">")
	case t == "string" || t == "wstring":
		f.base = isString
		if t == "wstring" {
			f.base = isWString
		}
		if !p.accept("<") {
			return f, nil
		}
		if _, err := p.number(); err != nil {
			return f, err
		}
		return f, p.expect(">")
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

// declarator reads a name, and the size of an array.
func (p *idlParser) declarator(f member) (member, error) {
	f.name = p.next()
	if !typeName(f.name) {
		return f, p.bad("a name", f.name)
	}
	if !p.accept("[") {
		return f, nil
	}
	n, err := p.number()
	if err != nil {
		return f, err
	}
	if err := p.expect("]"); err != nil {
		return f, err
	}
	if f.array != single || p.peek() == "[" {
		return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "schema", Msg: "an array of arrays is not read", Where: robocache.Where{"field": f.name}}
	}
	f.array = n
	return f, nil
}

func (p *idlParser) typedef() error {
	f, err := p.typ(p.next())
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
	name := p.next()
	full := strings.Join(append(p.modules[:len(p.modules):len(p.modules)], name), "/")
	m := &message{name: full, pkg: packageOf(full)}
	if len(p.modules) == 0 || !typeName(full) {
		return p.bad("a structure inside the modules of its package", full)
	}
	if err := p.expect("{"); err != nil {
		return err
	}
	for {
		t := p.next()
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
			t := p.next()
			if t == ";" {
				break
			}
			if t != "," {
				return p.bad(";", t)
			}
		}
	}
}
