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
			Expected("an integer", strings.Trim(clip(s), `"`))
	}
	*n = number(v)
	return nil
}

// MarshalJSON writes "7".
func (n number) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d"`, n), nil }

// shapeNode is a shape; -1 (or null) is a dimension that varies.
type shapeNode struct {
	Dimensions []number `json:"dimensions,omitempty"`
}

// valueNode is what tensors and images say.
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
	Description  json.RawMessage  `json:"description,omitempty"` // a text, as far as known
	Sequence     *sequenceNode    `json:"sequence,omitempty"`
	Tensor       *valueNode       `json:"tensor,omitempty"`
	Text         *textNode        `json:"text,omitempty"`
	Video        *json.RawMessage `json:"video,omitempty"`
}

// coding is how the values of a leaf are stored.
type coding uint8

const (
	plain    coding = iota // numbers in a list
	rawBytes               // a byte string a tensor: its elements, little-endian
	zlibbed                // the same through zlib
	frame                  // a byte string an image: PNG or JPEG
	floatPNG               // a PNG of four 8-bit channels that are the bytes of a float32
	textual                // a byte string a text
)

// leaf is one value of the tree: a stream.
type leaf struct {
	key      string // of the stream
	name     string // in the records
	step     bool   // one a step; else one an episode
	coding   coding
	dtype    robocache.DType
	shape    []int // fixed dimensions of a row; 0 for one that varies from image to image
	varies   bool  // rows of varying length: a sequence, or a tensor whose first dimension is open
	inner    int   // sequences inside a step
	fixed    []int // their lengths; -1 where open
	optional bool
	labels   int
	what     string // why it is not read; "" where it is
	// description is what the data set's author says of the leaf, if it is a text.
	description string

	slot    int   // of the plain list, or of ragged_flat_values
	lengths []int // slots of ragged_row_lengths_0, …
}

// elements is the number of elements of a value: of a row without its open dimension.
func (l *leaf) elements() int {
	n := 1
	for _, d := range l.shape {
		n *= d
	}
	return n
}

// listed is how many values the record's list has for one row of fixed shape: a byte string holds a
// whole tensor or image.
func (l *leaf) listed() int {
	switch l.coding {
	case rawBytes, zlibbed, frame, floatPNG:
		return 1
	}
	return l.elements()
}

// rowBytes is the size of a row, or of an entry of a ragged row.
func (l *leaf) rowBytes() int { return l.elements() * l.dtype.Size() }

// schema is what features.json says.
type schema struct {
	leaves []leaf
	names  map[string]int // name in a record → slot
	slots  int
	// counters are the leaves that say how many steps there are, by slot; counted are their slots,
	// is_first before all.
	counters map[int]*leaf
	counted  []int
	text     string // the file, as the identity of the schema
}

func clip(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strconv.Quote(s)
}

// readJSON reads a file of JSON, with or without a byte order mark.
func readJSON(file string, b []byte, v any) {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	err := shallow(b)
	if err == nil {
		err = jsonmeta.Unmarshal("rlds", b, v)
	}
	guard.Check(robocache.At(err, robocache.Where{"file": file}))
}

// parseFeatures reads features.json.
func parseFeatures(b []byte) (_ *schema, err error) {
	defer guard.Recover("rlds", &err)
	var root node
	readJSON(featuresName, b, &root)
	if root.FeaturesDict == nil {
		return nil, robocache.Malformed("rlds", robocache.Where{"file": featuresName, "pointer": "/featuresDict"}, "").
			Expected("a dict of features", "none")
	}
	s := &schema{text: string(b), names: map[string]int{}}
	steps := root.FeaturesDict.Features[stepsName]
	if steps == nil || steps.Sequence == nil || steps.Sequence.Feature == nil {
		return nil, robocache.Unsupported("rlds", robocache.Where{"file": featuresName, "pointer": "/featuresDict/features/steps"}, "").
			Expected("a sequence of steps", "none").
			WithHint("RLDS keeps episodes: records whose feature steps is a nested data set")
	}
	s.walk(steps.Sequence.Feature, stepsName, "", true, nil, 0)
	for _, k := range slices.Sorted(maps.Keys(root.FeaturesDict.Features)) {
		if k != stepsName {
			s.walk(root.FeaturesDict.Features[k], k, k, false, nil, 0)
		}
	}
	return s, guard.Try(func() { s.settle() })
}

// shallow refuses JSON that is nested deeper than any feature tree.
func shallow(b []byte) error {
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

// walk adds the leaves below a node. seq holds the lengths of the sequences between the step (or
// the episode) and the node.
func (s *schema) walk(n *node, name, key string, step bool, seq []int, level int) {
	if n == nil || level > maxLevels || len(s.leaves) >= maxLeaves {
		guard.Fail(
			robocache.Malformed(
				"rlds",
				robocache.Where{"file": featuresName, "stream": clip(name)},
				"an empty node, too many features, or features nested too deep",
			),
		)
	}
	switch {
	case n.FeaturesDict != nil:
		for _, k := range slices.Sorted(maps.Keys(n.FeaturesDict.Features)) {
			sub := k
			if key != "" {
				sub = key + "." + k
			}
			s.walk(n.FeaturesDict.Features[k], name+"/"+k, sub, step, seq, level+1)
		}
		return
	case n.Sequence != nil:
		seq = append(append([]int(nil), seq...), int(max(n.Sequence.Length, -1)))
		s.walk(n.Sequence.Feature, name, key, step, seq, level+1)
		return
	}
	if key == "" {
		key = "step" // steps that are a bare value
	}
	l := leaf{key: key, name: name, step: step, fixed: seq, inner: len(seq)}
	_ = json.Unmarshal(n.Description, &l.description) // none if it is no text
	l.describe(n)
	s.leaves = append(s.leaves, l)
}

// describe fills a leaf from its node; what it cannot be read as is noted in l.what.
func (l *leaf) describe(n *node) {
	var dims []number
	switch {
	case n.Tensor != nil:
		dims, l.optional = n.Tensor.Shape.Dimensions, n.Tensor.Optional
		l.tensor(n.Tensor)
	case n.BoundingBox != nil:
		dims, l.dtype = []number{4}, robocache.Float32
	case n.Image != nil, n.LabeledImage != nil:
		v := n.Image
		if v == nil {
			v = n.LabeledImage
		}
		dims = v.Shape.Dimensions
		l.image(v)
	case n.Text != nil:
		l.coding, l.dtype, l.optional = textual, robocache.String, n.Text.Optional
	case n.ClassLabel != nil:
		l.dtype, l.labels = robocache.Int64, int(max(n.ClassLabel.NumClasses, 1))
	case n.Audio != nil:
		l.what = "audio"
	case n.Video != nil:
		l.what = "a video feature"
	default:
		l.what = "the feature class " + clip(n.Class)
	}
	if l.what != "" {
		return
	}
	if len(dims) > 8 {
		l.what = fmt.Sprintf("%d dimensions", len(dims))
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
				l.what = "a tensor with several open dimensions"
				return
			}
		}
		if total *= max(int64(d), 1); int64(d) > 1<<31 || total > 1<<31 {
			l.what = "a shape of more than 2^31 elements"
			return
		}
		l.shape = append(l.shape, int(d))
	}
	l.sequences()
}

// tensor reads dtype and encoding.
func (l *leaf) tensor(v *valueNode) {
	switch strings.ToLower(v.Encoding) {
	case "", "none":
	case "bytes":
		l.coding = rawBytes
	case "zlib":
		l.coding = zlibbed
	default:
		l.what = "the encoding " + clip(v.Encoding)
		return
	}
	switch v.DType {
	case "string", "object", "str", "bytes":
		l.coding, l.dtype = textual, robocache.String
		return
	}
	d, ok := robocache.ParseDType(v.DType)
	if !ok || d.Size() == 0 {
		l.what = "the dtype " + clip(v.DType)
		return
	}
	l.dtype = d
}

// image reads dtype and shape of an image; the format is what the bytes say.
func (l *leaf) image(v *valueNode) {
	l.coding = frame
	dims := &v.Shape
	if len(dims.Dimensions) == 0 {
		dims.Dimensions = []number{-1, -1, 3}
	}
	if len(dims.Dimensions) != 3 || dims.Dimensions[2] < 1 || dims.Dimensions[2] > 4 {
		l.what = "an image that is not height × width × 1 to 4 channels"
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
			l.what = "a float32 image of several channels"
		}
	default:
		l.what = "an image of dtype " + clip(v.DType)
	}
}

// sequences settles how the sequences inside a step show: a last open one makes rows ragged, fixed
// ones are dimensions.
func (l *leaf) sequences() {
	if l.inner == 0 {
		if l.coding == textual && l.elements() != 1 {
			l.what = "several texts a row"
		}
		return
	}
	switch {
	case l.coding != plain && l.coding != textual:
		l.what = "a sequence of images or of encoded tensors"
	case !l.step && l.inner > 1:
		l.what = "sequences in sequences of an episode"
	case l.inner > 2:
		l.what = "sequences nested more than twice in a step"
	}
	if l.what != "" {
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
			// both vary: a row is all its values, and their lengths are a stream of their own
			dims = nil
		default:
			l.what = "a sequence of varying length in one of fixed length"
			return
		}
	}
	l.shape = append(dims, l.shape...)
}

// nested says that both sequences of a step vary.
func (l *leaf) nested() bool { return l.inner == 2 && l.fixed[0] < 0 && l.fixed[1] < 0 }

// settle names slots and checks that keys are unique.
func (s *schema) settle() {
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
			// "a.b" beside {a: {b}}: the path of the record is unique.
			l.key = l.name
		}
		seen[l.key] = true
		if l.what != "" {
			l.slot = -1
			// Its names are known all the same: they are not strangers in a record.
			for _, end := range []string{"", "/ragged_flat_values", "/ragged_row_lengths_0", "/ragged_row_lengths_1", "/shape", "/value"} {
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
		guard.Fail(
			robocache.Malformed(
				"rlds",
				robocache.Where{"file": featuresName},
				"there are no features",
			),
		)
	}
	s.counters = map[int]*leaf{}
	for i := range s.leaves {
		if l := &s.leaves[i]; l.counts() {
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
			Expected("a feature of steps that says how many there are: a number, a tensor of fixed shape or a text", "images or sequences alone"),
		)
	}
}

// counts says that a leaf's count gives the number of steps: numbers or texts of a fixed size, one
// a step.
func (l *leaf) counts() bool {
	return l.what == "" && l.step && !l.varies && l.inner == 0 && !l.optional &&
		l.coding != frame &&
		l.coding != floatPNG &&
		l.listed() > 0
}

// listKind is the list that a leaf's values are kept in.
func (l *leaf) listKind() listKind {
	switch {
	case l.coding != plain:
		return bytesList
	case l.dtype.Float():
		return floatList
	}
	return intList
}
