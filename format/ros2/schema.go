package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Limits of a schema. Real schemas have a few hundred members.
const (
	maxSchemaText = 4 << 20
	maxMembers    = 1 << 16
	// Limit of the expanded type. 64 nested types that contain the next one twice would expand to
	// 2^64 leaves.
	maxLeaves     = 1 << 14
	maxDepth      = 64
	maxFixedBytes = 256 << 20
)

// Schema is a message type with all types that it contains.
type Schema struct {
	Name           string // "pkg/msg/Type"
	root           *message
	sign           string // see signature
	encoding, text string // "" for a common type that was not parsed from a recording
}

// LoadSchema returns the schema of a type. Without a text, the type must be a common one.
func LoadSchema(encoding, name, text string) (*Schema, error) {
	if encoding != "" || text != "" {
		return ParseSchema(encoding, name, text)
	}
	if s, ok := KnownSchema(name); ok {
		return s, nil
	}
	return nil, robocache.Unsupported(
		"schema",
		nil,
		"there is no schema for %.80q, and it is not one of the common types",
		name,
	)
}

// Source returns the arguments of LoadSchema besides the name. They are empty for a common type.
func (s *Schema) Source() (encoding, text string) {
	if s.isKnown() {
		return "", ""
	}
	return s.encoding, s.text
}

// Equal reports whether both schemas are of one name and decode messages in the same way.
func (s *Schema) Equal(o *Schema) bool { return s.Name == o.Name && s.sign == o.sign }

// isKnown reports whether the schema equals the schema of the common type of its name.
func (s *Schema) isKnown() bool {
	k, ok := KnownSchema(s.Name)
	return ok && k.sign == s.sign
}

// message is a parsed type. After resolving, members of message types point to their types.
type message struct {
	name    string
	pkg     string
	members []member
	state   uint8 // state of the resolver: 0 new, 1 in progress, 2 done
	depth   int
}

// base is the kind of one element.
type base uint8

const (
	isNumber base = iota
	isString
	isWString
	isMessage
)

// Lengths of members that are not arrays, and of sequences.
const (
	single   = -1
	sequence = -2
)

type member struct {
	name  string
	base  base
	dtype robocache.DType
	ref   string // name of the message type in the text
	msg   *message
	array int // single, sequence, or the fixed length
}

// ParseSchema parses a schema's text. encoding is "ros2msg" or "ros2idl". Missing, recursive and
// too deeply nested types are errors.
func ParseSchema(encoding, name, text string) (_ *Schema, err error) {
	defer guard.Recover("schema", &err)
	defer guard.In("schema", name)
	if len(text) > maxSchemaText {
		guard.Fail(robocache.ResourceLimit("schema", nil, "").
			Expected(
				"at most "+strconv.Itoa(maxSchemaText)+" bytes of text",
				strconv.Itoa(len(text)),
			),
		)
	}
	var types map[string]*message
	switch encoding {
	case "ros2msg":
		types = parseMsg(name, text)
	case "ros2idl":
		types = parseIDL(text)
	default:
		guard.Fail(robocache.Unsupported("schema", nil, "schema encoding %q is not read", encoding).
			WithHint("ros2msg and ros2idl are"))
	}
	root := types[shortKey(name)]
	if root == nil {
		guard.Fail(robocache.Malformed("schema", nil, "the text does not define %s", name))
	}
	s := newSchema(name, root, types)
	s.encoding, s.text = encoding, text
	return s, nil
}

// newSchema resolves all types below root.
func newSchema(name string, root *message, types map[string]*message) *Schema {
	r := resolver{types: types}
	r.resolveMembers(root)
	return &Schema{Name: longName(name), root: root, sign: compile(root).signature()}
}

// shortKey returns "pkg/Type" for "pkg/Type" and "pkg/msg/Type".
func shortKey(name string) string {
	// Names of foxglove's types outside ROS.
	if rest, ok := strings.CutPrefix(name, "foxglove."); ok {
		return "foxglove_msgs/" + rest
	}
	first, last := strings.IndexByte(name, '/'), strings.LastIndexByte(name, '/')
	if first < 0 || first == last {
		return name
	}
	return name[:first] + name[last:]
}

// longName returns "pkg/msg/Type".
func longName(name string) string {
	if strings.Count(name, "/") == 1 {
		return strings.Replace(name, "/", "/msg/", 1)
	}
	return name
}

func packageOf(name string) string {
	return name[:max(0, strings.IndexByte(name, '/'))]
}

// resolver links members to their types.
type resolver struct {
	types map[string]*message
	short map[string]*message // by the name without package; nil if it is ambiguous
}

func (r *resolver) resolveMembers(m *message) {
	switch m.state {
	case 1:
		guard.Fail(robocache.Unsupported("schema", nil, "type %s contains itself", m.name))
	case 2:
		return
	}
	m.state = 1
	m.depth = 1
	for k := range m.members {
		f := &m.members[k]
		if f.base != isMessage {
			continue
		}
		if f.msg = r.findType(m.pkg, f.ref); f.msg == nil {
			guard.Fail(
				robocache.Malformed(
					"schema",
					robocache.Where{"field": m.name + "." + f.name},
					"type %s is not defined",
					f.ref,
				),
			)
		}
		r.resolveMembers(f.msg)
		if m.depth = max(m.depth, f.msg.depth+1); m.depth > maxDepth {
			guard.Fail(
				robocache.Unsupported("schema", nil, "types are nested deeper than %d", maxDepth),
			)
		}
	}
	m.state = 2
}

// findType looks up a name: as written, in the same package, by the name alone if it is unique, and
// among the known types.
func (r *resolver) findType(pkg, ref string) *message {
	if strings.Contains(ref, "/") {
		if m := r.types[shortKey(ref)]; m != nil {
			return m
		}
		return r.addKnown(shortKey(ref))
	}
	if m := r.types[pkg+"/"+ref]; m != nil {
		return m
	}
	if r.short == nil {
		r.short = map[string]*message{}
		for k, m := range r.types {
			name := k[strings.LastIndexByte(k, '/')+1:]
			if _, twice := r.short[name]; twice {
				m = nil
			}
			r.short[name] = m
		}
	}
	if m := r.short[ref]; m != nil {
		return m
	}
	if ref == "Header" {
		return r.addKnown("std_msgs/Header")
	}
	return nil
}

// addKnown adds a type that the text omits from the embedded texts. It parses the type again,
// because resolving modifies it.
func (r *resolver) addKnown(short string) *message {
	if text, ok := knownTexts()[short]; ok {
		r.types[short] = parseMembers(short, text)
	}
	return r.types[short]
}
