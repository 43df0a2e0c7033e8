package ros2

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/video"
)

// Layout is the state that a Topic learned from the messages of a recording, with the statements of
// the recording's reader. RestoreTopic makes the Topic again from its JSON, which is deterministic.
type Layout struct {
	// Learned depends on the type: names of joints and frames, the encoding and size of images, the
	// fields of clouds, lengths of arrays.
	Learned json.RawMessage `json:"learned,omitempty"`
	// Misfit reports that the first messages did not fit the schema. CheckSize then accepts every
	// message.
	Misfit bool `json:"misfit,omitempty"`
	// Masked lists the fields that have rows without a value.
	Masked []int `json:"masked,omitempty"`
	// Feature replaces the feature of the topic's only field, as in a recording that was written
	// from another dataset.
	Feature *robocache.Feature `json:"feature,omitempty"`
	// Colour holds the color properties of video that its packets do not contain.
	Colour *video.Colour `json:"colour,omitempty"`
}

// Layout returns the state that the topic has learned.
func (t *Topic) Layout() Layout {
	l := Layout{Misfit: t.misfit}
	if state := t.decoder.learnedState(); state != nil {
		l.Learned, _ = json.Marshal(state) // numbers and texts can always be marshaled
	}
	for k, f := range t.Fields() {
		if f.Feature.Masked {
			l.Masked = append(l.Masked, k)
		}
	}
	return l
}

// RestoreTopic returns a topic with the fields and clocks of a Layout in JSON. They do not change:
// Scan only finds the rows of a message, and all methods are safe for concurrent use. A message
// that does not fit the layout is ErrMalformed.
func RestoreTopic(topic string, s *Schema, layout json.RawMessage) (_ *Topic, err error) {
	defer robocache.Locate(&err, robocache.Where{"topic": topic, "schema": s.Name})
	l := &Layout{}
	if err := unmarshalLayout(layout, l); err != nil {
		return nil, err
	}
	t, err := restoreTopic(topic, s, l, true)
	if err != nil {
		return nil, err
	}
	return t, t.checkFields()
}

// Clone returns a topic with the columns that t has now. Scan changes only one of the topics.
func (t *Topic) Clone() (*Topic, error) {
	l := t.Layout()
	return restoreTopic(t.name, t.schema, &l, false)
}

// restoreTopic returns a topic with a learned state. If fixed is true, the topic does not change.
func restoreTopic(topic string, s *Schema, l *Layout, fixed bool) (_ *Topic, err error) {
	t := &Topic{name: topic, key: Key(topic), schema: s, misfit: l.Misfit}
	if t.head, err = newGeneric(s); err != nil {
		return nil, err
	}
	t.chooseDecoder()
	state := t.decoder.learnedState()
	if (state == nil) != (len(l.Learned) == 0) {
		return nil, robocache.Malformed("layout", nil, "the layout is not that of the type")
	}
	if state != nil {
		if err := unmarshalLayout(l.Learned, state); err != nil {
			return nil, err
		}
	}
	if err := t.decoder.restoreState(fixed); err != nil {
		return nil, err
	}
	if fixed {
		t.restored = l
	}
	t.updateLayout()
	return t, nil
}

// unmarshalLayout decodes a part of a layout. An unknown key is an error, because it may change the
// meaning of others.
func unmarshalLayout(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return jsonmeta.Explain("layout", b, d.Decode(v))
}

// restoreFields applies the layout of a restored topic to the fields.
func (t *Topic) restoreFields() {
	for k := range t.fields {
		t.fields[k].Feature.Masked = slices.Contains(t.restored.Masked, k)
	}
	if f := t.restored.Feature; f != nil && len(t.fields) > 0 {
		t.fields = []Field{{Feature: *f}}
	}
}

// checkFields checks the sizes of the rows of a restored topic.
func (t *Topic) checkFields() error {
	for k := range t.fields {
		f := &t.fields[k].Feature
		size := int64(max(1, f.DType.Size()))
		for i, n := range f.Shape {
			if n < 0 && (i > 0 || n < -1) || n > maxFixedBytes {
				return robocache.Malformed("layout", nil, "a shape of %v", f.Shape)
			}
			if size *= int64(max(1, n)); size > maxFixedBytes {
				return robocache.ResourceLimit("layout", nil, "a row of shape %v", f.Shape)
			}
		}
	}
	if t.restored.Feature == nil {
		return nil
	}
	fields, _ := t.decoder.streamLayout(t.key)
	if len(fields) == 0 {
		return robocache.Malformed("layout", nil, "a feature of a topic without streams")
	}
	own, stated := &fields[0].Feature, &t.fields[0].Feature
	if a, b := valueKind(own), valueKind(stated); a != b {
		return layoutError("feature", "a stream of kind "+string(a), string(b))
	}
	if a, b := own.RowBytes(), stated.RowBytes(); a != b && a > 0 && b > 0 {
		return layoutError("feature", strconv.Itoa(a)+" bytes a row", strconv.Itoa(b))
	}
	return nil
}

// valueKind returns the kind of a stream, and one kind for all whose values are decoded in the same
// way.
func valueKind(f *robocache.Feature) robocache.Kind {
	switch f.Kind {
	case robocache.KindPointCloud:
		return robocache.KindNumeric
	case robocache.KindEvent:
		return robocache.KindText
	}
	return f.Kind
}

// Stated returns the layout from which the topic was restored, or nil.
func (t *Topic) Stated() *Layout { return t.restored }

// CheckSize returns ErrMalformed if a message is not of the topic's type: it ends early, or has
// more than 3 further bytes.
func (t *Topic) CheckSize(msg []byte) error {
	if t.misfit {
		return nil
	}
	further, path := t.head.furtherBytes(msg)
	if further == 0 && path == "" {
		return nil
	}
	got := strconv.Itoa(len(msg)) + " bytes"
	if path != "" {
		got += " that end inside " + path
	} else {
		got += ", " + strconv.Itoa(further) + " behind its end"
	}
	return layoutError("", "a message of type "+t.schema.Name, got)
}

// ExplainMissing returns the error of a message without a value for a field that always has one.
func (t *Topic) ExplainMissing(msg []byte, field int) error {
	f := &t.fields[field].Feature
	if j, ok := t.decoder.(*joints); ok {
		var m jointMessage
		if err := j.parseJoints(msg, &m); err != nil {
			return err
		}
		return layoutError("name", "values of "+string(f.Names), m.describeNames())
	}
	want, got := "a value", "none"
	if _, n, err := t.decoder.appendRagged(msg, field, 0, nil); err == nil {
		want, got = strconv.Itoa(f.Elements())+" elements", strconv.Itoa(n)
	}
	return layoutError(strings.TrimPrefix(t.fields[field].Suffix, "."), want, got)
}

// layoutError returns the error of a message, or of a layout, that does not fit its topic.
func layoutError(field, want, got string) error {
	where := robocache.Where{}
	if field != "" {
		where["field"] = field
	}
	return robocache.Malformed("cdr", where, "").Expected(want, got)
}
