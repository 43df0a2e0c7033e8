package ros2

import (
	"errors"
	"strings"

	"github.com/goatnote-inc/robocache"
)

func key(topic string) string {
	return strings.ReplaceAll(strings.TrimPrefix(topic, "/"), "/", ".")
}

// fast makes the decoders that are written by hand, by the type's short name. One is taken where the schema is the known one (R5).
func fast(short string) decoder {
	if b, ok := blockTypes[short]; ok {
		return newBlock(short, b)
	}
	if d, ok := multiArrayElement(short); ok {
		return newMultiArray(short, d)
	}
	switch short {
	case "sensor_msgs/JointState":
		return &joints{}
	case "tf2_msgs/TFMessage":
		return newTransforms()
	case "sensor_msgs/Image":
		return &pic{}
	case "sensor_msgs/CompressedImage":
		return &compressed{}
	case foxgloveVideo:
		return &compressedVideo{}
	case "sensor_msgs/PointCloud2":
		return &cloud{}
	}
	return nil
}

func newTopic(topic string, s *Schema, first [][]byte) (*Topic, error) {
	t := &Topic{name: topic, key: key(topic), schema: s}
	where := robocache.Where{"topic": topic, "schema": s.Name}
	g, err := newGeneric(s)
	if err != nil {
		return nil, robocache.At(err, where)
	}
	// A recording whose schema is not that of its messages (an empty definition, another version) would give values that nobody wrote.
	if len(first) > 0 && !g.fits(first) {
		note := "its schema does not fit the messages: they are longer, or end early"
		if k, ok := KnownSchema(s.Name); ok && k.sign != s.sign {
			if kg, err := newGeneric(k); err == nil && kg.fits(first) {
				g, s, t.schema = kg, k, k
				note = "the schema in the recording does not fit the messages: the common type of that name does, and is taken"
			}
		}
		t.found = append(t.found, robocache.Finding{Severity: robocache.SeverityWarning, Code: "schema-does-not-fit", Where: robocache.Where{"topic": topic}, Message: topic + " (" + s.Name + "): " + note})
	}
	t.head, t.dec = g, g
	if d := fast(shortKey(s.Name)); d != nil {
		if k, ok := KnownSchema(s.Name); ok && k.sign == s.sign {
			t.dec = d
		}
	}
	// A damaged message is passed over here, and counted by who reads it; where all of them fail, it is the topic that is not readable.
	var failed error
	good := 0
	for k, msg := range first {
		if err := t.dec.scan(msg, nil); err != nil {
			if failed == nil || errors.Is(err, robocache.ErrUnsupported) {
				failed = robocache.At(err, robocache.Where{"index": k})
			}
			continue
		}
		good++
	}
	if failed != nil && (good == 0 || t.Codec() != "" && errors.Is(failed, robocache.ErrUnsupported)) {
		return nil, robocache.At(failed, where)
	}
	t.settle()
	return t, nil
}

// trailing is how many bytes may follow a message: padding.
const trailing = 3

// fits says whether messages are decoded to their ends.
func (g *generic) fits(msgs [][]byte) bool {
	s := g.sink()
	defer g.release(s)
	most := trailing
	if len(g.tree.nodes) == 0 {
		most++ // the byte that a structure without members has on the wire
	}
	for _, m := range msgs {
		c, err := open(m)
		if err != nil {
			return false
		}
		s.last = len(s.slot)
		s.walk(g.tree.nodes, &c, true)
		if c.short || c.left() > most {
			return false
		}
	}
	return true
}

// settle takes the streams as the decoder knows them, and gives them their keys and clocks.
func (t *Topic) settle() {
	t.fields, t.clocks = t.dec.layout(t.key)
	for k := range t.fields {
		f := &t.fields[k]
		f.Feature.Key = t.key + f.Suffix
		f.Feature.Clock = t.clocks[f.Clock]
	}
	t.stale = false
}

func (t *Topic) frameID(msg []byte) (string, error) {
	if !t.head.tree.header {
		return "", nil
	}
	c, err := open(msg)
	if err != nil {
		return "", err
	}
	_, frame := c.header()
	return strings.ToValidUTF8(string(frame), "\ufffd"), c.end("header")
}
