package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// Limits of a schema. Real ones have a few hundred members.
const (
	maxSchemaText = 4 << 20
	maxMembers    = 1 << 16
	// of the expanded type: a chain of 64 types that hold the next one twice has 2^64
	maxLeaves     = 1 << 14
	maxDepth      = 64
	maxFixedBytes = 256 << 20
)

// Schema is a message type with all types that it is made of.
type Schema struct {
	Name string // "pkg/msg/Type"
	root *message
	sign string // see signature
}

// message is a parsed type; members of message types point at theirs once resolved.
type message struct {
	name    string
	pkg     string
	members []member
	state   uint8 // of the resolver: 0 new, 1 on the way, 2 done
	depth   int
}

// base is the type of one element.
type base uint8

const (
	isNumber base = iota
	isString
	isWString
	isMessage
)

// lengths of members that are no array, and of sequences.
const (
	single   = -1
	sequence = -2
)

type member struct {
	name  string
	base  base
	dtype robocache.DType
	ref   string // name of the message type, as written
	msg   *message
	array int // single, sequence, or the fixed length
}

// ParseSchema reads a schema's text; encoding is "ros2msg" or "ros2idl". Missing, recursive and too
// deeply nested types are refused.
func ParseSchema(encoding, name, text string) (_ *Schema, err error) {
	defer guard.Recover("schema", &err)
	defer guard.In("schema", name)
	if len(text) > maxSchemaText {
		guard.Fail(robocache.ResourceLimit("schema", nil, "").
			Expected("at most "+strconv.Itoa(maxSchemaText)+" bytes of text", strconv.Itoa(len(text))),
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
	return finish(name, root, types), nil
}

// finish resolves all types below root.
func finish(name string, root *message, types map[string]*message) *Schema {
	r := resolver{types: types}
	r.resolve(root)
	return &Schema{Name: longName(name), root: root, sign: compile(root).signature()}
}

// shortKey is "pkg/Type" of "pkg/Type" and of "pkg/msg/Type".
func shortKey(name string) string {
	// as foxglove names its types outside of ROS
	if rest, ok := strings.CutPrefix(name, "foxglove."); ok {
		return "foxglove_msgs/" + rest
	}
	first, last := strings.IndexByte(name, '/'), strings.LastIndexByte(name, '/')
	if first < 0 || first == last {
		return name
	}
	return name[:first] + name[last:]
}

// longName is "pkg/msg/Type".
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
	short map[string]*message // by the bare name, where it is unique; nil value: ambiguous
}

func (r *resolver) resolve(m *message) {
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
		if f.msg = r.find(m.pkg, f.ref); f.msg == nil {
			guard.Fail(
				robocache.Malformed(
					"schema",
					robocache.Where{"field": m.name + "." + f.name},
					"type %s is not defined",
					f.ref,
				),
			)
		}
		r.resolve(f.msg)
		if m.depth = max(m.depth, f.msg.depth+1); m.depth > maxDepth {
			guard.Fail(
				robocache.Unsupported("schema", nil, "types are nested deeper than %d", maxDepth),
			)
		}
	}
	m.state = 2
}

// find looks a name up: as it is, in the same package, by its bare name where that is unique, and
// among the known types.
func (r *resolver) find(pkg, ref string) *message {
	if strings.Contains(ref, "/") {
		if m := r.types[shortKey(ref)]; m != nil {
			return m
		}
		return r.known(shortKey(ref))
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
		return r.known("std_msgs/Header")
	}
	return nil
}

// known takes a type that the text leaves out from the embedded texts. It is parsed anew: resolving
// writes to it.
func (r *resolver) known(short string) *message {
	if text, ok := knownTexts()[short]; ok {
		r.types[short] = parseMembers(short, text)
	}
	return r.types[short]
}
