package ros2

import (
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// leaf is a position in a type that holds numbers or texts.
type leaf struct {
	path  string // "pose.position.x"
	dtype robocache.DType
	text  bool
	dims  []int // dimensions of the enclosing fixed arrays, outermost first
	seqs  int   // number of enclosing sequences, including its own
}

// node is a member in the expanded type. Decoding walks a tree of nodes.
type node struct {
	base     base
	dtype    robocache.DType
	size     int // bytes of a number
	array    int
	leaf     int // of a number or text
	lengths  int // leaf for the lengths of a sequence inside another one, or -1
	least    int // minimum bytes of one element
	children []node
	path     string
}

// tree is an expanded type for decoding.
type tree struct {
	nodes  []node
	leaves []leaf
	fixed  int64 // minimum bytes of a message
	header bool  // whether the first member is a std_msgs/Header
	// Whether the first member is a time named stamp, or timestamp as in foxglove's types.
	timestamp bool
}

type compiler struct {
	leaves []leaf
	nodes  int
}

// compile expands a resolved type.
func compile(root *message) *tree {
	c := &compiler{}
	t := &tree{}
	if t.nodes, t.fixed = c.expandMembers(root, "", nil, 0); t.fixed > maxFixedBytes {
		guard.Fail(
			robocache.ResourceLimit(
				"schema",
				nil,
				"a message of type %s takes at least %d bytes",
				root.name,
				t.fixed,
			),
		)
	}
	t.leaves = c.leaves
	if len(root.members) > 0 && root.members[0].array == single {
		f := &root.members[0]
		t.header = f.base == isMessage && f.name == "header" && isHeader(f.msg)
		t.timestamp = f.base == isMessage && (f.name == "stamp" || f.name == "timestamp") &&
			isTime(f.msg)
	}
	return t
}

func isTime(m *message) bool {
	return len(m.members) == 2 && m.members[0].dtype == robocache.Int32 &&
		m.members[1].dtype == robocache.Uint32 &&
		m.members[0].array == single &&
		m.members[1].array == single
}

func isHeader(m *message) bool {
	return len(m.members) == 2 && m.members[0].base == isMessage && m.members[0].array == single &&
		isTime(m.members[0].msg) &&
		m.members[1].base == isString &&
		m.members[1].array == single
}

func (c *compiler) addLeaf(l leaf) int {
	if len(c.leaves) >= maxLeaves {
		guard.Fail(
			robocache.ResourceLimit(
				"schema",
				nil,
				"the type has more than %d members when expanded",
				maxLeaves,
			),
		)
	}
	c.leaves = append(c.leaves, l)
	return len(c.leaves) - 1
}

func (c *compiler) expandMembers(
	m *message,
	prefix string,
	dims []int,
	seqs int,
) (out []node, total int64) {
	if c.nodes++; c.nodes > 2*maxLeaves {
		guard.Fail(
			robocache.ResourceLimit(
				"schema",
				nil,
				"the type has more than %d parts when expanded",
				2*maxLeaves,
			),
		)
	}
	for k := range m.members {
		f := &m.members[k]
		n := node{base: f.base, array: f.array, lengths: -1, path: prefix + f.name}
		in, depth := dims, seqs
		switch {
		case f.array == sequence:
			depth++
			in = nil // lengths of arrays inside a sequence multiply its own
			if depth > 1 {
				n.lengths = c.addLeaf(
					leaf{path: n.path + ".length", dtype: robocache.Uint32, seqs: depth - 1},
				)
			}
		case f.array >= 0 && depth == 0:
			in = append(dims[:len(dims):len(dims)], f.array)
		}
		var one int64
		switch f.base {
		case isMessage:
			if n.children, one = c.expandMembers(f.msg, n.path+
				".", in, depth); len(f.msg.members) == 0 {
				// An empty structure has one byte on the wire.
				n.children, one = []node{
					{
						array:   single,
						dtype:   robocache.Uint8,
						size:    1,
						leaf:    -1,
						lengths: -1,
						least:   1,
						path:    n.path,
					},
				}, 1
			}
		case isNumber:
			n.dtype, n.size, one = f.dtype, f.dtype.Size(), int64(f.dtype.Size())
			n.leaf = c.addLeaf(leaf{path: n.path, dtype: f.dtype, dims: in, seqs: depth})
		default:
			one = 4
			n.leaf = c.addLeaf(leaf{path: n.path, text: true, dims: in, seqs: depth})
		}
		n.least = int(min(one, 1<<30)) // limits the product with a count to 64 bits
		if one == 0 && n.array > 0 {
			// Elements without bytes are not walked, because a file may declare billions of them.
			n.array = 0
		}
		switch {
		case f.array == single:
			total += one
		case f.array == sequence:
			total += 4
		default:
			total += one * int64(f.array)
		}
		total = min(total, 1<<40)
		out = append(out, n)
	}
	return out, total
}

// wideStringPath returns the path of the first wide string, or "" if there is none.
func wideStringPath(nodes []node) string {
	for k := range nodes {
		if nodes[k].base == isWString {
			return nodes[k].path
		}
		if p := wideStringPath(nodes[k].children); p != "" {
			return p
		}
	}
	return ""
}

// signature describes the layout of a message. Two types with the same signature are decoded in the
// same way.
func (t *tree) signature() string {
	var b strings.Builder
	writeSignature(&b, t.nodes)
	return b.String()
}

func writeSignature(b *strings.Builder, nodes []node) {
	for k := range nodes {
		n := &nodes[k]
		b.WriteString(n.path[strings.LastIndexByte(n.path, '.')+1:])
		b.WriteByte(':')
		b.WriteByte("nswm"[n.base])
		b.WriteString(strconv.Itoa(int(n.dtype)))
		if n.array != single {
			b.WriteString("[" + strconv.Itoa(n.array) + "]")
		}
		if n.base == isMessage {
			b.WriteByte('{')
			writeSignature(b, n.children)
			b.WriteByte('}')
		}
		b.WriteByte(' ')
	}
}
