package pq

// Physical is a type of Parquet as stored.
type Physical int8

// The physical types, by their numbers in the format.
const (
	Boolean Physical = iota
	Int32
	Int64
	Int96
	Float
	Double
	ByteArray
	FixedLenByteArray
	groupType Physical = -1
)

var physicalNames = [...]string{
	"BOOLEAN",
	"INT32",
	"INT64",
	"INT96",
	"FLOAT",
	"DOUBLE",
	"BYTE_ARRAY",
	"FIXED_LEN_BYTE_ARRAY",
}

func (p Physical) String() string {
	if p >= 0 && int(p) < len(physicalNames) {
		return physicalNames[p]
	}
	return "group"
}

// Repetition of a node.
type Repetition int8

// The repetitions, by their numbers in the format.
const (
	Required Repetition = iota
	Optional
	Repeated
)

// Annotation is what a node's converted or logical type says, as far as readers here care.
type Annotation int8

// Annotations.
const (
	Plain Annotation = iota
	Text             // UTF8, enum or JSON
	List
	Map
	Unsigned
	Half
)

// Node is a column or group of the schema.
type Node struct {
	Name       string
	Type       Physical // groupType for groups
	Length     int      // of FIXED_LEN_BYTE_ARRAY
	Repetition Repetition
	Note       Annotation
	Bits       int // of an Int annotation; 0 where there is none
	Children   []*Node
	MaxDef     int // definition level of a value that is present here
	MaxRep     int
	Leaf       int    // number of the leaf; -1 for groups
	top        string // name of the column of the root that it is part of
}

// Group says that a node has children.
func (n *Node) Group() bool { return n.Type == groupType }

// Child finds a child by name; nil where there is none.
func (n *Node) Child(name string) *Node {
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// OnlyLeaf is the single leaf below a node; nil where there are several, or no node.
func (n *Node) OnlyLeaf() *Node {
	for n != nil && n.Group() {
		if len(n.Children) != 1 {
			return nil
		}
		n = n.Children[0]
	}
	return n
}

// Element is what the elements of a list consist of, when n is a list of groups; else nil.
func (n *Node) Element() *Node {
	for n != nil && n.Group() {
		if len(n.Children) != 1 {
			return n
		}
		n = n.Children[0]
	}
	return nil
}

// Leaves appends the leaves below n, in order.
func (n *Node) Leaves(to []*Node) []*Node {
	if !n.Group() {
		return append(to, n)
	}
	for _, c := range n.Children {
		to = c.Leaves(to)
	}
	return to
}

// Width is the number of bytes of one decoded value; 0 for byte arrays. Booleans take one byte.
func (n *Node) Width() int {
	switch n.Type {
	case Boolean:
		return 1
	case Int32, Float:
		return 4
	case Int64, Double:
		return 8
	case Int96:
		return 12
	case FixedLenByteArray:
		return n.Length
	}
	return 0
}

const maxSchemaNodes = 1 << 20

type element struct {
	node     Node
	children int
}

// readElement reads one SchemaElement.
func readElement(c *cursor, depth int) element {
	e := element{node: Node{Type: groupType, Leaf: -1}}
	n := &e.node
	var typ, length, repetition, children int32
	var name []byte
	has := c.into(
		depth,
		slot{1, &typ},
		slot{2, &length},
		slot{3, &repetition},
		slot{4, &name},
		slot{5, &children},
		slot{6, func(typ byte) bool {
			if typ == tI32 {
				convertedType(n, c.i32())
			}
			return typ == tI32
		}},
		slot{10, func(typ byte) bool {
			if typ == tStruct {
				logicalType(n, c, depth+1)
			}
			return typ == tStruct
		}},
	)
	if n.Repetition = Repetition(
		repetition,
	); repetition < int32(Required) ||
		repetition > int32(Repeated) {
		c.fail("unknown repetition")
	}
	if has&(1<<1) != 0 {
		if n.Type = Physical(typ); typ < int32(Boolean) || typ > int32(FixedLenByteArray) {
			c.fail("unknown physical type")
		}
	}
	n.Name, n.Length, e.children = string(name), int(length), int(children)
	return e
}

func convertedType(n *Node, v int32) {
	switch {
	case v == 0 || v == 4 || v == 19:
		n.Note = Text
	case v == 1 || v == 2:
		n.Note = Map
	case v == 3:
		n.Note = List
	case v >= 11 && v <= 14:
		n.Note, n.Bits = Unsigned, 8<<(v-11)
	case v >= 15 && v <= 18:
		n.Bits = 8 << (v - 15)
	}
}

var logicalTypes = map[int16]Annotation{1: Text, 4: Text, 12: Text, 2: Map, 3: List, 15: Half}

func logicalType(n *Node, c *cursor, depth int) {
	c.fields(depth, func(id int16, typ byte) bool {
		if note, ok := logicalTypes[id]; ok {
			n.Note = note
		}
		if id != 10 || typ != tStruct {
			return false
		}
		signed := true
		c.into(depth+1, slot{1, func(typ byte) bool {
			if typ == tByte {
				n.Bits = int(c.byte())
			}
			return typ == tByte
		}}, slot{2, &signed})
		if !signed {
			n.Note = Unsigned
		}
		return true
	})
}

// buildTree turns the flat list (depth first) into a tree and fills levels and leaf numbers. Faults
// go to c.
func buildTree(c *cursor, elems []element) (root *Node, leaves []*Node) {
	pos := 0
	var build func(parent *Node, depth int) *Node
	build = func(parent *Node, depth int) *Node {
		if depth > maxThriftDepth {
			c.fail("schema: nested too deep")
		}
		e := &elems[pos]
		pos++
		n := &e.node
		if parent != nil {
			n.MaxDef, n.MaxRep, n.top = parent.MaxDef, parent.MaxRep, parent.top
			if depth == 1 {
				n.top = n.Name
			}
			if n.Repetition != Required {
				n.MaxDef++
			}
			if n.Repetition == Repeated {
				n.MaxRep++
			}
		}
		switch leaf := e.children == 0 && parent != nil; {
		case e.children < 0 || e.children > len(elems)-pos:
			c.fail("schema: a group has more children than there are elements")
		case leaf && n.Type == groupType:
			c.fail("schema: column " + n.Name + " has no type")
		case leaf && n.Type == FixedLenByteArray && (n.Length <= 0 || n.Length > 1<<20):
			c.fail("schema: column " + n.Name + " has a bad length")
		case leaf:
			n.Leaf = len(leaves)
			leaves = append(leaves, n)
		default:
			n.Type = groupType
		}
		for range e.children {
			if pos == len(elems) {
				c.fail("schema: a group has more children than there are elements")
			}
			n.Children = append(n.Children, build(n, depth+1))
		}
		return n
	}
	if len(elems) == 0 {
		c.fail("schema: empty")
	}
	root = build(nil, 0)
	if pos != len(elems) {
		c.fail("schema: elements outside the tree")
	}
	return root, leaves
}
