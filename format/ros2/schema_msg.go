package ros2

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// primitives holds the primitive types of .msg texts. char is uint8 since Foxy, and byte is an
// octet.
var primitives = map[string]robocache.DType{
	"bool":    robocache.Bool,
	"byte":    robocache.Uint8,
	"char":    robocache.Uint8,
	"int8":    robocache.Int8,
	"int16":   robocache.Int16,
	"int32":   robocache.Int32,
	"int64":   robocache.Int64,
	"uint8":   robocache.Uint8,
	"uint16":  robocache.Uint16,
	"uint32":  robocache.Uint32,
	"uint64":  robocache.Uint64,
	"float32": robocache.Float32,
	"float64": robocache.Float64,
}

// filler is the member that rosidl adds to empty structures. It is a byte in every message and has
// no value (see compile).
const filler = "structure_needs_at_least_one_member"

// isSeparator reports whether a line separates two blocks. Such a line consists of = characters.
func isSeparator(line string) bool {
	line = strings.TrimRight(line, " \t\r")
	return len(line) >= 40 && strings.Trim(line, "=") == ""
}

// splitBlocks splits a text at its separators. Each block after the first begins with a line "MSG:
// name" or "IDL: name".
func splitBlocks(name, text, tag string) (names, texts []string) {
	var at int
	start := 0
	cut := func(end int) {
		names, texts = append(names, name), append(texts, text[start:end])
	}
	for at < len(text) {
		line, next := lineAt(text, at)
		if isSeparator(line) {
			head, after := lineAt(text, next)
			head = strings.TrimSpace(head)
			if !strings.HasPrefix(head, tag) {
				guard.Fail(robocache.Malformed("schema", nil, "").
					Expected(
						"a line "+tag+" type after the separator",
						strconv.Quote(clipText(head)),
					),
				)
			}
			if strings.TrimSpace(text[start:at]) != "" || len(names) > 0 || tag == "MSG:" {
				cut(at)
			}
			name, start, at = strings.TrimSpace(head[len(tag):]), after, after
			continue
		}
		at = next
	}
	cut(len(text))
	return names, texts
}

func lineAt(text string, at int) (line string, next int) {
	if k := strings.IndexByte(text[at:], '\n'); k >= 0 {
		return text[at : at+k], at + k + 1
	}
	return text[at:], len(text)
}

// parseMsg parses a ros2msg text: the .msg text of the type, then those of its dependencies.
func parseMsg(name, text string) map[string]*message {
	names, texts := splitBlocks(name, text, "MSG:")
	types := make(map[string]*message, len(names))
	members := 0
	texts[0] = expandServiceEvent(name, texts[0], types)
	for k, n := range names {
		m := parseMembers(n, texts[k])
		if members += len(m.members); members > maxMembers {
			guard.Fail(tooManyMembers())
		}
		if _, twice := types[shortKey(n)]; !twice {
			types[shortKey(n)] = m
		}
	}
	return types
}

func tooManyMembers() error {
	return robocache.ResourceLimit("schema", nil, "more than %d members", maxMembers)
}

// expandServiceEvent handles the schema of a service's events, for which recorders store the .srv
// text. It adds the two halves as types and returns the text of the event type that rosidl
// generates.
func expandServiceEvent(name, text string, types map[string]*message) string {
	base, ok := strings.CutSuffix(name, "_Event")
	if !ok {
		return text
	}
	for at := 0; at < len(text); {
		line, next := lineAt(text, at)
		if strings.TrimSpace(line) != "---" {
			at = next
			continue
		}
		for part, half := range map[string]string{
			base + "_Request":               text[:at],
			base + "_Response":              text[next:],
			"service_msgs/ServiceEventInfo": eventInfo,
		} {
			types[shortKey(part)] = parseMembers(part, half)
		}
		return "service_msgs/ServiceEventInfo info\n" + base + "_Request[<=1] request\n" + base +
			"_Response[<=1] response\n"
	}
	return text
}

// eventInfo is the text of service_msgs/ServiceEventInfo.
const eventInfo = "uint8 event_type\nbuiltin_interfaces/Time stamp\nchar[16] " +
	"client_gid\nint64 sequence_number\n"

// parseMembers parses one .msg text. It skips constants and defaults, because messages do not
// contain them.
func parseMembers(name, text string) *message {
	m := &message{name: name, pkg: packageOf(name)}
	number := 0
	for at := 0; at < len(text); {
		var line string
		line, at = lineAt(text, at)
		number++
		line = strings.TrimLeft(line, " \t\r\ufeff")
		if line == "" || line[0] == '#' {
			continue
		}
		part := memberLine.FindStringSubmatch(line)
		if part == nil {
			guard.Fail(
				robocache.Malformed("schema", robocache.Where{"type": name, "line": number}, "").
					Expected("a type and a name", strconv.Quote(clipText(line))),
			)
		}
		if part[3] == "=" {
			continue // a constant
		}
		f, ok := parseMember(part[1], part[2])
		if !ok {
			guard.Fail(
				robocache.Malformed(
					"schema",
					robocache.Where{"type": name, "line": number},
					"not a type: %q",
					clipText(part[1]),
				),
			)
		}
		if f.name != filler {
			m.members = append(m.members, f)
		}
	}
	return m
}

// memberLine matches the line of a member: its type, its name, and "=" for a constant.
var memberLine = regexp.MustCompile(`^([^ \t\r]+)[ \t]+([A-Za-z_][A-Za-z0-9_]*)[ \t]*(=?)`)

// memberType matches a type: "float64[9]", "string<=10[<=4]", "geometry_msgs/Point[]".
var memberType = regexp.MustCompile(`^([A-Za-z0-9_/]+)(?:<=([0-9]+))?(\[(<=)?([0-9]*)\])?$`)

// parseMember parses a type. It returns false if typ is not a type.
func parseMember(typ, name string) (member, bool) {
	f := member{name: name, array: single}
	part := memberType.FindStringSubmatch(typ)
	if part == nil {
		return f, false
	}
	elem, bound, array, most, size := part[1], part[2], part[3] != "", part[4] != "", part[5]
	fits := func(digits string, bits int) bool {
		n, err := strconv.ParseUint(digits, 10, bits)
		f.array = int(n)
		return err == nil
	}
	ok := bound == "" || fits(bound, 32) && (elem == "string" || elem == "wstring")
	switch {
	case array && size != "":
		ok = ok && fits(size, 32) && (most || f.array < 1<<31)
	case most:
		ok = false
	}
	switch {
	case !array:
		f.array = single
	case most || size == "":
		f.array = sequence
	}
	switch d, number := primitives[elem]; {
	case number:
		f.dtype = d
	case elem == "string":
		f.base = isString
	case elem == "wstring":
		f.base = isWString
	case elem == "time" || elem == "duration": // from ROS 1 texts
		f.base, f.ref = isMessage, "builtin_interfaces/Time"
	case isTypeName(elem):
		f.base, f.ref = isMessage, elem
	default:
		ok = false
	}
	return f, ok
}

// isTypeName reports whether s consists of one to three identifiers separated by slashes.
var isTypeName = regexp.MustCompile(
	`^[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*){0,2}$`,
).MatchString

func clipText(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}
