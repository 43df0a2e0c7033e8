package column

import "github.com/goatnote-inc/robocache"

// GeneratedKind describes a key that is available for any dataset on request. Its values are
// computed for each sample.
type GeneratedKind struct {
	Key   string
	DType robocache.DType // String: a text
	Shape []int           // of a sample; nil for a text
	fill  func(w *Reader, p *Part, c *Column) error
}

// GeneratedKinds lists all generated keys, in the order of a batch. A new kind is one file and one
// entry.
var GeneratedKinds = []GeneratedKind{episodeID, countIndex, countEpisode, countFrame}

// GeneratedKeys returns the keys of GeneratedKinds.
func GeneratedKeys() []string {
	keys := make([]string, len(GeneratedKinds))
	for i := range GeneratedKinds {
		keys[i] = GeneratedKinds[i].Key
	}
	return keys
}

// GeneratedColumn is the column of a generated key.
type GeneratedColumn struct {
	*Column
	kind *GeneratedKind
}

func (*GeneratedColumn) Waits(int) int { return 1 }

func (c *GeneratedColumn) Fill(w *Reader, p *Part) error { return c.kind.fill(w, p, c.Column) }

// NewColumn returns a column of the key. A number has a feature that no dataset declares; Default
// excludes it from options that select all streams.
func (g *GeneratedKind) NewColumn() *Column {
	c := &Column{Key: g.Key, Value: Value{OutDType: g.DType}}
	if g.DType != robocache.String {
		f := &robocache.Feature{
			Key:     g.Key,
			Kind:    robocache.KindNumeric,
			DType:   g.DType,
			Shape:   g.Shape,
			Default: true,
		}
		c.Feature, c.StoredDType = f, g.DType
		c.Elements, c.RowBytes = f.Elements(), f.RowBytes()
		c.SetDType(g.DType)
	}
	c.Kind = &GeneratedColumn{Column: c, kind: g}
	return c
}
