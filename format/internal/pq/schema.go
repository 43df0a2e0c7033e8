package pq

// Physical is a storage type of Parquet.
type Physical int8

// The physical types, with their numbers in the format.
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

// Repetition is the repetition type of a node.
type Repetition int8

// The repetition types, with their numbers in the format.
const (
	Required Repetition = iota
	Optional
	Repeated
)

// Annotation is the part of a node's converted or logical type that this package uses.
type Annotation int8

// The annotations.
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
	Length     int      // for FIXED_LEN_BYTE_ARRAY
	Repetition Repetition
	Note       Annotation
	Bits       int // for Int annotations; otherwise 0
	Children   []*Node
	MaxDef     int // definition level of a present value
	MaxRep     int
	Leaf       int    // index of the leaf; -1 for groups
	top        string // name of the top-level column above the node
}

// Group reports whether a node is a group.
func (n *Node) Group() bool { return n.Type == groupType }

// Child returns the child with the given name, or nil.
func (n *Node) Child(name string) *Node {
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// OnlyLeaf returns the single leaf below n. It returns nil if n is nil or has several leaves below.
func (n *Node) OnlyLeaf() *Node {
	for n != nil && n.Group() {
		if len(n.Children) != 1 {
			return nil
		}
		n = n.Children[0]
	}
	return n
}

// Element returns the group that forms the elements of a list of groups, or nil.
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

// Width returns the number of bytes of a decoded value. It is 1 for booleans and 0 for byte arrays.
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

type schemaElement struct {
	node     Node
	children int
}

// readElement reads one SchemaElement.
func readElement(c *cursor, depth int) schemaElement {
	e := schemaElement{node: Node{Type: groupType, Leaf: -1}}
	n := &e.node
	var typ, length, repetition, children int32
	var name []byte
	has := c.readStruct(
		depth,
		fieldSlot{1, &typ},
		fieldSlot{2, &length},
		fieldSlot{3, &repetition},
		fieldSlot{4, &name},
		fieldSlot{5, &children},
		fieldSlot{6, func(typ byte) bool {
			if typ == tI32 {
				applyConvertedType(n, c.i32())
			}
			return typ == tI32
		}},
		fieldSlot{10, func(typ byte) bool {
			if typ == tStruct {
				applyLogicalType(n, c, depth+1)
			}
			return typ == tStruct
		}},
	)
	n.Repetition = Repetition(repetition)
	if repetition < int32(Required) || repetition > int32(Repeated) {
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

func applyConvertedType(n *Node, v int32) {
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

func applyLogicalType(n *Node, c *cursor, depth int) {
	c.forEachField(depth, func(id int16, typ byte) bool {
		if note, ok := logicalTypes[id]; ok {
			n.Note = note
		}
		if id != 10 || typ != tStruct {
			return false
		}
		signed := true
		c.readStruct(depth+1, fieldSlot{1, func(typ byte) bool {
			if typ == tByte {
				n.Bits = int(c.byte())
			}
			return typ == tByte
		}}, fieldSlot{2, &signed})
		if !signed {
			n.Note = Unsigned
		}
		return true
	})
}

// buildTree converts the flat list, which is in depth-first order, to a tree. It sets the levels
// and the leaf numbers. Faults are reported by c.
func buildTree(c *cursor, elems []schemaElement) (root *Node, leaves []*Node) {
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
