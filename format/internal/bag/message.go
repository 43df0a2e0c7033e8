package bag

import (
	"encoding/json"

	"github.com/goatnote-inc/robocache"
)

// Message returns the messages from which a stream is read. It returns nil for an unknown key and
// for the pseudo-feature "task".
func (d *Dataset) Message(key string) *robocache.MessageSource {
	i, ok := d.byKey[key]
	if !ok {
		return nil
	}
	t := d.topics[d.streams[i].topic]
	layout := t.dec.Layout()
	layout.Colour, layout.Masked = d.sourceColour(t), nil
	// A field is masked if some rows have no value. The dataset decides this, not the decoder: a
	// row of a latched topic keeps the last value, and messages that were not read during Open may
	// lack a value.
	for k := range d.streams {
		if d.topics[d.streams[k].topic] == t && d.About.Features[k].Masked {
			layout.Masked = append(layout.Masked, d.streams[k].field)
		}
	}
	if t.restored {
		layout.Feature = &d.About.Features[i]
	}
	text, err := json.Marshal(layout)
	if err != nil {
		return nil // the names in the feature of another dataset are not JSON
	}
	encoding, schema := t.dec.Schema().Source()
	return &robocache.MessageSource{
		Topic:          t.name,
		Type:           t.typ,
		Encoding:       "cdr",
		SchemaEncoding: encoding,
		Schema:         schema,
		Field:          t.fields[d.streams[i].field].Suffix,
		Clock:          t.clock,
		Latched:        t.latched,
		Layout:         text,
	}
}
