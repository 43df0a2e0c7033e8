package pqw

import (
	"reflect"

	"github.com/parquet-go/parquet-go"
)

// orderedGroup is a group whose fields keep their order. parquet.Group sorts fields by name.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

type groupField struct {
	parquet.Node
	name string
}

func (f groupField) Name() string { return f.name }
func (f groupField) Value(base reflect.Value) reflect.Value {
	return base.MapIndex(reflect.ValueOf(f.name))
}
func (g orderedGroup) Fields() []parquet.Field { return g.fields }

// Group returns a group with fields in the given order.
func Group(names []string, nodes []parquet.Node) parquet.Node {
	g := orderedGroup{Group: parquet.Group{}}
	for i, n := range names {
		g.Group[n] = nodes[i]
		g.fields = append(g.fields, groupField{nodes[i], n})
	}
	return g
}
