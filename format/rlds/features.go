package rlds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

const (
	featuresName = "features.json"
	stepsName    = "steps"
	maxJSON      = 64 << 20
	maxLevels    = 64
	maxLeaves    = 65535
)

// number is an integer that protobuf's JSON writes as a string.
type number int64

// UnmarshalJSON reads 7 and "7".
func (n *number) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" {
		*n = -1
		return nil
	}
	v, ok := jsonmeta.Integer([]byte(s))
	if !ok {
		return robocache.Malformed("rlds", nil, "").
			Expected("an integer", strings.Trim(quoteClipped(s), `"`))
	}
	*n = number(v)
	return nil
}

// MarshalJSON writes "7".
func (n number) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d"`, n), nil }

// shapeNode is a shape; -1 or null is a dimension that varies.
type shapeNode struct {
	Dimensions []number `json:"dimensions,omitempty"`
}

// valueNode describes a tensor or an image.
type valueNode struct {
	DType          string    `json:"dtype"`
	Encoding       string    `json:"encoding,omitempty"`
	EncodingFormat string    `json:"encodingFormat,omitempty"`
	Optional       bool      `json:"optional,omitempty"`
	Shape          shapeNode `json:"shape"`
}

type dictNode struct {
	Features map[string]*node `json:"features"`
}

type sequenceNode struct {
	Feature *node  `json:"feature"`
	Length  number `json:"length"`
}

type textNode struct {
	Optional bool `json:"optional,omitempty"`
}

// node is one feature connector of features.json.
type node struct {
	Audio       *valueNode `json:"audio,omitempty"`
	BoundingBox *valueNode `json:"boundingBox,omitempty"`
	ClassLabel  *struct {
		NumClasses number `json:"numClasses"`
	} `json:"classLabel,omitempty"`
	FeaturesDict *dictNode        `json:"featuresDict,omitempty"`
	Image        *valueNode       `json:"image,omitempty"`
	LabeledImage *valueNode       `json:"labeledImage,omitempty"`
	Class        string           `json:"pythonClassName"`
	Description  json.RawMessage  `json:"description,omitempty"` // a string in known files
	Sequence     *sequenceNode    `json:"sequence,omitempty"`
	Tensor       *valueNode       `json:"tensor,omitempty"`
	Text         *textNode        `json:"text,omitempty"`
	Video        *json.RawMessage `json:"video,omitempty"`
}

// coding is the encoding of the values of a leaf.
type coding uint8

const (
	plain    coding = iota // numbers in a list
	rawBytes               // one byte string per tensor: its elements, little-endian
	zlibbed                // like rawBytes, compressed with zlib
	frame                  // one byte string per image: PNG or JPEG
	floatPNG               // PNG of four 8-bit channels that are the bytes of a float32
	textual                // one byte string per text
)

// leaf is one value of the feature tree. It becomes a stream.
type leaf struct {
	key    string // key of the stream
	name   string // name in the records
	step   bool   // one value per step, otherwise per episode
	coding coding
	dtype  robocache.DType
	shape  []int // fixed dimensions of a row; 0 for a dimension that varies between images
	// rows of varying length: a sequence, or a tensor whose first dimension varies
	varies      bool
	inner       int   // number of sequences inside a step
	fixed       []int // their lengths; -1 if they vary
	optional    bool
	labels      int
	unsupported string // why the leaf cannot be read; "" if it can
	// description is the description of the leaf in features.json, if it is a string.
	description string

	slot    int   // slot of the plain list, or of ragged_flat_values
	lengths []int // slots of ragged_row_lengths_0, …
}

// elements returns the number of elements of a value. For rows of varying length, it is that of one
// entry.
func (l *leaf) elements() int {
	n := 1
	for _, d := range l.shape {
		n *= d
	}
	return n
}

// valuesPerRow returns how many values the record's list has for one row of fixed shape. A byte
// string holds a whole tensor or image.
func (l *leaf) valuesPerRow() int {
	switch l.coding {
	case rawBytes, zlibbed, frame, floatPNG:
		return 1
	}
	return l.elements()
}

// rowBytes returns the size of a row, or of an entry of a ragged row.
func (l *leaf) rowBytes() int { return l.elements() * l.dtype.Size() }

// schema is the parsed features.json.
type schema struct {
	leaves []leaf
	names  map[string]int // name in a record → slot
	slots  int
	// counters maps slots to the leaves that determine the number of steps. counted lists these
	// slots, with is_first before the others.
	counters map[int]*leaf
	counted  []int
	text     string // content of the file, which identifies the schema
}

// quoteClipped quotes s, shortened to 80 bytes.
func quoteClipped(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strconv.Quote(s)
}

// readJSON decodes a JSON file, with or without a byte order mark.
func readJSON(file string, b []byte, v any) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	err := checkDepth(b)
	if err == nil {
		err = jsonmeta.Unmarshal("rlds", b, v)
	}
	guard.Check(robocache.At(err, robocache.Where{"file": file}))
}

// parseFeatures parses features.json.
func parseFeatures(b []byte) (_ *schema, err error) {
	defer guard.Recover("rlds", &err)
	var root node
	readJSON(featuresName, b, &root)
	if root.FeaturesDict == nil {
		return nil, robocache.Malformed(
			"rlds",
			robocache.Where{"file": featuresName, "pointer": "/featuresDict"},
			"",
		).Expected("a dict of features", "none")
	}
	s := &schema{text: string(b), names: map[string]int{}}
	steps := root.FeaturesDict.Features[stepsName]
	if steps == nil || steps.Sequence == nil || steps.Sequence.Feature == nil {
		return nil, robocache.Unsupported(
			"rlds",
			robocache.Where{"file": featuresName, "pointer": "/featuresDict/features/steps"},
			"",
		).Expected("a sequence of steps", "none").
			WithHint("RLDS keeps episodes: records whose feature steps is a nested data set")
	}
	s.addLeaves(steps.Sequence.Feature, stepsName, "", true, nil, 0)
	for _, k := range slices.Sorted(maps.Keys(root.FeaturesDict.Features)) {
		if k != stepsName {
			s.addLeaves(root.FeaturesDict.Features[k], k, k, false, nil, 0)
		}
	}
	return s, guard.Try(func() { s.assignSlots() })
}

// checkDepth rejects JSON that is nested deeper than any feature tree.
func checkDepth(b []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > 8*maxLevels {
				return robocache.Malformed(
					"rlds",
					nil,
					"the JSON is nested deeper than %d",
					8*maxLevels,
				)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// addLeaves adds the leaves below a node. seq holds the lengths of the sequences between the step
// (or the episode) and the node.
func (s *schema) addLeaves(n *node, name, key string, step bool, seq []int, level int) {
	if n == nil || level > maxLevels || len(s.leaves) >= maxLeaves {
		guard.Fail(robocache.Malformed(
			"rlds",
			robocache.Where{"file": featuresName, "stream": quoteClipped(name)},
			"an empty node, too many features, or features nested too deep",
		))
	}
	switch {
	case n.FeaturesDict != nil:
		for _, k := range slices.Sorted(maps.Keys(n.FeaturesDict.Features)) {
			sub := k
			if key != "" {
				sub = key + "." + k
			}
			s.addLeaves(n.FeaturesDict.Features[k], name+"/"+k, sub, step, seq, level+1)
		}
		return
	case n.Sequence != nil:
		seq = append(append([]int(nil), seq...), int(max(n.Sequence.Length, -1)))
		s.addLeaves(n.Sequence.Feature, name, key, step, seq, level+1)
		return
	}
	if key == "" {
		key = "step" // steps that are a single value
	}
	l := leaf{key: key, name: name, step: step, fixed: seq, inner: len(seq)}
	_ = json.Unmarshal(n.Description, &l.description) // stays empty if it is no string
	l.describeLeaf(n)
	s.leaves = append(s.leaves, l)
}

// describeLeaf fills in a leaf from its node. If the leaf cannot be read, it sets the reason.
func (l *leaf) describeLeaf(n *node) {
	var dims []number
	switch {
	case n.Tensor != nil:
		dims, l.optional = n.Tensor.Shape.Dimensions, n.Tensor.Optional
		l.describeTensor(n.Tensor)
	case n.BoundingBox != nil:
		dims, l.dtype = []number{4}, robocache.Float32
	case n.Image != nil, n.LabeledImage != nil:
		v := n.Image
		if v == nil {
			v = n.LabeledImage
		}
		dims = v.Shape.Dimensions
		l.describeImage(v)
	case n.Text != nil:
		l.coding, l.dtype, l.optional = textual, robocache.String, n.Text.Optional
	case n.ClassLabel != nil:
		l.dtype, l.labels = robocache.Int64, int(max(n.ClassLabel.NumClasses, 1))
	case n.Audio != nil:
		l.unsupported = "audio"
	case n.Video != nil:
		l.unsupported = "a video feature"
	default:
		l.unsupported = "the feature class " + quoteClipped(n.Class)
	}
	if l.unsupported != "" {
		return
	}
	if len(dims) > 8 {
		l.unsupported = fmt.Sprintf("%d dimensions", len(dims))
		return
	}
	total := int64(1)
	for i, d := range dims {
		if d < 0 {
			switch {
			case l.coding == frame || l.coding == floatPNG:
				d = 0
			case i == 0 && !l.varies && l.inner == 0:
				l.varies = true
				continue
			default:
				l.unsupported = "a tensor with several open dimensions"
				return
			}
		}
		if total *= max(int64(d), 1); int64(d) > 1<<31 || total > 1<<31 {
			l.unsupported = "a shape of more than 2^31 elements"
			return
		}
		l.shape = append(l.shape, int(d))
	}
	l.applySequences()
}

// describeTensor reads dtype and encoding of a tensor.
func (l *leaf) describeTensor(v *valueNode) {
	switch strings.ToLower(v.Encoding) {
	case "", "none":
	case "bytes":
		l.coding = rawBytes
	case "zlib":
		l.coding = zlibbed
	default:
		l.unsupported = "the encoding " + quoteClipped(v.Encoding)
		return
	}
	switch v.DType {
	case "string", "object", "str", "bytes":
		l.coding, l.dtype = textual, robocache.String
		return
	}
	d, ok := robocache.ParseDType(v.DType)
	if !ok || d.Size() == 0 {
		l.unsupported = "the dtype " + quoteClipped(v.DType)
		return
	}
	l.dtype = d
}

// describeImage reads dtype and shape of an image. The bytes determine the format.
func (l *leaf) describeImage(v *valueNode) {
	l.coding = frame
	dims := &v.Shape
	if len(dims.Dimensions) == 0 {
		dims.Dimensions = []number{-1, -1, 3}
	}
	if len(dims.Dimensions) != 3 || dims.Dimensions[2] < 1 || dims.Dimensions[2] > 4 {
		l.unsupported = "an image that is not height × width × 1 to 4 channels"
		return
	}
	switch v.DType {
	case "", "uint8":
		l.dtype = robocache.Uint8
	case "uint16":
		l.dtype = robocache.Uint16
	case "float32":
		l.dtype, l.coding = robocache.Float32, floatPNG
		if dims.Dimensions[2] != 1 {
			l.unsupported = "a float32 image of several channels"
		}
	default:
		l.unsupported = "an image of dtype " + quoteClipped(v.DType)
	}
}

// applySequences determines how the sequences inside a step are shown. An outer sequence of varying
// length makes rows ragged, and fixed ones are dimensions.
func (l *leaf) applySequences() {
	if l.inner == 0 {
		if l.coding == textual && l.elements() != 1 {
			l.unsupported = "several texts a row"
		}
		return
	}
	switch {
	case l.coding != plain && l.coding != textual:
		l.unsupported = "a sequence of images or of encoded tensors"
	case !l.step && l.inner > 1:
		l.unsupported = "sequences in sequences of an episode"
	case l.inner > 2:
		l.unsupported = "sequences nested more than twice in a step"
	}
	if l.unsupported != "" {
		return
	}
	var dims []int
	for i, n := range l.fixed {
		switch {
		case n >= 0:
			dims = append(dims, n)
		case i == 0:
			l.varies = true
		case l.varies && l.inner == 2 && i == 1:
			// If both vary, a row holds all of its values, and the inner lengths are a separate
			// stream.
			dims = nil
		default:
			l.unsupported = "a sequence of varying length in one of fixed length"
			return
		}
	}
	l.shape = append(dims, l.shape...)
}

// nested reports whether both sequences of a step vary.
func (l *leaf) nested() bool { return l.inner == 2 && l.fixed[0] < 0 && l.fixed[1] < 0 }

// assignSlots assigns slots to names and makes keys unique.
func (s *schema) assignSlots() {
	seen := map[string]bool{}
	slot := func(name string) int {
		n, ok := s.names[name]
		if !ok {
			n = s.slots
			s.slots++
			s.names[name] = n
		}
		return n
	}
	for i := range s.leaves {
		l := &s.leaves[i]
		if seen[l.key] {
			// "a.b" and {a: {b}} have one key, but the name in the record is unique.
			l.key = l.name
		}
		seen[l.key] = true
		if l.unsupported != "" {
			l.slot = -1
			// The names of unsupported leaves are also known, so that they are not counted as
			// unknown.
			for _, end := range []string{
				"",
				"/ragged_flat_values",
				"/ragged_row_lengths_0",
				"/ragged_row_lengths_1",
				"/shape",
				"/value",
			} {
				slot(l.name + end)
			}
			continue
		}
		l.slot = slot(l.name)
		if l.step && l.inner > 0 {
			l.slot = slot(l.name + "/ragged_flat_values")
			for k := range l.inner {
				l.lengths = append(l.lengths, slot(l.name+"/ragged_row_lengths_"+strconv.Itoa(k)))
			}
		}
	}
	if len(s.leaves) == 0 {
		guard.Fail(robocache.Malformed(
			"rlds",
			robocache.Where{"file": featuresName},
			"there are no features",
		))
	}
	s.counters = map[int]*leaf{}
	for i := range s.leaves {
		if l := &s.leaves[i]; l.countsSteps() {
			s.counters[l.slot] = l
			if l.key == "is_first" {
				s.counted = append([]int{l.slot}, s.counted...)
			} else {
				s.counted = append(s.counted, l.slot)
			}
		}
	}
	if len(s.counted) == 0 {
		guard.Fail(robocache.Malformed("rlds", robocache.Where{"file": featuresName}, "").
			Expected(
				"a feature of steps that says how many there are: a number, a tensor of fixed "+
					"shape or a text",
				"images or sequences alone",
			),
		)
	}
}

// countsSteps reports whether the leaf determines the number of steps. It does if it has numbers or
// texts of a fixed size per step.
func (l *leaf) countsSteps() bool {
	return l.unsupported == "" && l.step && !l.varies && l.inner == 0 && !l.optional &&
		l.coding != frame &&
		l.coding != floatPNG &&
		l.valuesPerRow() > 0
}

// listKind returns the kind of list that stores the leaf's values.
func (l *leaf) listKind() listKind {
	switch {
	case l.coding != plain:
		return bytesList
	case l.dtype.Float():
		return floatList
	}
	return intList
}
